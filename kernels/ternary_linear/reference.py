"""ternary_linear in NumPy: activation_quantize, then ternary_matmul."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tritmark.harness.spec import Arrays, Axes, KernelKey
from tritmark.kernels.activation_quantize.reference import reference as quantized
from tritmark.kernels.ternary_matmul.reference import reference as multiplied

NAMES = {
    "float32": "ternary_linear_fp32",
    "float16": "ternary_linear_fp16",
    "bfloat16": "ternary_linear_bf16",
}
"""The op of each dtype of the activations."""
DTYPES = {name: dtype for dtype, name in NAMES.items()}


def read_as(op: str) -> str:
    """The format of activation_quantize with the same activations."""
    return "none" if DTYPES[op] == "float32" else DTYPES[op]


def reference(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The int64 sums of codes times the weights, times weight_scale / scale in float64. The judgement rounds them."""
    rows = quantized(inputs, axes, replace(key, format=read_as(key.op)))
    product = {**inputs, "activations": rows["q"], "act_scale": rows["scale"]}
    return multiplied(product, axes, key)
