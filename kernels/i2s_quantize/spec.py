"""The contract of i2s_quantize. The format of a key is the dtype of x: "none" is float32, see input_dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import ELEMENTS, FLOAT_FAMILIES, floats, scales
from tritmark.kernels.i2s_quantize.reference import reference
from tritmark.kernels.numerics import input_dtypes

ORDER = 10
"""The place of the op in lists and reports."""
_SCALED = frozenset({"uniform", "normal", "heavy", "constant", "one_nonzero"})
"""Families with values that are multiplied by the scale: with a large scale all of them would be code 0."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    # With an ordinary scale every denormal is code 0.
    scale = scales(family, (), rng)
    x = floats(family, (axes["n"],), rng, step=float(scale))
    if family in _SCALED:
        x *= scale
    return {"x": x, "scale": scale}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"q": ((axes["n"],), "int8")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    return Traffic(read=input_dtypes.itemsize(key.input_dtype) * axes["n"], written=axes["n"], operations=axes["n"])


OP = Op(
    name="i2s_quantize",
    summary="q = rint(clamp(x / scale, -2, 1)), float32 division, ties to even",
    source="docs/specification.md, section 1.1",
    axes=("n",),
    inputs=(
        Tensor("x", ("n",), "float32", "values; kernels take them in the key's format", Values.FINITE),
        Tensor("scale", (), "float32", "value of code 1", Values.POSITIVE),
    ),
    outputs=(Tensor("q", ("n",), "int8", "codes from -2 to 1"),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=FLOAT_FAMILIES,
    generate=_generate,
    encode=input_dtypes.encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"n": ELEMENTS},
    independent_axis=lambda axes, key: ("n", 1),
)
