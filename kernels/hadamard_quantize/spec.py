"""The contracts of hadamard_quantize (int8 codes) and hadamard_transform (floats).

The format of a key names the input dtype: "none" is float32; "float16" and "bfloat16" are widened exactly. Additions
are in float32 in any order of the stages, then comes one product with float32(1 / sqrt(block)). The kernels of this
package add in the order h = 1, 2, 4, ..., so all give the same bits. Blocks that sum exactly have one result, see
reference.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import FLOAT_FAMILIES, NONFINITE, ROWS, floats, with_nonfinite
from tritmark.kernels.hadamard_quantize.reference import butterflies, reference
from tritmark.kernels.numerics import input_dtypes

ORDER = 55
"""The place of the ops in lists and reports."""
BLOCKS = (64, 128, 256, 512, 1024)
"""The sizes of a block."""
DTYPES = ("float32", "float16", "bfloat16")
"""Output dtypes of hadamard_transform."""
QUANTIZE = KernelKey("cpu", "hadamard_quantize", "none", "int8")
TRANSFORM = KernelKey("cpu", "hadamard_transform", "none", "float32")
MAX_K = (2**31 - 1) // 128
"""As in activation_quantize."""
SUMS_OVERFLOW = True
"""Additions may overflow, and then give NaN."""
_LARGEST = np.float32(2.0**116)
"""The largest input of the families: float32 holds sums of 1024 of them."""


def key_for(dtype: str, output: str, device: str) -> KernelKey:
    """The key of kernels that read activations of the first dtype, and write the second; float32's key if there are
    none that read it."""
    key = QUANTIZE if output == QUANTIZE.dtype else replace(TRANSFORM, dtype=output)
    return replace(key, device=device, format=dtype if dtype in input_dtypes.NARROW else "none")


def holds(axes: Axes, format: str) -> bool:
    """Whether the op has inputs of these axes."""
    return axes["block"] in BLOCKS and axes["K"] % axes["block"] == 0


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    M, K, block = axes["M"], axes["K"], axes["block"]
    if not holds(axes, "none"):
        legal = f"{', '.join(map(str, BLOCKS))}, and K a multiple of it"
        raise InvalidArgumentError(op=QUANTIZE.op, argument="block", found=f"{block} for K = {K}", legal=legal)
    signs = rng.choice(np.array([-1, 1], np.int8), K)
    if family == "ties":
        return {"x": _ties(M, K, block, rng) * signs, "signs": signs}
    if family == "constant":
        # The rotated values are all the same, which gives the largest sums of codes.
        x = np.zeros((M, K), np.float32)
        x[:, ::block] = signs[::block] * np.float32(0.75 * np.sqrt(block))
        return {"x": x, "signs": signs}
    x = floats("normal" if family == NONFINITE else family, (M, K), rng)
    x = np.clip(x, -_LARGEST, _LARGEST)
    return {"x": with_nonfinite(x, rng, 4) if family == NONFINITE else x, "signs": signs}


def _ties(M: int, K: int, block: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Rows whose rotated values are halves, and 127 once, so that the scale is 1. About half of the rows have two
    numbers in a block, which bfloat16 holds: their sum and difference become 127 and 1/2. Sums are exact, and so is the
    factor of blocks of 64, 256 and 1024; the factor of the others is not, and their values are near halves."""
    count = K // block
    wanted = rng.integers(-252, 253, (M, count, block)) / 2
    wanted[np.arange(M), rng.integers(0, count, M), rng.integers(0, block, M)] = 127
    x = butterflies(wanted) / np.sqrt(block)
    two = np.flatnonzero(rng.random(M) < 0.5)
    x[two] = 0
    rows, blocks = two[:, np.newaxis], np.arange(count)
    at = rng.integers(0, block, (two.size, count))
    for numerator, place in ((255, at), (253, at ^ 1 << rng.integers(0, block.bit_length() - 1, at.shape))):
        x[rows, blocks, place] = rng.choice((-1, 1), at.shape) * (numerator / 4 * np.sqrt(block))
    made: npt.NDArray[np.float32] = x.reshape(M, K).astype(np.float32)
    return made


def _like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    M, K = axes["M"], axes["K"]
    if key.op == TRANSFORM.op:
        return {"y": ((M, K), key.dtype)}
    return {"q": ((M, K), "int8"), "scale": ((M,), "float32"), "sum": ((M,), "int32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    M, K, stages = axes["M"], axes["K"], axes["block"].bit_length() - 1
    written = {"int8": 1, "float32": 4}.get(key.dtype, 2) * M * K + (8 * M if key.dtype == "int8" else 0)
    # For each element: a product with its sign, an addition in each stage, a product with the factor; for codes also
    # what activation_quantize does.
    operations = (stages + 2 + (4 if key.dtype == "int8" else 0)) * M * K
    return Traffic(read=(input_dtypes.itemsize(key.input_dtype) * M + 1) * K, written=written, operations=operations)


def _op(name: str, summary: str, outputs: tuple[Tensor, ...]) -> Op:
    return Op(
        name=name,
        summary=summary,
        source="prism.hadamard.* of PrismML-Eng/llama.cpp; rule of the codes: activation_quantize; bounds: Higham 2002",
        axes=("M", "K", "block"),
        inputs=(
            Tensor(
                "x",
                ("M", "K"),
                "float32",
                "activations, one row a token, in the key's format; NaN and infinities propagate",
                strided_rows=True,
            ),
            Tensor("signs", ("K",), "int8", "-1 or 1; 0 removes a column", Values.TERNARY),
        ),
        outputs=outputs,
        tolerance_kind=ToleranceKind.BOUNDED,
        input_families=(*FLOAT_FAMILIES, NONFINITE),
        generate=_generate,
        encode=input_dtypes.encode,
        holds=holds,
        outputs_like=_like,
        reference=reference,
        traffic=_traffic,
        sizes={
            "M": ROWS,
            "K": Sizes(usual=2048),
            "block": Sizes(usual=1024, most=1024, often=BLOCKS),
        },
        independent_axis=lambda axes, key: ("M", 1),
    )


OPS: Mapping[str, Op] = {
    "int8": _op(
        QUANTIZE.op,
        "per row: y = (x * signs) H / sqrt(block) in blocks, H the Walsh-Hadamard matrix in natural order; then scale, "
        "q and sum of y as in activation_quantize",
        (
            Tensor("q", ("M", "K"), "int8", "quantized rotated activations; 0 in a row with a NaN or infinity"),
            Tensor("scale", ("M",), "float32", "factor of y; NaN for a row with a NaN or infinity"),
            Tensor("sum", ("M",), "int32", "sum of q along the row"),
        ),
    ),
    "float": _op(
        TRANSFORM.op,
        "y = (x * signs) H / sqrt(block) in blocks, H the Walsh-Hadamard matrix in natural order",
        (Tensor("y", ("M", "K"), "key", "rotated activations"),),
    ),
}
"""The op that quantizes, and the op that does not."""
