"""A Run's four dimensions: accuracy, performance, memory, cross-validation. Times are nanoseconds, sizes bytes."""

from __future__ import annotations

from pydantic import Field

from tritmark.harness.record.model import TOO_NOISY, Divergence, Model, Ratio, Slope, Verdict, half_width


class Guarded(Verdict):
    """A verdict with the guards that spoke against the kernel."""

    caught_by: tuple[str, ...] = ()
    """The names of these guards, in the order in which a kernel meets them; none in a PASS, and none before version
    6."""
    limits: tuple[str, ...] = ()
    """What the verdict does not cover, a sentence each, whatever its status is; none before version 8."""


class Accuracy(Guarded):
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
    calls: int = 0
    """Calls of the kernel whose outputs were judged; 0 where a Run does not count them."""
    rarest: float | None = None
    """The rarest fault, as a share of calls, that would have been seen with a probability of 95 %; None where
    nothing was drawn."""
    covered: tuple[str, ...] = ()
    """Classes of inputs that the cases reached: residues of axes, thread counts, offsets, families and what else a
    kernel may depend on."""
    uncovered: tuple[str, ...] = ()
    """Classes that the contract and the kernel's constraints admit and that no case reached."""
    seed: int = 0
    """What the cases were drawn with; 0 where none were."""
    failed_case: str = ""
    """The case that failed, so that it can be repeated; "" where none did."""
    borrowed: tuple[str, ...] = ()
    """Whose kernels it calls: installed ones, or a peer's library, as their code was in its process. Its times are
    theirs, and it is the best of no place."""
    held_to: tuple[str, ...] = ()
    """Of code that asks which processor it runs on: the steps below this processor's that it was judged at too, by
    processes in which it finds no features above them."""


class Timing(Model):
    """Samples of one launch, all of them, and what they say."""

    samples_ns: tuple[float, ...]
    """Nanoseconds for one call, each the mean over calls_per_sample calls, in the order taken, with four significant
    digits: 0.05 % at most is less than where the linker puts a kernel moves its time, and half as much to keep. All
    figures are those of these numbers."""
    calls_per_sample: int
    median_ns: float
    q1_ns: float
    q3_ns: float
    low_ns: float
    """Lower end of the 95 % interval of the median."""
    high_ns: float
    """Upper end of it."""
    stopped: str
    """Why sampling stopped: interval, plateau or time."""
    clock: str
    """Which clock: the native loop's, or Python's."""
    buffers: int
    """Distinct sets of arrays that were cycled through: 1 is hot."""

    @property
    def too_noisy(self) -> bool:
        """The interval of the median is wider than TOO_NOISY."""
        return half_width(self.median_ns, self.low_ns, self.high_ns) > TOO_NOISY


class CeilingComparison(Model):
    """How a timing compares with the ceiling that limits it: the least time this machine needs for the work, over
    the time taken."""

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
    """Samples of the ceiling's probe, nanoseconds a call, each beside the kernel's sample of the same index; empty
    in version 1."""
    probe_work: int = 0
    """What one call of the probe did, in the unit's numerator."""
    lost: bool = False
    """The probe is no ceiling here, and `fraction` says nothing of how close the kernel comes: the kernel was faster
    than the probe beside it, though not than the physical floor allows, or something held the probe up all the time."""


class Measurement(Model):
    """One temperature of a performance figure."""

    timing: Timing
    against: CeilingComparison
    footprint: int
    """Bytes that one call touches at least."""
    rotation: int
    """Bytes that are touched before a buffer comes round again."""

    @property
    def too_noisy(self) -> bool:
        """Its time is, or the part of the ceiling that is shown beside it."""
        return self.timing.too_noisy or (not self.against.lost and self.against.fraction.too_noisy)


class Performance(Guarded):
    """Cold and hot figures, and what the Python call adds."""

    cold: Measurement | None = None
    hot: Measurement | None = None
    call_overhead_ns: float | None = None
    """Median time of a call through Python minus the native one, on the same arguments."""
    read: int = 0
    written: int = 0
    operations: int = 0
    """The least traffic and work of the workload."""
    doubted: bool = False
    """A guard doubts or refutes the figures: they are kept as evidence, and are not to be shown as figures."""
    tests: int = 0
    """Statistical tests by which this Run could have failed though the kernel is honest: clocks, floors, threads at
    work."""
    repeated: int = 0
    """How many of those tests spoke and were made again, in a fresh process."""
    looks: int = 0
    """Calls in laps on shared memory whose outputs the harness's own process judged; 0 where no such laps were made,
    and before version 9."""
    proven_cold_ns: float | None = None
    """What a cold call takes at least by the harness's own clock, over those laps; None where none were made."""
    proven_hot_ns: float | None = None
    """The same of a hot call: less what reading as many bytes gains in caches."""


class DeviceMemory(Model):
    """Bytes of a device's own memory that one call takes."""

    inputs: int
    outputs: int
    workspace: int = 0
    peak: int | None = None
    """The most that was allocated while the call was bound and ran, told by what allocates; None where it does not
    tell."""

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


class MemoryUse(Guarded):
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
    """What is still held once the first launches were dropped: the device's memory where it has its own, else the
    host's, and the system's in the name of the process."""
    persistent_floor: int = 0
    """What of `persistent` a kernel may show that does nothing with as many threads."""
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
    tests: int = 0
    """Decisions that rest on readings: on the growth of each series, the peak, and what is kept."""
    alarms: int = 0
    """Those that went against the kernel in the first process."""
    confirmed: int = 0
    """Those that a fresh process confirmed."""


class PeerComparison(Verdict):
    """One Run against somebody else's implementation. PASS: both agree, or the peer is wrong and the kernel right;
    FAIL: the kernel differs and the exact value is not on its side; NOT_RUN: the peer is not there, or does not take
    this."""

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
    inputs: dict[str, str] = Field(default_factory=dict)
    """The inputs that meet in that element, shortened."""
    peer_wrong: bool = False
    """The exact value is the kernel's and not the peer's."""
    own_ns: float | None = None
    """Median time of the kernel, taken by turns with the peer's."""
    peer_ns: float | None = None
    speedup: Ratio | None = None
    """The peer's time over the kernel's."""
    migration_recommended: bool = False
    """The strict rule: the kernel is right, and the whole 95 % interval of `speedup` lies above 1."""
    migration_reason: str = ""
    """Why the strict rule says so; "" for a reference, which nobody would migrate from."""
    migration_within_tenth: bool | None = None
    """The lenient rule (specification, 7.3): every element agrees, and `speedup` improves the time by no less than -0.1
    of the peer's; None where nothing was timed, and in Records from before the rule was kept."""
    reference: bool = False
    """The peer is a reference, written to be read and not to be fast: only its values are compared."""


class Cross(Verdict):
    """The cross-validation dimension."""

    peers: tuple[PeerComparison, ...] = ()
