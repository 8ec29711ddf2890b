"""Several threads bring little."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule
from tritmark.harness.record import Fact, Ratio, Scaled
from tritmark.harness.text import units

POOR = 0.7
BOUND = 0.85

_ONE = Scaled(threads=1, speedup=Ratio(median=1, low=1, high=1, pairs=0))


def _judge(evidence: Evidence) -> Finding | None:
    run, scaling, hot = evidence.run, evidence.run.scaling, evidence.run.performance.hot
    last = next((each for each in scaling if each.threads == run.threads), None)
    assert hot is not None
    if last is None or run.threads < 2 or last.speedup.high / run.threads >= POOR:
        return None
    share = hot.against.fraction.median
    facts: tuple[Fact, ...] = (
        shared_facts.warm(evidence),
        Fact(name=f"speed-up S({run.threads}) over one thread", value=units.times(last.speedup), source="scaling"),
        Fact(
            name="of the ceiling with as many threads",
            value=units.percent(share),
            source="performance.hot.against.fraction",
        ),
    )
    facts += tuple(
        Fact(name=name, value=units.percent(share), source=f"scaling.{name}")
        for name, share in (("balance", last.balance), ("utilization", last.utilization))
        if share is not None
    )
    best = max((_ONE, *scaling), key=lambda each: each.speedup.low)
    if best.threads < run.threads and best.speedup.low > last.speedup.high:
        found = gain(best.speedup.low / last.speedup.high, best.speedup.high / last.speedup.low)
        if found is None:
            return None
        return Finding(
            evidence=facts,
            gain=found,
            edit=f"run {best.threads} of {run.threads} threads: more only wait for each other",
        )
    if evidence.memory_side and share >= BOUND:
        return None  # the threads share what memory gives: fewer of them are as fast, and none is faster
    found = gain(1.0, run.threads / last.speedup.median)
    if found is None:
        return None
    return Finding(
        evidence=facts,
        gain=found,
        edit=_edit(last),
    )


def _edit(last: Scaled) -> str:
    """What to do about the largest of three losses, whose factors make the efficiency: threads that wait for the
    slowest, threads that have nothing to do, threads that are busy for longer than one would be."""
    equal, once, apart = (
        "give each thread equal work: cut the longest piece",
        "start threads once for several calls, and shorten what one thread does alone",
        "keep what threads write on lines of their own, and have them read less of the same",
    )
    if last.utilization is None:
        return f"{equal}; {once}; {apart}"
    balance = 1.0 if last.balance is None else last.balance
    factors = {
        equal: balance,
        once: last.utilization / balance,
        apart: last.speedup.median / last.threads / last.utilization,
    }
    return min(factors, key=factors.__getitem__)


RULE = Rule(
    name="thread-scaling",
    number=24,
    title="More threads bring little",
    needs="the speed-up on 1, 2, ... threads (Run.scaling), on the host",
    explanation=f"""\
Looks at S(n)/n, the speed-up of n threads over one, by turns: where even its upper end is under {POOR} the threads
wait. Where fewer are faster (beyond both 95 % intervals) it says so, with the ratio. Else, at {BOUND:.0%} or more of
the reading or writing ceiling of as many threads, memory is shared and there is nothing to gain; under that it is the
start of threads, unequal work, or threads that are in each other's way. Where the kernel's threads are the harness's
own, three factors tell which, for their product is S(n)/n: the balance (the mean of the threads' busy times over the
largest; what it lacks of 1 they wait for the slowest), the utilization over the balance (what it lacks, they have
nothing to do), and S(n)/n over the utilization (what it lacks, they are busy for longer than one thread would be). The
edit is that of the least.
Formula: 1 to n/S(n). {POOR} and {BOUND} are the rules of thumb of the literature: no Record held a speed-up yet by
which to calibrate them; the ledger will tell.""",
    judge=_judge,
)
