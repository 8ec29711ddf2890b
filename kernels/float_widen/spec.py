"""The contract of float_widen.

Exact. A NaN becomes the quiet NaN of its sign and payload, as IEEE 754-2019 (6.2.3) recommends and as in x86 (F16C)
and ARM.

The dtype of a key is that of the output, float32. Its format is the input dtype: "float16" or "bfloat16".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic
from tritmark.harness.validate.families import ELEMENTS
from tritmark.kernels.float_narrow.spec import DTYPES, FAMILIES, values
from tritmark.kernels.float_widen.reference import held, reference

ORDER = 70
"""The place of the op in lists and reports."""
FORMATS = DTYPES


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    return {"h": values(family, axes["n"], rng)}


def _encode(inputs: Arrays, axes: Axes, format: str) -> dict[str, Any]:
    return {"h": held(inputs["h"], format)}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"x": ((axes["n"],), "float32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    return Traffic(read=2 * axes["n"], written=4 * axes["n"], operations=axes["n"])


OP = Op(
    name="float_widen",
    summary="float16 or bfloat16 to float32, exactly",
    source="docs/specification.md, section 3.3; IEEE 754-2019, 5.4.2",
    axes=("n",),
    inputs=(Tensor("h", ("n",), "float32", "any values; kernels take them in the key's format"),),
    outputs=(Tensor("x", ("n",), "float32", "the same"),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=FAMILIES,
    generate=_generate,
    encode=_encode,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"n": ELEMENTS},
    independent_axis=lambda axes, key: ("n", 1),
)
