"""The public function float_narrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import KernelKey
from tritmark.kernels import dispatch
from tritmark.kernels.float_narrow.spec import DTYPES, OP


def float_narrow(
    x: npt.NDArray[np.float32], dtype: str = "float16", *, device: str = "cuda", variant: str | None = None
) -> npt.NDArray[Any]:
    """`x` (float32, any shape, C-contiguous) in `dtype`, "float16" or "bfloat16", rounded to nearest even, as a new
    array.

    What is too large becomes infinity; a NaN becomes the quiet NaN of its sign and its payload's leading bits.
    `variant` forces one of the device's kernels. Raises InvalidArgumentError for arguments outside the contract,
    NoCompatibleKernelError where the device or `variant` is not there, DeviceError where a GPU fails.
    """
    if dtype not in DTYPES:
        raise InvalidArgumentError(op=OP.name, argument="dtype", found=repr(dtype), legal=" or ".join(DTYPES))
    flat = dispatch.flattened(OP.name, "x", x)
    axes = unify(OP, {"x": flat})
    key = KernelKey(device, OP.name, "none", dtype)
    h = np.empty(flat.shape, named_dtype(dtype))
    dispatch.run(OP, dispatch.select(key, axes, variant), {"x": flat}, {"h": h}, axes, 1)
    return h.reshape(x.shape)
