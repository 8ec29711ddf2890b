"""The contract of i2s_dequantize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import ELEMENTS, integers, scales
from tritmark.kernels.i2s_dequantize.reference import reference

ORDER = 20
"""The place of the op in lists and reports."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    # i2s_quantize returns codes from -2 to 1, and kernels take any int8.
    low, high = (-128, 127) if family == "extremes" else (-2, 1)
    return {
        "q": integers("uniform" if family == "denormals" else family, (axes["n"],), low, high, rng),
        "scale": scales(family, (), rng),
    }


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"x": ((axes["n"],), "float32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    return Traffic(read=axes["n"], written=4 * axes["n"], operations=axes["n"])


def largest(inputs: Arrays, axes: Axes) -> float:
    """A bound of results beyond the magnitude of inputs, for the codes that i2s_quantize returns."""
    return 2 * float(inputs["scale"])


OP = Op(
    name="i2s_dequantize",
    summary="x = float32(q) * scale",
    source="docs/specification.md, section 1.1",
    axes=("n",),
    inputs=(
        Tensor("q", ("n",), "int8", "codes; any int8 is legal"),
        Tensor("scale", (), "float32", "value of code 1", Values.POSITIVE),
    ),
    outputs=(Tensor("x", ("n",), "float32", "values"),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=("uniform", "constant", "zero", "extremes", "denormals", "one_nonzero"),
    generate=_generate,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"n": ELEMENTS},
    independent_axis=lambda axes, key: ("n", 1),
)
