"""The public function float_widen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import KernelKey
from tritmark.kernels import dispatch
from tritmark.kernels.float_widen.spec import FORMATS, OP


def float_widen(h: npt.NDArray[Any], *, device: str = "cuda", variant: str | None = None) -> npt.NDArray[np.float32]:
    """`h` (float16 or ml_dtypes' bfloat16, any shape, C-contiguous) in float32, exactly, as a new array.

    A NaN becomes the quiet NaN of its sign and payload. `variant` forces one of the device's kernels. Raises
    InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError where the device or `variant` is
    not there, DeviceError where a GPU fails.
    """
    flat = dispatch.flattened(OP.name, "h", h)
    format = str(flat.dtype)
    if format not in FORMATS:
        raise InvalidArgumentError(op=OP.name, argument="h", found=f"of dtype {format}", legal=" or ".join(FORMATS))
    check_array(OP.name, OP.inputs[0], flat, format)
    axes = {"n": flat.size}
    key = KernelKey(device, OP.name, format, "float32")
    x = np.empty(flat.shape, np.float32)
    dispatch.run(OP, dispatch.select(key, axes, variant), {"h": flat}, {"x": x}, axes, 1)
    return x.reshape(h.shape)
