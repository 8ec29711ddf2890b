"""The contract of activation_quantize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Family, KernelKey, Op, Tensor, Traffic, Values
from tritmark.harness.validate.families import FLOAT_FAMILIES, floats
from tritmark.kernels.activation_quantize.reference import reference

KEY = KernelKey("cpu", "activation_quantize", "none", "int8")


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    x = floats(family, (axes["M"], axes["K"]), rng)
    if family == "ties":
        # With 127 in the row the scale is 1, and halves are ties.
        x[np.arange(axes["M"]), rng.integers(0, axes["K"], axes["M"])] = np.float32(127)
    return {"x": x}


def _encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    return dict(inputs)


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    M, K = axes["M"], axes["K"]
    return {"q": ((M, K), "int8"), "scale": ((M,), "float32"), "sum": ((M,), "int32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    M, K = axes["M"], axes["K"]
    # A maximum, a product, a rounding and an addition an element.
    return Traffic(read=4 * M * K, written=M * K + 8 * M, operations=4 * M * K)


OP = Op(
    name="activation_quantize",
    summary="per row: scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127), and the sum of q",
    source="BitNet b1.58 (arXiv:2402.17764), section 2; I8_S of microsoft/BitNet",
    axes=("M", "K"),
    inputs=(Tensor("x", ("M", "K"), "float32", "activations, one row a token", Values.FINITE, rows_apart=True),),
    outputs=(
        Tensor("q", ("M", "K"), "int8", "quantized activations"),
        Tensor("scale", ("M",), "float32", "what x was multiplied by"),
        Tensor("sum", ("M",), "int32", "sum of q along the row"),
    ),
    family=Family.EXACT,
    families=FLOAT_FAMILIES,
    generate=_generate,
    encode=_encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
)
