"""The public function absmean_quantize."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import KernelKey, Ternarized
from tritmark.kernels.absmean_quantize.spec import OP
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.public import auto_device, elementwise
from tritmark.kernels.public.foreign import AUTO, takes_any_array

KEY = KernelKey("cpu", OP.name, "none", "int8")


class AbsmeanQuantized(NamedTuple):
    """Ternary weights: codes * scale approximates the quantized tensor."""

    codes: npt.NDArray[np.int8]
    """-1, 0 or 1, in the shape of the weights."""
    scale: np.float32
    """The value of code 1."""


@takes_any_array
def absmean_quantize(
    x: npt.NDArray[np.float32],
    *,
    out: npt.NDArray[np.int8] | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    on_error: str = "raise",
) -> AbsmeanQuantized:
    """Ternary codes and one scale for a tensor: scale = max(mean |x|, 1e-5), codes = clamp(rint(x / scale), -1, 1),
    ties to even.

    `x` is float32 of any shape, C-contiguous; `out`, if given, receives the codes: int8 of x's shape. `device` is
    "cpu", "cuda", a package's or "auto" (docs/python.md); `variant` forces one of its kernels. The mean is a float64
    sum in the order of the contract (kernels/absmean_quantize/spec.py), so the result does not depend on `device`,
    `threads` or `variant`.
    Source: BitNet b1.58 (arXiv:2402.17764).

    Raises InvalidArgumentError for arguments outside the contract and for a NaN or infinity in x (with the index in the
    flat array; `nonfinite="zero"` replaces them by 0), NoCompatibleKernelError for a missing device or variant,
    DeviceError if a GPU fails; `out` is then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    if device == AUTO:
        told: dict[str, Any] = {"out": out, "nonfinite": nonfinite, "threads": threads, "on_error": on_error}
        return auto_device.elements(KEY, x, {}, threads, variant).run(absmean_quantize, x, **told)
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {
            "x": x,
            "nonfinite": nonfinite,
            "variant": variant,
            "threads": threads,
            "device": device,
        }
        return cast("AbsmeanQuantized", call(OP.name, on_error, out=out, out_of=0, **asked))
    key = dispatch.on_device(KEY, device)
    flat = dispatch.flattened(OP.name, "x", x)
    axes = unify(OP, {"x": flat})
    codes = elementwise.output(OP, OP.outputs[0], out, x.shape, {"x": flat})
    inputs = {"x": dispatch.finite(OP, "x", flat, nonfinite, preflight=out is not None)}
    scale = flat.new((), np.float32) if isinstance(flat, ResidentArray) else np.empty((), np.float32)
    chosen = dispatch.select(key, axes, variant, threads, arrays=(inputs["x"], codes, scale))
    dispatch.run(OP, chosen, inputs, {"codes": codes, "scale": scale}, axes, dispatch.threads_for(key, threads))
    found = np.float32(scale.element(()) if isinstance(scale, ResidentArray) else scale)
    return AbsmeanQuantized(codes.reshape(x.shape) if out is None else out, found)


def ternarize(weights: npt.NDArray[np.float32]) -> Ternarized:
    """BitNet b1.58's rule for its master weights, float32 (N, K): absmean, one scale."""
    codes, scale = absmean_quantize(weights)
    return Ternarized(codes, scale)
