"""The public function i2s_dequantize."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.spec import KernelKey
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.i2s_dequantize.spec import OP
from tritmark.kernels.public import auto_device, elementwise
from tritmark.kernels.public.foreign import AUTO, takes_any_array

KEY = KernelKey("cpu", OP.name, "none", "float32")


@takes_any_array
def i2s_dequantize(
    q: npt.NDArray[np.int8],
    scale: float,
    *,
    out: npt.NDArray[np.float32] | None = None,
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> npt.NDArray[np.float32]:
    """float32(q) * scale, elementwise (specification, 1.1).

    `q` is int8 of any shape, C-contiguous; `scale` is finite and above zero; `out`, if given, is float32 of q's shape.
    `device` is "cpu", "cuda", a package's or "auto" (docs/python.md); `variant` forces one of its kernels. Raises
    InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError for a missing device or variant,
    DeviceError if a GPU fails; `out` is then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    if device == AUTO:
        told: dict[str, Any] = {"out": out, "threads": threads, "on_error": on_error}
        return auto_device.elements(KEY, q, {}, threads, variant).run(i2s_dequantize, q, scale, **told)
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {"q": q, "scale": scale, "variant": variant, "threads": threads}
        return cast("npt.NDArray[np.float32]", call(OP.name, on_error, out=out, device=device, **asked))
    key = dispatch.on_device(KEY, device)
    flat = dispatch.flattened(OP.name, "q", q)
    inputs = {"q": flat, "scale": scale}
    axes = unify(OP, inputs)
    x = elementwise.output(OP, OP.outputs[0], out, q.shape, inputs)
    chosen = dispatch.select(key, axes, variant, threads, arrays=(flat, x))
    dispatch.run(OP, chosen, inputs, {"x": x}, axes, dispatch.threads_for(key, threads))
    return x.reshape(q.shape) if out is None else out
