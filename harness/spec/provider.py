"""Provider: everything that a package brings to the harness.

Besides ops, variants and devices: third-party implementations to compare with (Peer, PublicCall, FormatOracle), faults
to plant (Mutant), and facts about weight formats (GoldenVector, WeightType).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritmark.harness.spec.device import Device
from tritmark.harness.spec.launch import Launch
from tritmark.harness.spec.op import Arrays, Axes, KernelKey, Op
from tritmark.harness.spec.renamed import renamed
from tritmark.harness.spec.variant import Variant

PEER_ISA = "TRITMARK_PEER_ISA"
"""Environment variable: the highest instruction set of the host's ladder that third-party code may use."""


def _admits_all(axes: Axes) -> str | None:
    return None


def _takes_none(format: Any) -> bool:
    return False


@renamed(bound="error_bound")
@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A third-party implementation of an op, in host memory, for cross-validation.

    `name` is the project's name. Variants of tier PEER from the same project have this name, or a name that begins with
    it and a hyphen.
    `missing()` returns why the peer cannot be used here and the next step, or None.
    `version()` returns the package's version, or the SHA-256 of the file.
    `refusal(axes)` returns why the peer does not take these axes, or None.
    `encode(inputs, axes)` converts logical inputs to the arguments of `bind`.
    `bind(inputs, outputs, axes, threads)` is like `Variant.bind`. The peer computes the op's outputs that `outputs`
    names.
    `error_bound(inputs, axes)` returns the largest absolute error of each output, computed from the logical inputs.
    None: the outputs must be bitwise equal.
    """

    name: str
    op: str
    formats: frozenset[str]
    """Formats of the variants that it is compared with."""
    dtypes: frozenset[str]
    """Output dtypes of these variants."""
    source: str
    """Project, function and origin."""
    version: Callable[[], str]
    missing: Callable[[], str | None]
    encode: Callable[[Arrays, Axes], Arrays]
    bind: Callable[[Arrays, Arrays, Axes, int], Launch]
    outputs: tuple[str, ...]
    refusal: Callable[[Axes], str | None] = _admits_all
    error_bound: Callable[[Arrays, Axes], Mapping[str, Any]] | None = None
    takes: Callable[[Any], bool] = _takes_none
    """Whether it is also compared with this format (the object, not its name), from any package."""
    reference: bool = False
    """Written for readability, not for speed: only its values are compared, never its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicCall:
    """A public Python function for the league table, timed with its checks, copies and quantization.

    `prepare(inputs, axes, threads)` takes logical inputs, does the one-time work (packs weights, opens a session) and
    returns a function that makes one call. `missing()` returns why it cannot be called here, or None.
    """

    name: str
    op: str
    device: str
    dtypes: frozenset[str]
    """Output dtypes."""
    takes: str
    """Description of its inputs."""
    prepare: Callable[[Arrays, Axes, int], Callable[[], Any]]
    missing: Callable[[], str | None] = lambda: None
    scales: str = ""
    """The scales of its weights in words, see Format.scales; "" if it has no weights. It is compared with kernels for
    such weights only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A project without a product for some work, so that the league's list of peers is complete."""

    name: str
    """The project, or a part of it."""
    op: str
    device: str
    reason: str
    scales: str = "*"
    """A glob for the scales of weights in words, see Format.scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableCall:
    """A public function with arrays in host memory that several devices compute with the same result, for one shape
    class. `tritmark tune variants --device auto` measures which device is the fastest.

    `prepare(device, inputs)` takes the op's logical inputs, does the one-time work there and returns a function that
    makes one call and returns the outputs.
    """

    function: str
    place: str
    """The name of the choice (see harness.tuned)."""
    axes: Mapping[str, int]
    """The shape class with the thread count."""
    devices: tuple[str, ...]
    """The devices of this machine with kernels for the call, that of host memory first."""
    identity: Mapping[str, str]
    """The conditions under which a choice holds."""
    prepare: Callable[[str, Arrays], Callable[[], Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """An incorrect computation of an op's outputs. A candidate that contains it must FAIL (see harness.selftest).

    `compute(inputs, axes, key)` takes logical inputs and returns outputs, like `Op.reference`. `only(key)`: whether it
    is a mutant for this key. `drawn`: few values trigger it, so drawn cases must detect it; the suite's own data need
    not.
    """

    op: str
    name: str
    compute: Callable[[Arrays, Axes, KernelKey], Mapping[str, Any]]
    only: Callable[[KernelKey], bool] = lambda key: True
    drawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalentMutants:
    """A generic mutant that the contract of this op admits, so it is not a fault. `mutant` is a glob over names of
    mutants."""

    op: str
    mutant: str
    reason: str
    only: Callable[[KernelKey], bool] = lambda key: True
    """Whether this holds for a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The inverse of `Op.encode`, for drawn mutants: `decode(inputs, axes, key)` converts a kernel's inputs to logical
    inputs. An op whose `encode` changes nothing needs none.
    """

    op: str
    decode: Callable[[Arrays, Axes, KernelKey], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightType:
    """A tensor type of weight files that holds codes and scales, and the format of its bytes.

    `dtype` is its name in lower case, as in `harness.weights`. `layouts` maps each layout that such tensors can have to
    a format, for files that do not state the layout. The first is the default. If `usual` is false, there is no default
    and the user must choose.
    """

    dtype: str
    layouts: Mapping[str, str]
    usual: bool = True
    written: bool = True
    """Whether `tritmark convert` can write it."""


@dataclass(frozen=True, slots=True)
class Ternarized:
    """A float matrix (N, K) ternarized by its model's own rule: int8 codes, and the float32 value of code 1."""

    codes: Any
    scale: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenVector:
    """Bytes that a format's original packer wrote, and its inputs."""

    file: str
    """Its origin, for display."""
    format: str
    shape: tuple[int, ...]
    """(N, K) of the weights, or (E, N, K) of experts."""
    packed: Any
    """uint8, as from `pack`."""
    codes: Any = None
    """int8 (N, K), or None if only the float weights are known."""
    scale: Any = None
    """float32; None: the scale is in the bytes, or stored beside them."""
    x: Any = None
    """float32 (N, K) from which the original quantizer makes these bytes, or None."""
    values: Any = None
    """float32 in that shape, which the original makes from the bytes, or None."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """What `dequantize_affine` of the format takes besides the bytes, for values that scales beside them decide."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Extra keywords of this format's functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatMutant:
    """A fault of a format's packer, unpacker or both, which the golden vectors must show (see selftest)."""

    format: str
    name: str
    make: Callable[[Any], Any]
    """The faulty format, from the correct one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOracle:
    """A third-party packer or unpacker of formats. `missing()` and `version()` are as in Peer.

    `complaint(format, rng)` compares it with that format on random weights and returns what differs, or None.
    """

    name: str
    formats: frozenset[str]
    version: Callable[[], str]
    missing: Callable[[], str | None]
    complaint: Callable[[Any, Any], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Everything that a package brings to the harness through the entry-point group `tritmark.providers`."""

    ops: tuple[Op, ...]
    variants: tuple[Variant, ...]
    devices: tuple[Device, ...]
    formats: Mapping[str, Any] = field(default_factory=dict)
    workloads: str = ""
    """The package whose TOML files are the named suites."""
    op_workloads: Callable[[], Sequence[Path]] = tuple
    """TOML files of ops with workloads for named suites, of this provider and of others (see harness.suite)."""
    evaluate_matrix: Callable[..., Any] | None = None
    """Examines one weight matrix (see harness.weights)."""
    templates: str = ""
    """The package with the template kernels of `tritmark new`, there or in `*/templates/`, and with the C that reads
    its formats, `formats/NAME.h`."""
    peers: tuple[Peer, ...] = ()
    """Third-party implementations for cross-validation."""
    libraries: Callable[[], Sequence[Any]] = tuple
    """Third-party C or C++ libraries for cross-validation (see harness.cross), loaded on request."""
    unsupported: Callable[[], Sequence[Unsupported]] = tuple
    """Third-party projects without a product for some work."""
    calls: Callable[[], Sequence[PublicCall]] = tuple
    """Public functions for the league table: the package's own and third-party ones."""
    portable: Callable[[str, Axes, int | None], Sequence[PortableCall]] = lambda op, axes, threads: ()
    """`portable(op, axes, threads)` returns the public functions of an op whose device may be chosen."""
    mutants: Callable[[], Sequence[Mutant | EquivalentMutants | Decoding]] = tuple
    """Mutants of the ops, imported on request."""
    format_mutants: Callable[[], Iterable[FormatMutant]] = tuple
    """Mutants of the formats, imported on request."""
    bugs: str = ""
    """The package with faulty kernels that the harness must detect (see harness.selftest.bugs)."""
    functions: tuple[str, ...] = ()
    """Prefixes of the names of device functions that its kernels launch, in this or any earlier version. A receipt with
    other names is doubted."""
    golden: Callable[[], Iterable[GoldenVector]] = tuple
    """Reads outputs of the formats' original packers."""
    oracles: tuple[FormatOracle, ...] = ()
    """Third-party packers of the formats."""
    adapters: Callable[[str, str], Sequence[Variant]] | None = None
    """`adapters(name, path)` makes peers from a library that the user has built, with the adapter of that name. It
    loads nothing and raises UsageError. None: the package has no adapters."""
    weight_types: tuple[WeightType, ...] = ()
    """Tensor types whose codes are read unchanged."""
    ternarize: Callable[[Any], Ternarized] | None = None
    """Ternarizes a linear layer, float32 (N, K), of a model that is published as floats."""
    precisions: Callable[..., Any] | None = None
    """`precisions(shapes, seed)` measures a product in every precision of a device (see harness.precision). Raises
    DeviceError if the device is missing or simulated."""
    evaluate_stored: Callable[..., Any] | None = None
    """Checks the product with one matrix of codes (see harness.judge.stored)."""
