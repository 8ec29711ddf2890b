"""The Record: everything one invocation found, as one immutable, versioned JSON file. Times are nanoseconds, sizes bytes.

A Run that could not be judged has a status that says so; contradictory states are rejected when they are made.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tritmark.harness.machine.nvml import Health
from tritmark.harness.spec import Receipt

SCHEMA_VERSION = 3
"""1: one device, the host. 2: GPUs, receipts of launches, the probe's samples, and a digest. 3: memory and cross-validation. Files of
version 1 and 2 are still read."""

HOST = "cpu"
"""The device type that is the machine itself; a Run of any other type claims a device, and has to prove it."""

_UNSEALED = "sha256:" + "0" * 64
_SEAL = re.compile(rb'\n "digest": "(sha256:[0-9a-f]{64})"\n\}\n\Z')
_SEAL_LENGTH = 88
"""Bytes of a file from the newline before the digest on."""


class Status(StrEnum):
    """How a dimension of a Run ended."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    """The candidate raised or could not be run; `reason` says what."""
    AMBIGUOUS = "ambiguous"
    """Too noisy to say."""
    NOT_RUN = "not run"
    """Left out; `reason` says why."""


class Model(BaseModel):
    """Immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Verdict(Model):
    """A dimension's outcome; everything but PASS has a reason."""

    status: Status
    reason: str = ""

    @property
    def failed(self) -> bool:
        """FAIL or ERROR."""
        return self.status in {Status.FAIL, Status.ERROR}

    @model_validator(mode="after")
    def _reason_given(self) -> Self:
        if self.status is not Status.PASS and not self.reason:
            raise ValueError(f"status {self.status.value} needs a reason")
        return self


class Divergence(Model):
    """The first element that is wrong."""

    output: str
    index: tuple[int, ...]
    expected: str
    found: str


class Accuracy(Verdict):
    """Outputs against the reference, and the guards around them."""

    family: str = ""
    """exact, rounded or bounded."""
    cases: int = 0
    """Input sets that were judged."""
    elements: int = 0
    """Output elements that were judged."""
    mismatches: int = 0
    """Elements outside what the family admits."""
    largest_error: float | None = None
    """Largest absolute difference from the reference."""
    largest_ulp: float | None = None
    """Largest difference in units of the last place of the output's dtype."""
    guards: tuple[str, ...] = ()
    """Guards that were in force: poison, zones, inputs, pages (that trap), nonfinite, process (of its own)."""
    first: Divergence | None = None


class Timing(Model):
    """Samples of one launch, all of them, and what they say."""

    samples_ns: tuple[float, ...]
    """Nanoseconds for one call, each the mean over calls_per_sample calls, in the order taken."""
    calls_per_sample: int
    median_ns: float
    q1_ns: float
    q3_ns: float
    low_ns: float
    """Lower end of the 95 % bootstrap interval of the median."""
    high_ns: float
    """Upper end of it."""
    stopped: str
    """Why sampling stopped: interval, plateau or time."""
    clock: str
    """Which clock: the native loop's, or Python's."""
    buffers: int
    """Distinct sets of arrays that were cycled through: 1 is hot."""


class Ratio(Model):
    """A against B, measured by alternating short samples: the median of the adjacent pairs' ratios, with its 95 % interval."""

    median: float
    low: float
    high: float
    pairs: int


class Against(Model):
    """How a timing compares with the ceiling that limits it: the least time this machine needs for the work, over the time taken."""

    ceiling: str
    """read, write or compute: the one that takes longest."""
    unit: str
    rate: float
    """The ceiling's median rate, measured in alternation with this kernel on the same footprint, in `unit`."""
    work: int
    """How much of that the workload needs at least, in the unit's numerator."""
    fraction: Ratio
    """1.0 is the ceiling."""
    probe_ns: tuple[float, ...] = ()
    """Samples of the ceiling's probe, nanoseconds a call, each beside the kernel's sample of the same index; empty in version 1."""
    probe_work: int = 0
    """What one call of the probe did, in the unit's numerator."""


class Footing(Model):
    """One temperature of a performance figure."""

    timing: Timing
    against: Against
    footprint: int
    """Bytes that one call touches at least."""
    rotation: int
    """Bytes that are touched before a buffer comes round again."""


class Performance(Verdict):
    """Cold and hot figures, and what the Python call adds."""

    cold: Footing | None = None
    hot: Footing | None = None
    call_overhead_ns: float | None = None
    """Median time of a call through Python minus the native one, on the same arguments."""
    read: int = 0
    written: int = 0
    operations: int = 0
    """The least traffic and work of the workload."""


class DeviceMemory(Model):
    """Bytes of a device's own memory that one call takes."""

    inputs: int
    outputs: int
    workspace: int = 0
    peak: int | None = None
    """The most that was allocated while the call was bound and ran, told by what allocates; None where it does not tell."""

    @property
    def excess(self) -> float | None:
        """What `peak` is over inputs and outputs, as a part of them."""
        least = self.inputs + self.outputs
        return None if self.peak is None or not least else (self.peak - least) / least


class Transfer(Model):
    """A copy between the host and a device's own memory."""

    nbytes: int
    ns: float

    @property
    def rate(self) -> float | None:
        """Bytes a second."""
        return self.nbytes * 1e9 / self.ns if self.ns > 0 else None


class Slope(Model):
    """Growth in bytes a call, with the 95 % interval of the slope through all samples."""

    median: float
    low: float
    high: float


class MemoryUse(Verdict):
    """The memory dimension: what calls take, keep and lose. Bytes; None where this machine or device does not tell."""

    inputs: int = 0
    outputs: int = 0
    workspace: int = 0
    """What the variant declares."""
    host_peak: int | None = None
    """Most resident memory of the process during a call, beyond what was there before it."""
    device_peak: int | None = None
    """Most of the device's memory that was in use while the call was bound and ran, beyond inputs and outputs."""
    persistent: int | None = None
    """What is still held after the launch was dropped: the device's memory where it has its own, else the host's heap."""
    allocated: int | None = None
    """Bytes that Python and NumPy allocate for a call, at the most at once."""
    page_faults: float | None = None
    """Pages that a call touches for the first time."""
    calls: int = 0
    """Calls made in the search for leaks."""
    leak: Slope | None = None
    """Growth of the process's heap."""
    device_leak: Slope | None = None
    """Growth of the device's memory in use."""
    bits_per_weight: float | None = None
    """Of the packed weights, scales included; None for an op that takes none."""
    overhead: float | None = None
    """What the call takes beyond inputs and outputs and above `floor`, over the inputs."""
    floor: int = 0
    """What measuring a peak shows of a call that does nothing: no less can be told."""


class PeerComparison(Verdict):
    """One Run against somebody else's implementation. PASS: both agree, or the peer is wrong and the kernel right; FAIL: the kernel differs
    and the exact value is not on its side; NOT_RUN: the peer is not there, or does not take this."""

    peer: str
    version: str = ""
    match: bool | None = None
    """Whether every element agrees within what the peer's arithmetic admits; None where nothing was compared."""
    elements: int = 0
    mismatches: int = 0
    largest_error: float | None = None
    """Largest absolute difference between the two."""
    first: Divergence | None = None
    """The first element in which they differ: `expected` is the peer's, `found` the kernel's."""
    exact: str = ""
    """The exact value of that element, from the reference."""
    inputs: dict[str, str] = {}
    """The inputs that meet in that element, shortened."""
    peer_wrong: bool = False
    """The exact value is the kernel's and not the peer's."""
    own_ns: float | None = None
    """Median time of the kernel, taken by turns with the peer's."""
    peer_ns: float | None = None
    speedup: Ratio | None = None
    """The peer's time over the kernel's."""
    migration_recommended: bool = False
    migration_reason: str = ""


class Cross(Verdict):
    """The cross-validation dimension."""

    peers: tuple[PeerComparison, ...] = ()


class WorkloadFacts(Model):
    """The workload as the Run met it."""

    id: str
    axes: dict[str, int]
    family: str
    layout: str
    title: str = ""
    seed: int


class Run(Model):
    """Variant x Workload: a verdict in each dimension."""

    id: str
    op: str
    format: str
    dtype: str
    device: str
    variant: str
    kernel: str
    workload: WorkloadFacts
    threads: int
    accuracy: Accuracy
    performance: Performance
    memory: MemoryUse
    cross: Cross
    receipt: Receipt | None
    seconds: float
    """How long the Run took, in seconds."""
    device_memory: DeviceMemory | None = None
    """None on the host."""
    upload: Transfer | None = None
    """The inputs' way to the device; None on the host, and where it was not timed."""
    download: Transfer | None = None
    """The outputs' way back."""

    @property
    def passed(self) -> bool:
        """No dimension failed or broke."""
        dimensions = (self.accuracy, self.performance, self.memory, self.cross)
        return not any(verdict.failed for verdict in dimensions)


class LayerScheme(Model):
    """One way of quantizing a weight matrix: absmean for the tensor, or absmax for each block."""

    scheme: str
    format: str
    zeros: float
    """Share of codes that are 0."""
    snr_db: float | None
    """Signal over quantization noise in decibel; None where there is no noise."""
    cosine: float | None
    """Cosine between the float weights and the dequantized ones; None where one of them is all zero."""
    output_cosine: float | None
    """Cosine between the layer's output with float32 weights and with quantized ones."""
    output_snr_db: float | None
    packed_bytes: int
    largest_error: float
    """Largest difference of the product from the same in float64, over the bound that was computed beforehand."""
    quantize_ns: float


class Layer(Verdict):
    """One weight matrix, quantized, packed, unpacked, multiplied, checked against float64 and measured."""

    name: str
    shape: tuple[int, int]
    dtype: str
    bytes: int
    """Size in the file."""
    schemes: tuple[LayerScheme, ...] = ()
    kernel: str = ""
    matmul_ns: float | None = None
    """Median time of one token through activation quantization and the ternary kernel, on one thread."""
    float32_ns: float | None = None
    """Median time of NumPy's float32 product of the same shapes, on one thread."""
    speedup: Ratio | None = None
    """float32 NumPy over the ternary kernel (activation quantization included)."""


class CeilingFacts(Model):
    """A ceiling as measured in this session."""

    device: str
    name: str
    level: str
    """L1, L2, L3, memory, or registers."""
    threads: int
    nbytes: int
    rate: float
    unit: str


class Gpu(Model):
    """A GPU of the machine; 0 and None where the driver does not tell."""

    index: int
    name: str
    uuid: str
    """As nvidia-smi shows it."""
    capability: tuple[int, int]
    memory: int
    l2: int
    sms: int
    clock_hz: int
    """At most."""
    memory_clock_hz: int
    memory_bus_bits: int
    peak_bandwidth: float | None = None
    """Bytes a second that the memory's clock and width allow."""
    driver: str = ""
    health: Health | None = None
    """When the invocation began."""
    faked: bool = False
    """An environment variable for tests decided that it can be used, not the machine."""


class Machine(Model):
    """Facts of the host and its GPUs; None where this machine does not tell."""

    id: str
    """Hash of what makes two machines comparable: CPU, cores, caches, memory."""
    hostname: str
    cpu: str
    vendor: str
    architecture: str
    features: tuple[str, ...]
    logical_cores: int
    physical_cores: int
    usable_cores: int
    caches: dict[str, int]
    """Bytes: L1d, L1i and L2 of one core, L3 as seen by one core."""
    memory: int
    page_size: int
    huge_pages: str | None
    governor: str | None
    numa_nodes: int
    hypervisor: str | None
    kernel: str
    ceilings: tuple[CeilingFacts, ...] = ()
    gpus: tuple[Gpu, ...] = ()


class Environment(Model):
    """What ran: versions, the compiler, variables that change the behaviour."""

    tritmark: str
    python: str
    packages: dict[str, str]
    compiler: str
    variables: dict[str, str]
    commit: str | None
    command: tuple[str, ...]
    seed: int


class Lane(Model):
    """Whether a device's part ran, and if not, why and what to do."""

    device: str
    ran: bool
    reason: str = ""
    simulated: bool = False
    """A simulator stood in for the device: what ran proves correctness and claims no speed."""


class Record(Model):
    """All Runs of one invocation. Its file ends with a digest of itself, see `sealed`."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    id: str
    created: str
    """UTC, ISO 8601."""
    suite: str
    complete: bool
    environment: Environment
    machine: Machine
    lanes: tuple[Lane, ...] = ()
    runs: tuple[Run, ...] = ()
    weights_path: str = ""
    layers: tuple[Layer, ...] = ()
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """SHA-256 of the file with this digest's digits as zeros; "" in version 1 and in what was not written yet. Stays the last field."""

    @property
    def passed(self) -> bool:
        """Every Run and layer passed, and there was at least one."""
        fine = all(run.passed for run in self.runs) and all(layer.status is Status.PASS for layer in self.layers)
        return fine and bool(self.runs or self.layers)


class Seal(NamedTuple):
    """The digest that a file ends with, and the one that its bytes have."""

    claimed: str
    found: str

    @property
    def whole(self) -> bool:
        """No byte was changed since it was written."""
        return self.claimed == self.found


def sealed(record: Record) -> str:
    """The text of the Record's file, the digest at its end. It finds changes, but not who changes it as well."""
    text = record.model_copy(update={"digest": _UNSEALED}).model_dump_json(indent=1) + "\n"
    begin, digits, end = text.rpartition(_UNSEALED)
    assert digits
    return f"{begin}sha256:{sha256(text.encode()).hexdigest()}{end}"


def seal(data: bytes) -> Seal | None:
    """The seal of a file's bytes, or None where they do not end with one."""
    found = _SEAL.search(data, max(0, len(data) - _SEAL_LENGTH))
    if found is None:
        return None
    start, end = found.span(1)
    digest = sha256(data[:start] + _UNSEALED.encode() + data[end:]).hexdigest()
    return Seal(found[1].decode(), f"sha256:{digest}")
