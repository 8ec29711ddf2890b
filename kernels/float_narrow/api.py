"""The public function float_narrow."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import KernelKey
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.float_narrow.spec import DTYPES, OP
from tritmark.kernels.public.foreign import takes_any_array


@takes_any_array
def float_narrow(
    x: npt.NDArray[np.float32],
    dtype: str = "float16",
    *,
    device: str = "cuda",
    variant: str | None = None,
    on_error: str = "raise",
) -> npt.NDArray[Any]:
    """`x` (float32, any shape, C-contiguous) rounded to nearest even in `dtype`, "float16" or "bfloat16", as a new
    array.

    Values out of range become infinity. A NaN becomes the quiet NaN of its sign and the leading bits of its payload.
    `variant` forces one of the device's kernels. Raises InvalidArgumentError for arguments outside the contract,
    NoCompatibleKernelError for a missing device or variant, DeviceError if a GPU fails. `on_error="recover"`: see
    docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        found = call("float_narrow", on_error, x=x, dtype=dtype, device=device, variant=variant)
        return cast("npt.NDArray[Any]", found)
    if dtype not in DTYPES:
        raise InvalidArgumentError(op=OP.name, argument="dtype", found=repr(dtype), legal=" or ".join(DTYPES))
    flat = dispatch.flattened(OP.name, "x", x)
    axes = unify(OP, {"x": flat})
    key = KernelKey(device, OP.name, "none", dtype)
    made = dispatch.outputs_for(OP, axes, key, {}, {"x": flat})
    dispatch.run(OP, dispatch.select(key, axes, variant), {"x": flat}, made, axes, 1)
    h: npt.NDArray[Any] = made["h"].reshape(x.shape)
    return h
