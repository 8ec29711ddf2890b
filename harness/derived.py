"""Figures that follow from those of a Record: SIMD efficiency, cache efficiency, the best thread count.

Nothing is measured here. A figure that does not follow is missing, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tritmark.harness.advise.ladder import bare, ladder
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import HOST, Measurement, Ratio, Record, Run, Scaled, contradicted

VECTOR_BITS = (("amxtile", None), ("avx512f", 512), ("avx2", 256), ("sse41", 128), ("asimd", 128))
"""Bits of a vector by the feature that an instruction set requires, the first that matches; None: tiles."""
HIT_RATE = "lts__t_sector_hit_rate.pct"
"""Nsight Compute's counter of L2: percent of the sectors that were found there."""


@dataclass(frozen=True, slots=True)
class SimdEfficiency:
    """The speed-up of vectors over plain C, as a share of the elements in a vector."""

    speedup: float
    """Hot time of the scalar variant over that of this one, on the same workload and threads of the same Record. The
    two are not interleaved."""
    low: float
    """From the ends of both 95 % intervals."""
    high: float
    lanes: int
    """Elements of the op's largest tensor in a vector of the instruction set."""

    @property
    def efficiency(self) -> float:
        """`speedup` / `lanes`."""
        return self.speedup / self.lanes


@dataclass(frozen=True, slots=True)
class CacheEfficiency:
    """How well a cache serves a Run."""

    level: str
    """The cache: L1, L2 or L3."""
    efficiency: float
    source: str
    """"ceiling": least bytes of a hot call over its time and the read rate of the level. "counter": the hit rate that
    the GPU counted."""


def simd_efficiency(record: Record, run: Run) -> SimdEfficiency | str:
    """The SIMD efficiency of a Run, or the reason why there is none."""
    if run.device != HOST:
        return "not on the host"
    own, bits = _hot(run), _vector_bits(run)
    if isinstance(own, str):
        return own
    if isinstance(bits, str):
        return bits
    element = _element_bits(run)
    if isinstance(element, str):
        return element
    scalar = _scalar_runs(record).get(_work(run))
    if scalar is None:
        return "no scalar variant on this workload and thread count in the Record"
    base = _hot(scalar)
    if isinstance(base, str):
        return f"the scalar variant: {base}"
    mine, theirs = own.timing, base.timing
    return SimdEfficiency(
        speedup=theirs.median_ns / mine.median_ns,
        low=theirs.low_ns / mine.high_ns,
        high=theirs.high_ns / mine.low_ns,
        lanes=bits // element,
    )


def cache_efficiency(record: Record, run: Run) -> CacheEfficiency | str:
    """The cache efficiency of a Run, or the reason why there is none."""
    if run.device != HOST:
        counted = [
            each.counters[HIT_RATE] for each in (run.code.functions if run.code else ()) if HIT_RATE in each.counters
        ]
        if len(counted) == 1:
            return CacheEfficiency("L2", counted[0] / 100, "counter")
        return "several functions were counted" if counted else "no counters of this GPU in the Record"
    own = _hot(run)
    if isinstance(own, str):
        return own
    moved, held = run.performance.read + run.performance.written, _level(record, run, own.footprint)
    if held is None:
        return "the working set is larger than every known cache"
    doubted = contradicted(record.machine.ceilings)
    rates = [
        each.rate
        for each in record.machine.ceilings
        if (each.device, each.name, each.level, each.threads) == (HOST, "read", held, run.threads)
        and each.rate > 0
        and each not in doubted
    ]
    if not rates:
        return f"no read ceiling of {held} for {run.threads} threads"
    if not moved:
        return "the least bytes are unknown"
    share = moved / (own.timing.median_ns * 1e-9) / max(rates)
    if share > 1:
        return f"the kernel was faster than the read ceiling of {held}"
    return CacheEfficiency(held, share, "ceiling")


def best_threads(run: Run) -> int | None:
    """The fewest threads whose speed-up over one thread may be the largest: its 95 % interval reaches that of the
    largest. None if the Run was not timed on several thread counts, and if all figures are too noisy."""
    known = [each for each in run.scaling if not each.speedup.too_noisy and each.speedup.low > 0]
    if not known or run.performance.doubted:
        return None
    best = max(known, key=lambda each: each.speedup.median)
    return min(each.threads for each in (_ONE, *known) if each.speedup.high >= best.speedup.low)


_ONE = Scaled(threads=1, speedup=Ratio(median=1, low=1, high=1, pairs=0))
_SCALAR = "plain C has no vectors"


def _work(run: Run) -> tuple[object, ...]:
    return run.workload.id, run.threads, run.device, run.op, run.format, run.dtype


_INDEXED: list[tuple[Record, dict[tuple[object, ...], Run]]] = []
"""The last Record and its scalar Runs: tables and pages ask for each Run of one Record after the other."""


def _scalar_runs(record: Record) -> dict[tuple[object, ...], Run]:
    last = _INDEXED[0] if _INDEXED else None
    if last is None or last[0] is not record:
        last = record, {_work(each): each for each in reversed(record.runs) if _vector_bits(each) == _SCALAR}
        _INDEXED[:] = [last]
    return last[1]


def _hot(run: Run) -> Measurement | str:
    hot = run.performance.hot
    if hot is None or not hot.timing.median_ns > 0 or not hot.timing.low_ns > 0:
        return "no hot time"
    if run.performance.doubted or run.accuracy.failed:
        return "a verdict refutes its time"
    return "its hot time is too noisy" if hot.timing.too_noisy else hot


def _vector_bits(run: Run) -> int | str:
    needed = ladder().get(run.receipt.ran if run.receipt is not None else "")
    if needed is None or run.peer:
        return "no instruction set of this installation in the receipt"
    features = {bare(each) for each in needed}
    if not features:
        return _SCALAR
    bits = next((bits for feature, bits in VECTOR_BITS if feature in features), 0)
    return "the instruction set has tiles in place of vectors" if bits is None else bits or "unknown vectors"


def _element_bits(run: Run) -> int | str:
    """Bits of an element of the op's tensor with the most elements; of several, the largest. Weights count as their
    int8 codes, which kernels unpack."""
    from tritmark.harness.providers import installed

    op = installed().ops.get(run.op)
    if op is None:
        return f"the op {run.op} is not installed"
    sizes: dict[str, tuple[int, int]] = {}
    for tensor in (*op.inputs, *op.outputs):
        if tensor.axes and run.workload.axes.keys() >= set(tensor.axes):
            dtype = named_dtype(run.dtype if tensor.dtype == "key" else tensor.dtype)
            sizes[tensor.name] = prod(run.workload.axes[axis] for axis in tensor.axes), 8 * dtype.itemsize
    return max(sizes.values())[1] if sizes else "the sizes of the op's tensors are unknown"


def _level(record: Record, run: Run, footprint: int) -> str | None:
    """The first cache that holds so many bytes; each thread has its own L1 and L2."""
    caches = record.machine.caches
    rooms = (("L1", run.threads * caches.get("L1d", 0)), ("L2", run.threads * caches.get("L2", 0)))
    return next((level for level, room in (*rooms, ("L3", caches.get("L3", 0))) if footprint <= room), None)
