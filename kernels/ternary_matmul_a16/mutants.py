"""Mutants of ternary_matmul_a16."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.ternary_matmul_a16.spec import NAMES


def _product(inputs: Arrays, **changed: Any) -> dict[str, Any]:
    """Correct outputs of changed inputs."""
    of = {**inputs, **changed}
    sums = of["activations"].astype(np.float64) @ of["weights"].T.astype(np.float64)
    return {"out": sums * np.float64(of["weight_scale"])}


def _narrow_sums(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Sums kept in the activations' dtype, one product after the other."""
    a, w = inputs["activations"], inputs["weights"].astype(np.float32)
    sums = np.zeros((axes["M"], axes["N"]), a.dtype)
    for k in range(axes["K"]):
        sums = (sums + np.outer(a[:, k].astype(np.float32), w[:, k])).astype(a.dtype)
    return {"out": sums.astype(np.float64) * np.float64(inputs["weight_scale"])}


def _narrow_output(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product rounded to bfloat16 at the end."""
    out = _product(inputs)["out"].astype(np.float32).astype(named_dtype("bfloat16"))
    return {"out": out.astype(np.float64)}


def _quantized(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Activations rounded to int8 first, as for W2A8."""
    a = inputs["activations"].astype(np.float64)
    scale = 127 / np.maximum(np.abs(a).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return _product(inputs, activations=np.rint(a * scale) / scale)


def _uncorrected(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Fields w + 1 used as codes."""
    return _product(inputs, weights=inputs["weights"] + np.int8(1))


def _fields_reversed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The four weights of each byte of a word in the wrong order."""
    w = inputs["weights"].copy()
    whole = axes["K"] // 16 * 16
    w[:, :whole] = w[:, :whole].reshape(axes["N"], -1, 4, 4)[:, :, ::-1].reshape(axes["N"], whole)
    return _product(inputs, weights=w)


def _halves_exchanged(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Each pair of weights in the wrong order."""
    w = inputs["weights"].copy()
    whole = axes["K"] // 2 * 2
    w[:, :whole] = w[:, :whole].reshape(axes["N"], -1, 2)[:, :, ::-1].reshape(axes["N"], whole)
    return _product(inputs, weights=w)


def _divided(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Divided by the scale of the weights."""
    return _product(inputs, weight_scale=1 / np.float64(inputs["weight_scale"]))


def _last_product_missing(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return _product(inputs, activations=inputs["activations"][:, :-1], weights=inputs["weights"][:, :-1])


def _is_wider(key: KernelKey) -> bool:
    return key.dtype != "bfloat16"


_ANY = (
    ("sums in the activations' dtype", _narrow_sums),
    ("activations rounded to int8", _quantized),
    ("fields not corrected by 1", _uncorrected),
    ("fields of a byte reversed", _fields_reversed),
    ("weights of a pair exchanged", _halves_exchanged),
    ("divided by the scale", _divided),
    ("the last product missing", _last_product_missing),
)

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    *(Mutant(op=op, name=name, compute=compute) for op in NAMES.values() for name, compute in _ANY),
    *(
        Mutant(op=op, name="the product rounded to bfloat16", compute=_narrow_output, only=_is_wider)
        for op in NAMES.values()
    ),
    *(
        EquivalentMutants(
            op=op,
            mutant="input weight_scale: one unit of the last place larger",
            reason="the bound of the sum in float32 admits more roundings than that",
        )
        for op in NAMES.values()
    ),
)
