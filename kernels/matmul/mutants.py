"""Mutants of the matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.matmul.spec import NAMES

Compute = Any


def _narrow_sums(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Sums kept in float16, one product after the other."""
    a, b = inputs["a"].astype(np.float32), inputs["b"].astype(np.float32)
    sums = np.zeros((axes["M"], axes["N"]), np.float16)
    for k in range(axes["K"]):
        sums = (sums + np.outer(a[:, k], b[k])).astype(np.float16)
    return {"c": sums.astype(np.float64)}


def _narrow_output(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product rounded to bfloat16 at the end."""
    return {
        "c": _product(inputs["a"], inputs["b"]).astype(np.float32).astype(named_dtype("bfloat16")).astype(np.float64)
    }


def _narrow_inputs(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """float32 factors rounded to the 11 bits of TF32."""
    bits = [(inputs[name].view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000) for name in ("a", "b")]
    return {"c": _product(*(each.view(np.float32) for each in bits))}


def _transposed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The memory of B read as N rows of K."""
    return {"c": _product(inputs["a"], inputs["b"].reshape(axes["N"], axes["K"]).T)}


def _last_product_missing(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return {"c": _product(inputs["a"][:, :-1], inputs["b"][:-1])}


def _first_product_twice(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return {"c": _product(inputs["a"], inputs["b"]) + _product(inputs["a"][:, :1], inputs["b"][:1])}


def _product(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return a.astype(np.float64) @ b.astype(np.float64)


_ANY: tuple[tuple[str, Compute], ...] = (
    ("sums in float16", _narrow_sums),
    ("the product rounded to bfloat16", _narrow_output),
    ("the right factor taken for transposed", _transposed),
    ("the last product missing", _last_product_missing),
    ("the first product added twice", _first_product_twice),
)

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    *(Mutant(op=op, name=name, compute=compute) for op in NAMES.values() for name, compute in _ANY),
    Mutant(op="matmul_fp32", name="factors rounded to TF32", compute=_narrow_inputs),
)
