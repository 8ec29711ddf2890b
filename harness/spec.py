"""The nouns of tritmark: Op, Variant, Workload and what describes them. Frozen, and checked when they are made.

An Op is a contract. A Variant is one implementation of it for a KernelKey (device type, operation, format, dtype). A
Workload says on which values the two meet. Nothing here knows a particular op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

from tritmark.harness.errors import RegistrationError

Axes = Mapping[str, int]
"""Values of an Op's symbolic axes, such as {"M": 1, "N": 2560, "K": 6912}."""

Arrays = Mapping[str, Any]
"""Named inputs or outputs: NumPy arrays, and plain numbers for scalars."""


class Family(StrEnum):
    """How an output is judged against the reference (integer outputs are always compared exactly)."""

    EXACT = "exact"
    """The same bits."""
    ROUNDED = "rounded"
    """Within 1 ulp of the exact value rounded to the output's dtype; or as BOUNDED where the reference gives a
    `NAME.bound`."""
    BOUNDED = "bounded"
    """Within the error bound that the reference computes beforehand and returns as `NAME.bound`."""


class Tier(IntEnum):
    """How much work went into a variant; `select_best` takes the highest that fits, and the highest rank within it."""

    PEER = -2
    """Somebody else's, judged like any other: taken only where it is named."""
    CANDIDATE = -1
    """Under judgement: taken only where it is named, and any number of them may stand side by side."""
    REFERENCE = 0
    BASELINE = 1
    OPTIMIZED = 2
    HIGHLY_OPTIMIZED = 3
    EXTREMELY_OPTIMIZED = 4

    @property
    def named_only(self) -> bool:
        """Whether it is never selected, but by its name. Any number of them may stand side by side."""
        return self < Tier.REFERENCE


class Requirement(StrEnum):
    """What the variant that is chosen by measurement has to be best at (see harness.selection)."""

    LATENCY = "latency"
    """The time of a call whose arrays come from memory, as the weights of one layer do after those of all others; in
    the caches where nothing so small gets cold."""
    THROUGHPUT = "throughput"
    """The time of a call right after another with the same arrays: what fits into the caches is there."""
    MEMORY = "memory"
    """The bytes of inputs as the kernel takes them (weights packed) and of its workspace; of equals, the latency."""
    EXACTNESS = "exactness"
    """The latency, of those alone whose outputs are held to no error bound: exact, or rounded once."""


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What a kernel is for. `format` is a name of FORMATS or "none"; `dtype` is the output's dtype."""

    device: str
    op: str
    format: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.device}/{self.op}/{self.format}/{self.dtype}"


class Values(StrEnum):
    """Which values an input may hold."""

    ANY = "any"
    FINITE = "finite"
    """No NaN, no infinity; large arrays are checked by the kernel on its way, see `Launch.bad`."""
    POSITIVE = "positive"
    """Finite and above zero."""
    TERNARY = "ternary"
    """-1, 0 or 1."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named input or output of an Op. `axes` are symbolic; () means a scalar. `dtype` "key" stands for the
    KernelKey's dtype.

    Arrays are C-contiguous and aligned to their element; where `rows_apart`, the rows of a 2-D array may lie apart from
    each other.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    summary: str
    values: Values = Values.ANY
    rows_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch of a function on a device."""

    function: str
    binary: str
    """SHA-256 of the binary that holds it."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    """Bytes of shared memory that each block asked for at the launch."""
    resident: int | None = None
    """Blocks of it that one multiprocessor holds at a time; None where the device does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """Compiled code of a variant, for the tools that read it: a file, or the bytes of one."""

    kind: str
    """cubin (of a GPU) or native (of the host)."""
    name: str
    """For people."""
    entries: tuple[str, ...]
    """Functions that a run begins with; what they call in the same file is read too."""
    target: str
    """Such as sm_90 or x86-64."""
    path: str = ""
    """"" where `data` has it."""
    data: bytes = b""
    spilled: Mapping[str, int] = field(default_factory=dict)
    """Bytes of registers that each function stores to memory and loads back, as its compiler said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a device's launcher collected about launches, as they happened."""

    uuid: str = ""
    """UUID of the device that ran it, where the device has one."""
    functions: tuple[str, ...] = ()
    """Names of the device functions that were launched for it."""
    launches: int = 0
    """How many launches the device was given for it."""
    device_ns: float = 0.0
    """Nanoseconds that the device itself measured for the runs that it timed; 0 where it timed none."""
    timed_runs: int = 0
    """How many of the runs `device_ns` covers."""
    code_hash: str = ""
    """SHA-256 of the compiled code, where the device gives it."""
    simulated: bool = False
    """True where a simulator stood in for the device."""
    launched: tuple[Launched, ...] = ()
    """The different launches on the device, in their order."""
    tuned: str = ""
    """The instance (`tritmark autotune`) or the variant (`tritmark select`) that ran because it was measured to be
    better here than the built-in choice, and how weights were fetched ahead for that reason (`tritmark tune`); "" where
    the built-in choice ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Proof):
    """The part of a Run, or of one call, that proves what ran."""

    kernel: str
    """Id of the variant: device/op/format/dtype/name."""
    ran: str
    """The implementation that ran, read back from the code that ran."""
    runs: int
    """How often it ran, counted by itself."""
    threads: int
    """Threads that took part in the last run."""
    native: bool = True
    """False where no kernel exists and dequantized computation took its place."""
    note: str = ""
    """Why something other than what was asked for ran."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The least that any implementation must do: bytes read, bytes written, arithmetic operations (a multiply-add
    counts as two)."""

    read: int
    written: int
    operations: int


class Launch(Protocol):
    """A variant bound to its arguments, ready to run any number of times."""

    def run(self) -> None:
        """Run once and return when the outputs are complete."""

    @property
    def ran(self) -> str:
        """The implementation that ran, told by the code that ran ("" before the first run)."""

    @property
    def runs(self) -> int:
        """How often the code has run, counted by itself."""

    @property
    def threads_used(self) -> int:
        """Threads that took part in the last run."""

    @property
    def bad(self) -> int:
        """Index (in C order) of the first input element that the contract forbids, found on the way; -1 if none."""

    @property
    def pointer(self) -> int | None:
        """Address of the native call for the device's clock, or None where only Python can call it.

        On the host two pointers lie there, which stay as long as the launch: `int (*function)(void *)`, and the
        argument to call it with.
        """


@dataclass(frozen=True, slots=True)
class Sizes:
    """From which an axis' sizes are drawn for test cases: mostly from 1 to `usual`, sometimes up to `most`."""

    usual: int = 384
    most: int = 4352
    often: tuple[int, ...] = ()
    """Sizes of which one is taken in half of the cases."""


def _as_given(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    return dict(inputs)


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """How an op is judged with the weights of a file, where it is a linear layer.

    `axes(tokens, (N, K))` are those of the layer for so many tokens; `inputs(axes, codes, scale, rng)` makes logical
    inputs with these int8 codes (N, K) for weights, and with their scale where it is one number.
    """

    dtype: str
    """The output dtype."""
    axes: Callable[[int, tuple[int, int]], dict[str, int]]
    inputs: Callable[[Axes, Any, Any, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A contract: named inputs and outputs, the reference, how outputs are judged, and the least work.

    `generate(axes, family, rng)` makes logical inputs of one input family. `encode(inputs, axes, format)` turns them
    into what a kernel of that format takes (weights packed once, on load); unless told, nothing changes.
    `outputs_like(axes, key)` gives (shape, dtype name) for each output. `reference(inputs, axes, key)` computes the
    expected outputs from the logical inputs in int64 and float64.
    """

    name: str
    summary: str
    source: str
    axes: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    family: Family
    families: tuple[str, ...]
    generate: Callable[[Axes, str, Any], dict[str, Any]]
    encode: Callable[[Arrays, Axes, str], dict[str, Any]] = _as_given
    holds: Callable[[Axes, str], bool] | None = None
    """Whether a format holds inputs of these axes. None: it is found by encoding some, which takes longer."""
    outputs_like: Callable[[Axes, KernelKey], Mapping[str, tuple[tuple[int, ...], str]]]
    reference: Callable[[Arrays, Axes, KernelKey], dict[str, Any]]
    traffic: Callable[[Axes, KernelKey], Traffic]
    weights: Callable[[Axes], int] | None = None
    """How many weights the op takes packed, for the bits a weight; None where it takes none."""
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    """From which sizes of an axis test cases are drawn; those of other axes come from `Sizes()`."""
    apart: Callable[[Axes, KernelKey], tuple[str, int]] | None = None
    """An axis, and the length along it of pieces that do not know of each other: outputs of a piece are those of the
    op on the piece alone, with whatever inputs lack the axis, and lie side by side in memory on the way in. None
    where every output depends on every input."""
    stored: StoredWeights | None = None
    """None for an op that is no linear layer."""
    interchangeable: Callable[[Axes, str], bool] | None = None
    """Whether who packs the weights of these axes may take that format for another of which the same is true, without
    a change of the outputs. None: formats are not anybody's to choose."""


class Constraint(Protocol):
    """A limit on the shapes that a variant takes."""

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""


@dataclass(frozen=True, slots=True)
class MinSize:
    """The axis is at least `size`."""

    axis: str
    size: int

    def refusal(self, axes: Axes) -> str | None:
        return f"{self.axis} = {axes[self.axis]} is under {self.size}" if axes[self.axis] < self.size else None


@dataclass(frozen=True, slots=True)
class MaxSize:
    """The axis is at most `size`."""

    axis: str
    size: int

    def refusal(self, axes: Axes) -> str | None:
        return f"{self.axis} = {axes[self.axis]} is over {self.size}" if axes[self.axis] > self.size else None


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """The axis is a multiple of `factor`."""

    axis: str
    factor: int

    def refusal(self, axes: Axes) -> str | None:
        return (
            f"{self.axis} = {axes[self.axis]} is no multiple of {self.factor}"
            if axes[self.axis] % self.factor
            else None
        )


def no_workspace(axes: Axes) -> int:
    """That of a variant that needs none."""
    return 0


def nothing_missing() -> str | None:
    """That of a variant that needs nothing that may not be installed."""
    return None


def _no_code(target: str, binaries: frozenset[str] = frozenset()) -> tuple[CodeFile, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """What a variant may launch for given axes, for those who measure which is the fastest.

    `each` has a variant that always launches one of them, by the instance's name; first is the built-in choice, which
    is launched unless another was found to be faster (see harness.tuned). `identity`: what such a finding holds for,
    as "device", "driver" and "code".
    """

    each: Mapping[str, Variant]
    identity: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One implementation of an Op: what it is for, what it needs, and how to bind it to arguments.

    `bind(inputs, outputs, axes, threads)` returns a Launch; `inputs` are encoded for the key's format. `alignment` is
    the alignment in bytes that the arrays must have (1 where any will do). `workspace(axes)` is the scratch memory in
    bytes that a call takes. `rank` decides between variants of one tier: no two of a key have both the same tier and
    the same rank, but those that are taken by name only. `dense` names inputs whose rows it takes only one right after
    the other, although the contract lets them lie apart. `reports_nonfinite`: its launches tell of forbidden elements
    by themselves (see Launch.bad). `code_hash` is the SHA-256 of the file with the code of a candidate; "" where the
    device or its launcher tells. `code(target, binaries)` gives the compiled code for those who read it, without
    loading it: for a GPU's architecture such as "sm_90" ("" is that of the GPU here), and only the binaries with these
    SHA-256 unless there are none. () where there is none to read, as for Python.

    For code of others: `missing()` says why it is not installed and what to do about it, or None, and loads nothing;
    `load()` does, where it is to run and before anything of it is watched, and raises where it cannot.
    `packs`: binding turns inputs into a layout of its own, as its users do once when they load a model. So a launch
    does not see what is written into its inputs later, and what that takes is no workspace. `bound(inputs, axes)` gives
    for each output the largest absolute error that its arithmetic admits, computed from the logical inputs, and raises
    InvalidArgumentError for inputs that its numbers do not hold; None: it is held to the op's contract.
    `instances(axes)` tells what it may launch, on the device; None: there is no choice. `tuned` stands in receipts: for
    what it was measured to be better here than the built-in choice, in whose place it was selected; "" where nothing
    was.
    """

    key: KernelKey
    name: str
    tier: Tier
    summary: str
    bind: Callable[[Arrays, Arrays, Axes, int], Launch]
    features: frozenset[str] = frozenset()
    constraints: tuple[Constraint, ...] = ()
    alignment: int = 1
    workspace: Callable[[Axes], int] = no_workspace
    dense: frozenset[str] = frozenset()
    reports_nonfinite: bool = True
    code_hash: str = ""
    code: Callable[[str, frozenset[str]], Sequence[CodeFile]] = _no_code
    rank: int = 0
    missing: Callable[[], str | None] = nothing_missing
    load: Callable[[], object] = lambda: None
    packs: bool = False
    bound: Callable[[Arrays, Axes], Mapping[str, Any]] | None = None
    instances: Callable[[Axes], Instances] | None = None
    tuned: str = ""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise RegistrationError(f"{self.key}: variant name {self.name!r} must be non-empty and hold no '/'")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise RegistrationError(f"{self.id}: alignment {self.alignment} is not a power of two")

    @property
    def id(self) -> str:
        """The kernel's full name, as records and receipts carry it."""
        return f"{self.key}/{self.name}"

    @property
    def precedence(self) -> tuple[Tier, int]:
        """By which one of several that fit is chosen: the highest."""
        return self.tier, self.rank


def _admits_all(axes: Axes) -> str | None:
    return None


def _takes_none(format: Any) -> bool:
    return False


PEER_ISA = "TRITMARK_PEER_ISA"
"""The environment variable that names the step of the host's ladder that other projects' code may use at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Somebody else's implementation of an op, in host memory, to cross-validate with.

    `name` is the project's. Variants of tier PEER from the same project are called that, or that, a hyphen and more.
    `missing()` says why it cannot be used here and what to do about it, or None; `version()` what it is exactly (of the
    package, or the file's SHA-256). `refusal(axes)` says why it does not take these axes, or None. `encode(inputs,
    axes)` turns logical inputs into what `bind` takes; `bind(inputs, outputs, axes, threads)` is that of a Variant. It
    computes the op's outputs named in `outputs`. `bound(inputs, axes)` gives for each of these the largest absolute
    error that its arithmetic admits, computed from the logical inputs; None: it must give the same bits.
    """

    name: str
    op: str
    formats: frozenset[str]
    """Formats of the variants that it is compared with."""
    dtypes: frozenset[str]
    """Output dtypes of them."""
    source: str
    """Project, function, and where it comes from."""
    version: Callable[[], str]
    missing: Callable[[], str | None]
    encode: Callable[[Arrays, Axes], Arrays]
    bind: Callable[[Arrays, Arrays, Axes, int], Launch]
    outputs: tuple[str, ...]
    refusal: Callable[[Axes], str | None] = _admits_all
    bound: Callable[[Arrays, Axes], Mapping[str, Any]] | None = None
    takes: Callable[[Any], bool] = _takes_none
    """Which formats (not their names) it is compared with beyond these, whatever package brings them."""
    reference: bool = False
    """Written to be read and not to be fast: its values are compared, its time never is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicCall:
    """A function as its users call it from Python, for the league table: with all that it checks, copies and quantizes.

    `prepare(inputs, axes, threads)` takes logical inputs, does once what users do once (packing weights, opening a
    session), and gives what makes one call. `missing()` says why it cannot be called here, or None.
    """

    name: str
    op: str
    device: str
    dtypes: frozenset[str]
    """Output dtypes."""
    takes: str
    """What goes in."""
    prepare: Callable[[Arrays, Axes, int], Callable[[], Any]]
    missing: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A wrong way to compute an op's outputs: planted into a candidate, it has to be failed (see harness.selftest).

    `compute(inputs, axes, key)` takes logical inputs and gives outputs, as `Op.reference` does. `only(key)`: for which
    keys it is a mutant. `drawn`: it shows on few values, and so is left to cases that are drawn; a suite's own data
    need not show it.
    """

    op: str
    name: str
    compute: Callable[[Arrays, Axes, KernelKey], Mapping[str, Any]]
    only: Callable[[KernelKey], bool] = lambda key: True
    drawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalentMutants:
    """A mutant that any op can have and that is none for this one, by its contract. `mutant` is a glob over names of
    mutants."""

    op: str
    mutant: str
    reason: str
    only: Callable[[KernelKey], bool] = lambda key: True
    """For which keys that holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The reverse of `Op.encode`, for drawn mutants: `decode(inputs, axes, key)` gives logical inputs of what a kernel
    takes. An op whose `encode` changes nothing needs none.
    """

    op: str
    decode: Callable[[Arrays, Axes, KernelKey], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightType:
    """A type of tensors in weight files that holds codes and scales, and the format that its bytes are in.

    `dtype` is its name in small letters, as `harness.weights` gives it. `layouts` names a format for each layout that
    such tensors can have without their file saying which; the first is the usual one.
    """

    dtype: str
    layouts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ternarized:
    """A float matrix (N, K) by its model's own rule: int8 codes, and what code 1 stands for, float32."""

    codes: Any
    scale: Any


class Memory(Protocol):
    """Where a device's kernels find their arrays: NumPy arrays on the host, handles with `shape` and `dtype` on a
    device."""

    @property
    def cache(self) -> int | None:
        """Bytes of the last cache before this memory; None where that is not known."""

    def available(self) -> int:
        """Bytes that can still be allocated."""

    def allocate(self, nbytes: int) -> Any:
        """A flat uint8 array of undefined content, aligned to at least 256 bytes; its memory goes back when the last
        view of it is gone. On a device it is no NumPy array."""

    def view(
        self, buffer: Any, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> Any:
        """An array within `buffer`, from byte `offset`; C-contiguous unless `strides` (bytes) are given."""

    def write(self, array: Any, values: Any) -> None:
        """Copy a C-contiguous NumPy array of the same size in bytes into a C-contiguous array of this memory."""

    def read(self, array: Any, into: Any) -> None:
        """Copy a C-contiguous array of this memory into a C-contiguous NumPy array of the same size in bytes."""

    def watch(self) -> Any:
        """A context manager whose `peak` tells, once it was left, the most bytes that were allocated within it
        beyond what was before, and whose `held` tells within it what is allocated beyond that now; None where that
        is not counted."""


class Pipelined(Protocol):
    """What DeviceTransfers.pipelined did."""

    @property
    def launches(self) -> Sequence[Launch]:
        """Those that ran, each perhaps for many chunks."""

    @property
    def bad(self) -> int:
        """As Launch.bad, over all chunks."""


class DeviceTransfers(Protocol):
    """How the public functions bring NumPy arrays to a device's own memory and results back."""

    def ensure(self, what: str, sizes: Sequence[int]) -> None:
        """Before work, which allocates nothing: raise InsufficientMemoryError, which names `what`, where arrays of
        so many bytes each do not all fit."""

    def upload(self, values: Any) -> Any:
        """A C-contiguous copy of a NumPy array, of any strides, on the device; complete on return."""

    def download(self, array: Any, into: Any) -> Any:
        """Copy an array of the device into a NumPy array of its shape and dtype, and of any strides, which is
        returned."""

    def pipelined(self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes) -> Pipelined | None:
        """Run a variant over NumPy arrays in chunks, one computed while others are copied; None, and nothing was
        done, where that is not worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTimes:
    """What the threads that a device's kernels share did in some calls; nanoseconds over all of them."""

    wall_ns: int
    """From the beginning of the first call to the end of the last."""
    busy_ns: int
    """Processor time of all threads in the kernel's work; waiting for each other, or without a core, is none."""
    shared: int
    """How many times work was shared out and several threads took part. Of these times, summed:"""
    mean_ns: int
    """the processor time of the threads that took part, their mean,"""
    most_ns: int
    """and that of the one that had the most."""


class Clock(Protocol):
    """Times launches without the cost of the Python call."""

    name: str

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`; nanoseconds for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A rate that the machine can reach, measured by a probe that is bound and timed like a kernel.

    `bind(buffer, threads)` gives the probe over a uint8 buffer; `work(nbytes)` is how many units one run over that many
    bytes does.
    """

    name: str
    unit: str
    summary: str
    bind: Callable[[Any, int], Launch]
    work: Callable[[int], int]
    level: str = ""
    """Where it holds, for a rate of no cache, no memory and no register: such as "CUDA graph" for launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetching:
    """How an op's kernels fetch ahead what may come from memory, for those who measure which way is the fastest (see
    harness.autotune.prefetch).

    `strategies()` names the ways, first the one that is built in; `plain` is that of them which leaves it all to the
    hardware. `use(name)` has the op's kernels in this process work that way from their next calls on, "" as they were
    when the process began. `used()` is how they work now. `key` and `shapes` are what is timed: axes of calls of the
    key's best variant. `identity()`: what a finding holds for, as "device" and "code".
    """

    key: KernelKey
    shapes: Sequence[Axes]
    plain: str
    strategies: Callable[[], Sequence[str]]
    use: Callable[[str], None]
    used: Callable[[], str]
    identity: Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """How one of several devices of a kind is chosen by its number, as TYPE:0, TYPE:1; TYPE alone is the first.

    `count()` is how many there are, 0 where the kind is missing; `title(index)` what that one is, for people;
    `at(index)` makes it the one that this thread's calls are for, while the context lasts; `alone(index)` are
    environment variables of a process that is to work on it and see no other.
    """

    count: Callable[[], int]
    title: Callable[[int], str]
    at: Callable[[int], AbstractContextManager[None]]
    alone: Callable[[int], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of device that variants run on: what it can do, how arrays get there, how it is timed, what its ceilings
    are, and how it proves what ran.

    `clock()` times launches; without one, None, nothing on the device is timed. `ceilings` has probes named "read" and
    "write" (bytes/s) and "compute" (operations/s), and may have more. Several may share a name: the fastest for a
    footprint and number of threads is the ceiling. `forced()` names the only variant that automatic selection may take,
    or None. `ladder()` has the names of variants that stand for steps of the hardware, such as instruction sets, in
    rising order with the features that each needs: where an op has no variant for the step that is forced, its best one
    below is taken. `code_hash(variant id)` is the SHA-256 of the compiled code that holds the variant, `compiler()`
    what it was compiled with; both "" where the device cannot tell. `missing()` says why the device cannot be used here
    and what to do about it, or None. `simulated()`: a simulator stands in for it, so nothing on it has a speed.
    `plain_clock()` times launches handed over one by one where `clock()` has them in a graph (and says so by
    `recorded`, if it does not always), None where there are no graphs. `memory()` is the device's own memory, None
    where kernels work on the host's. `transfers()` is how the public functions copy arrays there and back, None where
    they take `memory()` alone for it. `proof(launch)` is what the launcher collected, None where the launch tells all
    there is. `units()` names each unit of this kind in the machine, as a proof has it in `uuid`; () where these are the
    GPUs that the driver tells of, and for the host. `adopt(manifest)` makes variants of a user's file that only this
    device understands (see harness.candidate), None where it takes no files. `numbering` tells the devices of this kind
    apart, None where they are not; `environment()` has variables that processes which work on this device need.
    `prefetching()` are the ops whose kernels here fetch ahead in ways that can be told.
    `identity()` is what a measured choice between variants holds for beside their code, as "device" and whatever else
    their times hang on; None where variants are not chosen by measurement.
    `placed(bytes, node)` is a copy of an array's bytes in the memory of that NUMA node, of a device whose kernels work
    on the host's memory; None where nobody can tell it where to lie.
    `thread_times(calls)` calls `calls()`, which runs kernels, and tells what threads did in them: None where they
    shared no work among threads that the device knows of, as those that bring threads of their own; it is None itself
    where the device has no such threads.
    """

    type: str
    summary: str
    features: Callable[[], frozenset[str]]
    cores: Callable[[], int]
    clock: Callable[[], Clock] | None = None
    ceilings: Callable[[], Mapping[str, Ceiling]] = dict
    forced: Callable[[], str | None] = lambda: None
    code_hash: Callable[[str], str] = lambda variant_id: ""
    compiler: Callable[[], str] = lambda: ""
    missing: Callable[[], str | None] = lambda: None
    simulated: Callable[[], bool] = lambda: False
    memory: Callable[[], Memory] | None = None
    transfers: Callable[[], DeviceTransfers] | None = None
    plain_clock: Callable[[], Clock] | None = None
    proof: Callable[[Launch], Proof | None] = lambda launch: None
    units: Callable[[], Sequence[str]] = tuple
    adopt: Callable[[Any], Sequence[Variant]] | None = None
    ladder: Callable[[], Mapping[str, frozenset[str]]] = dict
    numbering: Numbering | None = None
    environment: Callable[[], Mapping[str, str]] = dict
    prefetching: Callable[[], Sequence[Prefetching]] = tuple
    identity: Callable[[], Mapping[str, str]] | None = None
    placed: Callable[[Any, int], Any] | None = None
    thread_times: Callable[[Callable[[], object]], ThreadTimes | None] | None = None


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """Where the weights of a workload lie: a matrix of a file, and what was asked for where files do not say (see
    harness.weights.Conventions)."""

    path: str
    name: str
    layout: str = ""
    weight_scale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Values for an Op's axes, an input family and the layout of the arrays. `measure` asks for the other dimensions
    too, but for that of performance only where `timed`.

    Layouts: "aligned" (64 bytes), "unaligned" (one element past that).

    With `drawn`, it stands for that many test cases that are drawn anew for each Record: shapes, families, layouts and
    threads (see harness.validate.draw). Such a workload has no axes, and both family and layout are "drawn".

    With `stored`, its weights are those of a file, and the rest is what StoredWeights makes; its family is
    "stored".
    """

    op: str
    axes: Mapping[str, int]
    family: str = "normal"
    layout: str = "aligned"
    measure: bool = False
    timed: bool = True
    title: str = ""
    drawn: int = 0
    stored: StoredMatrix | None = None

    @property
    def thoroughness(self) -> tuple[bool, bool]:
        """By which one of two that are alike is taken: the greater."""
        return self.measure, self.timed

    @property
    def id(self) -> str:
        if self.drawn:
            return f"{self.op}[drawn]/{self.family}/{self.layout}"
        shape = ",".join(f"{name}={size}" for name, size in self.axes.items())
        return f"{self.op}[{shape}]/{self.family}/{self.layout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenVector:
    """Bytes that a format's original packer wrote, and what it wrote them of."""

    file: str
    """Where it is from, for people."""
    format: str
    shape: tuple[int, int]
    """(N, K) of the weights."""
    packed: Any
    """uint8, as `pack` gives them."""
    codes: Any = None
    """int8 (N, K), or None where only the float weights are known."""
    scale: Any = None
    """float32; None: that of the bytes, or beside them."""
    x: Any = None
    """float32 (N, K) of which the original's quantizer makes these bytes, or None."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that the format's functions take beyond those that all have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOracle:
    """Somebody else's packer or unpacker of formats. `missing()` and `version()` are those of a Peer.

    `complaint(format, rng)` compares it with the format of that name on random weights and says what differs, or None.
    """

    name: str
    formats: frozenset[str]
    version: Callable[[], str]
    missing: Callable[[], str | None]
    complaint: Callable[[Any, Any], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What a package brings to the harness through the entry-point group `tritmark.providers`."""

    ops: tuple[Op, ...]
    variants: tuple[Variant, ...]
    devices: tuple[Device, ...]
    formats: Mapping[str, Any] = field(default_factory=dict)
    workloads: str = ""
    """The package whose TOML files are the named suites."""
    evaluate_matrix: Callable[..., Any] | None = None
    """Examines one weight matrix (see harness.weights)."""
    templates: str = ""
    """The package with the kernels that `tritmark new` writes."""
    peers: tuple[Peer, ...] = ()
    """Implementations of others to cross-validate with."""
    libraries: Callable[[], Sequence[Any]] = tuple
    """Such in C or C++ (see harness.cross), named when asked for."""
    calls: Callable[[], Sequence[PublicCall]] = tuple
    """Public functions, its own and those of others, for the league table."""
    mutants: Callable[[], Sequence[Mutant | EquivalentMutants | Decoding]] = tuple
    """Those that can be planted into the ops, imported when asked for."""
    bugs: str = ""
    """The package with faulty kernels that have to be caught (see harness.selftest.bugs)."""
    functions: tuple[str, ...] = ()
    """How the names begin of what its kernels launch on devices, now or in any version before; a receipt with others is
    doubted."""
    golden: Callable[[], Iterable[GoldenVector]] = tuple
    """Reads what the formats' original packers wrote."""
    oracles: tuple[FormatOracle, ...] = ()
    """Others' packers of the formats."""
    adapters: Callable[[str, str], Sequence[Variant]] | None = None
    """`adapters(name, path)` makes peers of a library that a user has built, by the adapter of that name; it loads
    nothing and raises UsageError. None: the package has no adapters."""
    weight_types: tuple[WeightType, ...] = ()
    """The types of tensors whose codes are read as they are."""
    ternarize: Callable[[Any], Ternarized] | None = None
    """What models that are published as floats do to their linear layers, float32 (N, K)."""
    precisions: Callable[..., Any] | None = None
    """`precisions(shapes, seed)` measures a product in every precision that a device has (see harness.precision).
    Raises DeviceError where the device is not there, or has no speed."""
    evaluate_stored: Callable[..., Any] | None = None
    """Checks the product with one matrix of codes (see harness.judge.stored)."""
