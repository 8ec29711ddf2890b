"""The contracts of ternary_matmul_a16: one op for each dtype of the activations; sums are float32 in both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import NONFINITE, ROWS, floats, integers, scales, with_nonfinite
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.ternary_matmul.scales import grouped, weight_scales
from tritmark.kernels.ternary_matmul.spec import independent_axis, stored_ranges
from tritmark.kernels.ternary_matmul_a16.reference import reference

ORDER = 110
"""The place of the op in lists and reports."""
NAMES = {"bfloat16": "ternary_matmul_bf16", "float16": "ternary_matmul_fp16"}
"""The op of each activation dtype."""
DTYPES = ("float32", "bfloat16", "float16")
"""Output dtypes."""
MAX_K = 1 << 20
"""As in matmul: the sums have its bound."""
FAMILIES = ("uniform", "normal", "heavy", "constant", "zero", "ties", "denormals", "extremes", "one_nonzero", NONFINITE)
_LARGEST = {"bfloat16": 1e27, "float16": 65504.0}
"""The largest activation: float32 holds a million of them times the largest float16, a scale. So sums over groups with
scales of both signs do not overflow before they cancel."""
_LEAST_NORMAL = {"bfloat16": 2.0**-126, "float16": 2.0**-14}


def takes(format: str) -> bool:
    """Whether products may be computed from weights in that format: ternary, with one scale, or with one for each group
    in the bytes."""
    form = FORMATS.get(format)
    return form is not None and form.ternary and (form.scale_per == "tensor" or grouped(format) is not None)


def _activations(dtype: str, axes: Axes, family: str, rng: np.random.Generator) -> npt.NDArray[Any]:
    if family == NONFINITE:
        return with_nonfinite(_activations(dtype, axes, "normal", rng), rng, 4)
    values = floats(family, (axes["M"], axes["K"]), rng).astype(np.float64)
    if family == "denormals":
        values *= _LEAST_NORMAL[dtype] / _LEAST_NORMAL["bfloat16"]
    if family == "extremes":
        # One sign, as a row's weights: after cancellation the result could be an infinity of either sign.
        values = np.abs(values)
    largest = _LARGEST[dtype]
    return np.clip(values, -largest, largest).astype(named_dtype(dtype))


def _generate(dtype: str, axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    codes = family if family in {"constant", "zero", "one_nonzero"} else "uniform"
    codes = "corners" if family == "extremes" else codes
    return {
        "activations": _activations(dtype, axes, family, rng),
        "weights": integers(codes, (axes["N"], axes["K"]), -1, 1, rng),
        "weight_scale": scales(family, (), rng),
    }


def _encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    scales = weight_scales(inputs, axes, format)
    # Several scales are stored only in the bytes.
    one = inputs["weight_scale"] if scales.ndim == 0 else np.float32(1)
    return {**inputs, "weights": FORMATS[format].pack(inputs["weights"], scales, tail="error"), "weight_scale": one}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"out": ((axes["M"], axes["N"]), key.dtype)}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    M, N, K = axes["M"], axes["N"], axes["K"]
    bits = FORMATS[key.weight_format].bits_per_weight((N, K)) if key.weight_format in FORMATS else 2.0
    out = 4 if key.dtype == "float32" else 2
    return Traffic(read=int(N * K * bits / 8) + 2 * M * K, written=out * M * N, operations=2 * M * N * K)


def _op(dtype: str) -> Op:
    return Op(
        name=NAMES[dtype],
        summary=f"out = activations @ weights.T * weight_scale for {dtype} activations, sums in float32 (W2A16)",
        source="docs/specification.md, section 3.1, activations not quantized; bounds: Higham 2002, Fasi et al. 2021",
        axes=("M", "N", "K"),
        inputs=(
            Tensor("activations", ("M", "K"), dtype, "NaN and infinities propagate", strided_rows=True),
            Tensor(
                "weights",
                ("N", "K"),
                "int8",
                "ternary codes; kernels take them packed in the key's format",
                Values.TERNARY,
            ),
            Tensor(
                "weight_scale",
                (),
                "float32",
                "value of code 1; kernels get 1 where weights hold several scales",
                Values.POSITIVE,
            ),
        ),
        outputs=(Tensor("out", ("M", "N"), "key", "the product"),),
        tolerance_kind=ToleranceKind.BOUNDED,
        input_families=FAMILIES,
        generate=partial(_generate, dtype),
        encode=_encode,
        holds=lambda axes, format: takes(format) and FORMATS[format].holds((axes["N"], axes["K"])),
        outputs_like=_outputs_like,
        reference=reference,
        traffic=_traffic,
        sizes={"M": ROWS, "K": Sizes(largest=MAX_K)},
        independent_axis=independent_axis,
        stored_ranges=stored_ranges,
        weights=lambda axes: axes["N"] * axes["K"],
    )


OPS: Mapping[str, Op] = {dtype: _op(dtype) for dtype in NAMES}
"""The op for each dtype of the activations."""
