"""The performance dimension: how long a kernel takes, cold and hot, and how that compares with what this machine can do.

The least time for a workload is the longest of: bytes read over the read ceiling, bytes written over the write ceiling, operations over the
compute ceiling. The kernel is timed by turns with the probe of the one that takes longest, over as many bytes, as cold or as hot.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.measure.alternate import SHORTEST_NS, Alternation, Timed, alternate, calibrate
from tritmark.harness.measure.buffers import ALIGNMENT, HOST, Arena, Rotation, fill, memory_of, room_for, rotation
from tritmark.harness.measure.clocks import PythonClock, clock_for
from tritmark.harness.measure.others import Others, crowded
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, bootstrap_interval, median
from tritmark.harness.measure.stopping import AtLeast, First, Interval, Plateau, TimeLimit
from tritmark.harness.measure.survey import BYTES, COMPUTE_BYTES, Field, Roof, bind, survey
from tritmark.harness.record import Against, Footing, Performance, Status, Timing
from tritmark.harness.spec import Arrays, Axes, Device, Family, KernelKey, Launch, Op, Variant
from tritmark.harness.validate.evidence import Evidence
from tritmark.harness.validate.guards import layout_offset

LAYOUT_NOISE = 0.004
"""Where the linker puts a kernel moves its time by 0.1 to 0.4 %: no figure is better than that, so sampling for a finer one is waste."""

TELLING = 0.05
"""The difference that measurements here have to tell apart. A fraction whose 95 % interval is wider is ambiguous; a kernel that is further
under the physical floor does not do the work."""

_POISON = 0xA5
_PATIENCE = 4
_OVERHEAD_S = 0.02


@dataclass(frozen=True, slots=True)
class _Set:
    """One call's arrays."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    raw: dict[str, Any]
    """The outputs' bytes, flat."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """What limits a workload: the probe, how much of its work is needed, over how many bytes it goes, and whether they are cold."""

    roof: Roof
    need: int
    nbytes: int
    cold: bool

    @property
    def work(self) -> int:
        """What one call of the probe does."""
        return self.roof.ceiling.work(self.nbytes)

    @property
    def scale(self) -> float:
        """The needed work over the probe's."""
        return self.need / self.work

    def outrun(self, found: Alternation) -> bool:
        """Whether the kernel was faster than the fastest sample of the probe, by more than can be noise."""
        return median(found.a_ns) < (1 - TELLING) * self.scale * min(found.b_ns)


class Bench:
    """What the variants of one key share on one workload: copies of its inputs, memory for its outputs, and the probes' memory, all of it
    where the device's kernels find their arrays.

    `inputs` are encoded for the key's format; arrays are copied, everything else is shared. `layout` is the workload's. `budget_s` is how
    long each temperature is sampled, `turn` how much memory either side cycles through (None: as much as this machine needs). Drop the
    object to give the memory back.
    """

    def __init__(
        self,
        *,
        op: Op,
        key: KernelKey,
        inputs: Arrays,
        axes: Axes,
        device: Device,
        layout: str = "aligned",
        seed: int = 0,
        budget_s: float = 0.25,
        turn: Rotation | None = None,
    ) -> None:
        self._op, self._key, self._inputs, self._axes, self._device = op, key, inputs, axes, device
        self._layout = layout
        self._budget = budget_s
        self._rng = np.random.default_rng([seed, *key.op.encode()])
        self._traffic = op.traffic(axes, key)
        self._memory = memory_of(device)
        self._rotation = turn or rotation(self._memory)
        self.evidence = Evidence()
        """What the launches of the last `measure` told."""
        self._footprint = max(ALIGNMENT, self._traffic.read + self._traffic.written)

    def measure(self, variant: Variant, threads: int) -> Performance:
        """Time one variant of the key, cold and hot. Whatever the variant raises is passed on."""
        others = Others()
        self.evidence = Evidence()
        launches = [variant.bind(each.inputs, each.outputs, self._axes, threads) for each in self._sets]
        remarks: dict[Status, list[str]] = {status: [] for status in (Status.FAIL, Status.AMBIGUOUS, Status.PASS)}
        cold = None
        if self._cold:
            self._poison()
            order = [launches[index] for index in self._rng.permutation(len(launches))]
            cold = self._footing(Timed(order, clock_for(self._device, order)), threads, "cold", remarks)
            self._audit(launches, remarks)
        else:
            remarks[Status.PASS].append(f"no cold figure: {self._footprint} bytes are too few to cycle through {self._rotation.nbytes}")
        hot = self._footing(Timed(launches[:1], clock_for(self._device, launches[:1]), warm=True), threads, "hot", remarks)
        overhead = self._overhead(launches[0], hot.timing.median_ns)
        for launch in launches:
            self.evidence.add(launch, launch.runs, self._device.proof(launch))
        taken, cores, used = others.cores(), os.cpu_count() or 1, launches[0].threads_used
        # A device that measures its own time is not concerned.
        if self._memory is HOST and crowded(taken, used, cores, TELLING):
            remarks[Status.AMBIGUOUS].append(f"others took {taken:.1f} of {cores} cores meanwhile; the kernel has {used} threads")
        status = next((status for status, found in remarks.items() if found), Status.PASS)
        return Performance(
            status=status,
            reason="; ".join(reason for found in remarks.values() for reason in found),
            cold=cold,
            hot=hot,
            call_overhead_ns=overhead,
            read=self._traffic.read,
            written=self._traffic.written,
            operations=self._traffic.operations,
        )

    @cached_property
    def _like(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each output."""
        return {name: (shape, named_dtype(dtype)) for name, (shape, dtype) in self._op.outputs_like(self._axes, self._key).items()}

    @cached_property
    def _set_bytes(self) -> int:
        arrays = [(each.nbytes, each.dtype) for each in self._inputs.values() if _is_array(each)]
        arrays += [(prod(shape) * dtype.itemsize, dtype) for shape, dtype in self._like.values()]
        return sum(room_for(nbytes, dtype, self._offset(dtype), self._memory) for nbytes, dtype in arrays)

    @cached_property
    def _cold(self) -> bool:
        """Whether enough sets fit into the rotation, and not too many."""
        return self._rotation.sets_for(self._set_bytes) is not None

    @cached_property
    def _sets(self) -> list[_Set]:
        count = self._rotation.sets_for(self._set_bytes) or 1
        arena = Arena(count * self._set_bytes, self._memory)
        sets = []
        for _ in range(count):
            inputs = dict(self._inputs)
            for name, array in self._inputs.items():
                if _is_array(array):
                    inputs[name] = arena.take(array.shape, array.dtype, self._offset(array.dtype))
                    self._memory.write(inputs[name], np.ascontiguousarray(array))
            raw = {
                name: arena.take((prod(shape) * dtype.itemsize,), np.dtype(np.uint8), self._offset(dtype) * dtype.itemsize)
                for name, (shape, dtype) in self._like.items()
            }
            outputs = {name: self._memory.view(raw[name], 0, shape, dtype) for name, (shape, dtype) in self._like.items()}
            sets.append(_Set(inputs, outputs, raw))
        return sets

    @cached_property
    def _field(self) -> Field:
        return Field(self._footprint, self._rotation, self._memory)

    def _offset(self, dtype: np.dtype[Any]) -> int:
        """Elements past the alignment at which the layout has arrays begin."""
        return layout_offset(self._layout, dtype.itemsize) // dtype.itemsize

    def _nbytes(self, name: str) -> int:
        shape, dtype = self._like[name]
        return prod(shape) * dtype.itemsize

    def _poison(self) -> None:
        for each in self._sets:
            for name, raw in each.raw.items():
                fill(self._memory, raw, self._nbytes(name), _POISON)

    def _written(self, name: str, index: int) -> npt.NDArray[np.uint8]:
        """The bytes of one set's output."""
        found = np.empty(self._nbytes(name), np.uint8)
        self._memory.read(self._sets[index].raw[name], found)
        return found

    def _audit(self, launches: list[Launch], remarks: dict[Status, list[str]]) -> None:
        """A set at random must have been written, and where results are exact hold the same bits as another."""
        ran = [index for index, launch in enumerate(launches) if launch.runs]
        one, other = (int(index) for index in self._rng.choice(ran or [0], 2, replace=len(ran) < 2))
        for name in self._like:
            found = self._written(name, one)
            if (found == _POISON).all():
                remarks[Status.FAIL].append(f"a call of the timed loop did not write {name}")
            elif one != other and self._op.family is Family.EXACT and not np.array_equal(found, self._written(name, other)):
                remarks[Status.FAIL].append(f"two calls of the timed loop gave different {name} for the same inputs")

    def _limit(self, threads: int, cold: bool) -> _Limit:
        """The ceiling that takes longest for this workload."""
        found = survey(self._device)
        needs = {"read": self._traffic.read, "write": self._traffic.written, "compute": self._traffic.operations}
        limits = []
        for name, need in needs.items():
            if need:
                moves = found.unit(name) == BYTES
                nbytes = self._footprint if moves else COMPUTE_BYTES
                limits.append(
                    _Limit(found.roof(name, self._field, nbytes, threads=threads, cold=cold and moves), need, nbytes, cold and moves)
                )
        return max(limits, key=lambda limit: limit.need / limit.roof.rate)

    def _against(self, timed: Timed, threads: int, cold: bool) -> tuple[_Limit, Timed, Alternation]:
        """The kernel by turns with the probe that limits it."""
        limit = self._limit(threads, cold)
        roof = limit.roof
        probe = bind(roof.ceiling, self._device, self._field, limit.nbytes, threads=roof.threads, cold=limit.cold, rng=self._rng)
        calibrate(probe)
        calibrate(timed)
        stop = First(
            AtLeast(ENOUGH_SAMPLES, Interval(2 * LAYOUT_NOISE)),
            AtLeast(ENOUGH_SAMPLES, Plateau(LAYOUT_NOISE / 4)),
            AtLeast(LEAST_SAMPLES, TimeLimit(self._budget)),
            TimeLimit(_PATIENCE * self._budget),
        )
        return limit, probe, alternate(timed, probe, self._rng, stop)

    def _footing(self, timed: Timed, threads: int, temperature: str, remarks: dict[Status, list[str]]) -> Footing:
        cold = temperature == "cold"
        launches = timed.launches  # calibrating may leave out some
        before = sum(launch.runs for launch in launches)
        limit, probe, found = self._against(timed, threads, cold)
        if limit.outrun(found):
            # Others may have been busy when the probe was chosen.
            survey(self._device).forget(limit.roof.ceiling.name)
            limit, probe, found = self._against(timed, threads, cold)
        name = limit.roof.ceiling.name
        fraction = found.ratio(self._rng, scale=limit.scale)
        ran = sum(launch.runs for launch in launches) - before
        if ran != timed.made:
            remarks[Status.FAIL].append(f"{temperature}: {timed.made} calls were made and the code ran {ran} times")
        if fraction.pairs < LEAST_SAMPLES:
            remarks[Status.AMBIGUOUS].append(f"{temperature}: a call takes so long that only {fraction.pairs} pairs of samples were taken")
        elif fraction.high / fraction.low - 1 > TELLING:
            remarks[Status.AMBIGUOUS].append(
                f"{temperature}: too noisy, the fraction of the ceiling lies between {fraction.low:.3f} and {fraction.high:.3f}"
            )
        if limit.outrun(found):
            took = median(found.a_ns)
            most = survey(self._device).most(name, self._field, limit.nbytes, threads=threads, cold=limit.cold)
            floor = limit.need * 1e9 / most
            if took < (1 - TELLING) * floor:
                why = f"{took:.0f} ns a call is under the physical floor, {floor:.0f} ns of the fastest {name} probe"
                remarks[Status.FAIL].append(f"{temperature}: {why}")
            else:
                remarks[Status.AMBIGUOUS].append(
                    f"{temperature}: faster than the {name} probe, which others hold up, leaves less unwritten, or takes longer to start"
                )
        if cold and self._rotation.nbytes < self._rotation.wanted:
            remarks[Status.PASS].append(f"cold cycles through {self._rotation.nbytes} bytes of the {self._rotation.wanted} wanted")
        return Footing(
            timing=_timing(found, timed, self._rng),
            against=Against(
                ceiling=name,
                unit=limit.roof.ceiling.unit,
                rate=limit.work * 1e9 / median(found.b_ns),
                work=limit.need,
                fraction=fraction,
                probe_ns=found.b_ns,
                probe_work=limit.work,
            ),
            footprint=self._footprint,
            rotation=len(timed.launches) * self._set_bytes + (len(probe.launches) * limit.nbytes if limit.cold else 0),
        )

    def _overhead(self, launch: Launch, native_ns: float) -> float | None:
        """What the call through Python adds; None for a launch that only Python can call, or whose time would hide it."""
        if launch.pointer is None or native_ns > SHORTEST_NS:
            return None
        through, native = Timed([launch], PythonClock(), warm=True), Timed([launch], self._device.clock(), warm=True)
        calibrate(through)
        calibrate(native)
        found = alternate(through, native, self._rng, AtLeast(LEAST_SAMPLES, TimeLimit(_OVERHEAD_S)))
        return median([a - b for a, b in zip(found.a_ns, found.b_ns, strict=True)])


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _timing(found: Alternation, timed: Timed, rng: np.random.Generator) -> Timing:
    low, high = bootstrap_interval(found.a_ns, rng)
    q1, q3 = np.quantile(found.a_ns, (0.25, 0.75))
    return Timing(
        samples_ns=found.a_ns,
        calls_per_sample=timed.calls,
        median_ns=median(found.a_ns),
        q1_ns=float(q1),
        q3_ns=float(q3),
        low_ns=low,
        high_ns=high,
        stopped=found.stopped,
        clock=timed.clock.name,
        buffers=len(timed.launches),
    )
