"""Several threads bring little."""

from __future__ import annotations

from tritmark.harness.advise import shared_facts as told
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
    facts = (
        told.warm(evidence),
        Fact(name=f"speed-up S({run.threads}) over one thread", value=units.times(last.speedup), source="scaling"),
        Fact(
            name="of the ceiling with as many threads",
            value=units.percent(share),
            source="performance.hot.against.fraction",
        ),
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
        edit="give each thread equal work in one piece, start them once for several calls, and keep what they "
        "write on lines of their own",
    )


RULE = Rule(
    name="thread-scaling",
    number=24,
    title="More threads bring little",
    needs="the speed-up on 1, 2, ... threads (Run.scaling), on the host",
    explanation=f"""\
Looks at S(n)/n, the speed-up of n threads over one, by turns: where even its upper end is under {POOR} the threads
wait. Where fewer are faster (beyond both 95 % intervals) it says so, with the ratio. Else, at {BOUND:.0%} or more of
the reading or writing ceiling of as many threads, memory is shared and there is nothing to gain; under that it is the
start of threads, or unequal work.
Formula: 1 to n/S(n). {POOR} and {BOUND} are the rules of thumb of the literature: no Record held a speed-up yet by
which to calibrate them; the ledger will tell.""",
    judge=_judge,
)
