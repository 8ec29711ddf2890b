"""Several threads are hardly faster than one."""

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
            name="percent of the ceiling with as many threads",
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
            edit=f"run {best.threads} of {run.threads} threads: more threads only wait for each other",
        )
    if evidence.memory_side and share >= BOUND:
        return None  # memory bandwidth limits: fewer threads may be as fast, but no thread count is faster
    found = gain(1.0, run.threads / last.speedup.median)
    if found is None:
        return None
    return Finding(
        evidence=facts,
        gain=found,
        edit=_edit(last) if run.receipt is None or run.receipt.threads > 1 else _alone(run.threads),
    )


def _edit(last: Scaled) -> str:
    """The edit for the largest of three losses, whose factors multiply to the efficiency: waiting for the slowest
    thread, idle threads, and threads that are busy for longer than one thread would be."""
    equal, once, apart = (
        "give each thread equal work: split the longest part",
        "start threads once for several calls, and shorten the work that one thread does alone",
        "keep the outputs of different threads on different cache lines, and reduce the data that several threads read",
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


def _alone(threads: int) -> str:
    return (
        f"it used one of {threads} threads: share the work among them, if a call takes longer than starting them "
        "(a kernel in C takes the argument threads)"
    )


RULE = Rule(
    name="thread-scaling",
    number=24,
    title="More threads are hardly faster",
    needs="the speed-up on 1, 2, ... threads (Run.scaling), on the host",
    explanation=f"""\
Condition: the upper end of S(n)/n is below {POOR}, S(n) the speed-up of n threads over one, interleaved.
If fewer threads are faster (beyond both 95 % intervals), the proposal is to use them, with the measured ratio as gain.
At {BOUND:.0%} or more of the read or write ceiling of as many threads, memory limits and there is no proposal.
A kernel that used one thread is to use more. Otherwise the loss is the start of threads, unequal work, or contention.
If the kernel uses the harness's threads, three factors with the product S(n)/n show which: balance (waiting for the
slowest thread), utilization / balance (idle threads), and S(n)/n / utilization (threads that are busy for longer than
one thread would be). The edit is for the least factor.
Formula: 1 to n/S(n). Thresholds {POOR} and {BOUND}: rules of thumb in the literature, not calibrated yet.""",
    judge=_judge,
)
