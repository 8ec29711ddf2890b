"""The accuracy dimension: a variant runs on fresh data in guarded memory, and everything that it left there is judged.

Three runs. The first is judged on one set of data. The second is the same launch after other data was written into the same memory, so
that a result kept from the first run, or from binding, is wrong. The third is a new launch in new memory, on the first data again: what a
kernel kept between launches is wrong there. Where an input has to be finite, three more runs have to report NaN and infinities put there.

Where a workload is so large that there is one set of data only (see cases), one run is judged, and those with NaN and infinities.

In a process of its own the first trial has pages that trap right before its arrays, the last one right behind them. Where such a page ends
the process, each array is tried alone beside one, so that the verdict can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritmark.harness.errors import CandidateError, DeviceError, WorkerError
from tritmark.harness.record import Accuracy, Divergence, Status
from tritmark.harness.spec import Axes, Device, Launch, Memory, Op, Proof, Receipt, Values, Variant
from tritmark.harness.validate.cases import Case, Cases, is_array
from tritmark.harness.validate.compare import Expected, compare, is_float
from tritmark.harness.validate.evidence import Evidence
from tritmark.harness.validate.guards import ALIGNMENT, MEMORY_ALIGNMENT, Guarded, layout_offset
from tritmark.harness.validate.same import same
from tritmark.harness.validate.state import StateWatch
from tritmark.harness.worker.remote import SharedMemory
from tritmark.harness.worker.shared import Edge

GUARDS = ("poison", "zones", "inputs")
_ISOLATED = ("pages", "state")
"""Guards of a candidate with a process of its own."""

_ROW_GAP = 3
"""Elements between the rows of an unaligned array whose rows may lie apart: odd, so that rows are aligned to nothing."""

_MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and the receipt of what ran (None where nothing did)."""

    accuracy: Accuracy
    receipt: Receipt | None


def misfit(variant: Variant, inputs: Mapping[str, Any], layout: str, device: Device | None = None) -> str | None:
    """Why a variant cannot be run on that layout, or None: its alignment is part of what it was registered with."""
    if device is not None and device.memory is not None and variant.alignment > MEMORY_ALIGNMENT:
        return f"it needs arrays aligned to {variant.alignment} bytes, and the memory of {device.type} gives {MEMORY_ALIGNMENT}"
    for name, value in inputs.items():
        if is_array(value) and layout_offset(layout, value.itemsize) % variant.alignment:
            return f"it needs arrays aligned to {variant.alignment} bytes, and {name} is {layout}"
    return None


def judge(
    op: Op, variant: Variant, cases: Cases, axes: Axes, *, layout: str, threads: int, seed: int, device: Device | None = None
) -> Judged:
    """Run `variant` on the cases and judge what it wrote, by the op's error family. `device` None: one that works in the host's memory.

    ERROR with the exception's text where the candidate raises; FAIL where an output is wrong or unwritten, memory around an array or an
    input changed, or the launch reports something else than what happened.
    """
    setting = _Setting(op, variant, axes, layout, threads, device)
    tally = _Tally(op, guards=(*GUARDS, *_ISOLATED) if isinstance(setting.memory, SharedMemory) else GUARDS)
    trial: _Trial | None = None
    edge: Edge = "start" if cases.second is not None else "end"
    try:
        watch = StateWatch(getattr(setting.memory, "worker", None), threads)
        trial = _Trial(setting, cases.first, seed, edge)
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
        trial.run_nonfinite(tally, cases.first)
        for fault in watch.end():
            tally.complain(fault)
    except (CandidateError, WorkerError) as error:
        verdict = tally.verdict(Status.ERROR, str(error))
    except _CandidateError as error:
        verdict = tally.verdict(Status.ERROR, f"{error}{_trapped(setting, cases.first, seed, edge, error)}")
    else:
        verdict = tally.verdict()
    if trial is not None:
        trial.testify(tally)
    return Judged(verdict, tally.evidence.receipt(variant))


class _CandidateError(Exception):
    """The candidate raised, or its process died: the exception's type and text."""


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, CandidateError | WorkerError) else f"{type(error).__name__}: {error}"


def _trapped(setting: _Setting, case: Case, seed: int, edge: Edge, error: _CandidateError) -> str:
    """If it was a page that traps that ended the candidate's process, or an input that it may only read: which arrays, in words."""
    told = str(error)
    if not isinstance(setting.memory, SharedMemory) or not ("SIG" in told or "read-only" in told):
        return ""
    if not _survives(setting, case, seed, None, None, ""):
        return ""
    inputs = [name for name, value in case.inputs.items() if is_array(value)]
    written = [name for name in inputs if not _survives(setting, case, seed, None, None, name)]
    if written:
        return f"; guard inputs: it runs only where it may write the input {' and '.join(written)}"
    names = [*inputs, *(each.name for each in case.expected)]
    found = [name for name in names if not _survives(setting, case, seed, edge, name, "")]
    where = "before the start" if edge == "start" else "past the end"
    return f"; guard pages: it reads or writes {where} of {' and '.join(found)}" if found else ""


def _survives(setting: _Setting, case: Case, seed: int, edge: Edge | None, only: str | None, frozen: str | None) -> bool:
    """Whether a run ends well with just that array beside a page that traps, and that input read-only (None: all, "": none)."""
    try:
        _Trial(setting, case, seed, edge, only, frozen).run(_Tally(setting.op), case)
    except _CandidateError:
        return False
    return True


@dataclass
class _Tally:
    """What the runs of one variant add up to."""

    op: Op
    reasons: list[str] = field(default_factory=list)
    guards: tuple[str, ...] = GUARDS
    cases: int = 0
    elements: int = 0
    mismatches: int = 0
    largest_error: float = 0.0
    largest_ulp: float = 0.0
    first: Divergence | None = None
    unwritten: dict[str, Any] = field(default_factory=dict)
    """For each output the wrong elements that still held their poison in the last case, as flat indices."""
    evidence: Evidence = field(default_factory=Evidence)

    def add(self, expected: Expected, guarded: Guarded) -> None:
        result = compare(expected, guarded.array)
        self.elements += guarded.array.size
        self.mismatches += result.wrong.size
        self.largest_error = max(self.largest_error, result.largest_error)
        self.largest_ulp = max(self.largest_ulp, result.largest_ulp)
        self.first = self.first or result.first
        if result.first is not None:
            at = ", ".join(str(i) for i in result.first.index)
            self.complain(
                f"{expected.name}[{at}] is {result.first.found}, expected {result.first.expected}; "
                f"{result.wrong.size} of {guarded.array.size} elements are wrong in case {self.cases}"
            )
        if not result.wrong.size:
            return
        still = result.wrong[guarded.unwritten()[result.wrong]]
        never = np.intersect1d(still, self.unwritten.get(expected.name, ()))
        self.unwritten[expected.name] = still
        if never.size:
            self.complain(f"{never.size} elements of {expected.name} are never written, the first at flat index {int(never[0])}")

    def complain(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def verdict(self, status: Status | None = None, reason: str = "") -> Accuracy:
        reasons = ([reason] if reason else []) + self.reasons
        shown = "; ".join(reasons[:_MOST_REASONS]) + (f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else "")
        return Accuracy(
            status=status or (Status.FAIL if reasons else Status.PASS),
            reason=shown,
            family=self.op.family.value,
            cases=self.cases,
            elements=self.elements,
            mismatches=self.mismatches,
            largest_error=self.largest_error,
            largest_ulp=self.largest_ulp,
            guards=self.guards,
            first=self.first,
        )


@dataclass(frozen=True, slots=True)
class _Setting:
    """What all trials of one judgement share."""

    op: Op
    variant: Variant
    axes: Axes
    layout: str
    threads: int
    device: Device | None

    @property
    def memory(self) -> Memory | None:
        """The device's own, or None."""
        return self.device.memory() if self.device is not None and self.device.memory is not None else None

    def proof(self, launch: Launch) -> Proof | None:
        """What the device's launcher collected about a launch."""
        return None if self.device is None else self.device.proof(launch)


class _Trial:
    """Guarded memory for one launch, and the launch bound to it at its first run."""

    def __init__(
        self, setting: _Setting, case: Case, seed: int, edge: Edge | None = None, only: str | None = None, frozen: str | None = None
    ) -> None:
        """`edge` is the end of the arrays, or of the one named `only`, that lies at a page that traps, where there are such pages.
        `frozen` is the input that may only be read, None for all of them."""
        self._setting = setting
        self._edge, self._only, self._frozen = edge, only, frozen
        self._memory = setting.memory
        self._seed = [seed, 0]
        self._scalars = {name: value for name, value in case.inputs.items() if not is_array(value)}
        self._names = set(case.inputs)
        apart = {tensor.name for tensor in setting.op.inputs if tensor.rows_apart}
        try:
            self._inputs = {
                name: self._guard(name, value.shape, value.dtype, name in apart) for name, value in case.inputs.items() if is_array(value)
            }
            self._outputs = {e.name: self._guard(e.name, e.values.shape, e.values.dtype, False) for e in case.expected}
        except (DeviceError, CandidateError, WorkerError) as error:
            raise _CandidateError(_told(error)) from error
        self._launch: Launch | None = None
        self._runs = 0
        self.bad = -1
        """What the launch said about the last run."""
        self.refill(case)

    def _guard(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], apart: bool) -> Guarded:
        offset = layout_offset(self._setting.layout, dtype.itemsize)
        gap = _ROW_GAP * dtype.itemsize if apart and offset and len(shape) == 2 else 0
        self._seed[1] += 1
        seed = int(np.random.SeedSequence(self._seed).generate_state(1)[0])
        alignment = max(ALIGNMENT, self._setting.variant.alignment)
        edge = self._edge if self._only in {None, name} else None
        writable = name not in self._names if self._frozen is None else name != self._frozen
        return Guarded(
            shape, dtype, seed=seed, alignment=alignment, offset=offset, gap=gap, memory=self._memory, edge=edge, writable=writable
        )

    def testify(self, tally: _Tally) -> None:
        """Tell what the launch did in all its runs."""
        if self._launch is not None and self._runs:
            tally.evidence.add(self._launch, self._runs, self._setting.proof(self._launch))

    def successor(self, tally: _Tally, case: Case, seed: int, edge: Edge) -> _Trial:
        """A new trial in new memory; this one's goes back first, so that two of the largest need not fit."""
        self.testify(tally)
        self._launch = None
        self._inputs.clear()
        self._outputs.clear()
        return _Trial(self._setting, case, seed, edge)

    def refill(self, case: Case) -> None:
        """Write a case's data into the inputs."""
        for name, guarded in self._inputs.items():
            guarded.array[...] = case.inputs[name]

    def run(self, tally: _Tally, case: Case) -> None:
        """Run once on what stands in the inputs, and judge the outputs against the case and the memory against what was there."""
        tally.cases += 1
        for guarded in self._outputs.values():
            guarded.poison()
        self._run(tally)
        if self.bad >= 0:
            tally.complain(f"it reports element {self.bad} as not finite, and all are")
        for expected in case.expected:
            tally.add(expected, self._outputs[expected.name])
        for name, guarded in self._inputs.items():
            if not same(guarded.array, case.inputs[name]):
                tally.complain(f"the input {name} was changed")

    def run_nonfinite(self, tally: _Tally, case: Case) -> None:
        """Put NaN or infinity into each input that has to be finite, and see whether the launch tells where."""
        rng = np.random.default_rng(self._seed)
        for tensor in self._setting.op.inputs:
            if tensor.values is not Values.FINITE or tensor.name not in self._inputs:
                continue
            array = self._inputs[tensor.name].array
            if not is_float(array.dtype) or array.ndim != len(tensor.axes):
                continue
            tally.guards = (*tally.guards, "nonfinite") if "nonfinite" not in tally.guards else tally.guards
            last = array.size - 1
            inside = int(rng.integers(max(1, last)))
            # Each kind once as the first that is there; at the first element, the last, and two places.
            for places in ({inside: np.inf}, {last: -np.inf}, {inside: -np.inf, last: np.inf, 0: np.nan}):
                for at, value in places.items():
                    array.flat[at] = value
                self._run(tally)
                first = min(places)
                if self.bad != first:
                    tally.complain(f"{array.flat[first]} at index {first} of {tensor.name} is reported as at {self.bad}")
                array[...] = case.inputs[tensor.name]

    def _run(self, tally: _Tally) -> None:
        for guarded in (*self._inputs.values(), *self._outputs.values()):
            guarded.arm()
        try:
            for guarded in (*self._inputs.values(), *self._outputs.values()):
                guarded.push()
            self._call(tally)
            for guarded in (*self._inputs.values(), *self._outputs.values()):
                guarded.pull()
        except Exception as error:
            raise _CandidateError(_told(error)) from error
        for side in (self._inputs, self._outputs):
            for name, guarded in side.items():
                broken = guarded.broken()
                if broken:
                    tally.complain(f"it wrote outside {name}: {broken}")

    def _call(self, tally: _Tally) -> None:
        """All that calls the candidate's code."""
        setting = self._setting
        if self._launch is None:
            inputs = {name: guarded.handle for name, guarded in self._inputs.items()} | self._scalars
            outputs = {name: guarded.handle for name, guarded in self._outputs.items()}
            self._launch = setting.variant.bind(inputs, outputs, setting.axes, setting.threads)
        launch = self._launch
        before = launch.runs
        launch.run()
        if launch.runs > before:
            self._runs += 1
        else:
            tally.complain("it does not count its runs")
        if launch.ran != setting.variant.name:
            tally.complain(f"{launch.ran or 'nothing'} ran in place of {setting.variant.name}")
        if not 1 <= launch.threads_used <= setting.threads:
            tally.complain(f"it used {launch.threads_used} threads, and {setting.threads} were allowed")
        self.bad = launch.bad
