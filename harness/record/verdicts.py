"""A Run's four dimensions: accuracy, performance, memory, cross-validation. Times are nanoseconds, sizes bytes."""

from __future__ import annotations

from pydantic import Field

from tritmark.harness.record.model import TOO_NOISY, Divergence, Model, Ratio, Slope, Verdict, half_width


class Guarded(Verdict):
    """A verdict with the guards that detected a fault."""

    caught_by: tuple[str, ...] = ()
    """Names of the guards that detected a fault, in the order in which they run; empty for PASS and before version
    6."""
    limits: tuple[str, ...] = ()
    """What the verdict does not cover, one sentence each, for any status; empty before version 8."""


class Accuracy(Guarded):
    """The accuracy dimension: outputs compared with the reference, and the guards around them."""

    family: str = ""
    """exact, rounded or bounded."""
    cases: int = 0
    """Input sets that were judged."""
    elements: int = 0
    """Output elements that were judged."""
    mismatches: int = 0
    """Elements that differ by more than the family admits."""
    largest_error: float | None = None
    """Largest absolute difference from the reference."""
    largest_ulp: float | None = None
    """Largest difference in units of the last place of the output's dtype."""
    guards: tuple[str, ...] = ()
    """Active guards: poison, zones, inputs, pages (trapping pages), nonfinite, process (a separate process)."""
    first: Divergence | None = None
    """The first incorrect element; None if there is none."""
    calls: int = 0
    """Calls whose outputs were judged; 0 if the Run does not count them."""
    rarest: float | None = None
    """The rarest fault, as a share of calls, that the cases detect with a probability of 95 %; None if no case was
    drawn."""
    covered: tuple[str, ...] = ()
    """Classes of inputs that the cases reached, such as residues of axes, thread counts, offsets and families."""
    uncovered: tuple[str, ...] = ()
    """Classes that the contract and the kernel's constraints admit and no case reached."""
    seed: int = 0
    """Seed of the drawn cases; 0 if none were drawn."""
    failed_case: str = ""
    """The case that failed, for a repetition; "" if none failed."""
    borrowed: tuple[str, ...] = ()
    """Installed kernels or libraries of peers whose code was in the kernel's process. Its times are theirs, so no
    table of the best lists it."""
    held_to: tuple[str, ...] = ()
    """For code that queries the processor's features: the lower feature levels at which it was judged too, in
    processes that hide the features above them."""


class Timing(Model):
    """All samples of one launch, and the figures that follow from them."""

    samples_ns: tuple[float, ...]
    """Time of one call, each the mean over `calls_per_sample` calls, in the order taken, to four significant digits.
    All figures are computed from these rounded numbers."""
    # Rounding errs by 0.05 % at most, less than the effect of a kernel's address, and halves the size of a file.
    calls_per_sample: int
    median_ns: float
    q1_ns: float
    q3_ns: float
    low_ns: float
    """Lower end of the 95 % interval of the median."""
    high_ns: float
    """Upper end of the 95 % interval of the median."""
    stopped: str
    """Why sampling stopped: interval, plateau or time."""
    clock: str
    """The clock of the native loop, or of Python."""
    buffers: int
    """Number of sets of arrays that the calls cycle through; 1 is hot."""

    @property
    def too_noisy(self) -> bool:
        """The interval of the median is wider than TOO_NOISY."""
        return half_width(self.median_ns, self.low_ns, self.high_ns) > TOO_NOISY


class CeilingComparison(Model):
    """A timing relative to the ceiling that limits it."""

    ceiling: str
    """read, write or compute: the one that takes longest."""
    unit: str
    rate: float
    """Median rate of the ceiling in `unit`, interleaved with this kernel on the same footprint."""
    work: int
    """Least work of the workload, in the numerator of `unit`."""
    fraction: Ratio
    """Least time that this machine needs for the work / measured time; 1.0 is the ceiling."""
    probe_ns: tuple[float, ...] = ()
    """Samples of the probe in ns per call, each adjacent to the kernel's sample of the same index; empty in version
    1."""
    probe_work: int = 0
    """Work of one call of the probe, in the numerator of `unit`."""
    lost: bool = False
    """`fraction` is not usable: the kernel was faster than the probe (and not below the floor), or something delayed
    the probe throughout."""


class Measurement(Model):
    """The cold or the hot figure of a Run."""

    timing: Timing
    against: CeilingComparison
    footprint: int
    """Bytes that one call touches at least."""
    rotation: int
    """Bytes that calls touch before the same arrays are used again."""

    @property
    def too_noisy(self) -> bool:
        """The time or the fraction of the ceiling is too noisy."""
        return self.timing.too_noisy or (not self.against.lost and self.against.fraction.too_noisy)


class Performance(Guarded):
    """The performance dimension: cold and hot figures, and the overhead of a call through Python."""

    cold: Measurement | None = None
    hot: Measurement | None = None
    call_overhead_ns: float | None = None
    """Median time of a call through Python minus a native call, on the same arguments."""
    read: int = 0
    """Least bytes that the workload reads."""
    written: int = 0
    """Least bytes that the workload writes."""
    operations: int = 0
    """Least arithmetic operations of the workload."""
    doubted: bool = False
    """A guard questioned or refuted the figures. They are kept as evidence and must not be shown as figures."""
    tests: int = 0
    """Statistical tests that can fail an honest kernel by chance: clocks, floors, active threads."""
    repeated: int = 0
    """Number of these tests that failed and were repeated in a fresh process."""
    looks: int = 0
    """Calls in laps whose outputs the harness's process judged; 0 without such laps, and before version 9."""
    proven_cold_ns: float | None = None
    """Least time of a cold call by the harness's clock, from those laps; None without laps."""
    proven_hot_ns: float | None = None
    """Least time of a hot call: the cold one minus what reading as many bytes gains in caches."""


class DeviceMemory(Model):
    """The device memory that one call takes, in bytes."""

    inputs: int
    outputs: int
    workspace: int = 0
    peak: int | None = None
    """Most memory that was allocated while the call was bound and ran; None if the allocator does not report it."""

    @property
    def excess(self) -> float | None:
        """`peak` beyond inputs and outputs, as a share of them."""
        least = self.inputs + self.outputs
        return None if self.peak is None or not least else (self.peak - least) / least


class Transfer(Model):
    """A copy between host memory and device memory."""

    nbytes: int
    ns: float

    @property
    def rate(self) -> float | None:
        """Bytes per second."""
        return self.nbytes * 1e9 / self.ns if self.ns > 0 else None


class MemoryUse(Guarded):
    """The memory dimension, in bytes; None if this machine or device does not report it."""

    inputs: int = 0
    """Inputs of one call."""
    outputs: int = 0
    """Outputs of one call."""
    workspace: int = 0
    """Workspace that the variant declares."""
    host_peak: int | None = None
    """Most resident memory that a call adds to the process."""
    device_peak: int | None = None
    """Most device memory in use while the call was bound and ran, beyond inputs and outputs."""
    persistent: int | None = None
    """Memory still held after the first launches were dropped: of the device if it has its own memory, else of the
    host, including what the system holds for the process."""
    persistent_floor: int = 0
    """`persistent` of a kernel that does nothing on as many threads."""
    allocated: int | None = None
    """Peak of what Python and NumPy allocate for a call."""
    page_faults: float | None = None
    """Pages that a call touches for the first time."""
    calls: int = 0
    """Calls in the leak test."""
    leak: Slope | None = None
    """Growth of the process's heap."""
    device_leak: Slope | None = None
    """Growth of the device memory in use."""
    bits_per_weight: float | None = None
    """Bits of the packed weights, scales included; None for an op without weights."""
    overhead: float | None = None
    """Memory of a call beyond inputs, outputs and `floor`, as a share of the inputs."""
    floor: int = 0
    """Peak that is measured for a call that does nothing. Smaller peaks cannot be measured."""
    tests: int = 0
    """Decisions that rest on readings: the growth of each series, the peak, and persistent memory."""
    alarms: int = 0
    """Decisions against the kernel in the first process."""
    confirmed: int = 0
    """Alarms that a fresh process confirmed."""


class PeerComparison(Verdict):
    """One Run compared with a peer. PASS: both agree, or the peer is incorrect and the kernel correct. FAIL: they
    differ and the kernel does not have the exact value. NOT RUN: the peer is not installed, or does not support this
    workload."""

    peer: str
    version: str = ""
    match: bool | None = None
    """Every element agrees within the error that the peer's arithmetic admits; None if nothing was compared."""
    elements: int = 0
    mismatches: int = 0
    largest_error: float | None = None
    """Largest absolute difference between the two."""
    first: Divergence | None = None
    """The first element that differs: `expected` is the peer's value, `found` the kernel's."""
    exact: str = ""
    """The exact value of that element, from the reference."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """The inputs of that element, shortened."""
    peer_wrong: bool = False
    """The kernel has the exact value and the peer does not."""
    own_ns: float | None = None
    """Median time of the kernel, interleaved with the peer."""
    peer_ns: float | None = None
    """Median time of the peer."""
    speedup: Ratio | None = None
    """The peer's time over the kernel's."""
    migration_recommended: bool = False
    """The strict rule: the kernel is correct, and the whole 95 % interval of `speedup` is above 1."""
    migration_reason: str = ""
    """Reason for the result of the strict rule; "" for a reference, which has no speed to compare."""
    migration_within_tenth: bool | None = None
    """The lenient rule (specification, 7.3): every element agrees, and the kernel is at most 10 % slower than the peer.
    None if nothing was timed, and in old Records."""
    reference: bool = False
    """The peer is a reference, written for clarity and not for speed. Only its values are compared."""


class Cross(Verdict):
    """The cross-validation dimension."""

    peers: tuple[PeerComparison, ...] = ()
