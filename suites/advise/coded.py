"""Records made before compiled code was read or accesses were traced: the same kernels, compiled now for the
architecture that they ran on, and traced now in the simulator."""

from __future__ import annotations

from functools import cache

from tritmark.harness.disassembly import code_of
from tritmark.harness.judge.accesses import traced
from tritmark.harness.providers import load
from tritmark.harness.record import HOST, Code, Record, Run
from tritmark.harness.spec import KernelAccesses, Variant


def with_code(record: Record) -> Record:
    """The Record with `Run.code` where it had none: for a GPU of the capability that ran, without any GPU; for the
    host, what is installed.

    The code is today's, not that of the day: `score.py` says so where it uses it.
    """
    variants = {variant.id: variant for variant in load().registry.variants}
    capability = {f"sm_{major}{minor}" for major, minor in (gpu.capability for gpu in record.machine.gpus)}
    target = min(capability, default="")
    known: dict[str, Code | None] = {}

    def of(run: Run) -> Run:
        if (
            run.code is not None
            or run.performance.hot is None
            or run.kernel not in variants
            or (run.device != HOST and not target)
        ):
            return run
        if run.kernel not in known:
            known[run.kernel] = code_of(variants[run.kernel], None, "" if run.device == HOST else target)
        code, ran = known[run.kernel], set(run.receipt.functions) if run.receipt is not None else set()
        if code is not None and ran:
            code = code.model_copy(update={"functions": tuple(each for each in code.functions if each.name in ran)})
        return run.model_copy(update={"code": code})

    return record.model_copy(update={"runs": tuple(of(run) for run in record.runs)})


def with_accesses(record: Record) -> Record:
    """The Record with the access patterns of its kernels, if it had none. They are today's, too."""
    if record.accesses:
        return record
    variants = {variant.id: variant for variant in load().registry.variants}
    timed = dict.fromkeys(run.kernel for run in record.runs if run.performance.hot is not None and not run.peer)
    found = [_traced(variants[id]) for id in timed if id in variants]
    return record.model_copy(update={"accesses": tuple(each for each in found if each is not None)})


@cache
def _traced(variant: Variant) -> KernelAccesses | None:
    tracing = load().registry.devices[variant.key.device].tracing
    return None if tracing is None else traced(variant, tracing)
