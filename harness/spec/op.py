"""Op: a contract that kernels implement, and what it is made of: axes, inputs and outputs, keys, the least work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """How much an output may differ from the reference (integer outputs are always compared exactly)."""

    EXACT = "exact"
    """The same bits."""
    ROUNDED = "rounded"
    """Within 1 ulp of the exact value rounded to the output's dtype; or as BOUNDED where the reference gives a
    `NAME.bound`."""
    BOUNDED = "bounded"
    """Within the error bound that the reference computes beforehand and returns as `NAME.bound`."""


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What a kernel is for. `format` is how its inputs are stored, as Records and commands name it: a weight format,
    the dtype of floats that are narrower than float32, or "none". `dtype` is the output's dtype."""

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
    """No NaN, no infinity; large arrays are checked by the kernel on its way, see `Launch.bad`."""
    POSITIVE = "positive"
    """Finite and above zero."""
    TERNARY = "ternary"
    """-1, 0 or 1."""


@renamed(rows_apart="strided_rows")
@dataclass(frozen=True, slots=True)
class Tensor:
    """One named input or output of an Op. `axes` are symbolic; () means a scalar. `dtype` "key" stands for the
    KernelKey's dtype.

    Arrays are C-contiguous and aligned to their element. With `strided_rows`, the rows of a 2-D array may have any
    distance from each other.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    summary: str
    values: Values = Values.ANY
    strided_rows: bool = False


@dataclass(frozen=True, slots=True)
class Traffic:
    """The least that any implementation must do: bytes read, bytes written, arithmetic operations (a multiply-add
    counts as two)."""

    read: int
    written: int
    operations: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """From which an axis' sizes are drawn for test cases: mostly from 1 to `usual`, sometimes up to `most`."""

    usual: int = 384
    most: int = 4352
    often: tuple[int, ...] = ()
    """Sizes of which one is taken in half of the cases."""
    largest: int = 0
    """The largest that the contract admits, where a case is to have it; 0: none is."""


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


@renamed(family="tolerance_kind", families="input_families", apart="independent_axis")
@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A contract: named inputs and outputs, the reference, how outputs are judged, and the least work.

    `generate(axes, family, rng)` makes logical inputs of one of `input_families`. `encode(inputs, axes, format)`
    converts them to what a kernel of that format takes (weights packed once, on load); by default nothing changes.
    `outputs_like(axes, key)` gives (shape, dtype name) for each output. `reference(inputs, axes, key)` computes the
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
    """Whether a format holds inputs of these axes. None: it is found by encoding some, which takes longer."""
    outputs_like: Callable[[Axes, KernelKey], Mapping[str, tuple[tuple[int, ...], str]]]
    reference: Callable[[Arrays, Axes, KernelKey], dict[str, Any]]
    traffic: Callable[[Axes, KernelKey], Traffic]
    weights: Callable[[Axes], int] | None = None
    """How many weights the op takes packed, for the bits a weight; None where it takes none."""
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    """From which sizes of an axis test cases are drawn; those of other axes come from `Sizes()`."""
    independent_axis: Callable[[Axes, KernelKey], tuple[str, int]] | None = None
    """An axis along which pieces of this length are independent: the outputs of a piece are those of the op on the
    piece alone, with the inputs that lack the axis, and inputs of pieces are adjacent in memory. None if every output
    depends on every input."""
    stored: StoredWeights | None = None
    """None for an op that is no linear layer."""
    interchangeable: Callable[[Axes, str], bool] | None = None
    """Whether who packs the weights of these axes may take that format for another of which the same is true, without
    a change of the outputs. None: formats are not anybody's to choose."""
