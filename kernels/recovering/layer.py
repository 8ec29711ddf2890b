"""A layer's product in a worker: the quantization of activations, then the product."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tritmark.harness.spec import Receipt, Requirement
from tritmark.kernels.recovering.client import RECOVER, call, call_with_receipt, together
from tritmark.kernels.weights.packed import PackedWeights


def linear_in_worker(
    rows: npt.NDArray[Any],
    weights: PackedWeights,
    *,
    hadamard: tuple[int, npt.NDArray[Any] | None] | None = None,
    dtype: str,
    device: str,
    variant: str | None = None,
    threads: int | None = None,
    requirement: Requirement = Requirement.LATENCY,
) -> tuple[npt.NDArray[Any], Receipt]:
    """The product (M, N) in `dtype` of rows (M, K), float32, float16 or bfloat16, and the receipt of its kernel. With
    `hadamard`, a block and signs or None, the rows are rotated. Both calls count as one in `last_recoveries`. Raises
    the errors of activation_quantize or hadamard_quantize, and of ternary_matmul."""
    asked: dict[str, Any] = {"threads": threads, "device": device}
    of_rows: dict[str, Any] = {"x": rows, "nonfinite": "error", "variant": None, **asked}
    op = "activation_quantize"
    if hadamard is not None:
        op, (block, signs) = "hadamard_quantize", hadamard
        of_rows |= {"signs": signs, "block_size": block}
    with together():
        quantized = call(op, RECOVER, **of_rows)
        y, receipt = call_with_receipt(
            "ternary_matmul",
            RECOVER,
            activations=quantized.q,
            weights=weights,
            act_scale=quantized.scale,
            dtype=dtype,
            variant=variant,
            requirement=requirement,
            **asked,
        )
    assert receipt is not None
    return y, receipt
