"""Op: a contract that kernels implement, and its parts: axes, inputs and outputs, keys, minimal traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tritmark.harness.spec.renamed import renamed

Axes = Mapping[str, int]
"""Values of an Op's symbolic axes, such as {"M": 1, "N": 2560, "K": 6912}."""

Arrays = Mapping[str, Any]
"""Named inputs or outputs: NumPy arrays, and plain numbers for scalars."""

INPUT_DTYPES = ("float16", "bfloat16")
"""Dtypes of floats that kernels read beside float32."""


class ToleranceKind(StrEnum):
    """How much an output may differ from the reference. Integer outputs are compared exactly, except those of a
    BOUNDED op for which the reference returns float64 values and a `NAME.bound`."""

    EXACT = "exact"
    """The same bits."""
    ROUNDED = "rounded"
    """Within 1 ulp of the exact value rounded to the output's dtype; like BOUNDED if the reference returns a
    `NAME.bound`."""
    BOUNDED = "bounded"
    """Within the error bound that the reference computes and returns as `NAME.bound`."""


@dataclass(frozen=True, slots=True)
class KernelKey:
    """Device type, op, format and output dtype of a kernel.

    `format` is how inputs are stored, as Records and commands name it: a weight format, the dtype of floats that are
    narrower than float32, or "none".
    """

    device: str
    op: str
    format: str
    dtype: str

    @property
    def weight_format(self) -> str:
        """The format of packed weights; "none" for a kernel without."""
        return "none" if self.format in INPUT_DTYPES else self.format

    @property
    def input_dtype(self) -> str:
        """The dtype of its floats where they are narrower than float32; otherwise "none"."""
        return self.format if self.format in INPUT_DTYPES else "none"

    def __str__(self) -> str:
        return f"{self.device}/{self.op}/{self.format}/{self.dtype}"


class Values(StrEnum):
    """Which values an input may hold."""

    ANY = "any"
    FINITE = "finite"
    """No NaN, no infinity. The kernel itself checks large arrays, see `Launch.bad`."""
    POSITIVE = "positive"
    """Finite and above zero."""
    TERNARY = "ternary"
    """-1, 0 or 1."""
    OFFSETS = "offsets"
    """Ascending from 0: where the rows of each part begin, and where those of the last one end."""


def axis_size(axis: str, axes: Axes) -> int:
    """The size of a tensor's axis. "E+1" is one more than the op's axis E."""
    name, _, more = axis.partition("+")
    return axes[name] + int(more or 0)


@renamed(rows_apart="strided_rows")
@dataclass(frozen=True, slots=True)
class Tensor:
    """One named input or output of an Op. `axes` are symbolic; () is a scalar. `dtype` "key" is the KernelKey's dtype.
    An axis "E+1" has one element more than the op's axis E, see `axis_size`.

    Arrays are C-contiguous and aligned to their element. With `strided_rows`, the row stride of a 2-D array is free.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    summary: str
    values: Values = Values.ANY
    strided_rows: bool = False


@dataclass(frozen=True, slots=True)
class Traffic:
    """The least work of any implementation: bytes read, bytes written, arithmetic operations (a multiply-add counts as
    two)."""

    read: int
    written: int
    operations: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of an axis that test cases draw from: mostly 1 to `usual`, sometimes up to `most`."""

    usual: int = 384
    most: int = 4352
    often: tuple[int, ...] = ()
    """Half of the cases take one of these sizes."""
    largest: int = 0
    """The largest size that the contract admits, if one case shall have it; otherwise 0."""


def _as_given(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    return dict(inputs)


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """How an op that is a linear layer is judged with the weights of a file.

    `axes(tokens, (N, K))` returns the op's axes for this number of tokens. `inputs(axes, codes, scale, rng)` makes
    logical inputs with these weights: int8 codes (N, K), and their scale if it is one number.
    """

    dtype: str
    """The output dtype."""
    axes: Callable[[int, tuple[int, int]], dict[str, int]]
    inputs: Callable[[Axes, Any, Any, Any], dict[str, Any]]


@renamed(family="tolerance_kind", families="input_families", apart="independent_axis")
@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A contract: named inputs and outputs, the reference, how outputs are judged, and the least work.

    `generate(axes, family, rng)` makes logical inputs of one of `input_families`. `encode(inputs, axes, format)`
    converts them to the inputs of a kernel of that format (weights packed once, on load); by default nothing changes.
    `outputs_like(axes, key)` returns (shape, dtype name) for each output. `reference(inputs, axes, key)` computes the
    expected outputs from the logical inputs in int64 and float64.
    """

    name: str
    summary: str
    source: str
    axes: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tolerance_kind: ToleranceKind
    input_families: tuple[str, ...]
    generate: Callable[[Axes, str, Any], dict[str, Any]]
    encode: Callable[[Arrays, Axes, str], dict[str, Any]] = _as_given
    holds: Callable[[Axes, str], bool] | None = None
    """Whether a format can hold inputs of these axes, or for "none" whether the op has inputs of these axes. None: the
    harness tries to encode some, which takes longer, and "none" holds inputs of any axes."""
    outputs_like: Callable[[Axes, KernelKey], Mapping[str, tuple[tuple[int, ...], str]]]
    reference: Callable[[Arrays, Axes, KernelKey], dict[str, Any]]
    traffic: Callable[[Axes, KernelKey], Traffic]
    weights: Callable[[Axes], int] | None = None
    """The number of packed weights, to compute bits per weight; None if the op has no packed weights."""
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    """The sizes of an axis that test cases draw from; `Sizes()` for axes that are not listed."""
    independent_axis: Callable[[Axes, KernelKey], tuple[str, int]] | None = None
    """An axis and a length: pieces of this length along the axis are independent. The op on one piece alone, with the
    inputs that lack the axis, gives the same outputs. None if every output depends on every input."""
    stored_ranges: Callable[[Axes, str, str, int, int], Sequence[tuple[int, int]] | None] | None = None
    """Where a format stores a part of the independent axis: for axes, format, the name of an input, and the part
    [begin, end), the ranges [begin, end) of elements of the flat encoded input, in the same order for any length of the
    axis. None, or None for an input: one range, behind that of the part before."""
    stored: StoredWeights | None = None
    """None for an op that is not a linear layer."""
    interchangeable: Callable[[Axes, str], bool] | None = None
    """Whether this format is interchangeable for these axes: weights packed in any two such formats give the same
    outputs. None: formats cannot replace each other."""
