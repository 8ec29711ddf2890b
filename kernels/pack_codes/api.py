"""The public function pack_codes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.nearest import misspelt
from tritmark.harness.spec import KernelKey, Receipt
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats import FORMATS, Format
from tritmark.kernels.pack_codes.spec import OP, PACKED_FORMATS, scales_like
from tritmark.kernels.public.foreign import takes_any_array


@takes_any_array
def pack_codes(
    codes: npt.NDArray[np.int8],
    scale: Any,
    format: str = "row16",
    *,
    device: str = "cuda",
    variant: str | None = None,
    on_error: str = "raise",
) -> npt.NDArray[np.uint8]:
    """The bytes that FORMATS[format].pack(codes, scale, tail="error") returns, packed on the device.

    `codes` is int8 (N, K), -1, 0 or 1. `scale` is one number, or float32 (N, K / 256) for tq2_0. `format` is
    "i2_s_x86", "row16" or "tq2_0". `variant` forces one of the device's kernels.

    Raises InvalidArgumentError where the format's own packer does (an illegal code, with its index; a scale that it
    cannot store; a shape that it cannot hold), NoCompatibleKernelError for a missing device or variant, DeviceError if
    a GPU fails. `on_error="recover"`: see docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {"codes": codes, "scale": scale, "format": format, "device": device, "variant": variant}
        return cast("npt.NDArray[np.uint8]", call("pack_codes", on_error, **asked))
    packed, _ = with_receipt(codes, scale, format, device=device, variant=variant)
    return packed


def with_receipt(
    codes: npt.NDArray[np.int8], scale: Any, format: str = "row16", *, device: str = "cuda", variant: str | None = None
) -> tuple[npt.NDArray[np.uint8], Receipt]:
    """As pack_codes, and the receipt."""
    form = device_format(OP.name, format)
    whole: Any = np.ascontiguousarray(codes) if isinstance(codes, np.ndarray) else codes
    axes = unify(OP, {"codes": whole})
    shape = form.check_shape(OP.name, "codes", whole.shape)
    scales = np.broadcast_to(form.check_scale(OP.name, scale, shape), scales_like(axes, format))
    form.check_tail(OP.name, shape, "error")
    key = KernelKey(device, OP.name, format, "uint8")
    outputs = dispatch.outputs_for(OP, axes, key, {}, {"codes": whole})
    inputs = {"codes": whole, "scales": np.ascontiguousarray(scales)}
    ran = dispatch.run(OP, dispatch.select(key, axes, variant), inputs, outputs, axes, 1)
    return outputs["packed"], ran.receipt()


def device_format(op: str, name: str) -> Format:
    """A format that the device packs and unpacks. Raises InvalidArgumentError for any other."""
    if name not in PACKED_FORMATS:
        raise InvalidArgumentError(
            op=op, argument="format", found=misspelt(name, PACKED_FORMATS), legal=", ".join(PACKED_FORMATS)
        )
    return FORMATS[name]
