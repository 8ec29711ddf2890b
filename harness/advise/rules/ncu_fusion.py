"""Unfused floating-point operations."""

from __future__ import annotations

from tritmark.harness.advise import code_facts
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.interval import gain
from tritmark.harness.advise.rule import Finding, Rule

BASE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
ADD, MUL, FMA = BASE.format("fadd"), BASE.format("fmul"), BASE.format("ffma")
SHARE = 0.1
SM, BUSY = "sm__throughput.avg.pct_of_peak_sustained_elapsed", 60.0
EDIT = (
    "write a * b + c as fmaf if the op's contract permits other bits (the kernels here are compiled with "
    "-fmad=false, so that all devices agree)"
)


def _judge(evidence: Evidence) -> Finding | None:
    for function in code_facts.counted(evidence):
        add, mul, fma = (code_facts.counter(function, each) or 0.0 for each in (ADD, MUL, FMA))
        fusable, whole = min(add, mul), add + mul + fma
        if (
            not whole
            or fusable / whole < SHARE
            or code_facts.counter(function, SM) is None
            or (code_facts.counter(function, SM) or 0) < BUSY
        ):
            continue
        found = gain(1.0, whole / (whole - fusable))
        if found is not None:
            return Finding(
                evidence=(code_facts.of(function), *code_facts.counters(function, ADD, MUL, FMA)), gain=found, edit=EDIT
            )
    return None


RULE = Rule(
    name="ncu-fusion",
    number=39,
    title="Products and sums of floats are not fused",
    needs="a GPU, and a file of Nsight Compute (`--ncu FILE.csv`)",
    explanation=f"""\
Condition: additions and products that are not fused, with arithmetic at {BUSY:.0f} % of its peak or more.
Formula: old / new instructions, if each pair becomes one instruction.""",
    judge=_judge,
)
