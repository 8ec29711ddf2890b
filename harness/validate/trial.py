"""One launch in guarded memory: its arrays, the checks after each run, and the sum of all runs of a variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import CandidateError, DeviceError, WorkerError
from tritmark.harness.record import Accuracy, Divergence, Status
from tritmark.harness.spec import Axes, Device, Launch, Memory, Op, Proof, ToleranceKind, Values, Variant
from tritmark.harness.text.units import counted
from tritmark.harness.validate.bitwise import same
from tritmark.harness.validate.cases import Case, is_array
from tritmark.harness.validate.compare import Expected, compare, is_float
from tritmark.harness.validate.evidence import LaunchEvidence
from tritmark.harness.validate.families import KINDS, forbidden
from tritmark.harness.validate.guard_names import Complaint, Guard, guard_of, in_order
from tritmark.harness.validate.guards import ALIGNMENT, GuardedArray
from tritmark.harness.validate.placement import Placement
from tritmark.harness.worker.remote import RemoteLaunch, RemoteMemory, SharedMemory
from tritmark.harness.worker.shared import Edge
from tritmark.harness.worker.tasks import RunReply

_BY_CHANCE = 4.0
"""Times the share of incorrect elements that equal random poison by chance."""
GUARDS = ("poison", "zones", "inputs")
ISOLATED = ("pages", "state")
"""Further guards for a candidate in its own process."""

_MOST_REASONS = 4
_MOST_KEPT = 32


class BrokenCandidateError(Exception):
    """The candidate raised an exception or its process ended: the text, and the guard that reports it."""

    def __init__(self, text: str, guard: Guard) -> None:
        self.guard = guard
        super().__init__(text)


def error_text(error: Exception) -> str:
    """The text of a candidate's exception."""
    return str(error) if isinstance(error, CandidateError | WorkerError) else f"{type(error).__name__}: {error}"


def broken(error: Exception) -> BrokenCandidateError:
    """Wrap an exception of a candidate as the one that ends a trial."""
    return BrokenCandidateError(error_text(error), guard_of(error))


@dataclass
class Tally:
    """Results of all runs of one variant."""

    op: Op
    reasons: list[str] = field(default_factory=list)
    spoke: set[Guard] = field(default_factory=set)
    """All guards that reported a fault."""
    complaints: int = 0
    """Number of faults. Only the first reasons are kept."""
    where: str = ""
    """Description of the case that is being judged."""
    guards: tuple[str, ...] = GUARDS
    cases: int = 0
    calls: int = 0
    """Runs that were judged, by every output or by the report of the launch."""
    elements: int = 0
    mismatches: int = 0
    largest_error: float = 0.0
    largest_ulp: float = 0.0
    first: Divergence | None = None
    bounded: bool = False
    """Whether outputs were judged by a bound."""
    unwritten: dict[str, Any] = field(default_factory=dict)
    """For each output, flat indices of the incorrect elements that still held their poison in the last case."""
    evidence: LaunchEvidence = field(default_factory=LaunchEvidence)

    def add(self, expected: Expected, guarded: GuardedArray, case: Case | None = None) -> None:
        """Judge one output of a call, on the inputs of `case`."""
        result = compare(expected, guarded.array)
        self.bounded |= expected.tolerance_kind is ToleranceKind.BOUNDED
        self.elements += guarded.array.size
        self.mismatches += result.wrong.size
        self.largest_error = max(self.largest_error, result.largest_error)
        self.largest_ulp = max(self.largest_ulp, result.largest_ulp)
        self.first = self.first or result.first
        if result.first is not None:
            at = ", ".join(str(i) for i in result.first.index)
            there = "" if case is None else _in_brackets(inputs_there(self.op, case, result.first))
            self.complain(
                Guard.VALUES,
                f"{expected.name}[{at}] is {result.first.found}, expected {result.first.expected}{there}; "
                f"{result.wrong.size} of {guarded.array.size} elements are incorrect in "
                f"{self.where or f'case {self.cases}'}",
            )
        if not result.wrong.size:
            return
        still = result.wrong[guarded.unwritten()[result.wrong]]
        never = np.intersect1d(still, self.unwritten.get(expected.name, ()))
        self.unwritten[expected.name] = still
        # A value that is incorrect twice equals the poison and its inverse now and then, if an element is one byte.
        if never.size > _BY_CHANCE * result.wrong.size / 256**expected.values.itemsize:
            self.complain(
                Guard.POISON,
                f"{never.size} elements of {expected.name} are never written, the first at flat index "
                f"{int(never[0])}; each call must write every element",
            )

    def complain(self, guard: Guard, reason: str) -> None:
        """Record a fault."""
        self.complaints += 1
        self.spoke.add(guard)
        if len(self.reasons) < _MOST_KEPT and reason not in self.reasons:
            self.reasons.append(reason)

    def verdict(self, ended: Complaint | None = None) -> Accuracy:
        """The verdict. ERROR if the candidate `ended` in that way."""
        reasons = ([ended.text] if ended is not None else []) + self.reasons
        shown = "; ".join(reasons[:_MOST_REASONS]) + (
            f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
        )
        return Accuracy(
            status=Status.ERROR if ended is not None else Status.FAIL if reasons else Status.PASS,
            reason=shown,
            caught_by=in_order(self.spoke | ({ended.guard} if ended is not None else set())),
            family=(ToleranceKind.BOUNDED if self.bounded else self.op.tolerance_kind).value,
            cases=self.cases,
            elements=self.elements,
            mismatches=self.mismatches,
            largest_error=self.largest_error,
            largest_ulp=self.largest_ulp,
            guards=self.guards,
            first=self.first,
        )


def inputs_there(op: Op, case: Case, first: Divergence) -> dict[str, str]:
    """The inputs that belong to one element of an output, by name and place: scalars, and arrays that have only axes of
    the output. Empty if there are none."""
    output = next((each for each in op.outputs if each.name == first.output), None)
    if output is None or len(output.axes) != len(first.index):
        return {}
    place = dict(zip(output.axes, first.index, strict=True))
    found = {}
    for tensor in op.inputs:
        value, given = (np.asarray(each.get(tensor.name)) for each in (case.logical, case.inputs))
        value = given if given.shape == value.shape else value  # in the dtype that the kernel reads
        at = tuple(place[axis] for axis in tensor.axes if axis in place)
        if len(at) == len(tensor.axes) == value.ndim and all(i < size for i, size in zip(at, value.shape, strict=True)):
            element = f"[{', '.join(map(str, at))}]" if at else ""
            found[f"{tensor.name}{element}"] = str(value[at])
    return found


def _in_brackets(found: Mapping[str, str]) -> str:
    return f" ({', '.join(f'{name} = {value}' for name, value in found.items())})" if found else ""


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings that all trials of one judgement share."""

    op: Op
    variant: Variant
    axes: Axes
    placement: Placement
    threads: int
    device: Device | None

    @property
    def memory(self) -> Memory | None:
        """The device's own memory, or None."""
        return self.device.memory() if self.device is not None and self.device.memory is not None else None

    def proof(self, launch: Launch) -> Proof | None:
        """Evidence that the device's launcher collected about a launch."""
        return None if self.device is None else self.device.proof(launch)


class Trial:
    """Guarded memory for one launch. The launch is bound at its first run."""

    def __init__(
        self,
        setting: Setting,
        case: Case,
        seed: int,
        edge: Edge | None = None,
        only: str | None = None,
        frozen: str | None = None,
    ) -> None:
        """`edge`: the end of the arrays, or of the one named `only`, that lies at a guard page, on systems that have
        them. `frozen`: the input that is read-only; None: all inputs."""
        self._setting = setting
        self._edge, self._only, self._frozen = edge, only, frozen
        self._memory = setting.memory
        self._seed = [seed, 0]
        self._scalars = {name: value for name, value in case.inputs.items() if not is_array(value)}
        self._names = set(case.inputs)
        try:
            self._inputs = {
                name: self._guard(name, value.shape, value.dtype)
                for name, value in case.inputs.items()
                if is_array(value)
            }
            self._outputs = {e.name: self._guard(e.name, e.values.shape, e.values.dtype) for e in case.expected}
        except (DeviceError, CandidateError, WorkerError) as error:
            raise broken(error) from error
        self._launch: Launch | None = None
        self._runs = 0
        self.bad = -1
        """Index of the non-finite element that the last run reported; -1: none."""
        self.refill(case)

    def _guard(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> GuardedArray:
        placement, least = self._setting.placement, self._setting.variant.alignment
        offset = placement.offset(name, dtype.itemsize, least)
        gap = placement.gap(name, dtype.itemsize, least) if len(shape) == 2 else 0
        self._seed[1] += 1
        edge = self._edge if self._only in {None, name} else None
        # The start of an array that ends at the page follows from its size, which must be a whole number of steps.
        span = gap * (shape[0] - 1) + math.prod(shape) * dtype.itemsize if shape else dtype.itemsize
        flush = placement.flush and span % max(least, dtype.itemsize) == 0
        return GuardedArray(
            shape,
            dtype,
            seed=sum(self._seed),
            alignment=max(ALIGNMENT, least),
            offset=offset,
            gap=gap,
            memory=self._memory,
            edge=edge,
            flush=flush,
            writable=name not in self._names if self._frozen is None else name != self._frozen,
        )

    @property
    def threads_used(self) -> int:
        """Threads that took part in the last run, as the launch reports; 1 before the first run."""
        return 1 if self._launch is None else self._launch.threads_used

    def testify(self, tally: Tally) -> None:
        """Add the evidence of all runs of the launch to the tally."""
        if self._launch is not None and self._runs:
            tally.evidence.add(self._launch, self._runs, self._setting.proof(self._launch))

    def successor(self, tally: Tally, case: Case, seed: int, edge: Edge) -> Trial:
        """A new trial in new memory. The memory of this trial is freed first, so that two of the largest need not
        fit."""
        self.testify(tally)
        self._launch = None
        self._inputs.clear()
        self._outputs.clear()
        return Trial(self._setting, case, seed, edge)

    def refill(self, case: Case) -> None:
        """Write a case's data into the inputs."""
        for name, guarded in self._inputs.items():
            guarded.array[...] = case.inputs[name]

    def run(self, tally: Tally, case: Case) -> None:
        """Run once on the current inputs. Judge the outputs against the case, and compare the memory around all arrays
        with its state before the run."""
        tally.cases += 1
        tally.calls += 1
        for guarded in self._outputs.values():
            guarded.poison()
        self._run(tally)
        if self.bad >= 0:
            tally.complain(Guard.NONFINITE, f"it reports element {self.bad} as not finite, but all elements are finite")
        for expected in case.expected:
            tally.add(expected, self._outputs[expected.name], case)
        for name, guarded in self._inputs.items():
            if not same(guarded.array, case.inputs[name]):
                tally.complain(Guard.INPUTS, f"the input {name} was changed; inputs are read-only")

    def written(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Copies of the bytes that the last run left in each output, without the gaps between rows."""
        return {
            name: np.array(guarded.array, order="C").reshape(-1).view(np.uint8)
            for name, guarded in self._outputs.items()
        }

    def run_nonfinite(self, tally: Tally, case: Case, rounds: int) -> None:
        """Write NaN and infinities into each input that must be finite, and check the index that the launch reports.

        Each round uses another kind, at the first element, the last, or any. Further ones may follow behind it.
        """
        setting = self._setting
        if not setting.variant.reports_nonfinite:
            return
        rng = np.random.default_rng(self._seed)
        for tensor in setting.op.inputs:
            if tensor.values is not Values.FINITE or tensor.name not in self._inputs:
                continue
            array = self._inputs[tensor.name].array
            if not is_float(array.dtype) or array.ndim != len(tensor.axes):
                continue
            tally.guards = (*tally.guards, "nonfinite") if "nonfinite" not in tally.guards else tally.guards
            kinds = rng.permutation(KINDS)
            for nth in range(rounds):
                first = (0, array.size - 1, int(rng.integers(array.size)))[nth % 3 if nth < 3 else 2]
                further = rng.integers(first, array.size, int(rng.integers(3)))
                for at, kind in (
                    (first, kinds[nth % KINDS]),
                    *((int(at), rng.integers(KINDS)) for at in further if at > first),
                ):
                    _set_bits(array, at, forbidden(array.dtype, int(kind)))
                put = array[np.unravel_index(first, array.shape)]
                self._run(tally)
                tally.calls += 1
                if self.bad != first:
                    shown = f"{put} (bits {forbidden(array.dtype, int(kinds[nth % KINDS])):#x})"
                    tally.complain(
                        Guard.NONFINITE,
                        f"{shown} at index {first} of {tensor.name} is reported as at {self.bad} (-1: none); report "
                        "the first element that is not finite",
                    )
                array[...] = case.inputs[tensor.name]

    def repeat(self, tally: Tally, case: Case, times: int) -> None:
        """Run `times` times on the current inputs, and judge the outputs of every run."""
        launch = self._launch
        if not isinstance(launch, RemoteLaunch) or not isinstance(self._memory, SharedMemory | RemoteMemory):
            for _ in range(times):
                self.run(tally, case)
                tally.cases -= 1
        elif times:
            self._run_many(tally, case, launch, self._memory.shared, times)

    def _run_many(self, tally: Tally, case: Case, launch: RemoteLaunch, shared: SharedMemory, times: int) -> None:
        """Run all as one message. The candidate's process copies aside the outputs of each run, and they are judged
        here."""
        for guarded in self._outputs.values():
            guarded.poison()
        sizes = {name: guarded.array.nbytes for name, guarded in self._outputs.items()}
        try:
            into = {name: shared.allocate(times * nbytes) for name, nbytes in sizes.items()}
            poison = {name: shared.allocate(nbytes) for name, nbytes in sizes.items()}
            for name, guarded in self._outputs.items():
                poison[name].bytes[...] = guarded.array.reshape(-1).view(np.uint8)
            before = launch.runs
            self._around(tally, lambda: self._count(tally, launch.run_many(times, into, poison), before))
        except (DeviceError, CandidateError, WorkerError) as error:
            raise broken(error) from error
        tally.calls += times
        for expected in case.expected:
            found = into[expected.name].bytes.view(expected.values.dtype).reshape(times, *expected.values.shape)
            self._judge_many(tally, expected, found)
        for name, guarded in self._inputs.items():
            if not same(guarded.array, case.inputs[name]):
                tally.complain(Guard.INPUTS, f"the input {name} was changed; inputs are read-only")

    def _count(self, tally: Tally, runs: Sequence[RunReply], before: int) -> None:
        for nth, ran in enumerate(runs):
            self._look(tally, ran, before + nth)
            if ran.bad >= 0:
                tally.complain(
                    Guard.NONFINITE, f"it reports element {ran.bad} as not finite, but all elements are finite"
                )

    @staticmethod
    def _judge_many(tally: Tally, expected: Expected, found: npt.NDArray[Any]) -> None:
        """Judge the outputs of several runs. An output with the same bits as the one before gets the same judgement."""
        tally.elements += found.size
        before: npt.NDArray[Any] | None = None
        for nth, output in enumerate(found):
            if before is not None and same(output, before):
                continue
            result = compare(expected, output)
            before = output
            tally.mismatches += result.wrong.size
            if result.first is not None:
                tally.first = tally.first or result.first
                at = ", ".join(str(i) for i in result.first.index)
                tally.complain(
                    Guard.VALUES,
                    f"{expected.name}[{at}] is {result.first.found}, expected {result.first.expected}, in repeated "
                    f"run {nth + 1} of {tally.where or 'the same launch'}",
                )

    def _run(self, tally: Tally) -> None:
        self._around(tally, lambda: self._call(tally))

    def _around(self, tally: Tally, call: Callable[[], None]) -> None:
        """Call the candidate on the current arrays, and check the memory around them."""
        arrays = (*self._inputs.values(), *self._outputs.values())
        for guarded in arrays:
            guarded.arm()
        try:
            if isinstance(self._memory, RemoteMemory):
                self._memory.write_all([guarded.mirrored for guarded in arrays])
                call()
                self._memory.read_all([guarded.mirrored for guarded in arrays])
            else:
                for guarded in arrays:
                    guarded.push()
                call()
                for guarded in arrays:
                    guarded.pull()
        except Exception as error:
            raise broken(error) from error
        for side in (self._inputs, self._outputs):
            for name, guarded in side.items():
                where = guarded.broken()
                if where:
                    tally.complain(Guard.ZONES, f"it wrote outside {name}: {where}")

    def _call(self, tally: Tally) -> None:
        setting = self._setting
        if self._launch is None:
            inputs = {name: guarded.handle for name, guarded in self._inputs.items()} | self._scalars
            outputs = {name: guarded.handle for name, guarded in self._outputs.items()}
            self._launch = setting.variant.bind(inputs, outputs, setting.axes, setting.threads)
        launch = self._launch
        before = launch.runs
        launch.run()
        self._look(tally, launch, before)
        self.bad = launch.bad

    def _look(self, tally: Tally, ran: Launch | RunReply, before: int) -> None:
        """Check the report of a run; `before` runs preceded it."""
        setting = self._setting
        if ran.runs > before:
            self._runs += 1
        else:
            tally.complain(Guard.RUNS, "its launch does not count its runs: `runs` must increase with each run")
        if ran.ran != setting.variant.name:
            tally.complain(Guard.NAME, f"{ran.ran or 'nothing'} ran in place of {setting.variant.name}")
        if not 1 <= ran.threads_used <= setting.threads:
            tally.complain(
                Guard.THREADS,
                f"it used {counted(ran.threads_used, 'thread')}, but at most {setting.threads} are allowed",
            )


def _set_bits(array: npt.NDArray[Any], at: int, bits: int) -> None:
    """Store a float by its bits: an assignment would quiet a signalling NaN."""
    words = array.view(f"u{array.dtype.itemsize}")
    words[np.unravel_index(at, array.shape)] = bits
