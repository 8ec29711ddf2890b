"""The contract of pack_codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import INTEGER_FAMILIES, integers
from tritmark.harness.validate.families import scales as scales_of
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.pack_codes.reference import reference

ORDER = 80
"""The place of the op in lists and reports."""
PACKED_FORMATS = ("i2_s_x86", "row16", "tq2_0")
"""The formats that the device packs and unpacks."""


@dataclass(frozen=True, slots=True)
class Fits:
    """The format holds all of a matrix of this shape."""

    format: str

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""
        form, shape = FORMATS[self.format], (axes["N"], axes["K"])
        if shape[0] % form.row_multiple or shape[1] % form.column_multiple:
            return (
                f"{self.format} takes N a multiple of {form.row_multiple} and K of {form.column_multiple}, not {shape}"
            )
        if form.dropped(shape):
            return (
                f"{self.format} drops the last {form.dropped(shape)} weights of {shape}: N * K is no multiple of "
                f"{form.block}"
            )
        return None


def generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    """Codes of a family, and a scale for each 256 codes of a row, in float16's range. Every format takes the scales
    that it needs.

    The first scale is not negative, since it may be the scale of the whole tensor.
    """
    scales = scales_of("uniform", (axes["N"], -(-axes["K"] // 256)), rng)
    if family == "zero":
        scales[...] = 0
    elif family == "extremes":
        scales.reshape(-1)[1:] *= -1
    return {"codes": integers(family, (axes["N"], axes["K"]), -1, 1, rng), "scales": scales}


def scales_like(axes: Axes, format: str) -> tuple[int, int]:
    """Shape of a format's scales: (1, 1) for one scale of the tensor, else (N, blocks of a row)."""
    form = FORMATS[format]
    return (1, 1) if form.scale_per == "tensor" else (axes["N"], axes["K"] // form.group)


def _encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    rows, blocks = scales_like(axes, format)
    return {**inputs, "scales": np.ascontiguousarray(inputs["scales"][:rows, :blocks])}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"packed": (FORMATS[key.weight_format].packed_shape((axes["N"], axes["K"])), key.dtype)}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    rows, blocks = scales_like(axes, key.weight_format)
    codes = axes["N"] * axes["K"]
    return Traffic(
        read=codes + 4 * rows * blocks,
        written=FORMATS[key.weight_format].packed_bytes((axes["N"], axes["K"])),
        operations=2 * codes,
    )


OP = Op(
    name="pack_codes",
    summary="ternary codes (N, K) and their scale or scales in the bytes of the key's format",
    source="FORMATS[key.format].pack",
    axes=("N", "K"),
    inputs=(
        Tensor("codes", ("N", "K"), "int8", "ternary codes; kernels report the first other one", Values.TERNARY),
        Tensor(
            "scales",
            ("rows", "blocks"),
            "float32",
            "value of code 1: (1, 1), or (N, K / block) in formats with block scales",
        ),
    ),
    outputs=(Tensor("packed", ("bytes",), "key", "the format's bytes, scale and padding included"),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=INTEGER_FAMILIES,
    generate=generate,
    encode=_encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    weights=lambda axes: axes["N"] * axes["K"],
)
