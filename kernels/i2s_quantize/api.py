"""The public function i2s_quantize."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.spec import KernelKey
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.i2s_quantize.spec import OP
from tritmark.kernels.public import auto_device, elementwise
from tritmark.kernels.public.foreign import AUTO, takes_any_array

KEY = KernelKey("cpu", OP.name, "none", "int8")


@takes_any_array
def i2s_quantize(
    x: npt.NDArray[Any],
    scale: float,
    *,
    out: npt.NDArray[np.int8] | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> npt.NDArray[np.int8]:
    """rint(clamp(x / scale, -2, 1)), elementwise, ties to even (specification, 1.1).

    `x` is float32, float16 or bfloat16 (ml_dtypes) of any shape, C-contiguous; it is converted to float32. `scale` is
    finite and above zero, and the division is in float32. `out`, if given, is int8 of x's shape. Returns int8 codes
    from -2 to 1 in x's shape. `device` is "cpu", "cuda", a package's or "auto" (docs/python.md); `variant` forces
    one of its kernels.

    Raises InvalidArgumentError for arguments outside the contract and for a NaN or infinity in x (with the index in the
    flat array; `nonfinite="zero"` replaces them by 0), NoCompatibleKernelError for a missing device or variant,
    DeviceError if a GPU fails; `out` is then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    if device == AUTO:
        told: dict[str, Any] = {"out": out, "nonfinite": nonfinite, "threads": threads, "on_error": on_error}
        return auto_device.elements(KEY, x, {}, threads, variant).run(i2s_quantize, x, scale, **told)
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {"x": x, "scale": scale, "nonfinite": nonfinite, "variant": variant, "threads": threads}
        return cast("npt.NDArray[np.int8]", call(OP.name, on_error, out=out, device=device, **asked))
    key = dispatch.on_device(KEY, device)
    flat = dispatch.flattened(OP.name, "x", x)
    axes = unify(OP, {"scale": scale}, {"n": flat.size})
    key, taken = elementwise.values(OP, key, flat, axes)
    q = elementwise.output(OP, OP.outputs[0], out, x.shape, {"x": flat})
    inputs = {"x": dispatch.finite(OP, "x", taken, nonfinite, preflight=out is not None), "scale": scale}
    chosen = dispatch.select(key, axes, variant, threads, arrays=(inputs["x"], q))
    dispatch.run(OP, chosen, inputs, {"q": q}, axes, dispatch.threads_for(key, threads))
    return q.reshape(x.shape) if out is None else out
