"""The accuracy dimension: a variant runs on fresh data in guarded memory, and everything that it left there is judged.

Three runs. The first is judged on one set of data. The second is the same launch after other data was written into the same memory, so
that a result kept from the first run, or from binding, is wrong. The third is a new launch in new memory, on the first data again: what a
kernel kept between launches is wrong there. Where an input has to be finite, a fourth run has to report a NaN or infinity put there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritmark.harness.record import Accuracy, Divergence, Status
from tritmark.harness.spec import Axes, Launch, Op, Receipt, Values, Variant
from tritmark.harness.validate.cases import Case, Cases, is_array
from tritmark.harness.validate.compare import Expected, compare, is_float
from tritmark.harness.validate.guards import ALIGNMENT, Guarded, bits, layout_offset

GUARDS = ("poison", "zones", "inputs")

_ROW_GAP = 3
"""Elements between the rows of an unaligned array whose rows may lie apart: odd, so that rows are aligned to nothing."""

_MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and the receipt of what ran (None where nothing did)."""

    accuracy: Accuracy
    receipt: Receipt | None


def misfit(variant: Variant, inputs: Mapping[str, Any], layout: str) -> str | None:
    """Why a variant cannot be run on that layout, or None: its alignment is part of what it was registered with."""
    for name, value in inputs.items():
        if is_array(value) and layout_offset(layout, value.itemsize) % variant.alignment:
            return f"it needs arrays aligned to {variant.alignment} bytes, and {name} is {layout}"
    return None


def judge(op: Op, variant: Variant, cases: Cases, axes: Axes, *, layout: str, threads: int, seed: int) -> Judged:
    """Run `variant` on both cases and judge what it wrote, by the op's error family.

    ERROR with the exception's text where the candidate raises; FAIL where an output is wrong or unwritten, memory around an array or an
    input changed, or the launch reports something else than what happened.
    """
    tally = _Tally(op)
    trial = _Trial(op, variant, cases.first, axes, layout, threads, seed)
    try:
        trial.run(tally, cases.first)
        if cases.in_place:
            trial.refill(cases.second)
        else:
            trial = _Trial(op, variant, cases.second, axes, layout, threads, seed + 1)
        trial.run(tally, cases.second)
        trial = _Trial(op, variant, cases.first, axes, layout, threads, seed + 2)
        trial.run(tally, cases.first)
        trial.run_nonfinite(tally, cases.first)
    except _CandidateError as error:
        return Judged(tally.verdict(Status.ERROR, str(error)), tally.receipt(variant))
    return Judged(tally.verdict(), tally.receipt(variant))


class _CandidateError(Exception):
    """The candidate raised: its exception's type and text."""


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
    runs: int = 0
    ran: str = ""
    threads: int = 0

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

    def count(self, launch: Launch) -> None:
        """Take notice of a run that happened."""
        self.runs += 1
        self.ran, self.threads = launch.ran, launch.threads_used

    def receipt(self, variant: Variant) -> Receipt | None:
        """What the launches said about themselves; None where nothing ran."""
        return Receipt(kernel=variant.id, ran=self.ran, runs=self.runs, threads=self.threads) if self.runs else None

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


class _Trial:
    """Guarded memory for one launch, and the launch bound to it at its first run."""

    def __init__(self, op: Op, variant: Variant, case: Case, axes: Axes, layout: str, threads: int, seed: int) -> None:
        self._op = op
        self._variant = variant
        self._axes = axes
        self._threads = threads
        self._alignment = max(ALIGNMENT, variant.alignment)
        self._seed = [seed, 0]
        self._scalars = {name: value for name, value in case.inputs.items() if not is_array(value)}
        apart = {tensor.name for tensor in op.inputs if tensor.rows_apart}
        self._inputs = {
            name: self._guard(value.shape, value.dtype, layout, name in apart) for name, value in case.inputs.items() if is_array(value)
        }
        self._outputs = {e.name: self._guard(e.values.shape, e.values.dtype, layout, False) for e in case.expected}
        self._launch: Launch | None = None
        self.bad = -1
        """What the launch said about the last run."""
        self.refill(case)

    def _guard(self, shape: tuple[int, ...], dtype: np.dtype[Any], layout: str, apart: bool) -> Guarded:
        offset = layout_offset(layout, dtype.itemsize)
        gap = _ROW_GAP * dtype.itemsize if apart and offset and len(shape) == 2 else 0
        self._seed[1] += 1
        seed = int(np.random.SeedSequence(self._seed).generate_state(1)[0])
        return Guarded(shape, dtype, seed=seed, alignment=self._alignment, offset=offset, gap=gap)

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
            if not np.array_equal(bits(guarded.array), bits(case.inputs[name])):
                tally.complain(f"the input {name} was changed")

    def run_nonfinite(self, tally: _Tally, case: Case) -> None:
        """Put NaN or infinity into each input that has to be finite, and see whether the launch tells where."""
        rng = np.random.default_rng(self._seed)
        for tensor in self._op.inputs:
            if tensor.values is not Values.FINITE or tensor.name not in self._inputs:
                continue
            array = self._inputs[tensor.name].array
            if not is_float(array.dtype) or array.ndim != len(tensor.axes):
                continue
            tally.guards = (*GUARDS, "nonfinite")
            at = int(rng.integers(array.size))
            array.flat[at] = rng.choice([np.nan, np.inf, -np.inf])
            self._run(tally)
            if self.bad != at:
                tally.complain(f"{array.flat[at]} at index {at} of {tensor.name} is reported as at {self.bad}")
            array[...] = case.inputs[tensor.name]

    def _run(self, tally: _Tally) -> None:
        for guarded in (*self._inputs.values(), *self._outputs.values()):
            guarded.arm()
        try:
            self._call(tally)
        except Exception as error:
            raise _CandidateError(f"{type(error).__name__}: {error}") from error
        for side in (self._inputs, self._outputs):
            for name, guarded in side.items():
                broken = guarded.broken()
                if broken:
                    tally.complain(f"it wrote outside {name}: {broken}")

    def _call(self, tally: _Tally) -> None:
        """All that calls the candidate's code."""
        if self._launch is None:
            inputs = {name: guarded.array for name, guarded in self._inputs.items()} | self._scalars
            outputs = {name: guarded.array for name, guarded in self._outputs.items()}
            self._launch = self._variant.bind(inputs, outputs, self._axes, self._threads)
        launch = self._launch
        before = launch.runs
        launch.run()
        if launch.runs > before:
            tally.count(launch)
        else:
            tally.complain("it does not count its runs")
        if launch.ran != self._variant.name:
            tally.complain(f"{launch.ran or 'nothing'} ran in place of {self._variant.name}")
        if not 1 <= launch.threads_used <= self._threads:
            tally.complain(f"it used {launch.threads_used} threads, and {self._threads} were allowed")
        self.bad = launch.bad
