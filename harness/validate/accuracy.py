"""The accuracy dimension: run a variant on fresh data in guarded memory, and judge everything that it left there.

Three runs:
1. One set of data.
2. The same launch on other data in the same memory: a result kept from the first run, or from binding, is incorrect.
3. A new launch in new memory on the first data: a result kept between launches is incorrect.

If an input must be finite, further runs must report NaN and infinities. A workload with one set of data only (see
cases) gets one run, and the runs with NaN and infinities.

In a process of its own, guard pages lie right before the arrays in the first trial, and right behind them in the last
one. If such a page ends the process, each array is tried alone beside one, so that the verdict can name it.
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
"""Runs with non-finite values in each drawn case: at the first element, the last, and any. A single workload that is
judged by itself gets every kind."""

_SMALL = 1 << 20
"""Bytes of inputs."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, the receipt of the runs (None if nothing ran), and the duration of the judgement."""

    accuracy: Accuracy
    receipt: Receipt | None
    seconds: float = 0.0
    """Seconds in the judging process, if it judges many variants interleaved; 0 if the caller measures the time."""
    code: frozenset[str] = frozenset()
    """Files whose code was mapped in its process; see validate.borrowed."""


def misfit(variant: Variant, inputs: Mapping[str, Any], layout: str, device: Device | None = None) -> str | None:
    """Why the variant cannot run on that layout, or None. Alignment is part of its registration."""
    if device is not None and device.memory is not None and variant.alignment > MEMORY_ALIGNMENT:
        return (
            f"it needs arrays aligned to {variant.alignment} bytes, but the memory of {device.type} aligns to "
            f"{MEMORY_ALIGNMENT}"
        )
    for name, value in inputs.items():
        if is_array(value) and layout_offset(layout, value.itemsize) % variant.alignment:
            return f"it needs arrays aligned to {variant.alignment} bytes, but {name} is {layout}"
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
    """Run `variant` on the cases and judge its outputs by the op's error family. `device` None: the kernel works in the
    host's memory.

    ERROR with the text of the exception if the candidate raises. FAIL if an output is incorrect or unwritten, if an
    input or memory around an array changed, or if the launch reports something that did not happen.
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
    """Whether a run is cheap: small cases get most of the runs with non-finite values."""
    return bool(sum(value.nbytes for value in case.inputs.values() if is_array(value)) < _SMALL)


def ended(tally: Tally, error: BrokenCandidateError, cause: Complaint | None, where: str = "") -> Complaint:
    """How the candidate ended, with the finding of a guard page. `where` is appended to the text."""
    if cause is not None:
        tally.spoke.add(cause.guard)
    return Complaint(error.guard, f"{error}{f'; {cause}' if cause is not None else ''}{where}")


def trapped(setting: Setting, case: Case, seed: int, edge: Edge, error: BrokenCandidateError) -> Complaint | None:
    """The arrays involved, if a guard page or a read-only input ended the candidate's process; else None.

    NumPy's refusal to write is an exception like any other, so all exceptions are examined.
    """
    if not isinstance(setting.memory, SharedMemory) or error.guard not in {Guard.CRASH, Guard.ERROR}:
        return None
    if not _survives(setting, case, seed, None, None, ""):
        return None
    inputs = [name for name, value in case.inputs.items() if is_array(value)]
    written = [name for name in inputs if not _survives(setting, case, seed, None, None, name)]
    if written:
        return Complaint(Guard.INPUTS, f"it writes the input {' and '.join(written)}; inputs are read-only")
    names = [*inputs, *(each.name for each in case.expected)]
    found = [name for name in names if not _survives(setting, case, seed, edge, name, "")]
    where = "before the start" if edge == "start" else "past the end"
    return Complaint(Guard.PAGES, f"it reads or writes {where} of {' and '.join(found)}") if found else None


def _survives(setting: Setting, case: Case, seed: int, edge: Edge | None, only: str | None, frozen: str | None) -> bool:
    """Whether a run succeeds with only that array beside a guard page, and with that input read-only (None: all, "":
    none)."""
    try:
        Trial(setting, case, seed, edge, only, frozen).run(Tally(setting.op), case)
    except BrokenCandidateError:
        return False
    return True
