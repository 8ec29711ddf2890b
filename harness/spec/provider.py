"""Provider: what a package brings to the harness. Beside ops, variants and devices these are implementations of others
to compare with (Peer, PublicCall, FormatOracle), faults to plant (Mutant), and what is known of weights' formats
(GoldenVector, WeightType)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritmark.harness.spec.device import Device
from tritmark.harness.spec.launch import Launch
from tritmark.harness.spec.op import Arrays, Axes, KernelKey, Op
from tritmark.harness.spec.renamed import renamed
from tritmark.harness.spec.variant import Variant

PEER_ISA = "TRITMARK_PEER_ISA"
"""The environment variable that names the step of the host's ladder that other projects' code may use at most."""


def _admits_all(axes: Axes) -> str | None:
    return None


def _takes_none(format: Any) -> bool:
    return False


@renamed(bound="error_bound")
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
    error_bound: Callable[[Arrays, Axes], Mapping[str, Any]] | None = None
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
    such tensors can have without their file saying which; the first is the usual one, unless `usual` is false: then one
    has to be asked for.
    """

    dtype: str
    layouts: Mapping[str, str]
    usual: bool = True
    written: bool = True
    """Whether `tritmark convert` writes it."""


@dataclass(frozen=True, slots=True)
class Ternarized:
    """A float matrix (N, K) by its model's own rule: int8 codes, and what code 1 stands for, float32."""

    codes: Any
    scale: Any


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
    read_formats: Mapping[str, Any] = field(default_factory=dict)
    """Formats of weight types that cannot hold any ternary weights: they are read, and nothing is packed in them."""
    weight_types: tuple[WeightType, ...] = ()
    """The types of tensors whose codes are read as they are."""
    ternarize: Callable[[Any], Ternarized] | None = None
    """What models that are published as floats do to their linear layers, float32 (N, K)."""
    precisions: Callable[..., Any] | None = None
    """`precisions(shapes, seed)` measures a product in every precision that a device has (see harness.precision).
    Raises DeviceError where the device is not there, or has no speed."""
    evaluate_stored: Callable[..., Any] | None = None
    """Checks the product with one matrix of codes (see harness.judge.stored)."""
