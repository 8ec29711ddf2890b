"""The columns of the table: name, type, unit, description and source of each.

All Records have the same columns. A figure that a Record lacks is a missing value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tritmark.harness.derived import best_threads, cache_efficiency, simd_efficiency
from tritmark.harness.record import (
    Measurement,
    MemoryUse,
    PeerComparison,
    Ratio,
    Record,
    Run,
    Scaled,
    UnitSensors,
)

Kind = Literal["text", "integer", "number", "yes/no"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `value` takes it from a Record and one of its Runs; None is a missing value."""

    name: str
    kind: Kind
    unit: str
    """"" if it has none."""
    description: str
    value: Callable[[Record, Run], Any]


def _footing(temperature: Literal["cold", "hot"]) -> tuple[Column, ...]:
    def of(take: Callable[[Measurement], Any]) -> Callable[[Record, Run], Any]:
        def value(record: Record, run: Run) -> Any:
            found: Measurement | None = getattr(run.performance, temperature)
            return None if found is None else take(found)

        return value

    def share(name: Literal["median", "low", "high"]) -> Callable[[Record, Run], Any]:
        return of(lambda each: None if each.against.lost else getattr(each.against.fraction, name))

    where = "arrays come from memory" if temperature == "cold" else "repeated on the same arrays"
    return (
        Column(
            f"{temperature}_ns",
            "number",
            "ns",
            f"median time of a call, {where}",
            of(lambda each: each.timing.median_ns),
        ),
        Column(
            f"{temperature}_low_ns",
            "number",
            "ns",
            "lower end of its 95 % interval",
            of(lambda each: each.timing.low_ns),
        ),
        Column(
            f"{temperature}_high_ns",
            "number",
            "ns",
            "upper end of its 95 % interval",
            of(lambda each: each.timing.high_ns),
        ),
        Column(
            f"{temperature}_too_noisy",
            "yes/no",
            "",
            "the interval of the time or of the fraction is wider than ±25 %: do not compare",
            of(lambda each: each.too_noisy),
        ),
        Column(
            f"{temperature}_samples",
            "integer",
            "",
            "number of samples of the median",
            of(lambda each: len(each.timing.samples_ns)),
        ),
        Column(
            f"{temperature}_ceiling",
            "text",
            "",
            "limiting ceiling: read, write or compute",
            of(lambda each: each.against.ceiling),
        ),
        Column(
            f"{temperature}_rate",
            "number",
            "rate_unit",
            "rate of that ceiling, interleaved with the kernel",
            of(lambda each: each.against.rate),
        ),
        Column(
            f"{temperature}_rate_unit", "text", "", "unit of that rate, such as B/s", of(lambda each: each.against.unit)
        ),
        Column(
            f"{temperature}_fraction",
            "number",
            "",
            "least time / measured time; 1 is the ceiling; missing if the probe was slower than the kernel",
            share("median"),
        ),
        Column(f"{temperature}_fraction_low", "number", "", "lower end of its 95 % interval", share("low")),
        Column(f"{temperature}_fraction_high", "number", "", "upper end of its 95 % interval", share("high")),
        Column(
            f"{temperature}_footprint",
            "integer",
            "B",
            "bytes that a call touches at least",
            of(lambda each: each.footprint),
        ),
    )


def _load() -> tuple[Column, ...]:
    def of(name: str) -> Callable[[Record, Run], Any]:
        return lambda record, run: getattr(run.load, name, None)

    clock = "at the start and the end of the timing"
    return (
        Column("load_others", "number", "cores", "taken by other processes during the timing", of("others")),
        Column("load_stolen", "number", "cores", "part of load_others that the hypervisor took", of("stolen")),
        Column("load_clock_low", "integer", "Hz", f"lowest clock rate of the cores {clock}", of("clock_low_hz")),
        Column("load_clock_high", "integer", "Hz", f"highest clock rate of the cores {clock}", of("clock_high_hz")),
        Column(
            "load_device_clock_low", "integer", "Hz", f"lowest clock rate of the GPU {clock}", of("device_clock_low_hz")
        ),
        Column(
            "load_device_clock_high",
            "integer",
            "Hz",
            f"highest clock rate of the GPU {clock}",
            of("device_clock_high_hz"),
        ),
        Column("load_temperature", "number", "°C", "highest temperature during the timing", _hottest),
        Column("load_power", "number", "W", "highest power of a GPU during the timing", _power),
        Column("load_throttle", "text", "", "reasons of lower clocks during the timing", _throttle),
    )


def _sensors(run: Run) -> tuple[UnitSensors, ...]:
    return run.load.sensors if run.load is not None else ()


def _hottest(record: Record, run: Run) -> float | None:
    found = [each.during.temperature_high for each in _sensors(run)]
    return max((degrees for degrees in found if degrees is not None), default=None)


def _power(record: Record, run: Run) -> float | None:
    found = [each.during.power_high for each in _sensors(run)]
    return max((watts for watts in found if watts is not None), default=None)


def _throttle(record: Record, run: Run) -> str | None:
    """None if nothing reports reasons, as in most virtual machines: "" would claim that there were none."""
    units = _sensors(run)
    if not any(each.during.throttle or each.throttled_ns or each.before.throttle is not None for each in units):
        return None
    read = (reason for each in units for reason in each.during.throttle)
    counted = (reason for each in units for reason, ns in each.throttled_ns.items() if ns)
    return ", ".join(dict.fromkeys((*read, *counted)))


def _verdict(dimension: Literal["accuracy", "performance", "memory", "cross"]) -> tuple[Column, ...]:
    return (
        Column(
            dimension,
            "text",
            "",
            "pass, fail, error, ambiguous or not run",
            lambda record, run: getattr(run, dimension).status.value,
        ),
        Column(
            f"{dimension}_reason",
            "text",
            "",
            "reason; empty for pass",
            lambda record, run: getattr(run, dimension).reason,
        ),
    )


def _ratio(name: str, description: str, take: Callable[[Run], Ratio | None]) -> tuple[Column, ...]:
    def of(end: str) -> Callable[[Record, Run], Any]:
        return lambda record, run: getattr(take(run), end, None)

    return (
        Column(name, "number", "", description, of("median")),
        Column(f"{name}_low", "number", "", "lower end of its 95 % interval", of("low")),
        Column(f"{name}_high", "number", "", "upper end of its 95 % interval", of("high")),
    )


def _fastest(run: Run) -> PeerComparison | None:
    """The fastest peer of those that were timed interleaved with the kernel."""
    timed = [(peer.speedup.median, peer) for peer in run.cross.peers if peer.speedup is not None]
    return min(timed, key=lambda each: each[0])[1] if timed else None


def _widest(run: Run) -> Scaled | None:
    return max(run.scaling, key=lambda each: each.threads, default=None)


def _of_widest(field: str) -> Callable[[Record, Run], Any]:
    """A field of the entry with the most threads; None if the kernel was timed on one thread only."""
    return lambda record, run: getattr(_widest(run), field, None)


def _judged(take: Callable[[MemoryUse], Any]) -> Callable[[Record, Run], Any]:
    """A value of the memory dimension; None if memory was not judged."""
    return lambda record, run: take(run.memory) if run.memory.calls else None


def _shape(run: Run) -> str:
    return ",".join(f"{name}={size}" for name, size in run.workload.axes.items())


def _gpu(record: Record, run: Run) -> str | None:
    """The name of the GPU in the receipt."""
    uuid = getattr(run.receipt, "uuid", "")
    return next((gpu.name for gpu in record.machine.gpus if gpu.uuid == uuid), None) if uuid else None


def _proposals(record: Record, run: Run) -> int:
    return sum(each.run == run.id for each in record.proposals)


def _limits(record: Record, run: Run) -> str:
    return "; ".join(limit for each in (run.accuracy, run.performance, run.memory) for limit in each.limits)


def _simd() -> tuple[Column, ...]:
    def of(name: str) -> Callable[[Record, Run], Any]:
        return lambda record, run: getattr(simd_efficiency(record, run), name, None)

    base = "hot time of the scalar variant / hot time, both of this Record, not interleaved"
    return (
        Column("simd_speedup", "number", "", base, of("speedup")),
        Column("simd_speedup_low", "number", "", "lower end, from both 95 % intervals", of("low")),
        Column("simd_speedup_high", "number", "", "upper end, from both 95 % intervals", of("high")),
        Column(
            "simd_lanes",
            "integer",
            "",
            "elements of the op's largest tensor in a vector",
            of("lanes"),
        ),
        Column("simd_efficiency", "number", "", "simd_speedup / simd_lanes", of("efficiency")),
        Column(
            "simd_missing",
            "text",
            "",
            "why there is no SIMD efficiency; empty if there is one",
            lambda record, run: _reason(simd_efficiency(record, run)),
        ),
    )


def _cache() -> tuple[Column, ...]:
    def of(name: str) -> Callable[[Record, Run], Any]:
        return lambda record, run: getattr(cache_efficiency(record, run), name, None)

    return (
        Column("cache_level", "text", "", "cache that holds the arrays of a hot call", of("level")),
        Column(
            "cache_efficiency",
            "number",
            "",
            "(read + written) / hot time / read rate of that level; of a GPU, the hit rate that it counted",
            of("efficiency"),
        ),
        Column("cache_source", "text", "", "ceiling or counter", of("source")),
        Column(
            "cache_missing",
            "text",
            "",
            "why there is no cache efficiency; empty if there is one",
            lambda record, run: _reason(cache_efficiency(record, run)),
        ),
    )


def _reason(found: object) -> str:
    return found if isinstance(found, str) else ""


BELIEVED = Column(
    "believed",
    "yes/no",
    "",
    "`tritmark verify` finds nothing that contradicts the Record",
    lambda record, run: None,  # `table` computes it once per Record
)

COLUMNS: tuple[Column, ...] = (
    Column("record", "text", "", "id of the Record", lambda record, run: record.id),
    BELIEVED,
    Column("schema_version", "integer", "", "schema version of the file", lambda record, run: record.schema_version),
    Column("created", "text", "UTC", "time of the invocation, ISO 8601", lambda record, run: record.created),
    Column("tritmark", "text", "", "version of tritmark", lambda record, run: record.environment.tritmark),
    Column(
        "commit",
        "text",
        "",
        "commit that was checked out, with -dirty if files were changed",
        lambda record, run: record.environment.commit,
    ),
    Column(
        "wheel",
        "text",
        "",
        "hash of the installed wheel; missing for an editable installation",
        lambda record, run: record.environment.wheel or None,
    ),
    Column("suite", "text", "", "name of the suite", lambda record, run: record.suite),
    Column(
        "machine",
        "text",
        "",
        "hash of the machine; figures with the same hash are comparable",
        lambda record, run: record.machine.id,
    ),
    Column("hostname", "text", "", "host name of the machine", lambda record, run: record.machine.hostname),
    Column("cpu", "text", "", "CPU of the machine", lambda record, run: record.machine.cpu),
    Column("gpu", "text", "", "GPU on which it ran; missing on the host", _gpu),
    Column("run", "text", "", "id of the Run, unique in its Record", lambda record, run: run.id),
    Column("device", "text", "", "device type", lambda record, run: run.device),
    Column("op", "text", "", "name of the op", lambda record, run: run.op),
    Column("format", "text", "", "bit layout of packed codes", lambda record, run: run.format),
    Column("dtype", "text", "", "dtype of the output", lambda record, run: run.dtype),
    Column("variant", "text", "", "name of the variant", lambda record, run: run.variant),
    Column("kernel", "text", "", "device/op/format/dtype/variant", lambda record, run: run.kernel),
    Column("workload", "text", "", "id of the workload", lambda record, run: run.workload.id),
    Column("title", "text", "", "title of the workload in its suite", lambda record, run: run.workload.title),
    Column("shape", "text", "", "sizes of the op's axes, such as M=1,N=2560,K=6912", lambda record, run: _shape(run)),
    Column("family", "text", "", "family of the inputs", lambda record, run: run.workload.family),
    Column(
        "layout", "text", "", "alignment of the arrays: aligned or unaligned", lambda record, run: run.workload.layout
    ),
    Column("seed", "integer", "", "seed of the inputs", lambda record, run: run.workload.seed),
    Column("threads", "integer", "", "thread count of the kernel", lambda record, run: run.threads),
    Column("seconds", "number", "s", "duration of the Run", lambda record, run: run.seconds),
    *_load(),
    Column("passed", "yes/no", "", "no dimension is fail or error", lambda record, run: run.passed),
    *_verdict("accuracy"),
    Column("cases", "integer", "", "input sets that were judged", lambda record, run: run.accuracy.cases),
    Column(
        "judged_calls",
        "integer",
        "",
        "calls that were judged; missing if no case was drawn",
        lambda record, run: run.accuracy.calls or None,
    ),
    Column(
        "rarest_fault",
        "number",
        "",
        "rarest fault, as a share of calls, that is detected with a probability of 95 %",
        lambda record, run: run.accuracy.rarest,
    ),
    Column("elements", "integer", "", "output elements that were judged", lambda record, run: run.accuracy.elements),
    Column("mismatches", "integer", "", "incorrect output elements", lambda record, run: run.accuracy.mismatches),
    Column(
        "largest_error",
        "number",
        "",
        "largest absolute difference from the reference",
        lambda record, run: run.accuracy.largest_error,
    ),
    Column(
        "largest_ulp",
        "number",
        "ulp",
        "largest difference in units of the last place",
        lambda record, run: run.accuracy.largest_ulp,
    ),
    *_verdict("performance"),
    *_footing("cold"),
    *_footing("hot"),
    Column(
        "overhead_ns",
        "number",
        "ns",
        "time that a call through Python adds",
        lambda record, run: run.performance.call_overhead_ns,
    ),
    Column(
        "read", "integer", "B", "least bytes that the workload reads", lambda record, run: run.performance.read or None
    ),
    Column(
        "written", "integer", "B", "least bytes that it writes", lambda record, run: run.performance.written or None
    ),
    Column(
        "operations",
        "integer",
        "",
        "least arithmetic operations",
        lambda record, run: run.performance.operations or None,
    ),
    *_ratio(
        "plain_over_graph",
        "time of individual launches / time of the same launches in a graph",
        lambda run: run.plain,
    ),
    Column(
        "scaling_threads",
        "integer",
        "",
        "most threads on which it was timed",
        _of_widest("threads"),
    ),
    *_ratio(
        "scaling", "time on one thread / time on scaling_threads", lambda run: getattr(_widest(run), "speedup", None)
    ),
    *(
        Column(name, "number", "", description, _of_widest(name))
        for name, description in (
            ("efficiency", "scaling / scaling_threads"),
            ("balance", "mean / largest busy time of the participating threads"),
            ("utilization", "busy time of all threads / (scaling_threads x wall time)"),
        )
    ),
    Column(
        "best_threads",
        "integer",
        "",
        "fewest threads whose speed-up may be the largest, by the 95 % intervals",
        lambda record, run: best_threads(run),
    ),
    *_simd(),
    *_cache(),
    *_verdict("memory"),
    Column("inputs", "integer", "B", "inputs of a call", _judged(lambda each: each.inputs)),
    Column("outputs", "integer", "B", "outputs of a call", _judged(lambda each: each.outputs)),
    Column("workspace", "integer", "B", "workspace that the kernel declares", _judged(lambda each: each.workspace)),
    Column("host_peak", "integer", "B", "most resident memory that a call adds", _judged(lambda each: each.host_peak)),
    Column(
        "device_peak",
        "integer",
        "B",
        "most device memory in use beyond inputs and outputs",
        _judged(lambda each: each.device_peak),
    ),
    Column(
        "persistent",
        "integer",
        "B",
        "memory still held after the kernel was dropped",
        _judged(lambda each: each.persistent),
    ),
    Column(
        "allocated",
        "integer",
        "B",
        "memory that Python and NumPy allocate for a call",
        _judged(lambda each: each.allocated),
    ),
    Column(
        "page_faults",
        "number",
        "pages",
        "pages that a call touches for the first time",
        _judged(lambda each: each.page_faults),
    ),
    Column("leak", "number", "B/call", "growth of the heap", _judged(lambda each: each.leak and each.leak.median)),
    Column(
        "leak_low",
        "number",
        "B/call",
        "lower end of its 95 % interval",
        _judged(lambda each: each.leak and each.leak.low),
    ),
    Column(
        "leak_high",
        "number",
        "B/call",
        "upper end of its 95 % interval",
        _judged(lambda each: each.leak and each.leak.high),
    ),
    Column(
        "bits_per_weight",
        "number",
        "bit",
        "size of the packed weights, scales included",
        _judged(lambda each: each.bits_per_weight),
    ),
    *_verdict("cross"),
    Column(
        "peers",
        "integer",
        "",
        "number of peers and references that it was compared with",
        lambda record, run: len(run.cross.peers),
    ),
    Column(
        "peer",
        "text",
        "",
        "the fastest peer that was timed",
        lambda record, run: getattr(_fastest(run), "peer", None),
    ),
    *_ratio(
        "peer_over_kernel",
        "time of that peer / time of the kernel, interleaved",
        lambda run: getattr(_fastest(run), "speedup", None),
    ),
    Column(
        "ran",
        "text",
        "",
        "instruction set or GPU, as the code that ran reported it",
        lambda record, run: getattr(run.receipt, "ran", None),
    ),
    Column(
        "simulated",
        "yes/no",
        "",
        "a simulator ran in place of the device",
        lambda record, run: getattr(run.receipt, "simulated", None),
    ),
    Column(
        "code_hash",
        "text",
        "",
        "SHA-256 of the compiled code",
        lambda record, run: getattr(run.receipt, "code_hash", None),
    ),
    Column(
        "tuned",
        "text",
        "",
        "choice of `tritmark tune`, which measured it to be faster than the built-in one",
        lambda record, run: getattr(run.receipt, "tuned", None),
    ),
    Column("proposals", "integer", "", "number of rules with advice for the Run", _proposals),
    Column("limits", "text", "", "what its verdicts do not cover; empty if they have no limits", _limits),
)
"""Columns with the sizes of the axes follow them: `axis_M`, `axis_N` and so on, for each axis of the Records' ops."""

SAMPLES: tuple[tuple[str, Kind, str, str], ...] = (
    ("temperature", "text", "", "cold or hot"),
    ("sample", "integer", "", "index in the order taken, from 0"),
    ("sample_ns", "number", "ns", "mean time of a call over the sample's calls"),
    ("calls", "integer", "", "calls in a sample"),
    ("probe_ns", "number", "ns", "time of the probe's adjacent sample; missing in version 1"),
)
"""Additional columns of rows for samples: name, kind, unit, description."""

AXES: tuple[str, Kind, str, str] = (
    "axis_*",
    "integer",
    "",
    "size of the axis of that name; missing if the op has no such axis",
)
