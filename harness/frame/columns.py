"""The columns of the table: what each is called, its type, its unit, what it holds and where that comes from.

Figures that a Record does not have, because its schema is older or the Run was not measured, are missing values; the
columns are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tritmark.harness.record import Measurement, MemoryUse, PeerComparison, Ratio, Record, Run, Scaled

Kind = Literal["text", "integer", "number", "yes/no"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `value` takes it from a Record and one of its Runs, None where there is nothing to take."""

    name: str
    kind: Kind
    unit: str
    """"" for what has none."""
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

    where = "arrays come from memory" if temperature == "cold" else "the same arrays again and again"
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
            "the interval of the time or of the fraction is wider than 25 %: not to be compared with others",
            of(lambda each: each.too_noisy),
        ),
        Column(
            f"{temperature}_samples",
            "integer",
            "",
            "of which it is the median",
            of(lambda each: len(each.timing.samples_ns)),
        ),
        Column(
            f"{temperature}_ceiling",
            "text",
            "",
            "which ceiling limits: read, write or compute",
            of(lambda each: each.against.ceiling),
        ),
        Column(
            f"{temperature}_rate",
            "number",
            "rate_unit",
            "of that ceiling, by turns with the kernel",
            of(lambda each: each.against.rate),
        ),
        Column(f"{temperature}_rate_unit", "text", "", "its unit, such as B/s", of(lambda each: each.against.unit)),
        Column(
            f"{temperature}_fraction",
            "number",
            "",
            "least time over time; 1 is the ceiling; missing where the probe lost",
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

    clock = "clock of its cores at the begin and the end of that"
    return (
        Column("load_others", "number", "cores", "that others took while it was timed", of("others")),
        Column("load_stolen", "number", "cores", "of these, what the hypervisor took (steal time)", of("stolen")),
        Column("load_clock_low", "integer", "Hz", f"slowest {clock}", of("clock_low_hz")),
        Column("load_clock_high", "integer", "Hz", f"fastest {clock}", of("clock_high_hz")),
        Column("load_device_clock_low", "integer", "Hz", "the same of the GPU", of("device_clock_low_hz")),
        Column("load_device_clock_high", "integer", "Hz", "the same of the GPU", of("device_clock_high_hz")),
    )


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
            f"{dimension}_reason", "text", "", "why; empty for pass", lambda record, run: getattr(run, dimension).reason
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
    """The peer that was timed by turns and against which the kernel looks worst."""
    timed = [(peer.speedup.median, peer) for peer in run.cross.peers if peer.speedup is not None]
    return min(timed, key=lambda each: each[0])[1] if timed else None


def _widest(run: Run) -> Scaled | None:
    return max(run.scaling, key=lambda each: each.threads, default=None)


def _of_widest(field: str) -> Callable[[Record, Run], Any]:
    """A field of the kernel on the most threads; None where it was timed on one alone."""
    return lambda record, run: getattr(_widest(run), field, None)


def _judged(take: Callable[[MemoryUse], Any]) -> Callable[[Record, Run], Any]:
    """What the memory dimension says, where it was looked at."""
    return lambda record, run: take(run.memory) if run.memory.calls else None


def _shape(run: Run) -> str:
    return ",".join(f"{name}={size}" for name, size in run.workload.axes.items())


def _gpu(record: Record, run: Run) -> str | None:
    """The name of the GPU that the receipt tells of."""
    uuid = getattr(run.receipt, "uuid", "")
    return next((gpu.name for gpu in record.machine.gpus if gpu.uuid == uuid), None) if uuid else None


def _proposals(record: Record, run: Run) -> int:
    return sum(each.run == run.id for each in record.proposals)


def _limits(record: Record, run: Run) -> str:
    return "; ".join(limit for each in (run.accuracy, run.performance, run.memory) for limit in each.limits)


BELIEVED = Column(
    "believed",
    "yes/no",
    "",
    "`tritmark verify` finds nothing in the Record that refutes it",
    lambda record, run: None,  # the table asks once for each Record
)

COLUMNS: tuple[Column, ...] = (
    Column("record", "text", "", "id of the Record", lambda record, run: record.id),
    BELIEVED,
    Column("schema_version", "integer", "", "of the Record's file", lambda record, run: record.schema_version),
    Column("created", "text", "UTC", "when it was made, ISO 8601", lambda record, run: record.created),
    Column("tritmark", "text", "", "version that made it", lambda record, run: record.environment.tritmark),
    Column(
        "commit",
        "text",
        "",
        "checked out then, with -dirty where files were changed",
        lambda record, run: record.environment.commit,
    ),
    Column("suite", "text", "", "which workloads", lambda record, run: record.suite),
    Column("machine", "text", "", "hash of what makes two machines comparable", lambda record, run: record.machine.id),
    Column("hostname", "text", "", "of the machine", lambda record, run: record.machine.hostname),
    Column("cpu", "text", "", "of the machine", lambda record, run: record.machine.cpu),
    Column("gpu", "text", "", "on which it ran; missing on the host", _gpu),
    Column("run", "text", "", "id of the Run, unique in its Record", lambda record, run: run.id),
    Column("device", "text", "", "type of device", lambda record, run: run.device),
    Column("op", "text", "", "what is computed", lambda record, run: run.op),
    Column("format", "text", "", "bit layout of packed codes", lambda record, run: run.format),
    Column("dtype", "text", "", "of the output", lambda record, run: run.dtype),
    Column("variant", "text", "", "which implementation", lambda record, run: run.variant),
    Column("kernel", "text", "", "device/op/format/dtype/variant", lambda record, run: run.kernel),
    Column("workload", "text", "", "id of the workload", lambda record, run: run.workload.id),
    Column("title", "text", "", "what its suite calls it", lambda record, run: run.workload.title),
    Column("shape", "text", "", "sizes of the op's axes, such as M=1,N=2560,K=6912", lambda record, run: _shape(run)),
    Column("family", "text", "", "of its inputs", lambda record, run: run.workload.family),
    Column("layout", "text", "", "of its arrays: aligned or unaligned", lambda record, run: run.workload.layout),
    Column("seed", "integer", "", "of its data", lambda record, run: run.workload.seed),
    Column("threads", "integer", "", "that the kernel was given", lambda record, run: run.threads),
    Column("seconds", "number", "s", "how long the whole Run took", lambda record, run: run.seconds),
    *_load(),
    Column("passed", "yes/no", "", "no dimension failed or broke", lambda record, run: run.passed),
    *_verdict("accuracy"),
    Column("cases", "integer", "", "input sets that were judged", lambda record, run: run.accuracy.cases),
    Column(
        "judged_calls",
        "integer",
        "",
        "calls that were judged, where cases were drawn",
        lambda record, run: run.accuracy.calls or None,
    ),
    Column(
        "rarest_fault",
        "number",
        "",
        "rarest fault, as a share of calls, seen with 95 %",
        lambda record, run: run.accuracy.rarest,
    ),
    Column("elements", "integer", "", "output elements that were judged", lambda record, run: run.accuracy.elements),
    Column("mismatches", "integer", "", "elements that are wrong", lambda record, run: run.accuracy.mismatches),
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
        "what a call through Python adds",
        lambda record, run: run.performance.call_overhead_ns,
    ),
    Column("read", "integer", "B", "least that the workload reads", lambda record, run: run.performance.read or None),
    Column("written", "integer", "B", "least that it writes", lambda record, run: run.performance.written or None),
    Column(
        "operations",
        "integer",
        "",
        "least arithmetic operations",
        lambda record, run: run.performance.operations or None,
    ),
    *_ratio(
        "plain_over_graph",
        "launches handed over one by one over the same in a graph",
        lambda run: run.plain,
    ),
    Column(
        "scaling_threads",
        "integer",
        "",
        "most that it was timed on",
        _of_widest("threads"),
    ),
    *_ratio(
        "scaling", "time on one thread over that on scaling_threads", lambda run: getattr(_widest(run), "speedup", None)
    ),
    *(
        Column(name, "number", "", description, _of_widest(name))
        for name, description in (
            ("efficiency", "the speed-up over scaling_threads"),
            ("balance", "mean of the busy times of the threads that took part over the largest"),
            ("utilization", "busy time of all threads over scaling_threads times the time"),
        )
    ),
    *_verdict("memory"),
    Column("inputs", "integer", "B", "of a call", _judged(lambda each: each.inputs)),
    Column("outputs", "integer", "B", "of a call", _judged(lambda each: each.outputs)),
    Column("workspace", "integer", "B", "that the kernel declares", _judged(lambda each: each.workspace)),
    Column("host_peak", "integer", "B", "most resident memory that a call adds", _judged(lambda each: each.host_peak)),
    Column(
        "device_peak",
        "integer",
        "B",
        "most of the device's memory beyond inputs and outputs",
        _judged(lambda each: each.device_peak),
    ),
    Column(
        "persistent", "integer", "B", "still held after the kernel was dropped", _judged(lambda each: each.persistent)
    ),
    Column(
        "allocated", "integer", "B", "that Python and NumPy allocate for a call", _judged(lambda each: each.allocated)
    ),
    Column(
        "page_faults",
        "number",
        "pages",
        "that a call touches for the first time",
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
        "of the packed weights, scales included",
        _judged(lambda each: each.bits_per_weight),
    ),
    *_verdict("cross"),
    Column(
        "peers",
        "integer",
        "",
        "implementations of others, and references, that it was compared with",
        lambda record, run: len(run.cross.peers),
    ),
    Column(
        "peer",
        "text",
        "",
        "the fastest of those that were timed",
        lambda record, run: getattr(_fastest(run), "peer", None),
    ),
    *_ratio(
        "peer_over_kernel",
        "that peer's time over the kernel's, by turns",
        lambda run: getattr(_fastest(run), "speedup", None),
    ),
    Column(
        "ran", "text", "", "what ran, as the code that ran says", lambda record, run: getattr(run.receipt, "ran", None)
    ),
    Column(
        "simulated",
        "yes/no",
        "",
        "a simulator stood in for the device",
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
        "what ran because `tritmark tune` measured it to be faster than the built-in choice",
        lambda record, run: getattr(run.receipt, "tuned", None),
    ),
    Column("proposals", "integer", "", "how many rules have advice for the Run", _proposals),
    Column("limits", "text", "", "what its verdicts do not cover; empty where they have no limits", _limits),
)
"""A column for each size of an axis follows them: `axis_M`, `axis_N` and so on, for the axes that the ops of the
Records have."""

SAMPLES: tuple[tuple[str, Kind, str, str], ...] = (
    ("temperature", "text", "", "cold or hot"),
    ("sample", "integer", "", "in the order taken, from 0"),
    ("sample_ns", "number", "ns", "time of a call, the mean over the sample's calls"),
    ("calls", "integer", "", "calls in a sample"),
    ("probe_ns", "number", "ns", "time of the ceiling's probe beside it; missing in version 1"),
)
"""Columns that rows for samples have besides: name, kind, unit, description."""

AXES: tuple[str, Kind, str, str] = (
    "axis_*",
    "integer",
    "",
    "size of that axis; missing for an op that has none of that name",
)
