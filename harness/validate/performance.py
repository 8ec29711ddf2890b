"""The performance dimension: the time of a kernel, cold and hot, compared with the ceilings of this machine.

The least time of a workload is the maximum of bytes read / read ceiling, bytes written / write ceiling, and operations
/ compute ceiling. The kernel is timed interleaved with the probe of the largest one, over the same number of bytes, at
the same temperature.

Bench runs in the kernel's process. The kernel could forge its findings. `audited` and `lap` serve the process that has
the expected values and its own clock (see confirm).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tritmark.harness.machine.memory import rss_bytes
from tritmark.harness.measure.alternate import SHORTEST_NS, Alternation, Timed, alternate, calibrate
from tritmark.harness.measure.buffers import ALIGNMENT, HOST, Rotation, memory_of, rotation
from tritmark.harness.measure.clocks import PythonClock, clock_for, own_clock
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, Plateau, TimeLimit
from tritmark.harness.measure.survey import Field, bind, compute_bytes, survey
from tritmark.harness.record import Measurement, Performance, Status
from tritmark.harness.spec import Arrays, Axes, Device, KernelKey, Launch, Op, Variant
from tritmark.harness.text.units import counted
from tritmark.harness.validate.audit import Audited, AuditedOutputs, AuditedPiece, Auditor, late, tasks
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.ceiling import LAYOUT_NOISE, TELLING, Limit, compared, limit_of
from tritmark.harness.validate.evidence import LaunchEvidence
from tritmark.harness.validate.guard_names import Complaint, Guard, in_order
from tritmark.harness.validate.pieces import Pieces
from tritmark.harness.validate.sets import Sets

PAIRS = 100
"""Number of pairs after which an interval of TELLING suffices. Each further pair adds 28 bytes to a Record, and finer
claims belong to the gate."""

DIGITS = 4
"""Significant digits of stored samples."""

THROUGH_PYTHON = "its times include the cost of each call through Python: the device's clock cannot call its code"
"""Limit of a performance verdict for a kernel that the device's own clock cannot call."""

_PATIENCE = 8
_OVERHEAD_S = 0.01


class Bench:
    """Data that the variants of one key share on one workload: copies of its inputs, memory for its outputs, and the
    memory of the probes, all where the device's kernels expect their arrays.

    - `inputs`: encoded for the key's format. Arrays are copied, everything else is shared.
    - `fresh`: other inputs of the same shapes and scalars, which audits write; None: none.
    - `pieces`: parts of them that are exchanged before samples.
    - `layout`: of the workload.
    - `budget_s`: sampling time of each temperature in seconds.
    - `turn`: memory that either side cycles through; None: as much as this machine needs.

    Drop the object to free the memory.
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
        budget_s: float,
        turn: Rotation | None = None,
        fresh: Arrays | None = None,
        pieces: Pieces | None = None,
    ) -> None:
        self._op, self._key, self._axes, self._device = op, key, axes, device
        self._cases = (inputs,) if fresh is None else (inputs, fresh)
        self._pieces = pieces if pieces is not None and fresh is not None else Pieces()
        self._layout = layout
        self._budget = budget_s
        self._rng = np.random.default_rng([seed, *key.op.encode()])
        self._traffic = op.traffic(axes, key)
        self._memory = memory_of(device)
        self._rotation = turn or rotation(self._memory)
        self.evidence = LaunchEvidence()
        """Evidence of the launches of the last `measure`."""
        self.seen = AuditedOutputs()
        """Outputs of calls of the last `measure`, for the process that has the expected values."""
        self._timed: dict[str, Timed] = {}
        self._called: list[int] = []
        """Sets whose outputs follow from the inputs that they have now."""
        self._footprint = max(ALIGNMENT, self._traffic.read + self._traffic.written)
        self._copies = 0
        """Bytes of packed copies that the launches of the last `measure` hold."""

    @property
    def audited(self) -> list[Audited]:
        """Outputs of calls of the last `measure`."""
        return self.seen.audited

    @property
    def parts(self) -> list[AuditedPiece]:
        """Pieces of outputs of calls of the last `measure`."""
        return self.seen.kept

    @property
    def addresses(self) -> list[int]:
        """Addresses of the arrays of the hot figure, on the host."""
        hot = self._sets.each[0]
        return [each.ctypes.data for each in (*hot.inputs.values(), *hot.outputs.values()) if is_array(each)]

    def measure(self, variant: Variant, threads: int) -> Performance:
        """Time one variant of the key, cold and hot. Exceptions of the variant are passed on."""
        self.evidence, self.seen, self._copies = LaunchEvidence(), AuditedOutputs(), 0
        self._sets.restore()
        before = tasks()
        launches = self._bound(variant, threads)
        faults: list[Complaint] = []
        remarks: list[str] = []
        cold = None
        launches[0].run()
        self.seen.whole_of(self._sets, 0, "the first call", self._rng)
        started = len(tasks() - before)
        if self._sets.cold:
            self._sets.poison_all()
            order = [int(index) for index in self._rng.permutation(len(launches))]
            turn = [launches[index] for index in order]
            self._timed["cold"] = Timed(turn, clock_for(self._device, turn))
            cold = self._footing(self._timed["cold"], order, threads, "cold", faults, remarks)
            self._compare(self._called)
        else:
            remarks.append(
                f"no cold figure: {self._footprint} bytes a call are too few to cycle through {self._rotation.nbytes}"
            )
        self._timed["hot"] = Timed(launches[:1], clock_for(self._device, launches[:1]), warm=True)
        hot = self._footing(self._timed["hot"], [0], threads, "hot", faults, remarks)
        looks, tardy = late(launches[0], self._sets, 0, self._rng)
        self.seen.audited += looks
        faults += self.seen.faults + tardy
        # The probes keep their own threads, as many as the kernel was allowed.
        started = max(started, len(tasks() - before) - (threads - 1))
        if self._memory is HOST and started > threads - 1:
            faults.append(
                Complaint(
                    Guard.THREADS,
                    f"threads that it started and that outlive its calls: {started}; at most {threads - 1} may",
                )
            )
        overhead = self._overhead(launches[0], hot.timing.median_ns)
        for launch in launches:
            self.evidence.add(launch, launch.runs, self._device.proof(launch))
        return Performance(
            status=Status.FAIL if faults else Status.PASS,
            reason="; ".join((*map(str, faults), *remarks)),
            caught_by=in_order(fault.guard for fault in faults),
            limits=() if launches[0].pointer is not None else (THROUGH_PYTHON,),
            cold=cold,
            hot=hot,
            call_overhead_ns=overhead,
            read=self._traffic.read,
            written=self._traffic.written,
            operations=self._traffic.operations,
            doubted=bool(faults),
            tests=1 if cold is None else 2,  # a floor for each temperature
        )

    def lap(self, temperature: str, rounds: int, calls: int) -> None:
        """Call the last measured kernel `rounds` times `calls` times, as the samples of its cold or hot figure do; for
        a process with its own clock."""
        timed = self._timed[temperature]
        for _ in range(rounds):
            timed.take(calls)

    def _bound(self, variant: Variant, threads: int) -> list[Launch]:
        """A launch for each set of arrays. A launch that packs reads its own copies, which are larger than the inputs:
        there are enough of them once they fill the rotation."""
        launches: list[Launch] = []
        before = rss_bytes() if variant.packs else 0
        for each in self._sets.each:
            launches.append(variant.bind(each.inputs, each.outputs, self._axes, threads))
            if variant.packs and self._memory is HOST:
                self._copies = rss_bytes() - before
                if self._copies >= self._rotation.nbytes:
                    break
        return launches

    @cached_property
    def _sets(self) -> Sets:
        return Sets(
            self._op, self._key, self._axes, self._cases, self._memory, self._layout, self._rotation, self._pieces
        )

    @cached_property
    def _field(self) -> Field:
        least = max(self._footprint, compute_bytes(self._device, self._device.cores()))
        return Field(least, self._rotation, self._memory)

    def _compare(self, ran: list[int]) -> None:
        """Check all outputs of the sets that were called; on a device, which is slow to read, of two of them."""
        ran = [index for index in ran if not self._sets.each[index].awaited]
        if self._memory is not HOST and len(ran) > 2:
            ran = [int(index) for index in self._rng.choice(ran, 2, replace=False)]
        for index in self._sets.others_than(self.seen.whole, ran):
            self.seen.whole_of(self._sets, index, "cold, a set of arrays", self._rng)

    def _limit(self, threads: int, cold: bool) -> Limit:
        return limit_of(self._device, self._traffic, self._footprint, self._field, threads, cold=cold)

    def _against(
        self, timed: Timed, order: list[int], threads: int, temperature: str
    ) -> tuple[Limit, Timed, Alternation]:
        """Time the kernel interleaved with the probe that limits it. `order`: the set that each launch is bound to."""
        cold = temperature == "cold"
        limit = self._limit(threads, cold)
        roof = limit.roof
        probe = bind(
            roof.ceiling, self._device, self._field, limit.nbytes, threads=roof.threads, cold=limit.cold, rng=self._rng
        )
        calibrate(probe)
        call_ns = calibrate(timed)
        auditor = Auditor(timed, self._sets, order, self._rng, temperature, self.seen, call_ns=call_ns)
        auditor.change_ahead()
        if limit.cold:  # the probe's cycle evicts the data that was just written
            for _ in range(-(-len(probe.launches) // probe.calls)):
                probe.sample()
        stop = First(
            MinimumSamples(ENOUGH_SAMPLES, Interval(2 * LAYOUT_NOISE)),
            MinimumSamples(ENOUGH_SAMPLES, Plateau(LAYOUT_NOISE / 4)),
            MinimumSamples(PAIRS, Interval(TELLING)),
            MinimumSamples(LEAST_SAMPLES, TimeLimit(self._budget, auditor.clock)),
            TimeLimit(_PATIENCE * self._budget, auditor.clock),
        )
        found = alternate(auditor, probe, self._rng, stop)
        auditor.finish()
        self._called = auditor.called
        return limit, probe, found.rounded(DIGITS)

    def _footing(
        self,
        timed: Timed,
        order: list[int],
        threads: int,
        temperature: str,
        faults: list[Complaint],
        remarks: list[str],
    ) -> Measurement:
        launches = timed.launches  # calibration may drop some
        before = sum(launch.runs for launch in launches)
        limit, probe, found = self._against(timed, order, threads, temperature)
        fraction = found.ratio(limit.scale)
        if limit.outrun(found) or fraction.median > 1:
            # The chosen probe was not the fastest, or other processes were busy when it was chosen.
            survey(self._device).forget(limit.roof.ceiling.name)
            limit, probe, found = self._against(timed, order, threads, temperature)
            fraction = found.ratio(limit.scale)
        ran = sum(launch.runs for launch in launches) - before
        if ran != timed.made:
            faults.append(
                Complaint(
                    Guard.RUNS,
                    f"{temperature}: {counted(timed.made, 'call')} made, but the code ran {counted(ran, 'time')}",
                )
            )
        return compared(
            found,
            limit,
            timed,
            device=self._device,
            field=self._field,
            threads=threads,
            footprint=self._footprint,
            rotation=len(timed.launches) * self._sets.nbytes
            + (self._copies if temperature == "cold" else 0)
            + (len(probe.launches) * limit.nbytes if limit.cold else 0),
            wanted=self._rotation,
            temperature=temperature,
            faults=faults,
            remarks=remarks,
        )

    def _overhead(self, launch: Launch, native_ns: float) -> float | None:
        """The cost of a call through Python; None for a launch that only Python can call, or that is too long to show
        it."""
        if launch.pointer is None or native_ns > SHORTEST_NS:
            return None
        through, native = Timed([launch], PythonClock(), warm=True), Timed([launch], own_clock(self._device), warm=True)
        calibrate(through)
        calibrate(native)
        found = alternate(through, native, self._rng, MinimumSamples(LEAST_SAMPLES, TimeLimit(_OVERHEAD_S)))
        return median([a - b for a, b in zip(found.a_ns, found.b_ns, strict=True)])
