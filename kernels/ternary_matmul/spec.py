"""The contract of ternary_matmul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.numbered import numbered
from tritmark.harness.spec import (
    Arrays,
    Axes,
    KernelKey,
    Op,
    Sizes,
    StoredWeights,
    Tensor,
    ToleranceKind,
    Traffic,
    Values,
)
from tritmark.harness.validate.families import INTEGER_FAMILIES, ROWS, integers, scales, scales_apart
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.tiles import Tiles
from tritmark.kernels.formats.tl_layout import TL
from tritmark.kernels.ternary_matmul.reference import reference
from tritmark.kernels.ternary_matmul.scales import grouped, weight_scales

ORDER = 100
"""The place of the op in lists and reports."""
DTYPES = ("int32", "float32", "bfloat16")
"""Output dtypes; int32 is the accumulators themselves."""

MAX_K = (1 << 23) - 1
"""The largest K for which 2 * 128 * K fits the int32 accumulators."""

CUDA_DTYPES = (*DTYPES, "float16")
"""Output dtypes on CUDA devices. On the CPU the caller converts float32 to float16, with the same result."""


def dtypes(format: str, device: str = "cpu") -> tuple[str, ...]:
    """The output dtypes of products with weights of a format on a device. int32 is excluded for formats with scales of
    groups, where the int32 sum of a row has no meaning."""
    there = CUDA_DTYPES if (numbered(device) or (device,))[0] == "cuda" else DTYPES
    return there if grouped(format) is None else tuple(dtype for dtype in there if dtype != "int32")


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    weight_scale, act_scale = scales(family, (), rng), scales("uniform", (axes["M"],), rng)
    if family == "scales":
        weight_scale, act_scale = scales_apart((axes["M"],), rng)
    return {
        "activations": integers(family, (axes["M"], axes["K"]), -128, 127, rng),
        "weights": integers(family, (axes["N"], axes["K"]), -1, 1, rng),
        "weight_scale": weight_scale,
        "act_scale": act_scale,
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
    out = 2 if key.dtype in {"bfloat16", "float16"} else 4
    return Traffic(read=int(N * K * bits / 8) + M * K + 4 * M, written=out * M * N, operations=2 * M * N * K)


def independent_axis(axes: Axes, key: KernelKey) -> tuple[str, int]:
    """The axis N in units of the rows of a tile."""
    form = FORMATS.get(key.weight_format)
    if isinstance(form, TL):
        return "N", form.rows_apart((axes["N"], axes["K"]))
    return "N", form.rows if isinstance(form, Tiles) else 64


def stored_ranges(axes: Axes, format: str, name: str, begin: int, end: int) -> list[tuple[int, int]] | None:
    """See Format.row_ranges."""
    form = FORMATS.get(format)
    return form.row_ranges((axes["N"], axes["K"]), begin, end) if form is not None and name == "weights" else None


def _interchangeable(axes: Axes, format: str) -> bool:
    """See Format.interchangeable."""
    form = FORMATS.get(format)
    return form is not None and form.interchangeable((axes["N"], axes["K"]))


def _with_weights(axes: Axes, codes: Any, scale: Any, rng: np.random.Generator) -> dict[str, Any]:
    made = _generate({**axes, "N": 1}, "normal", rng)  # one row, since the weights exist
    one = {"weight_scale": np.float32(scale)} if np.ndim(scale) == 0 and scale > 0 else {}
    return {**made, "weights": codes, **one}


def largest(inputs: Arrays, axes: Axes) -> float:
    """A bound of results beyond the magnitude of inputs; infinite where rows or groups may have scales, which are in
    the bytes of the weights."""
    if not np.all(np.asarray(inputs["weight_scale"]) != 1):
        return np.inf
    return axes["K"] * 2 * 128 * float(np.max(inputs["weight_scale"])) / float(np.min(inputs["act_scale"]))


OP = Op(
    name="ternary_matmul",
    summary="out = activations @ weights.T in int32, for each group with a scale; float outputs times "
    "weight_scale / act_scale",
    source="docs/specification.md, section 3.1; W2A8 of microsoft/BitNet; numerics: BitNet b1.58 (arXiv:2402.17764)",
    axes=("M", "N", "K"),
    inputs=(
        Tensor("activations", ("M", "K"), "int8", "quantized activations", strided_rows=True),
        Tensor(
            "weights", ("N", "K"), "int8", "ternary codes; kernels take them packed in the key's format", Values.TERNARY
        ),
        Tensor(
            "weight_scale",
            (),
            "float32",
            "value of code 1; kernels get 1 where weights hold several scales",
            Values.POSITIVE,
        ),
        Tensor(
            "act_scale",
            ("M",),
            "float32",
            "factor of the activations; the output is divided by it",
            Values.POSITIVE,
        ),
    ),
    outputs=(Tensor("out", ("M", "N"), "key", "the product"),),
    tolerance_kind=ToleranceKind.ROUNDED,
    input_families=(*INTEGER_FAMILIES, "corners", "scales"),
    generate=_generate,
    encode=_encode,
    holds=lambda axes, format: FORMATS[format].holds((axes["N"], axes["K"])) and FORMATS[format].ternary,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"M": ROWS, "K": Sizes(largest=MAX_K)},
    independent_axis=independent_axis,
    stored_ranges=stored_ranges,
    weights=lambda axes: axes["N"] * axes["K"],
    interchangeable=_interchangeable,
    stored=StoredWeights(
        dtype="float32",
        axes=lambda tokens, shape: {"M": tokens, "N": shape[0], "K": shape[1]},
        inputs=_with_weights,
    ),
)
