"""Mutants of float_widen. None changes the result for a NaN: the harness refuses to judge against
a NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, EquivalentMutants, KernelKey, Mutant
from tritmark.kernels.float_widen.reference import reference

_LEAST_NORMAL = {"float16": np.float32(2.0**-14), "bfloat16": np.float32(2.0**-126)}
_LARGEST = {"float16": np.float32(65504), "bfloat16": np.uint32(0x7F7F0000).view(np.float32)}


def _flushed(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    x = reference(inputs, axes, key)["x"]
    return {"x": np.where(np.abs(x) < _LEAST_NORMAL[key.input_dtype], np.copysign(np.float32(0), x), x)}


def _finite(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The largest exponent read as an ordinary one."""
    x = reference(inputs, axes, key)["x"]
    return {"x": np.where(np.isinf(x), np.copysign(_LARGEST[key.input_dtype], x), x)}


def _other_type(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """The bits of float16 read as bfloat16, or the reverse."""
    from tritmark.harness.dtypes import named_dtype
    from tritmark.kernels.numerics.narrowing import narrowed

    other = "bfloat16" if key.input_dtype == "float16" else "float16"
    return {"x": narrowed(inputs["h"], key.input_dtype).view(np.uint16).view(named_dtype(other)).astype(np.float32)}


MUTANTS: tuple[Mutant | EquivalentMutants, ...] = (
    Mutant(op="float_widen", name="denormals taken for zero", compute=_flushed),
    Mutant(op="float_widen", name="infinity becomes the largest number", compute=_finite),
    Mutant(op="float_widen", name="read as the other 16-bit type", compute=_other_type),
)
