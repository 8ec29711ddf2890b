"""The public function ternary_matmul_a16."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tritmark.harness.contract import dtype_name, unify
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.resident import ResidentArray
from tritmark.harness.spec import KernelKey, Receipt
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.offload import FinishedCall
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.row16_grouped import FORMATS as ROW16_GROUPED
from tritmark.kernels.public.foreign import takes_any_array
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, OPS
from tritmark.kernels.weights.packed import PackedWeights, matrix_of

__all__ = ["ternary_matmul_a16"]

_OP = "ternary_matmul_a16"
FORMAT = "row16"
"""The layout that kernels read of weights with one scale."""
GROUPED = tuple(sorted(ROW16_GROUPED, key=lambda form: -form.group))
"""Those of weights with a scale for each group, the largest groups first."""


@takes_any_array
def ternary_matmul_a16(
    activations: npt.NDArray[Any],
    weights: PackedWeights,
    *,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    variant: str | None = None,
    device: str = DEVICE,
    on_error: str = "raise",
) -> npt.NDArray[Any]:
    """activations @ weights.T times the weights' scale, of 16-bit activations that are not quantized (W2A16).

    `activations` is bfloat16 or float16 (M, K) or (K,), rows contiguous (the matrix may be strided); NaN and infinities
    propagate: their products with 0 are NaN. `weights` comes from pack_weights, in a format with one scale, or with a
    float16 scale for each group of a multiple of 32 weights; it is repacked once and exactly for the kernels, and the
    receipt reports it. Sums are float32, within a bound that is known beforehand
    (kernels/ternary_matmul_a16/reference.py). The product is rounded to `dtype`, "float32", "bfloat16" or "float16".
    Returns (M, N) or (N,); `out`, if given, has that shape and dtype. `device` is "cuda", the only one with kernels.

    Raises InvalidArgumentError for arguments outside the contract, NoCompatibleKernelError if no kernel fits (K above
    2^20, a GPU with compute capability below 8.0, a missing device), DeviceError if a GPU fails; `out` is then
    untouched. `on_error="recover"`: see docs/guides/recover.md.
    """
    if on_error != "raise":
        from tritmark.kernels.recovering.client import call

        asked: dict[str, Any] = {
            "activations": activations,
            "weights": weights,
            "dtype": dtype,
            "variant": variant,
            "device": device,
        }
        return cast("npt.NDArray[Any]", call(_OP, on_error, out=out, **asked))
    result, _ = _computed(activations, weights, dtype=dtype, out=out, variant=variant, device=device)
    return result


def with_receipt(
    activations: npt.NDArray[Any], weights: PackedWeights, **asked: Any
) -> tuple[npt.NDArray[Any], Receipt]:
    """As ternary_matmul_a16, and the receipt."""
    result, ran = _computed(activations, weights, **asked)
    return result, ran.receipt()


def _computed(
    activations: npt.NDArray[Any],
    weights: PackedWeights,
    *,
    dtype: npt.DTypeLike | str = "float32",
    out: npt.NDArray[Any] | None = None,
    variant: str | None = None,
    device: str = DEVICE,
) -> tuple[npt.NDArray[Any], FinishedCall]:
    if not isinstance(weights, PackedWeights):
        raise _refuse("weights", f"a {type(weights).__name__}", "PackedWeights, as pack_weights makes them")
    N, K = matrix_of(_OP, weights)
    format = _format_for(weights)
    known = isinstance(activations, np.ndarray | ResidentArray)
    found = activations.dtype.name if known else f"a {type(activations).__name__}"
    if found not in OPS:
        raise _refuse("activations", found, "an array of bfloat16 or float16")
    op = OPS[found]
    name = dtype_name(op.name, dtype)
    if name not in DTYPES:
        raise _refuse("dtype", repr(name), ", ".join(DTYPES))
    single = activations.ndim == 1
    rows: Any = activations.reshape(1, -1) if single else activations
    inputs = {"activations": rows, "weight_scale": weights.weight_scale}
    axes = unify(op, inputs, {"N": N, "K": K})
    key = KernelKey(device, op.name, format, name)
    given = out.reshape(1, -1) if single and isinstance(out, np.ndarray | ResidentArray) else out
    outputs = dispatch.outputs_for(op, axes, key, {"out": given}, {**inputs, "weights": weights.data})
    chosen = dispatch.select(key, axes, variant)
    encoded = {**inputs, "weights": weights.packed_as(format, device)}
    count, note = dispatch.threads_for(key, None), weights.repacked_note(chosen)
    ran = dispatch.run(op, chosen, encoded, outputs, axes, count, note=note)
    result = outputs["out"]
    return (result.reshape(-1) if single else result) if out is None else out, ran


def _format_for(weights: PackedWeights) -> str:
    """The format of the kernels for these weights: with the same groups, or with the largest that divide them."""
    form = FORMATS[weights.format]
    if form.scale_per == "tensor":
        return FORMAT
    for each in GROUPED:
        if each.refusal(form, weights.matrix, weights.content) is None:
            return each.name
    codes, dtype = ", ".join(map(str, weights.content.codes)), weights.content.scale_dtype
    raise _refuse(
        "weights",
        f"{weights.format}, which has {form.scales} in {dtype}, with codes {codes}",
        "codes -1, 0, 1 with one scale, or with a scale that float16 holds for each group of a multiple of 32",
    )


def _refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    return InvalidArgumentError(op=_OP, argument=argument, found=found, legal=legal)
