"""The contract of activation_quantize.

The format of a key names the input dtype: "none" is float32; "float16" and "bfloat16" are widened exactly, so the
outputs are those of the same values in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import FLOAT_FAMILIES, ROWS, floats
from tritmark.kernels.activation_quantize.reference import reference
from tritmark.kernels.numerics import input_dtypes

ORDER = 50
"""The place of the op in lists and reports."""
KEY = KernelKey("cpu", "activation_quantize", "none", "int8")
MAX_K = (2**31 - 1) // 128
"""The largest K for which the sum of a row of -128 fits int32."""


def key_for(dtype: str, device: str) -> KernelKey:
    """The key of kernels that read activations of that dtype; float32's key if there are none."""
    return replace(KEY, device=device, format=dtype if dtype in input_dtypes.NARROW else "none")


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    if family == "ties":
        return {"x": _ties(axes["M"], axes["K"], rng)}
    return {"x": floats(family, (axes["M"], axes["K"]), rng)}


def _ties(M: int, K: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Values whose products with the scale are closest to a half, and the adjacent floats.

    Every other row contains 127, so its scale is 1 and halves are ties. In the other rows the scale is no power of two,
    and a quotient by 1 / scale differs from the product.
    """
    largest = np.where(np.arange(M) % 2, rng.uniform(0.1, 1000, M), 127).astype(np.float32)
    scale = (127.0 / largest.astype(np.float64)).astype(np.float32)
    at = ((rng.integers(-126, 126, (M, K)) + 0.5) / scale[:, np.newaxis]).astype(np.float32)
    towards = rng.choice(np.array([-np.inf, 0.0, np.inf], np.float32), (M, K))
    x: npt.NDArray[np.float32] = np.where(towards == 0, at, np.nextafter(at, towards)).astype(np.float32)
    x[np.arange(M), rng.integers(0, K, M)] = largest
    return x


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    M, K = axes["M"], axes["K"]
    return {"q": ((M, K), "int8"), "scale": ((M,), "float32"), "sum": ((M,), "int32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    M, K = axes["M"], axes["K"]
    # For each element: a maximum, a product, a rounding and an addition.
    return Traffic(read=input_dtypes.itemsize(key.input_dtype) * M * K, written=M * K + 8 * M, operations=4 * M * K)


OP = Op(
    name="activation_quantize",
    summary="per row: scale = 127 / max(absmax, 1e-5), q = clamp(rint(x * scale), -128, 127), and the sum of q",
    source="BitNet b1.58 (arXiv:2402.17764), section 2; I8_S of microsoft/BitNet",
    axes=("M", "K"),
    inputs=(
        Tensor(
            "x",
            ("M", "K"),
            "float32",
            "activations, one row a token; kernels take them in the key's format",
            Values.FINITE,
            strided_rows=True,
        ),
    ),
    outputs=(
        Tensor("q", ("M", "K"), "int8", "quantized activations"),
        Tensor("scale", ("M",), "float32", "factor of x"),
        Tensor("sum", ("M",), "int32", "sum of q along the row"),
    ),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=FLOAT_FAMILIES,
    generate=_generate,
    encode=input_dtypes.encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"M": ROWS, "K": Sizes(largest=MAX_K)},
    independent_axis=lambda axes, key: ("M", 1),
)
