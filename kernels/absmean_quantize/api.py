"""The public function absmean_quantize."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import unify
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import KernelKey
from tritmark.kernels import dispatch, elementwise
from tritmark.kernels.absmean_quantize.spec import OP
from tritmark.kernels.foreign import takes_any_array

KEY = KernelKey("cpu", OP.name, "none", "int8")


class AbsmeanQuantized(NamedTuple):
    """Ternary weights: codes * scale is close to what was quantized."""

    codes: npt.NDArray[np.int8]
    """-1, 0 or 1, in the shape of the weights."""
    scale: np.float32
    """What code 1 stands for."""


@takes_any_array
def absmean_quantize(
    x: npt.NDArray[np.float32],
    *,
    out: npt.NDArray[np.int8] | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
) -> AbsmeanQuantized:
    """Ternary codes and one scale for a tensor: scale = max(mean |x|, 1e-5), codes = clamp(rint(x / scale), -1, 1),
    ties to even.

    `x` is float32 of any shape, C-contiguous; `out`, if given, takes the codes: int8 of x's shape. The mean is summed
    in float64, in an order that the contract states (kernels/absmean_quantize/spec.py), so the result depends neither
    on `device` ("cpu", "cuda" or a package's), nor on `threads`, nor on `variant`, which forces one of the device's
    kernels. Source: BitNet b1.58 (arXiv:2402.17764).

    Raises InvalidArgumentError for arguments outside the contract, a NaN or infinity in x included (its index is that
    of the flat array; `nonfinite="zero"` takes them as 0), and NoCompatibleKernelError where the device or `variant` is
    not there, DeviceError where a GPU fails; `out` is then untouched.
    """
    key = dispatch.on_device(KEY, device)
    flat = dispatch.flattened(OP.name, "x", x)
    axes = unify(OP, {"x": flat})
    codes = elementwise.output(OP, OP.outputs[0], out, x.shape, {"x": flat})
    chosen = dispatch.select(key, axes, variant, threads)
    inputs = {"x": dispatch.finite(OP, "x", flat, nonfinite, preflight=out is not None)}
    scale = flat.new((), np.float32) if isinstance(flat, ResidentArray) else np.empty((), np.float32)
    dispatch.run(OP, chosen, inputs, {"codes": codes, "scale": scale}, axes, dispatch.threads_for(key, threads))
    found = np.float32(scale.element(()) if isinstance(scale, ResidentArray) else scale)
    return AbsmeanQuantized(codes.reshape(x.shape) if out is None else out, found)
