"""The contract of ternary_matmul_experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import INTEGER_FAMILIES, ROWS, integers, scales, scales_apart
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.ternary_matmul.scales import weight_scales
from tritmark.kernels.ternary_matmul.spec import MAX_K, dtypes
from tritmark.kernels.ternary_matmul_experts.offsets import drawn, touched
from tritmark.kernels.ternary_matmul_experts.reference import reference

__all__ = ["MAX_K", "OP", "ORDER", "dtypes"]

ORDER = 105
"""The place of the op in lists and reports."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    M, E = axes["M"], axes["E"]
    weight_scale, act_scale = scales(family, (E,), rng), scales("uniform", (M,), rng)
    if family == "scales":
        one, act_scale = scales_apart((M,), rng)
        weight_scale = (one * rng.uniform(1, 2, E)).astype(np.float32)
    return {
        "activations": integers(family, (M, axes["K"]), -128, 127, rng),
        "weights": integers(family, (E, axes["N"], axes["K"]), -1, 1, rng),
        "weight_scale": weight_scale,
        "act_scale": act_scale,
        "offsets": drawn(family, M, E, rng),
    }


def expert_scales(inputs: Arrays, axes: Axes, format: str) -> npt.NDArray[np.float32]:
    """The scales of all experts as the format stores them, see weight_scales of ternary_matmul: float32 of shape (E,)
    and the format's `scale_shape`."""
    pairs = zip(inputs["weights"], inputs["weight_scale"], strict=True)
    return np.stack([weight_scales({"weights": codes, "weight_scale": scale}, axes, format) for codes, scale in pairs])


def _encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    stored = expert_scales(inputs, axes, format)
    # Several scales are stored only in the bytes.
    one = inputs["weight_scale"] if stored.ndim == 1 else np.ones(axes["E"], np.float32)
    form = FORMATS[format]
    packed = [form.pack(*each, tail="error") for each in zip(inputs["weights"], stored, strict=True)]
    return {**inputs, "weights": np.stack(packed).reshape(axes["E"], -1), "weight_scale": one}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"out": ((axes["M"], axes["N"]), key.dtype)}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    """Weights are those of min(M, E) experts, as the inputs of family "uniform" have them: others are not read."""
    M, E, N, K = axes["M"], axes["E"], axes["N"], axes["K"]
    bits = FORMATS[key.weight_format].bits_per_weight((N, K)) if key.weight_format in FORMATS else 2.0
    out = 2 if key.dtype in {"bfloat16", "float16"} else 4
    weights = int(touched(M, E) * (N * K * bits / 8 + 4))
    return Traffic(read=weights + M * K + 4 * M + 4 * (E + 1), written=out * M * N, operations=2 * M * N * K)


def _holds(axes: Axes, format: str) -> bool:
    return FORMATS[format].ternary and FORMATS[format].holds((axes["N"], axes["K"]))


def _interchangeable(axes: Axes, format: str) -> bool:
    """See Format.interchangeable."""
    form = FORMATS.get(format)
    return form is not None and form.interchangeable((axes["N"], axes["K"]))


def largest(inputs: Arrays, axes: Axes) -> float:
    """As in ternary_matmul."""
    if not np.all(np.asarray(inputs["weight_scale"]) != 1):
        return np.inf
    return axes["K"] * 2 * 128 * float(np.max(inputs["weight_scale"])) / float(np.min(inputs["act_scale"]))


OP = Op(
    name="ternary_matmul_experts",
    summary="rows offsets[e] to offsets[e + 1] of out = those of activations @ weights[e].T in int32, for each group "
    "with a scale; float outputs times weight_scale[e] / act_scale",
    source="docs/specification.md, section 3.1, for the experts of a layer (arXiv:2101.03961), rows sorted by expert",
    axes=("M", "E", "N", "K"),
    inputs=(
        Tensor("activations", ("M", "K"), "int8", "quantized activations, rows sorted by expert", strided_rows=True),
        Tensor(
            "weights",
            ("E", "N", "K"),
            "int8",
            "ternary codes; kernels take those of each expert packed in the key's format, one expert after another",
            Values.TERNARY,
        ),
        Tensor(
            "weight_scale",
            ("E",),
            "float32",
            "value of code 1 for each expert; kernels get 1 where weights hold several scales",
            Values.POSITIVE,
        ),
        Tensor(
            "act_scale",
            ("M",),
            "float32",
            "factor of the activations; the output is divided by it",
            Values.POSITIVE,
        ),
        Tensor(
            "offsets",
            ("E+1",),
            "int32",
            "rows offsets[e] to offsets[e + 1] are of expert e; the last is M; experts may have no rows",
            Values.OFFSETS,
        ),
    ),
    outputs=(Tensor("out", ("M", "N"), "key", "the products"),),
    tolerance_kind=ToleranceKind.ROUNDED,
    input_families=(*INTEGER_FAMILIES, "corners", "scales"),
    generate=_generate,
    encode=_encode,
    holds=_holds,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"M": ROWS, "E": Sizes(usual=9, most=300), "K": Sizes(largest=MAX_K)},
    weights=lambda axes: axes["E"] * axes["N"] * axes["K"],
    interchangeable=_interchangeable,
)
