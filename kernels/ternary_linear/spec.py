"""The contracts of ternary_linear: one op for each dtype of the activations.

A linear layer over packed ternary weights that quantizes its activations at each call: activation_quantize, then
ternary_matmul. Only the output is visible to the caller, so a kernel may fuse both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import FLOAT_FAMILIES, scales
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.numerics.input_dtypes import narrow
from tritmark.kernels.ternary_linear.reference import NAMES, read_as, reference
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL

ORDER = 120
"""The place of the op in lists and reports."""
OUTPUTS = ("float32", "bfloat16", "float16")
"""Output dtypes."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    return {
        **ACTIVATION_QUANTIZE.generate(axes, family, rng),
        "weights": rng.integers(-1, 2, (axes["N"], axes["K"]), dtype=np.int8),
        "weight_scale": scales("uniform", (), rng),
    }


def _encode(name: str, inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    packed = TERNARY_MATMUL.encode(inputs, axes, format)
    return {**packed, "x": narrow(inputs["x"], read_as(name))}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"out": ((axes["M"], axes["N"]), key.dtype)}


def _traffic(itemsize: int, axes: Axes, key: KernelKey) -> Traffic:
    M, K = axes["M"], axes["K"]
    product = TERNARY_MATMUL.traffic(axes, key)
    # Activations are read in their dtype, in place of codes and scales.
    return Traffic(
        read=product.read + (itemsize - 1) * M * K - 4 * M,
        written=product.written,
        operations=product.operations + 4 * M * K,
    )


def _op(dtype: str, name: str) -> Op:
    return Op(
        name=name,
        summary=f"a linear layer: {dtype} activations quantized by row, then their product with ternary weights",
        source="docs/specification.md, section 3.1; BitNet b1.58 (arXiv:2402.17764), section 2",
        axes=("M", "N", "K"),
        inputs=(
            Tensor(
                "x",
                ("M", "K"),
                "float32",
                f"activations, one row a token; kernels take them in {dtype}",
                Values.FINITE,
                strided_rows=True,
            ),
            *(each for each in TERNARY_MATMUL.inputs if each.name in {"weights", "weight_scale"}),
        ),
        outputs=TERNARY_MATMUL.outputs,
        tolerance_kind=ToleranceKind.ROUNDED,
        input_families=FLOAT_FAMILIES,
        generate=_generate,
        encode=partial(_encode, name),
        holds=TERNARY_MATMUL.holds,
        outputs_like=_outputs_like,
        reference=reference,
        traffic=partial(_traffic, 4 if dtype == "float32" else 2),
        sizes=TERNARY_MATMUL.sizes,
        independent_axis=TERNARY_MATMUL.independent_axis,
        stored_ranges=TERNARY_MATMUL.stored_ranges,
        weights=lambda axes: axes["N"] * axes["K"],
    )


OPS: Mapping[str, Op] = {dtype: _op(dtype, name) for dtype, name in NAMES.items()}
"""The op for each dtype of the activations."""
