"""Uneven multiprocessors or L2 slices."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

PAIRS = (("sm__cycles_active.avg", "sm__cycles_active.max"), ("lts__cycles_active.avg", "lts__cycles_active.max"))
SHARE = 0.1
EDIT = (
    "distribute the work evenly: tiles of equal work, as many blocks as fit the multiprocessors, addresses that do "
    "not repeat every few KiB"
)


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        pairs = [
            (code_facts.counter(function, mean) or 0.0, code_facts.counter(function, most) or 0.0, (mean, most))
            for mean, most in PAIRS
        ]
        pairs = [each for each in pairs if each[0] and each[1]]
        worst = min(pairs, key=lambda each: each[0] / each[1], default=None)
        if worst is None or 1 - worst[0] / worst[1] < SHARE:
            continue
        found = gain(1.0, worst[1] / worst[0])
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, *worst[2])), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-imbalance",
    number=38,
    title="Some multiprocessors or L2 slices work longer than others",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: p = 1 - mean / maximum of the active cycles is {SHARE} or more, over multiprocessors or over L2 slices.
Formula: 1 to 1 / (1 - p).""",
    judge=_judge,
)
