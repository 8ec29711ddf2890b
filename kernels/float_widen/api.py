"""The public function float_widen."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import KernelKey
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.float_widen.spec import FORMATS, OP
from tritmark.kernels.public.foreign import takes_any_array


@takes_any_array
def float_widen(
    h: npt.NDArray[Any], *, device: str = "cuda", variant: str | None = None, on_error: str = "raise"
) -> npt.NDArray[np.float32]:
    """`h` (float16 or ml_dtypes' bfloat16, any shape, C-contiguous) in float32, exactly, as a new array.

    A NaN becomes the quiet NaN of its sign and payload. `variant` forces one of the device's kernels. Raises
    InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError for a missing device or variant,
    DeviceError if a GPU fails. `on_error="recover"`: see docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        return cast("npt.NDArray[np.float32]", call("float_widen", on_error, h=h, device=device, variant=variant))
    flat = dispatch.flattened(OP.name, "h", h)
    format = str(flat.dtype)
    if format not in FORMATS:
        raise InvalidArgumentError(op=OP.name, argument="h", found=f"of dtype {format}", legal=" or ".join(FORMATS))
    check_array(OP.name, OP.inputs[0], flat, format)
    axes = {"n": flat.size}
    key = KernelKey(device, OP.name, format, "float32")
    made = dispatch.outputs_for(OP, axes, key, {}, {"h": flat})
    dispatch.run(OP, dispatch.select(key, axes, variant), {"h": flat}, made, axes, 1)
    x: npt.NDArray[np.float32] = made["x"].reshape(h.shape)
    return x
