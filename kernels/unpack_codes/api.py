"""The public function unpack_codes."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import KernelKey, Receipt, Tensor
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats.base import Scale
from tritmark.kernels.pack_codes.api import device_format
from tritmark.kernels.public.foreign import takes_any_array
from tritmark.kernels.unpack_codes.spec import OP

_BYTES = Tensor("packed", ("bytes",), "uint8", "a weight format's bytes")


@takes_any_array
def unpack_codes(
    packed: npt.NDArray[np.uint8],
    shape: tuple[int, int],
    format: str = "row16",
    *,
    device: str = "cuda",
    variant: str | None = None,
    on_error: str = "raise",
) -> tuple[npt.NDArray[np.int8], Scale]:
    """The result of FORMATS[format].unpack(packed, shape, tail="error"), unpacked on the device.

    Returns codes int8 (N, K) and the scale: np.float32, or float32 (N, K / 256) for tq2_0. `format` is "i2_s_x86",
    "row16" or "tq2_0"; `packed` is uint8 of the format's shape, or flat with as many bytes. `variant` forces one of the
    device's kernels.

    Raises InvalidArgumentError where the format's own unpacker does (the reserved field 3, with the index of its
    weight; nonzero weights in the padding; a scale that is negative or not finite; a wrong size),
    NoCompatibleKernelError for a missing device or variant, DeviceError if a GPU fails. `on_error="recover"`: see
    docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {
            "packed": packed,
            "shape": shape,
            "format": format,
            "device": device,
            "variant": variant,
        }
        return cast("tuple[npt.NDArray[np.int8], Scale]", call("unpack_codes", on_error, **asked))
    codes, scale, _ = with_receipt(packed, shape, format, device=device, variant=variant)
    return codes, scale


def with_receipt(
    packed: npt.NDArray[np.uint8],
    shape: tuple[int, int],
    format: str = "row16",
    *,
    device: str = "cuda",
    variant: str | None = None,
) -> tuple[npt.NDArray[np.int8], Scale, Receipt]:
    """As unpack_codes, and the receipt."""
    form = device_format(OP.name, format)
    if not (isinstance(shape, tuple) and all(isinstance(n, (int, np.integer)) for n in shape)):
        raise InvalidArgumentError(
            op=OP.name, argument="shape", found=repr(shape), legal="a tuple of two integers (N, K)"
        )
    N, K = form.check_shape(OP.name, "shape", shape)
    flat: Any = np.ascontiguousarray(packed).reshape(-1) if isinstance(packed, np.ndarray) else packed
    if isinstance(flat, ResidentArray):
        flat = dispatch.flattened(OP.name, "packed", flat)
    check_array(OP.name, _BYTES, flat)
    expected = form.packed_shape((N, K))
    if packed.shape not in (expected, (math.prod(expected),)):
        legal = f"shape {expected} for weights of shape {(N, K)}, or flat"
        raise InvalidArgumentError(op=OP.name, argument="packed", found=f"of shape {packed.shape}", legal=legal)
    form.check_tail(OP.name, (N, K), "error")
    axes = {"N": N, "K": K}
    key = KernelKey(device, OP.name, format, "int8")
    outputs = dispatch.outputs_for(OP, axes, key, {}, {"packed": flat})
    receipt = dispatch.run(OP, dispatch.select(key, axes, variant), {"packed": flat}, outputs, axes, 1).receipt()
    scales = outputs["scales"]
    if isinstance(scales, ResidentArray) and form.scale_per != "tensor":
        there: Any = scales
        return outputs["codes"], there, receipt
    scale = scales.element((0, 0)) if isinstance(scales, ResidentArray) else scales
    if isinstance(scale, np.ndarray) and form.scale_per == "tensor":
        scale = scale[0, 0]
    return outputs["codes"], form.check_scale(OP.name, scale, (N, K)), receipt
