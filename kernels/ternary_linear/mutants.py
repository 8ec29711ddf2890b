"""Mutants of ternary_linear: faults where the two ops meet. Faults within one op are mutants of that op."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.activation_quantize.reference import LEAST
from tritmark.kernels.activation_quantize.reference import reference as quantized
from tritmark.kernels.numerics.input_dtypes import given
from tritmark.kernels.ternary_linear.reference import NAMES, read_as
from tritmark.kernels.ternary_matmul.reference import reference as multiplied


def _rows(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return quantized(inputs, axes, replace(key, format=read_as(key.op)))


def _product(inputs: Arrays, axes: Axes, key: KernelKey, q: Any, scale: Any) -> dict[str, Any]:
    return multiplied({**inputs, "activations": q, "act_scale": scale}, axes, key)


def _not_quantized(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The product with unquantized activations."""
    x = given(inputs["x"], read_as(key.op)).astype(np.float64)
    return {"out": x @ inputs["weights"].astype(np.float64).T * np.float64(inputs["weight_scale"])}


def _not_scaled(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Without the division by the activations' scale."""
    rows = _rows(inputs, axes, key)
    return _product(inputs, axes, key, rows["q"], np.ones_like(rows["scale"]))


def _first_scale(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The scale of row 0 for all rows of the output, with correct codes."""
    rows = _rows(inputs, axes, key)
    return _product(inputs, axes, key, rows["q"], np.full_like(rows["scale"], rows["scale"][0]))


def _part_of_the_maximum(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The largest magnitude of only the first half of a row, as if other threads were not finished; codes are
    clamped."""
    x = given(inputs["x"], read_as(key.op))
    absmax = np.maximum(np.abs(x[:, : -(-x.shape[1] // 2)]).max(axis=1), LEAST)
    scale = (np.float32(127) / absmax).astype(np.float32)
    q = np.clip(np.rint(x * scale[:, np.newaxis]), -128, 127).astype(np.int8)
    return _product(inputs, axes, key, q, scale)


def _flushed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Denormal outputs flushed to zero."""
    out = _product(inputs, axes, key, *(_rows(inputs, axes, key)[name] for name in ("q", "scale")))["out"]
    return {"out": np.where(np.abs(out) < np.finfo(np.float32).tiny, 0.0, out)}


_ANY = (
    ("activations not quantized", _not_quantized),
    ("activations' scale not divided by", _not_scaled),
    ("the scale of row 0 for all", _first_scale),
    ("the largest magnitude of half of the row", _part_of_the_maximum),
)

MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    *(Mutant(op=op, name=name, compute=compute) for op in NAMES.values() for name, compute in _ANY),
    *(Mutant(op=op, name="denormal outputs flushed", compute=_flushed, drawn=True) for op in NAMES.values()),
    *(
        EquivalentMutants(
            op=op,
            mutant="input weight_scale: one unit of the last place larger",
            only=lambda key: key.dtype == "bfloat16",
            reason="a unit of float32's last place is far less than the one of bfloat16's that the contract admits",
        )
        for op in NAMES.values()
    ),
)
