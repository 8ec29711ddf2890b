"""A second thread per core is slower."""

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
                name=f"speed-up of {machine.physical_cores} threads, one per core",
                value=units.times(cores),
                source="scaling",
            ),
            Fact(name=f"speed-up of {run.threads} threads", value=units.times(both), source="scaling"),
        ),
        gain=found,
        edit=f"run {machine.physical_cores} threads, each pinned to its own core (OMP_PLACES=cores, "
        "OMP_PROC_BIND=close)",
    )


RULE = Rule(
    name="smt",
    number=25,
    title="Two threads per core are slower than one",
    needs="the speed-up on all physical cores and with more threads (Run.scaling), on a host with SMT",
    explanation="""\
Condition: the speed-up with one thread per physical core is higher than with more threads, and the 95 % intervals do
not overlap. Both are interleaved with one thread.
Formula: S(cores)/S(n), from both intervals. A kernel that keeps the vector units busy gains nothing from a second
thread per core, which halves the cache of each thread.""",
    judge=_judge,
)
