"""A second thread on a core makes it slower."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact
from tritmark.harness.text import units


def _judge(evidence: Evidence) -> Finding | None:
    run, machine = evidence.run, evidence.machine
    by_threads = {each.threads: each.speedup for each in run.scaling}
    both, cores = by_threads.get(run.threads), by_threads.get(machine.physical_cores)
    if both is None or cores is None or run.threads <= machine.physical_cores or cores.low <= both.high:
        return None
    found = gain(cores.low / both.high, cores.high / both.low)
    if found is None:
        return None
    return Finding(
        evidence=(
            shared_facts.warm(evidence),
            Fact(
                name=f"speed-up of {machine.physical_cores} threads, one a core",
                value=units.times(cores),
                source="scaling",
            ),
            Fact(name=f"speed-up of {run.threads} threads", value=units.times(both), source="scaling"),
        ),
        gain=found,
        edit=f"run {machine.physical_cores} threads, each pinned to a core of its own (OMP_PLACES=cores, "
        "OMP_PROC_BIND=close)",
    )


RULE = Rule(
    name="smt",
    number=25,
    title="Two threads on a core are slower than one",
    needs="the speed-up at the number of physical cores and above it (Run.scaling), on a host with SMT",
    explanation="""\
Looks at the speed-up with a thread on each physical core and with more of them, by turns with one thread.
Formula: S(cores)/S(n), from both 95 % intervals, where they do not overlap. Kernels that keep the vector units busy
have nothing to gain from a second thread, which halves each one's caches. No threshold but the intervals.""",
    judge=_judge,
)
