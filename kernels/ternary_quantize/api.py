"""The public function ternary_quantize."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.nearest import misspelt
from tritmark.harness.numbered import numbered
from tritmark.harness.spec import KernelKey, Tensor
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.public import auto_device, elementwise
from tritmark.kernels.public.foreign import AUTO, takes_any_array
from tritmark.kernels.ternary_quantize.reference import GROUPS, unpack
from tritmark.kernels.ternary_quantize.spec import CODES, OP, PACKED, TQ2_0

_PACKED = {format: replace(PACKED, format=format) for format in GROUPS}


class TernaryQuantized(NamedTuple):
    """Ternary codes, one a byte, and the scales of their blocks."""

    codes: npt.NDArray[np.int8]
    """-1, 0 or 1, in the shape of the quantized array."""
    scales: npt.NDArray[np.float32]
    """The value of code 1: one for each block of the flat array."""


class PackedTernary(NamedTuple):
    """Ternary codes, four a byte, and the scales of their blocks."""

    packed: npt.NDArray[np.uint8]
    """The codes of the flat array in the bytes of `format`, the last group padded with 0. i2_s_x86: 32 bytes for each
    128 codes; row16: 16 for each 64; both without the format's own scale. tq2_0: 66 for each 256, with their scale as
    float16."""
    scales: npt.NDArray[np.float32]
    """The value of code 1: one for each block of the flat array."""
    n: int
    """The number of codes."""
    block: int
    """The number of consecutive codes that share a scale."""
    format: str = PACKED.format
    """i2_s_x86, row16 or tq2_0."""

    def unpack(self) -> npt.NDArray[np.int8]:
        """The codes, int8 (n,)."""
        return unpack(self.packed, self.n, self.format)


@overload
def ternary_quantize(
    x: npt.NDArray[Any],
    block: int | None = ...,
    *,
    packed: Literal[False] = ...,
    format: str = ...,
    out: TernaryQuantized | None = ...,
    nonfinite: str = ...,
    variant: str | None = ...,
    threads: int | None = ...,
    device: str = ...,
    on_error: str = ...,
) -> TernaryQuantized: ...


@overload
def ternary_quantize(
    x: npt.NDArray[Any],
    block: int | None = ...,
    *,
    packed: Literal[True],
    format: str = ...,
    out: PackedTernary | None = ...,
    nonfinite: str = ...,
    variant: str | None = ...,
    threads: int | None = ...,
    device: str = ...,
    on_error: str = ...,
) -> PackedTernary: ...


@takes_any_array
def ternary_quantize(
    x: npt.NDArray[Any],
    block: int | None = 128,
    *,
    packed: bool = False,
    format: str = PACKED.format,
    out: TernaryQuantized | PackedTernary | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> TernaryQuantized | PackedTernary:
    """Ternary codes with a scale for each block: scale = max(absmax, 1e-8), code = (x > scale / 2) - (x < -scale / 2).

    `x` is float32, float16 or bfloat16 (ml_dtypes) of any shape, C-contiguous; it is converted to float32. `block`
    consecutive elements of the flat array share a scale, and the last block may be shorter; the default depends on the
    device (128 on the CPU, block_for on the GPU). `packed` packs the codes, four a byte, in the same pass, into
    `format`: "i2_s_x86", or, on the GPU only, "row16" or "tq2_0" (with block 256). `out`, if given, is an earlier
    result of the same kind and shape; its arrays are overwritten. `device` is "cpu", "cuda", a package's or "auto"
    (docs/python.md); `variant` forces one of its kernels. Source: specification, 2.1; layouts: kernels/formats.

    Raises InvalidArgumentError for arguments outside the contract and for a NaN or infinity in x (with the index in the
    flat array; `nonfinite="zero"` replaces them by 0), NoCompatibleKernelError for a missing device or variant and for
    a device without a kernel for `format`, DeviceError if a GPU fails; `out` is then untouched. `on_error="recover"`:
    see docs/guides/recover.md.
    """
    if device == AUTO:
        told: dict[str, Any] = {"packed": packed, "format": format, "out": out, "nonfinite": nonfinite}
        told |= {"threads": threads, "on_error": on_error}
        where = auto_device.PlacedCall(
            auto_device.HOST, f"{AUTO}: {auto_device.HOST}, because the default block depends on the device"
        )
        if block is not None and format in GROUPS:
            key = _PACKED[format] if packed else CODES
            where = auto_device.elements(key, x, {"block": _size(block)}, threads, variant)
        auto_device.check_unforced(OP.name, variant)
        return where.run(ternary_quantize, x, block, **told)
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {"x": x, "block": block, "packed": packed, "format": format, "nonfinite": nonfinite}
        asked |= {"variant": variant, "threads": threads, "device": device}
        # Another device may have another default block, and so another result.
        found = call(OP.name, on_error, out=out, host=block is not None, **asked)
        return cast("TernaryQuantized | PackedTernary", found)
    if format not in GROUPS:
        raise InvalidArgumentError(
            op=OP.name, argument="format", found=misspelt(format, GROUPS), legal=", ".join(GROUPS)
        )
    if not packed and format != PACKED.format:
        raise InvalidArgumentError(
            op=OP.name,
            argument="format",
            found=f"{format!r} for codes that are not packed",
            legal="packed=True with it",
        )
    key = dispatch.on_device(_PACKED[format] if packed else CODES, device)
    flat = dispatch.flattened(OP.name, "x", x)
    axes = {"n": flat.size, "block": _chosen(key, flat.size) if block is None else _size(block)}
    taken_by, taken = elementwise.values(OP, key, flat, axes)
    like = OP.outputs_like(axes, key)
    shapes = like["codes"][0] if packed else x.shape, like["scales"][0]
    codes, scales = (
        elementwise.output(OP, _of_dtype(tensor, like[tensor.name][1]), array, shape, {"x": flat})
        for tensor, array, shape in zip(OP.outputs, _given(out, key, packed), shapes, strict=True)
    )
    inputs = {"x": dispatch.finite(OP, "x", taken, nonfinite, preflight=out is not None)}
    chosen = dispatch.select(taken_by, axes, variant, threads, arrays=(inputs["x"], codes, scales))
    dispatch.run(OP, chosen, inputs, {"codes": codes, "scales": scales}, axes, dispatch.threads_for(key, threads))
    if packed:
        return PackedTernary(codes, scales, flat.size, axes["block"], format)
    return TernaryQuantized(codes.reshape(x.shape), scales)


@lru_cache(maxsize=64)
def _of_dtype(tensor: Tensor, dtype: str) -> Tensor:
    return tensor if tensor.dtype == dtype else replace(tensor, dtype=dtype)


def _size(block: Any) -> int:
    try:
        size = operator.index(block)
    except TypeError:
        size = 0
    if size < 1:
        raise InvalidArgumentError(
            op=OP.name, argument="block", found=repr(block), legal="an integer, at least 1, or None"
        )
    return size


def _chosen(key: KernelKey, n: int) -> int:
    """The default block of a call."""
    if key.format == TQ2_0.format:
        return GROUPS[key.format][0]
    # If the device is missing, the choice of a kernel raises with the reason.
    kind, index = numbered(key.device) or (key.device, 0)
    registry = dispatch.registry()
    there = kind == TQ2_0.device and n and registry.number(key.device) is None
    if there and registry.devices[key.device].missing() is None:
        from tritmark.kernels.ternary_quantize.cuda import block_here

        return block_here(n, index)
    return 128


def _given(out: Any, key: KernelKey, packed: bool) -> tuple[Any, Any]:
    """The arrays of `out` to fill."""
    kind = PackedTernary if packed else TernaryQuantized
    if out is None:
        return None, None
    if not isinstance(out, kind):
        found = f"a {type(out).__name__}"
        raise InvalidArgumentError(
            op=OP.name, argument="out", found=found, legal=f"{kind.__name__}, as packed={packed} returns it"
        )
    if isinstance(out, PackedTernary) and out.format != key.format:
        raise InvalidArgumentError(
            op=OP.name, argument="out", found=f"packed as {out.format}", legal=f"packed as {key.format}"
        )
    return out[0], out[1]
