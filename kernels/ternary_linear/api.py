"""The public function ternary_linear."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import check_array, dtype_name
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import KernelKey
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.public.foreign import takes_any_array
from tritmark.kernels.ternary_linear.spec import OPS, OUTPUTS
from tritmark.kernels.weights.packed import PackedWeights, matrix_of

__all__ = ["ternary_linear"]

_OP = "ternary_linear"
_FORMAT = "row16"


@takes_any_array
def ternary_linear(
    x: npt.NDArray[Any],
    weights: PackedWeights,
    *,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    nonfinite: str = "error",
    variant: str | None = None,
    device: str = "cuda",
    on_error: str = "raise",
) -> npt.NDArray[Any]:
    """Quantized activations times weights: activation_quantize, then ternary_matmul, in one kernel where M is 1.

    `x` is float32, float16 or bfloat16 (M, K), rows contiguous (the matrix may be strided). `weights` comes from
    pack_weights, with one scale; it is repacked once for the kernels. `dtype` is "float32", "bfloat16" or "float16".
    Returns (M, N); `out`, if given, has that shape and dtype. `variant` forces one of the device's kernels.

    Raises InvalidArgumentError for arguments outside the contract and for a NaN or infinity in x (`nonfinite="zero"`
    replaces them by 0), NoCompatibleKernelError for a missing device or variant, DeviceError if a GPU fails;
    `out` is then untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {"x": x, "weights": weights, "dtype": dtype, "nonfinite": nonfinite, "variant": variant}
        return cast("npt.NDArray[Any]", call(_OP, on_error, out=out, device=device, **asked))
    if not isinstance(weights, PackedWeights):
        found = f"a {type(weights).__name__}"
        raise InvalidArgumentError(
            op=_OP, argument="weights", found=found, legal="PackedWeights, as pack_weights makes them"
        )
    given = str(x.dtype) if isinstance(x, np.ndarray | ResidentArray) else "float32"
    if given not in OPS:
        raise InvalidArgumentError(op=_OP, argument="x", found=f"of dtype {given}", legal=" or ".join(OPS))
    op = OPS[given]
    N, K = matrix_of(_OP, weights)
    check_array(_OP, op.inputs[0], x, given)
    if x.shape[1] != K:
        legal = f"K = {K}, as the weights have it"
        raise InvalidArgumentError(op=_OP, argument="x", found=f"of shape {x.shape}", legal=legal)
    name = dtype_name(_OP, dtype)
    if name not in OUTPUTS:
        raise InvalidArgumentError(op=_OP, argument="dtype", found=repr(name), legal=" or ".join(OUTPUTS))
    axes = {"M": int(x.shape[0]), "N": N, "K": K}
    key = KernelKey(device, op.name, _FORMAT, name)
    chosen = dispatch.select(key, axes, variant)
    why = FORMATS[_FORMAT].refusal(FORMATS[weights.format], weights.matrix)
    if why is not None:
        raise InvalidArgumentError(op=_OP, argument="weights", found=f"in {weights.format}: {why}", legal="one scale")
    outputs = dispatch.outputs_for(op, axes, key, {"out": out}, {"x": x, "weights": weights.data})
    checked = dispatch.finite(op, "x", x, nonfinite, preflight=out is not None)
    inputs = {"x": checked, "weights": weights.packed_as(_FORMAT, device), "weight_scale": weights.weight_scale}
    dispatch.run(op, chosen, inputs, outputs, axes, 1)
    return outputs["out"] if out is None else out
