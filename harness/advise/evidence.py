"""The input of rules: one Run with its symbols, and related Runs.

Symbols: t hot time, tc cold time, b fewest bytes, ops fewest operations, BW and P measured ceilings at the same
footprint, L time of an empty launch, e noise, R least time on this machine. Times are nanoseconds.
"""

# ruff: noqa: N802 -- the symbols are written as the formulas write them.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tritmark.harness.record import HOST, CeilingFacts, Code, Machine, Measurement, Record, Run, Timing

LAUNCH = "launch"
"""The ceiling in empty launches per second."""
WAITED = 2
"""Empty launches that a GPU kernel takes beside its bytes and operations, because it waits for the previous launch.
Probes do not wait. On an H200, whose empty launch takes 0.49 us, a probe that reads 1.6 to 8.8 MB from L2 takes 1.10
to 1.31 us more if it waits (kernels/cuda/ceilings.cu)."""

INTENSE = 4
"""Operations per byte from which a kernel counts as a product: products here do 8 or more per byte of packed weights,
quantizers 1 to 3."""

LEAST_GAIN = 0.01
"""Least predicted gain: the address of the code alone changes the time of a kernel by 0.1 to 0.4 %."""


class RunIndex:
    """An index of a Record's timed Runs, for fast lookup of neighbours and siblings among thousands of Runs."""

    def __init__(self, record: Record) -> None:
        self._kernels: dict[tuple[str, int, str], list[Run]] = {}
        self._places: dict[tuple[str, str, str, str, int, str], list[Run]] = {}
        for run in record.runs:
            if run.performance.hot is not None and not run.peer:
                self._kernels.setdefault(self._kernel(run), []).append(run)
                self._places.setdefault(self._place(run), []).append(run)

    def neighbours(self, run: Run) -> tuple[Run, ...]:
        """See Evidence.neighbours."""
        return tuple(
            each for each in self._kernels.get(self._kernel(run), ()) if each.workload.axes != run.workload.axes
        )

    def siblings(self, run: Run) -> tuple[Run, ...]:
        """See Evidence.siblings."""
        return tuple(each for each in self._places.get(self._place(run), ()) if each.variant != run.variant)

    @staticmethod
    def _kernel(run: Run) -> tuple[str, int, str]:
        return run.kernel, run.threads, run.workload.layout

    @staticmethod
    def _place(run: Run) -> tuple[str, str, str, str, int, str]:
        return run.op, run.format, run.dtype, run.device, run.threads, run.workload.id


@dataclass(frozen=True)
class Evidence:
    """One timed Run and its related Runs. Raises ValueError for a Run without a hot figure."""

    record: Record
    run: Run
    around: RunIndex | None = None
    """The index of the Record; None makes a new one for each lookup."""

    def __post_init__(self) -> None:
        if self.run.performance.hot is None:
            raise ValueError(f"{self.run.id} has no hot figure; legal: a timed Run")

    @property
    def machine(self) -> Machine:
        """The machine of the Record."""
        return self.record.machine

    @property
    def code(self) -> Code | None:
        """Facts of the compiled code; None if the code was not inspected."""
        return self.run.code

    @property
    def on_device(self) -> bool:
        """The Run ran on a device other than the host."""
        return self.run.device != HOST

    @property
    def _hot(self) -> Measurement:
        assert self.run.performance.hot is not None
        return self.run.performance.hot

    @property
    def t(self) -> float:
        """Hot time of a call."""
        return self._hot.timing.median_ns

    @property
    def tc(self) -> float | None:
        """Cold time of a call; None if it was not measured."""
        cold = self.run.performance.cold
        return None if cold is None else cold.timing.median_ns

    @property
    def b(self) -> int:
        """Fewest bytes, read and written."""
        return self.run.performance.read + self.run.performance.written

    @property
    def ops(self) -> int:
        """Fewest operations."""
        return self.run.performance.operations

    @property
    def limit(self) -> str:
        """What limits the least time: read, write, compute, or launch."""
        return LAUNCH if self._launches_most else self._hot.against.ceiling

    @property
    def memory_side(self) -> bool:
        """Reads or writes limit the least time."""
        return self.limit in {"read", "write"}

    @cached_property
    def L(self) -> float | None:
        """Time of an empty launch, launched as the kernel is when timed: in a graph if the device has graphs. None on
        the host."""
        rate = self.ceiling(LAUNCH)
        return None if rate is None else 1e9 / rate

    @cached_property
    def e(self) -> float:
        """The noise as a share: half of the wider 95 % interval of the hot time and of the fraction of the ceiling."""
        timing, fraction = self._hot.timing, self._hot.against.fraction
        return (
            max((timing.high_ns - timing.low_ns) / timing.median_ns, (fraction.high - fraction.low) / fraction.median)
            / 2
        )

    @property
    def _least(self) -> float:
        return self.t * self._hot.against.fraction.median

    @property
    def _launches_most(self) -> bool:
        return self.L is not None and self._least < self.L

    @cached_property
    def R(self) -> float:
        """Least time: max(b/BW, ops/P, L). The first two are interleaved with this kernel."""
        return max(self._least, self.L or 0.0)

    @cached_property
    def cap(self) -> float:
        """t/R, the largest possible speed-up on this machine; at least 1."""
        return max(1.0, self.t / self.R)

    @cached_property
    def shared(self) -> float:
        """Time of reads plus writes at the rate of a copy in the cache or memory that holds the footprint, or R if that
        is longer. Good kernels come close to it; unlike R it is not a bound."""
        fitting = [
            each for each in self._ceilings("copy") if each.level != "memory" and self._hot.footprint <= 2 * each.nbytes
        ]
        found = [each.rate for each in fitting or [each for each in self._ceilings("copy") if each.level == "memory"]]
        return max(self.R, self.b * 1e9 / max(found)) if found else self.R

    @cached_property
    def own(self) -> float:
        """Time of the operations at the rate of the kernel's own instruction set; 0 if it is the best one here, or no
        ceiling has its rate. R has the rate of the best one."""
        rate = self.ceiling(f"compute {self.run.variant}")
        return 0.0 if rate is None else self.ops * 1e9 / rate

    @property
    def usual(self) -> float:
        """`shared`, plus WAITED empty launches on a GPU: the time of tuned kernels, including short ones."""
        return self.shared + WAITED * (self.L or 0)

    @cached_property
    def fastest(self) -> bool:
        """No sibling is faster by more than the noise, so this kernel is the one to use."""
        return not any(self._outruns(run) for run in self.siblings)

    def _outruns(self, sibling: Run) -> bool:
        """Whether a sibling is faster by more than this Run's noise, or with its whole interval, since the noise may
        exceed the time itself."""
        timing = _hot(sibling)
        if timing.median_ns <= self.t * (1 - max(self.e, LEAST_GAIN)):
            return True
        return timing.high_ns < self._hot.timing.low_ns and timing.median_ns <= self.t * (1 - LEAST_GAIN)

    @cached_property
    def neighbours(self) -> tuple[Run, ...]:
        """Timed Runs of the same kernel, thread count and layout at other shapes."""
        return (self.around or RunIndex(self.record)).neighbours(self.run)

    @cached_property
    def siblings(self) -> tuple[Run, ...]:
        """Timed Runs of other variants for the same op, format, dtype, device, workload and thread count."""
        return (self.around or RunIndex(self.record)).siblings(self.run)

    def ceiling(self, name: str, level: str = "") -> float | None:
        """The highest measured ceiling of that name (and level) for the Run's device and threads; None if there is
        none."""
        return max((each.rate for each in self._ceilings(name) if level in {"", each.level}), default=None)

    def _ceilings(self, name: str) -> list[CeilingFacts]:
        threads = 1 if self.on_device else self.run.threads
        return [
            each
            for each in self.machine.ceilings
            if (each.device, each.name, each.threads) == (self.run.device, name, threads)
        ]


def _hot(run: Run) -> Timing:
    assert run.performance.hot is not None
    return run.performance.hot.timing
