"""The public function ternary_quantize."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels import dispatch, elementwise
from tritmark.kernels.ternary_quantize.reference import unpack
from tritmark.kernels.ternary_quantize.spec import CODES, OP, PACKED


class TernaryQuantized(NamedTuple):
    """Ternary codes, one a byte, and the scales of their blocks."""

    codes: npt.NDArray[np.int8]
    """-1, 0 or 1, in the shape of what was quantized."""
    scales: npt.NDArray[np.float32]
    """What code 1 stands for: one for each block of the flat array."""


class PackedTernary(NamedTuple):
    """Ternary codes, four a byte, and the scales of their blocks."""

    packed: npt.NDArray[np.uint8]
    """32 bytes for each 128 codes of the flat array, laid out as I2_S x86; the last group is filled up with 0."""
    scales: npt.NDArray[np.float32]
    """What code 1 stands for: one for each block of the flat array."""
    n: int
    """How many codes there are."""
    block: int
    """How many consecutive codes share a scale."""

    def unpack(self) -> npt.NDArray[np.int8]:
        """The codes, int8 (n,)."""
        return unpack(self.packed, self.n)


@overload
def ternary_quantize(
    x: npt.NDArray[np.float32],
    block: int = ...,
    *,
    packed: Literal[False] = ...,
    out: TernaryQuantized | None = ...,
    nonfinite: str = ...,
    variant: str | None = ...,
    threads: int | None = ...,
) -> TernaryQuantized: ...


@overload
def ternary_quantize(
    x: npt.NDArray[np.float32],
    block: int = ...,
    *,
    packed: Literal[True],
    out: PackedTernary | None = ...,
    nonfinite: str = ...,
    variant: str | None = ...,
    threads: int | None = ...,
) -> PackedTernary: ...


def ternary_quantize(
    x: npt.NDArray[np.float32],
    block: int = 128,
    *,
    packed: bool = False,
    out: TernaryQuantized | PackedTernary | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
) -> TernaryQuantized | PackedTernary:
    """Ternary codes with a scale for each block: scale = max(absmax, 1e-8), code = (x > scale / 2) - (x < -scale / 2).

    `x` is float32 of any shape, C-contiguous; `block` consecutive elements of the flat array share a scale, and the last block may be
    shorter. `packed` packs the codes, four a byte, in the same pass. `out`, if given, is an earlier result of the same kind and shape:
    its arrays are filled again. `variant` forces an instruction set. Source: specification 001, with exact comparisons; layout: I2_S
    of microsoft/BitNet on x86.

    Raises InvalidArgumentError for arguments outside the contract, a NaN or infinity in x included (its index is that of the flat array;
    `nonfinite="zero"` takes them as 0), and NoCompatibleKernelError where `variant` cannot run here; `out` is then untouched.
    """
    key = PACKED if packed else CODES
    flat = dispatch.flattened(OP.name, "x", x)
    axes = unify(OP, {"x": flat}, {"block": _size(block)})
    like = OP.outputs_like(axes, key)
    shapes = like["codes"][0] if packed else x.shape, like["scales"][0]
    codes, scales = (
        elementwise.output(OP, replace(tensor, dtype=like[tensor.name][1]), array, shape, {"x": flat})
        for tensor, array, shape in zip(OP.outputs, _given(out, packed), shapes, strict=True)
    )
    chosen = dispatch.select(key, axes, variant)
    inputs = {"x": dispatch.finite(OP, "x", flat, nonfinite, preflight=out is not None)}
    dispatch.run(OP, chosen, inputs, {"codes": codes, "scales": scales}, axes, dispatch.threads_for(key, threads))
    return PackedTernary(codes, scales, flat.size, axes["block"]) if packed else TernaryQuantized(codes.reshape(x.shape), scales)


def _size(block: Any) -> int:
    try:
        size = operator.index(block)
    except TypeError:
        size = 0
    if size < 1:
        raise InvalidArgumentError(op=OP.name, argument="block", found=repr(block), legal="an integer, at least 1")
    return size


def _given(out: Any, packed: bool) -> tuple[Any, Any]:
    """The arrays of `out` that are to be filled."""
    kind = PackedTernary if packed else TernaryQuantized
    if out is None:
        return None, None
    if not isinstance(out, kind):
        found = f"a {type(out).__name__}"
        raise InvalidArgumentError(op=OP.name, argument="out", found=found, legal=f"{kind.__name__}, as packed={packed} returns it")
    return out[0], out[1]
