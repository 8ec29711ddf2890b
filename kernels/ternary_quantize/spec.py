"""The contract of ternary_quantize. For codes of one byte the input may be float16 or bfloat16: the format of the key
then names the dtype, see input_dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import ELEMENTS, FLOAT_FAMILIES, floats
from tritmark.kernels.numerics import input_dtypes
from tritmark.kernels.ternary_quantize.reference import GROUPS, reference

ORDER = 30
"""The place of the op in lists and reports."""
CODES = KernelKey("cpu", "ternary_quantize", "none", "int8")
"""One code a byte."""
PACKED = KernelKey("cpu", "ternary_quantize", "i2_s_x86", "uint8")
"""Four codes a byte: the stream of I2_S x86 over the flat array, without its scale; the last group of 128 is padded
with 0."""
ROW16 = KernelKey("cuda", "ternary_quantize", "row16", "uint8")
"""Four codes a byte: words of 16 codes over the flat array, as a row of row16; the last 16 bytes are padded with
0."""
TQ2_0 = KernelKey("cuda", "ternary_quantize", "tq2_0", "uint8")
"""Blocks of TQ2_0 over the flat array, for block = 256 only: d is the block's scale as float16, the last block is
padded with 0.

The codes follow this op's rule. llama.cpp computes x * (1 / absmax) in float32 and rounds halves away from zero. Its
codes differ at ties, at the adjacent floats (since that product is rounded twice), and in blocks with absmax below the
smallest scale."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    if family == "ties":
        return {"x": _ties(axes["n"], min(axes["block"], axes["n"]), rng)}
    return {"x": floats(family, (axes["n"],), rng)}


def _ties(n: int, block: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Halves and the adjacent floats in blocks that contain a 1, each block times a power of two: ties at every
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
    # For each element: a maximum and two comparisons.
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
            "values, in the key's dtype; each `block` consecutive ones share a scale, the last block may be shorter",
            Values.FINITE,
        ),
    ),
    outputs=(
        Tensor("codes", ("n",), "key", "-1, 0 or 1; in the key's format"),
        Tensor("scales", ("blocks",), "float32", "value of code 1, for each block"),
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
