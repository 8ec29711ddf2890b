"""The contract of ternary_quantize. Codes of one byte are made of float16 and bfloat16 too: the key's format then says
so, see input_dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import ELEMENTS, FLOAT_FAMILIES, floats
from tritmark.kernels import input_dtypes
from tritmark.kernels.ternary_quantize.reference import GROUPS, reference

CODES = KernelKey("cpu", "ternary_quantize", "none", "int8")
"""One code a byte."""
PACKED = KernelKey("cpu", "ternary_quantize", "i2_s_x86", "uint8")
"""Four codes a byte: the stream of I2_S x86 over the flat array, without its scale; what the last group of 128 lacks
is filled with 0."""
ROW16 = KernelKey("cuda", "ternary_quantize", "row16", "uint8")
"""Four codes a byte: words of 16 codes over the flat array, as a row of row16; what the last 16 bytes lack is filled
with 0."""
TQ2_0 = KernelKey("cuda", "ternary_quantize", "tq2_0", "uint8")
"""Blocks of TQ2_0 over the flat array, for block = 256 only: d is the block's scale as float16, what the last block
lacks is filled with 0.

The codes are this op's. Those of llama.cpp, which takes x * (1 / absmax) in float32 and rounds halves away from
zero, differ at ties and, since that product is rounded twice, at the floats next to them; and in blocks whose absmax
is under the smallest scale."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    if family == "ties":
        return {"x": _ties(axes["n"], min(axes["block"], axes["n"]), rng)}
    return {"x": floats(family, (axes["n"],), rng)}


def _ties(n: int, block: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Halves and the floats next to them in blocks that hold a 1, each block times a power of two: ties whatever the
    scale."""
    half = np.float32(0.5)
    pool = np.array([half, np.nextafter(half, np.float32(0)), np.nextafter(half, np.float32(1)), 0, 1], np.float32)
    x = rng.choice(np.concatenate([pool, -pool]), n)
    starts = np.arange(0, n, block)
    sizes = np.minimum(block, n - starts)
    x[starts + rng.integers(0, sizes)] = rng.choice(np.array([-1, 1], np.float32), starts.size)
    scaled: npt.NDArray[np.float32] = x * np.repeat(np.ldexp(np.float32(1), rng.integers(-20, 21, starts.size)), sizes)
    return scaled


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    n, scales = axes["n"], -(-axes["n"] // axes["block"])
    if key.weight_format == "tq2_0" and axes["block"] != GROUPS["tq2_0"][0]:
        raise InvalidArgumentError(
            op=key.op, argument="block", found=str(axes["block"]), legal="256, the block of tq2_0"
        )
    group, size = GROUPS.get(key.weight_format, (1, 1))
    codes = -(-n // group) * size
    return {"codes": ((codes,), key.dtype), "scales": ((scales,), "float32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    like = _outputs_like(axes, key)
    # A maximum and two comparisons an element.
    return Traffic(
        read=input_dtypes.itemsize(key.input_dtype) * axes["n"],
        written=like["codes"][0][0] + 4 * like["scales"][0][0],
        operations=3 * axes["n"],
    )


OP = Op(
    name="ternary_quantize",
    summary="per block: scale = max(absmax, 1e-8), q = (x > scale / 2) - (x < -scale / 2)",
    source="docs/specification.md, section 2.1; comparisons in place of a product with 1 / scale: section 8",
    axes=("n", "block"),
    inputs=(
        Tensor(
            "x",
            ("n",),
            "float32",
            "values, in the key's dtype; each `block` consecutive ones share a scale, the last perhaps fewer",
            Values.FINITE,
        ),
    ),
    outputs=(
        Tensor("codes", ("n",), "key", "-1, 0 or 1; in the key's format"),
        Tensor("scales", ("blocks",), "float32", "what code 1 stands for, for each block"),
    ),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=FLOAT_FAMILIES,
    generate=_generate,
    encode=input_dtypes.encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"n": ELEMENTS, "block": Sizes(usual=1024, most=5000, often=(32, 64, 128, 256))},
    independent_axis=lambda axes, key: ("n", lcm(axes["block"], GROUPS.get(key.weight_format, (1, 1))[0])),
    weights=lambda axes: axes["n"],
)
