"""Runs one benchmark: binds BASE and HEAD, compares their outputs, and times them interleaved until the verdict is
certain."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from statistics import median
from typing import Any

import numpy as np

from tritmark.harness.gate.bound_kernel import BoundKernel
from tritmark.harness.gate.build_host import BuildHost
from tritmark.harness.gate.json_rpc import Stage
from tritmark.harness.gate.result import Benchmark, Outcome, kept
from tritmark.harness.gate.task import GateTask
from tritmark.harness.gate.verdict import GateLimits, decide
from tritmark.harness.measure.alternate import Interleaving

LONG_NS = 1_000_000
"""Calls of this time or more get LONGER times the budget: a sample is one call, and the noise changes within it."""
LONGER = 5
_NOISE = 0.25
"""Share of the budget for BASE against BASE."""


def gate(
    base: BuildHost,
    head: BuildHost,
    task: GateTask,
    limits: GateLimits,
    stage: Callable[[Stage], None],
    *,
    trust_code: bool = True,
    twin: BuildHost | None = None,
) -> Benchmark:
    """The verdict on one benchmark that both builds have.

    `twin`: BASE in a third process, if each build has a process of its own. `stage` is called before each step, so that
    the parent can report where a process died. `trust_code`: equal machine code is not measured.
    """
    stage(Stage.RUNNING_BASE)
    try:
        first = base.bind(task)
        own = first.outputs()
    except Exception as error:
        return benchmark(task, Outcome.NOT_RUN, f"BASE cannot run it: {_error_text(error)}")
    stage(Stage.RUNNING_HEAD)
    try:
        second = head.bind(task, first)
        other = second.outputs()
    except Exception as error:
        return benchmark(task, Outcome.ERROR, f"HEAD cannot run it and BASE can: {_error_text(error)}")
    code = {side: kernel.code for side, kernel in (("base", first), ("head", second)) if kernel.code}
    stage(Stage.COMPARING)
    wrong, where = base.judge(task, first, own, other)
    if wrong:
        return benchmark(task, Outcome.DIFFERS, f"HEAD: {wrong}", code=code, first=where)
    if trust_code and first.code and first.code == second.code:
        return benchmark(task, Outcome.SAME, "identical machine code", code=code, identical=True)
    stage(Stage.MEASURING_BASE)
    call_ns = first.calibrate()
    stage(Stage.MEASURING_HEAD)
    second.calibrate()
    third = first.again() if twin is None else twin.bind(task, first)
    # The same number of calls for all, so that a sample's fixed cost weighs the same.
    for kernel in (second, third):
        kernel.take(first.calls)
    stage(Stage.MEASURING)
    return _measured(task, first, second, third, longer(limits, call_ns), code)


def _measured(
    task: GateTask, base: BoundKernel, head: BoundKernel, again: BoundKernel, limits: GateLimits, code: dict[str, str]
) -> Benchmark:
    rng = np.random.default_rng()
    noise = Interleaving(base, again, rng)
    check = decide(noise.pairs, GateLimits(limits.seconds * _NOISE, limits.dead, limits.false))
    turns = Interleaving(base, head, rng)
    found = decide(turns.pairs, limits, noise.logs)
    outcome, reason = found.verdict, found.reason
    if outcome in {Outcome.SLOWER, Outcome.FASTER} and check.verdict in {Outcome.SLOWER, Outcome.FASTER}:
        text = f"BASE against itself measures {check.verdict.value} too ({check.ratio.median:.3f})"
        # Placement of arrays, for example. Only a change larger than this bias is claimed.
        if not found.beyond(max(abs(log(check.ratio.low)), abs(log(check.ratio.high))), limits):
            outcome = Outcome.AMBIGUOUS
        reason = f"{reason}; but {text}" if outcome is Outcome.AMBIGUOUS else f"{reason}; {text}, but by less"
    return benchmark(
        task,
        outcome,
        reason,
        code=code,
        ratio=found.ratio,
        smallest=found.smallest,
        base_ns=median(turns.a_ns),
        head_ns=median(turns.b_ns),
        calls=base.calls,
        clock=base.clock,
        seconds=found.seconds + check.seconds,
        logs=kept(turns.logs),
        noise=kept(noise.logs),
    )


def longer(limits: GateLimits, call_ns: float) -> GateLimits:
    """The limits for calls of `call_ns` nanoseconds."""
    return limits if call_ns < LONG_NS else GateLimits(limits.seconds * LONGER, limits.dead, limits.false)


def benchmark(task: GateTask, outcome: Outcome, reason: str, **further: Any) -> Benchmark:
    """A Benchmark of the task with an outcome, a reason and further fields."""
    names = ("op", "format", "dtype", "device", "variant", "axes", "family", "layout", "threads", "title")
    return Benchmark(
        id=task.id, **{name: getattr(task, name) for name in names}, outcome=outcome, reason=reason, **further
    )


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
