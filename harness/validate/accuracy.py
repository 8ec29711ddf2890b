"""The accuracy dimension: a variant runs on fresh data in guarded memory, and everything that it left there is judged.

Three runs. The first is judged on one set of data. The second is the same launch after other data was written into the
same memory, so that a result kept from the first run, or from binding, is wrong. The third is a new launch in new
memory, on the first data again: what a kernel kept between launches is wrong there. Where an input has to be finite,
three more runs have to report NaN and infinities put there.

Where a workload is so large that there is one set of data only (see cases), one run is judged, and those with NaN and
infinities.

In a process of its own the first trial has pages that trap right before its arrays, the last one right behind them.
Where such a page ends the process, each array is tried alone beside one, so that the verdict can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritmark.harness.record import Accuracy
from tritmark.harness.spec import Axes, Device, Op, Receipt, Variant
from tritmark.harness.validate.cases import Case, Cases, is_array
from tritmark.harness.validate.families import KINDS
from tritmark.harness.validate.guard_names import Complaint, Guard
from tritmark.harness.validate.guards import MEMORY_ALIGNMENT, layout_offset
from tritmark.harness.validate.placement import named
from tritmark.harness.validate.state import StateWatch
from tritmark.harness.validate.trial import GUARDS, ISOLATED, BrokenCandidateError, Setting, Tally, Trial
from tritmark.harness.worker.remote import SharedMemory
from tritmark.harness.worker.shared import Edge

NONFINITE_ROUNDS = 3
"""Runs on values that are not finite in each drawn case: the first of them at the first element, at the last, and
anywhere. One workload judged by itself gets every kind."""

_SMALL = 1 << 20
"""Bytes of inputs."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, the receipt of what ran (None where nothing did), and how long judging took."""

    accuracy: Accuracy
    receipt: Receipt | None
    seconds: float = 0.0
    """Of the process that judged, where many variants are judged by turns; 0 where whoever asked has a clock."""
    code: frozenset[str] = frozenset()
    """Files whose code its process had; see validate.borrowed."""


def misfit(variant: Variant, inputs: Mapping[str, Any], layout: str, device: Device | None = None) -> str | None:
    """Why a variant cannot be run on that layout, or None: its alignment is part of what it was registered with."""
    if device is not None and device.memory is not None and variant.alignment > MEMORY_ALIGNMENT:
        return (
            f"it needs arrays aligned to {variant.alignment} bytes, and the memory of {device.type} gives "
            f"{MEMORY_ALIGNMENT}"
        )
    for name, value in inputs.items():
        if is_array(value) and layout_offset(layout, value.itemsize) % variant.alignment:
            return f"it needs arrays aligned to {variant.alignment} bytes, and {name} is {layout}"
    return None


def judge(
    op: Op,
    variant: Variant,
    cases: Cases,
    axes: Axes,
    *,
    layout: str,
    threads: int,
    seed: int,
    device: Device | None = None,
) -> Judged:
    """Run `variant` on the cases and judge what it wrote, by the op's error family. `device` None: one that works in
    the host's memory.

    ERROR with the exception's text where the candidate raises; FAIL where an output is wrong or unwritten, memory
    around an array or an input changed, or the launch reports something else than what happened.
    """
    arrays = {name: value.itemsize for name, value in cases.first.inputs.items() if is_array(value)}
    arrays |= {each.name: each.values.itemsize for each in cases.first.expected}
    apart = frozenset(tensor.name for tensor in op.inputs if tensor.strided_rows) - variant.dense
    setting = Setting(op, variant, axes, named(layout, arrays, apart), threads, device)
    tally = Tally(op, guards=(*GUARDS, *ISOLATED) if isinstance(setting.memory, SharedMemory) else GUARDS)
    trial: Trial | None = None
    watch: StateWatch | None = None
    edge: Edge = "start" if cases.second is not None else "end"
    try:
        watch = StateWatch(getattr(setting.memory, "worker", None), threads)
        trial = Trial(setting, cases.first, seed, edge)
        trial.run(tally, cases.first)
        watch.begin()
        if cases.second is not None:
            if cases.in_place:
                trial.refill(cases.second)
            else:
                trial = trial.successor(tally, cases.second, seed + 1, edge)
            trial.run(tally, cases.second)
            edge = "end"
            trial = trial.successor(tally, cases.first, seed + 2, edge)
            trial.run(tally, cases.first)
        trial.run_nonfinite(tally, cases.first, KINDS if _small(cases.first) else NONFINITE_ROUNDS)
        for fault in watch.end():
            tally.complain(Guard.STATE, fault)
    except BrokenCandidateError as error:
        verdict = tally.verdict(ended(tally, error, trapped(setting, cases.first, seed, edge, error)))
    else:
        verdict = tally.verdict()
    if trial is not None:
        trial.testify(tally)
    return Judged(verdict, tally.evidence.receipt(variant), code=watch.code if watch is not None else frozenset())


def _small(case: Case) -> bool:
    """Whether a run costs little: what is not finite is looked for in small cases above all."""
    return bool(sum(value.nbytes for value in case.inputs.values() if is_array(value)) < _SMALL)


def ended(tally: Tally, error: BrokenCandidateError, cause: Complaint | None, where: str = "") -> Complaint:
    """How the candidate ended, with what a page that traps has to say of it; `where` is added to the words."""
    if cause is not None:
        tally.spoke.add(cause.guard)
    return Complaint(error.guard, f"{error}{f'; {cause}' if cause is not None else ''}{where}")


def trapped(setting: Setting, case: Case, seed: int, edge: Edge, error: BrokenCandidateError) -> Complaint | None:
    """If it was a page that traps that ended the candidate's process, or an input that it may only read: which arrays.

    A write that NumPy refuses is an exception like any other, so all are looked at.
    """
    if not isinstance(setting.memory, SharedMemory) or error.guard not in {Guard.CRASH, Guard.ERROR}:
        return None
    if not _survives(setting, case, seed, None, None, ""):
        return None
    inputs = [name for name, value in case.inputs.items() if is_array(value)]
    written = [name for name in inputs if not _survives(setting, case, seed, None, None, name)]
    if written:
        return Complaint(Guard.INPUTS, f"it runs only where it may write the input {' and '.join(written)}")
    names = [*inputs, *(each.name for each in case.expected)]
    found = [name for name in names if not _survives(setting, case, seed, edge, name, "")]
    where = "before the start" if edge == "start" else "past the end"
    return Complaint(Guard.PAGES, f"it reads or writes {where} of {' and '.join(found)}") if found else None


def _survives(setting: Setting, case: Case, seed: int, edge: Edge | None, only: str | None, frozen: str | None) -> bool:
    """Whether a run ends well with just that array beside a page that traps, and that input read-only (None: all,
    "": none)."""
    try:
        Trial(setting, case, seed, edge, only, frozen).run(Tally(setting.op), case)
    except BrokenCandidateError:
        return False
    return True
