"""The contract of unpack_codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import INTEGER_FAMILIES
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.pack_codes import spec as pack_codes
from tritmark.kernels.pack_codes.reference import packed
from tritmark.kernels.pack_codes.spec import scales_like
from tritmark.kernels.unpack_codes.reference import reference

ORDER = 90
"""The place of the op in lists and reports."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    made = pack_codes.generate(axes, family, rng)
    return {"packed": made["codes"], "scales": made["scales"]}


def _encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    return {"packed": packed(format, inputs["packed"], inputs["scales"])}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"codes": ((axes["N"], axes["K"]), key.dtype), "scales": (scales_like(axes, key.weight_format), "float32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    rows, blocks = scales_like(axes, key.weight_format)
    codes = axes["N"] * axes["K"]
    return Traffic(
        read=FORMATS[key.weight_format].packed_bytes((axes["N"], axes["K"])),
        written=codes + 4 * rows * blocks,
        operations=2 * codes,
    )


OP = Op(
    name="unpack_codes",
    summary="ternary codes (N, K) and their scale or scales from the bytes of the key's format",
    source="FORMATS[key.format].unpack",
    axes=("N", "K"),
    inputs=(
        Tensor(
            "packed",
            ("N", "K"),
            "int8",
            "ternary codes; kernels take them packed in the key's format, with `scales`",
            Values.TERNARY,
        ),
        Tensor(
            "scales",
            ("N", "blocks"),
            "float32",
            "one for each 256 codes of a row, or the first for the tensor; packed with the codes",
        ),
    ),
    outputs=(
        Tensor("codes", ("N", "K"), "key", "-1, 0 or 1"),
        Tensor(
            "scales",
            ("rows", "blocks"),
            "float32",
            "value of code 1: (1, 1), or (N, K / block) in formats with block scales",
        ),
    ),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=INTEGER_FAMILIES,
    generate=_generate,
    encode=_encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    weights=lambda axes: axes["N"] * axes["K"],
)
