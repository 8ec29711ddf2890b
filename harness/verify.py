"""Checks whether a Record can be believed: it was not changed, its figures follow from their samples, and claims about
devices are proven.

A Run on a device other than the host claims that this device ran it. The proof is its receipt, which the launcher wrote
at the launch. The rules know no op: they use the receipt, the facts of the GPU that it names, and the limits of that
GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, inf, log
from pathlib import Path

import numpy as np

from tritmark.harness.errors import RecordError
from tritmark.harness.judge.throttled import throttling
from tritmark.harness.measure.statistics import LEAST_SAMPLES, median
from tritmark.harness.providers import load
from tritmark.harness.record import HOST, FileDigest, Gpu, Measurement, Ratio, Record, Run, Status, Timing, read_digest
from tritmark.harness.spec import Receipt
from tritmark.harness.store import read, read_anyhow
from tritmark.harness.text import units
from tritmark.harness.text.groups import counted
from tritmark.harness.validate.ceiling import TELLING
from tritmark.harness.validate.draw import THREADS

SIMULATOR = "SIMULATOR"
"""The uuid of a simulated GPU."""

_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH = re.compile(r"[0-9a-f]{64}")
_OF_NOTHING = sha256(b"").hexdigest()
_STAND_IN = re.compile(r"mock|fake|dummy|stub", re.IGNORECASE)
_ROUNDING = 1e-9
"""Another version of NumPy may round the last digits of a quantile differently."""
_MOST_FAULTS = 10
_OWN_COUNTS = 9
"""Schema version from which a Record's counts leave out peers."""


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """The result of one check. It passed if it has no faults; `detail` then states what was found."""

    name: str
    detail: str
    faults: tuple[str, ...] = ()
    note: bool = False
    """Passed, but worth a reader's attention."""

    @property
    def status(self) -> str:
        """FAIL, NOTE or PASS."""
        return "FAIL" if self.faults else "NOTE" if self.note else "PASS"

    @property
    def lines(self) -> list[str]:
        """One line, and one for each further fault."""
        if not self.faults:
            return [f"{self.status} {self.name}: {self.detail}"]
        first, *further = self.faults[:_MOST_FAULTS]
        more = [f"and {len(self.faults) - _MOST_FAULTS} more"] if len(self.faults) > _MOST_FAULTS else []
        return [f"{self.status} {self.name}: {first}", *(f"     {self.name}: {text}" for text in (*further, *more))]


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of one Record."""

    id: str
    checks: tuple[RecordCheck, ...]

    @property
    def passed(self) -> bool:
        """No check failed."""
        return not any(check.faults for check in self.checks)


def verify(path: Path, *, allow_simulated: bool = False) -> Verification:
    """Check the Record in that file. With `allow_simulated`, a simulated Record passes if it claims no speed.

    Raises RecordError for a file that is not a Record, or has a newer version.
    """
    data = b""
    try:
        record = read_anyhow(path)
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(
            path=str(path), found=error.strerror or str(error), legal="a file that can be read"
        ) from error
    except RecordError as error:
        data = data or _bytes(path)
        found = read_digest(data)
        if found is None or found.unchanged:
            raise
        return Verification("", (_digest(found, 0), RecordCheck("contents", "", (f"it was a Record: {error.found}",))))
    return Verification(
        record.id,
        (
            _digest(read_digest(data), record.schema_version, record.digest),
            *check(record, allow_simulated=allow_simulated),
        ),
    )


def believed(path: Path) -> tuple[Record, tuple[str, ...]]:
    """The Record in that file, and its faults. An output that shows the Record must show the faults.

    Raises RecordError for a file that is not a Record, or was changed after it was written.
    """
    record = read(path)
    return record, refuted(record)


def refuted(record: Record) -> tuple[str, ...]:
    """Contradictions and impossible figures in a Record, as sentences; empty if it is believed. Simulation that the
    Record states is not a fault."""
    return tuple(f"{each.name}: {fault}" for each in check(record, allow_simulated=True) for fault in each.faults)


def check(record: Record, *, allow_simulated: bool = False) -> tuple[RecordCheck, ...]:
    """All checks except that of the file's digest."""
    claims = [run for run in record.runs if run.device != HOST and _claims(run)]
    devices = ", ".join(dict.fromkeys(run.device for run in claims)) or "a device other than the host"
    figures = [footing for run in record.runs for _, footing in _footings(run)]
    return (
        _of(
            "statuses",
            f"{units.counted(len(record.runs), 'Run')}, {units.counted(len(record.layers), 'layer')}",
            _each(record.runs, _statuses),
        ),
        _of("counts", "match the Runs" if record.counts else "none are stored", _counts(record)),
        _of("limits", f"{units.counted(len(record.not_judged), 'item')} not judged, and listed", _limits(record)),
        _of("figures", f"{len(figures)} follow from their samples", _each(record.runs, _figures)),
        _of("duplicates", "none", _duplicates(record)),
        _of(
            "lanes",
            ", ".join(f"{lane.device} {'ran' if lane.ran else 'not run'}" for lane in record.lanes),
            _lanes(record),
        ),
        _of("kernels", "the requested kernels ran", _each(record.runs, _kernels)),
        _of(
            "receipts",
            f"{units.counted(len(claims), 'Run')} {'claims' if len(claims) == 1 else 'claim'} {devices}",
            _receipts(record, claims),
        ),
        _simulated(record, claims, allow_simulated),
        _of("speeds", f"{len(figures)} are possible", _speeds(record, claims)),
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _digest(found: FileDigest | None, version: int, digest: str = "") -> RecordCheck:
    if found is not None:
        fault = f"the file was changed after it was written: it states {found.claimed}, and has {found.found}"
        return RecordCheck("digest", f"{found.found} matches the file", () if found.unchanged else (fault,))
    if version == 1 and not digest:
        return RecordCheck("digest", "no digest, because the file was written before version 2", note=True)
    return RecordCheck("digest", "", ("the file does not end with a digest, as version 2 or newer does",))


def _of(name: str, given: str, faults: Iterable[str]) -> RecordCheck:
    return RecordCheck(name, given, tuple(faults))


def _each(runs: Iterable[Run], rule: Callable[[Run], Iterator[str]]) -> Iterator[str]:
    for run in runs:
        for fault in rule(run):
            yield f"{run.id}: {fault}"


def _footings(run: Run) -> list[tuple[str, Measurement]]:
    both = (("cold", run.performance.cold), ("hot", run.performance.hot))
    return [(name, footing) for name, footing in both if footing is not None]


def _claims(run: Run) -> bool:
    """Whether the Run claims that its device ran the kernel."""
    return run.accuracy.status is Status.PASS or bool(_footings(run)) or run.receipt is not None


# Consistency


def _statuses(run: Run) -> Iterator[str]:
    accuracy, performance = run.accuracy, run.performance
    if accuracy.status is Status.PASS and (accuracy.mismatches or accuracy.first is not None):
        yield f"accuracy passed with {units.counted(accuracy.mismatches, 'incorrect element')}"
    if accuracy.status is Status.PASS and not (accuracy.cases and accuracy.elements):
        elements = units.counted(accuracy.elements, "element")
        yield f"accuracy passed on {units.counted(accuracy.cases, 'case')} and {elements}"
    if accuracy.status is Status.NOT_RUN and (accuracy.cases or run.receipt is not None):
        yield "accuracy was not run, and has cases or a receipt"
    if accuracy.status is Status.PASS and run.receipt is None:
        yield "accuracy passed without a receipt"
    if accuracy.status is Status.PASS and run.receipt is not None and run.receipt.runs < accuracy.cases:
        yield f"{accuracy.cases} cases were judged, and the code ran {run.receipt.runs} times"
    if accuracy.status is Status.PASS and accuracy.uncovered:
        yield f"accuracy passed, and no case reached: {', '.join(accuracy.uncovered)}"
    if accuracy.rarest is not None and accuracy.rarest < 0.99 * rarest(accuracy.calls):
        yield f"{accuracy.calls} calls cannot detect a fault in {accuracy.rarest:.3g} of them with 95 % probability"
    if performance.status is Status.PASS and not _footings(run):
        yield "performance passed without a figure"
    if performance.status is Status.PASS and run.load is not None and (slowed := throttling(run.load)):
        yield f"performance passed, and the processor was throttled: {', '.join(slowed)}"
    if performance.status is Status.NOT_RUN and _footings(run):
        yield "performance was not run, and has figures"
    if performance.status is Status.PASS and accuracy.status is not Status.PASS:
        yield f"performance passed, and accuracy is {accuracy.status.value}"


def rarest(calls: int) -> float:
    """The smallest share of faulty calls that this number of independent calls detects with a probability of 95 %."""
    return 1.0 - 0.05 ** (1.0 / calls) if calls else 1.0


def _counts(record: Record) -> Iterator[str]:
    found = counted(record.runs if record.schema_version < _OWN_COUNTS else record.own)
    for dimension, counts in record.counts.items():
        if counts != found.get(dimension):
            yield f"{dimension} is counted as {counts}, and the Runs give {found.get(dimension)}"


def _limits(record: Record) -> Iterator[str]:
    """The list of what was not judged, which the headline uses, contains every limit of a verdict."""
    reported = {(each.told, name) for each in record.not_judged for name in each.about}
    for run in record.runs:
        for verdict in (run.accuracy, run.performance, run.memory):
            for limit in verdict.limits:
                if (limit, run.kernel) not in reported:
                    yield f"{run.id}: its limit is not listed as not judged: {limit}"


def _figures(run: Run) -> Iterator[str]:
    performance = run.performance
    needs = {"read": performance.read, "write": performance.written, "compute": performance.operations}
    sampled = 0.0
    for name, footing in _footings(run):
        timing, against = footing.timing, footing.against
        sampled += sum(timing.samples_ns) * timing.calls_per_sample
        faults = [*_timing(timing), *(_fraction(footing) if timing.samples_ns and min(timing.samples_ns) > 0 else ())]
        if against.ceiling in needs and against.work != needs[against.ceiling]:
            faults.append(
                f"{against.work} is not the {needs[against.ceiling]} that the workload has to {against.ceiling}"
            )
        if footing.footprint < performance.read + performance.written:
            faults.append(f"a footprint of {footing.footprint} bytes is less than what is read and written")
        if name == "hot" and timing.buffers != 1:
            faults.append(f"it cycled through {timing.buffers} sets of arrays")
        yield from (f"{name}: {fault}" for fault in faults)
    if sampled > run.seconds * 1e9:
        yield f"its samples took {sampled * 1e-9:.6g} s, and the whole Run {run.seconds:.6g} s"
    if run.receipt is not None and run.receipt.device_ns > run.seconds * 1e9:
        yield f"its launches took {run.receipt.device_ns * 1e-9:.6g} s, and the whole Run {run.seconds:.6g} s"


def _timing(timing: Timing) -> Iterator[str]:
    samples = timing.samples_ns
    if not samples or min(samples) <= 0 or timing.calls_per_sample < 1:
        yield "no samples, or one that took no time"
        return
    q1, middle, q3 = np.quantile(samples, (0.25, 0.5, 0.75))
    for name, claimed, found in (
        ("median", timing.median_ns, middle),
        ("q1", timing.q1_ns, q1),
        ("q3", timing.q3_ns, q3),
    ):
        if not _near(claimed, float(found)):
            yield f"its {name} is {claimed:.6g} ns, and that of its samples {found:.6g} ns"
    few = len(samples) < LEAST_SAMPLES  # the interval of few samples exceeds their range
    least, most = (0.0, inf) if few else (min(samples) * (1 - _ROUNDING), max(samples) * (1 + _ROUNDING))
    if not least <= timing.low_ns <= timing.median_ns <= timing.high_ns <= most:
        yield f"the interval from {timing.low_ns:.6g} to {timing.high_ns:.6g} ns does not fit its median"


def _fraction(footing: Measurement) -> Iterator[str]:
    """The share of the ceiling and its rate follow from the pairs of samples. Version 1 has only the kernel's samples,
    which give bounds."""
    samples, against = footing.timing.samples_ns, footing.against
    ratio = against.fraction
    yield from _ordered(ratio)
    if ratio.pairs != len(samples):
        yield f"{ratio.pairs} pairs, and {len(samples)} samples"
        return
    if not against.probe_ns:
        # The median of the ratios lies within the probe's median over the kernel's extremes, except that the two middle
        # samples may differ.
        least = against.work * 1e9 / against.rate
        lowest, highest = least / max(samples), least / min(samples)
        if not (1 - TELLING) * lowest <= ratio.median <= (1 + TELLING) * highest:
            yield f"{ratio.median:.4g} of the ceiling, and its samples allow {lowest:.4g} to {highest:.4g}"
        return
    if len(against.probe_ns) != len(samples) or min(against.probe_ns) <= 0 or against.probe_work < 1:
        yield (
            f"{len(against.probe_ns)} samples of the probe of {against.probe_work} {against.unit} beside {len(samples)}"
        )
        return
    rate = against.probe_work * 1e9 / median(against.probe_ns)
    if not _near(against.rate, rate):
        yield f"the ceiling is {against.rate:.6g} {against.unit}, and that of the probe's samples {rate:.6g}"
    logs = np.log(against.probe_ns) - np.log(samples) + log(against.work / against.probe_work)
    found = exp(float(np.median(logs)))
    if not _near(ratio.median, found):
        yield f"{ratio.median:.6g} of the ceiling, and its pairs of samples have {found:.6g}"
    if len(logs) < LEAST_SAMPLES:
        return
    if not exp(float(logs.min())) * (1 - _ROUNDING) <= ratio.low or not ratio.high <= exp(float(logs.max())) * (
        1 + _ROUNDING
    ):
        yield f"the interval from {ratio.low:.6g} to {ratio.high:.6g} lies outside of every pair"


def _ordered(ratio: Ratio) -> Iterator[str]:
    if not 0 < ratio.low <= ratio.median * (1 + _ROUNDING) or not ratio.median <= ratio.high * (1 + _ROUNDING):
        yield f"{ratio.median:.6g} is not within {ratio.low:.6g} to {ratio.high:.6g}"


def _near(claimed: float, found: float) -> bool:
    return abs(claimed - found) <= _ROUNDING * abs(found)


def _duplicates(record: Record) -> Iterator[str]:
    named: dict[str, Sequence[object]] = {
        "Run": [run.id for run in record.runs],
        "layer": [layer.name for layer in record.layers],
        "lane": [lane.device for lane in record.lanes],
        "GPU": [gpu.uuid for gpu in record.machine.gpus],
        "kernel and workload": [(run.kernel, run.workload.id, run.threads) for run in record.runs],
    }
    for what, names in named.items():
        yield from (f"{what} {name} occurs {count} times" for name, count in Counter(names).items() if count > 1)
    taken: dict[tuple[float, ...], str] = {}
    for run in record.runs:
        for name, footing in _footings(run):
            samples = footing.timing.samples_ns
            # Equal samples by chance need a very coarse clock.
            if len(set(samples)) > 2:
                before = taken.setdefault(samples, f"{run.id}, {name}")
                if before != f"{run.id}, {name}":
                    yield f"{run.id}, {name}: its samples are those of {before}"


def _lanes(record: Record) -> Iterator[str]:
    lanes = {lane.device: lane for lane in record.lanes}
    for device in dict.fromkeys(run.device for run in record.runs):
        if device not in lanes:
            yield f"{device}: it has Runs and no lane"
    for device, lane in lanes.items():
        receipts = [run.receipt for run in record.runs if run.device == device and run.receipt is not None]
        ran = bool(receipts) or any(layer.kernel.startswith(f"{device}/") for layer in record.layers)
        if lane.ran != ran:
            yield (
                f"{device}: the lane states that it {'ran' if lane.ran else 'did not run'}, and the Runs that it "
                f"{'did' if ran else 'did not'}"
            )
        if not lane.ran and not lane.reason:
            yield f"{device}: not run, and no reason is given"
        if receipts and lane.simulated != any(receipt.simulated for receipt in receipts):
            yield f"{device}: the lane {'is' if lane.simulated else 'is not'} simulated, and its receipts differ"


def _kernels(run: Run) -> Iterator[str]:
    name = f"{run.device}/{run.op}/{run.format}/{run.dtype}/{run.variant}"
    if run.kernel != name:
        yield f"its kernel is {run.kernel}, and it is a Run of {name}"
    receipt = run.receipt
    if receipt is None:
        return
    if receipt.kernel != run.kernel:
        yield f"the receipt is of {receipt.kernel}"
    if run.accuracy.status is not Status.PASS:
        return
    if receipt.ran != run.variant:
        yield f"{receipt.ran or 'nothing'} ran in place of {run.variant}"
    # Drawn cases have their own axes and thread counts.
    allowed = max(1, run.threads, *(() if run.workload.axes else THREADS))
    if receipt.runs < 1 or not 1 <= receipt.threads <= allowed:
        yield f"{receipt.runs} runs on {receipt.threads} of {allowed} threads"
    if receipt.code_hash and not _HASH.fullmatch(receipt.code_hash):
        yield f"{receipt.code_hash!r} is not a SHA-256"
    if run.device == HOST and (receipt.uuid or receipt.functions or receipt.launches or receipt.simulated):
        yield "it ran on the host, and its receipt is that of a device"


# Claims of devices


def _receipts(record: Record, claims: Sequence[Run]) -> Iterator[str]:
    units = {lane.device: lane.units for lane in record.lanes}
    functions = (
        tuple(prefix for provider in load().providers.values() for prefix in provider.functions) if claims else ()
    )
    if claims and record.schema_version < 2:
        yield "a Record of version 1 has no receipts of launches, so it can claim the host alone"
    for run in claims:
        if run.receipt is None:
            yield f"{run.id}: claims {run.device} without a receipt"
        else:
            there = units.get(run.device, ())
            wrong = _unit(run.receipt, run.device, there) if there else _gpu(run.receipt, record)
            # A peer's functions may have any name.
            known = ("",) if run.peer else functions
            yield from (f"{run.id}: {fault}" for fault in (*wrong, *_receipt(run.receipt, run.device, known)))
    for layer in record.layers:
        device = layer.kernel.partition("/")[0]
        if device not in {"", HOST}:
            yield f"layer {layer.name}: claims {device}, and layers have no receipts"


def _unit(receipt: Receipt, device: str, units: tuple[str, ...]) -> Iterator[str]:
    """Faults in where a kernel ran, on a device that names its units itself."""
    if receipt.simulated or receipt.uuid == SIMULATOR:
        yield from _posing(receipt)
    elif receipt.uuid not in units:
        yield f"{receipt.uuid or 'nothing'!r} is not a unit of {device} in this machine: {', '.join(units)}"


def _posing(receipt: Receipt) -> Iterator[str]:
    if not (receipt.simulated and receipt.uuid == SIMULATOR):
        yield f"uuid {receipt.uuid or 'none'}, and simulated is {receipt.simulated}: one of them is incorrect"


def _gpu(receipt: Receipt, record: Record) -> Iterator[str]:
    """Faults in where a kernel ran, on a device whose units are the machine's GPUs."""
    gpus = {gpu.uuid: gpu for gpu in record.machine.gpus}
    gpu = gpus.get(receipt.uuid)
    asked = record.environment.variables.get("TRITMARK_CUDA", "").strip().lower() == "simulator"
    if receipt.simulated or receipt.uuid == SIMULATOR:
        yield from _posing(receipt)
    elif asked:
        yield "it claims a real device, and TRITMARK_CUDA selects the simulator"
    elif not _UUID.fullmatch(receipt.uuid):
        yield f"{receipt.uuid!r} is not a uuid of a GPU"
    elif gpu is None:
        yield f"{receipt.uuid} is not a GPU of this machine: {', '.join(gpus) or 'it has none'}"
    elif gpu.faked:
        yield f"{gpu.name}: an environment variable for tests decided that it can be used"


def _receipt(receipt: Receipt, device: str, functions: tuple[str, ...]) -> Iterator[str]:
    """Faults in the proof that a device ran a kernel."""
    if not receipt.native:
        yield "no kernel ran: it was replaced by dequantized computation"
    if receipt.kernel.startswith(f"{HOST}/"):
        yield f"{receipt.kernel} is a kernel of the host"
    strange = [
        name for name in receipt.functions if not name.startswith(functions) and not receipt.ran.endswith(f".{name}")
    ]
    if strange or not receipt.functions:
        yield (
            f"it launched {', '.join(strange) or 'no function'}; functions of {device} begin with "
            f"{', '.join(functions)}"
        )
    yield from (
        f"{name} replaces a kernel"
        for name in (receipt.kernel, receipt.ran, *receipt.functions)
        if _STAND_IN.search(name)
    )
    if receipt.launches < max(1, receipt.runs):
        yield f"{receipt.launches} launches for {receipt.runs} runs"
    if not receipt.simulated and not (receipt.device_ns > 0 and 1 <= receipt.timed_runs <= receipt.runs):
        yield f"the device measured {receipt.device_ns:.6g} ns for {receipt.timed_runs} of {receipt.runs} runs"
    if not _HASH.fullmatch(receipt.code_hash) or receipt.code_hash == _OF_NOTHING:
        yield f"{receipt.code_hash or 'nothing'!r} is not a SHA-256 of a binary"


def _simulated(record: Record, claims: Sequence[Run], allowed: bool) -> RecordCheck:
    """A simulator proves that a kernel is correct, and nothing about its time."""
    lanes = {lane.device for lane in record.lanes if lane.simulated}
    simulated = [
        run
        for run in claims
        if run.device in lanes or (run.receipt and (run.receipt.simulated or run.receipt.uuid == SIMULATOR))
    ]
    if not simulated:
        return RecordCheck("simulated", "no Run")
    faults = []
    for run in simulated:
        if _footings(run) or run.performance.call_overhead_ns is not None:
            faults.append(f"{run.id}: claims a speed")
        elif run.upload or run.download or (run.receipt and run.receipt.device_ns):
            faults.append(f"{run.id}: claims a time of a device")
    devices = {run.device for run in simulated}
    faults += [
        f"{each.device} {each.name}: claims a rate" for each in record.machine.ceilings if each.device in devices
    ]
    text = "SIMULATED: proves correctness, claims no speed"
    if not allowed:
        faults.append(f"{text}; next: add --allow-simulated to accept it as such")
    return RecordCheck("simulated", text, tuple(faults), note=True)


# What is possible


def _speeds(record: Record, claims: Sequence[Run]) -> Iterator[str]:
    gpus = {gpu.uuid: gpu for gpu in record.machine.gpus}
    yield from _each((run for run in record.runs if run.performance.status is Status.PASS), _outrun)
    peaks = [gpu.peak_bandwidth for gpu in gpus.values() if gpu.peak_bandwidth]
    others = {HOST, *(lane.device for lane in record.lanes if lane.units)}
    for each in record.machine.ceilings:
        if (
            each.device not in others
            and each.level == "memory"
            and each.unit == "bytes/s"
            and peaks
            and each.rate > max(peaks)
        ):
            yield (
                f"ceiling {each.device} {each.name}: {each.rate:.4g} bytes/s, and the memory's clock and width allow "
                f"{max(peaks):.4g}"
            )
    for run in claims:
        gpu = gpus.get(run.receipt.uuid) if run.receipt else None
        yield from (f"{run.id}: {fault}" for fault in (*(_bandwidth(run, gpu) if gpu else ()), *_ceilings(run, record)))


def _outrun(run: Run) -> Iterator[str]:
    """A Run that passed is not faster than the fastest sample of its probe by more than TELLING."""
    for name, footing in _footings(run):
        against = footing.against
        if against.probe_ns and against.probe_work > 0 and not against.lost:
            least = against.work / against.probe_work * min(against.probe_ns)
            if footing.timing.median_ns < (1 - TELLING) * least:
                took = footing.timing.median_ns
                yield (
                    f"{name}: passed with {took:.6g} ns a call, and the fastest {against.ceiling} probe takes "
                    f"{least:.6g}"
                )


def _bandwidth(run: Run, gpu: Gpu) -> Iterator[str]:
    """No figure exceeds the bandwidth of the GPU's memory, which follows from its clock and width. The L2 may serve
    some bytes.

    Of the bytes that the calls touch in a cycle, at most `l2` are still in the L2 at their next use, under any
    replacement policy. A figure is refused if even the slow end of its interval needs more than the peak bandwidth.
    """
    if not gpu.peak_bandwidth:
        return
    moved = run.performance.read + run.performance.written
    for name, footing in _footings(run):
        cycle = min(footing.rotation, footing.timing.buffers * footing.footprint)
        needed = moved * (1 - min(1.0, gpu.l2 / max(cycle, 1)))
        rate = needed * 1e9 / footing.timing.high_ns if footing.timing.high_ns > 0 else 0.0
        if rate > gpu.peak_bandwidth:
            yield (
                f"{name}: {rate:.4g} bytes/s from memory, and the memory's clock and width allow "
                f"{gpu.peak_bandwidth:.4g}"
            )
    receipt = run.receipt
    if receipt is not None and receipt.device_ns > 0 and receipt.timed_runs > 0:
        # A single run may read its inputs from the L2, and leave its outputs there.
        least = (moved - 2 * gpu.l2) * 1e9 / gpu.peak_bandwidth
        took = receipt.device_ns / receipt.timed_runs
        if took < least:
            yield f"the device measured {took:.6g} ns a run, and moving its data takes {least:.6g} ns at least"


def _ceilings(run: Run, record: Record) -> Iterator[str]:
    """No figure that passed exceeds the fastest ceiling measured on its device, in any cache, or by its probe."""
    if run.performance.status is not Status.PASS:
        return
    needs = {"read": run.performance.read, "write": run.performance.written, "compute": run.performance.operations}
    for name, footing in _footings(run):
        against = footing.against
        if against.lost:
            continue
        for ceiling, need in needs.items():
            rates = [each.rate for each in record.machine.ceilings if (each.device, each.name) == (run.device, ceiling)]
            if against.ceiling == ceiling:
                rates += [
                    against.rate,
                    *([against.probe_work * 1e9 / min(against.probe_ns)] if against.probe_ns else []),
                ]
            rate = need * 1e9 / footing.timing.high_ns if footing.timing.high_ns > 0 else 0.0
            if rates and rate * (1 - TELLING) > max(rates):
                yield f"{name}: {rate:.4g} a second to {ceiling}, and the fastest measured is {max(rates):.4g}"
