"""The contracts of matmul: one op for each dtype of the inputs; sums and output are float32 in all of them.

No kernel sums in float16 (specification, 8): such a sum of ones stops at 2048, so no useful bound exists. float32 sums
cost nothing on tensor cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey, Op, Sizes, Tensor, ToleranceKind, Traffic
from tritmark.harness.validate.families import NONFINITE, ROWS, floats, with_nonfinite
from tritmark.kernels.matmul.reference import reference

ORDER = 130
"""The place of the op in lists and reports."""
NAMES = {"float32": "matmul_fp32", "float16": "matmul_fp16", "bfloat16": "matmul_bf16"}
"""The op of each input dtype."""
SUMS_OVERFLOW = True
"""Sums of finite products may be infinite, or NaN where two such sums cancel."""
MAX_K = 1 << 20
"""The bound of the sums is 12 roundings for every 4 of the K; above this K it would be useless."""
FAMILIES = ("uniform", "normal", "heavy", "constant", "zero", "ties", "denormals", "one_nonzero", "large", NONFINITE)
LARGEST = np.float32(1e4)
"""The largest input: float16 holds it, and float32 holds the sums of its squares. In the family "large" it limits only
one factor."""
_LARGE = {"float32": (30.0, 38.0), "float16": (4.0, 4.7), "bfloat16": (30.0, 38.0)}
"""Range of the power of ten of the large factor's largest value in that family."""
_PRODUCT = 32.0
"""The power of ten of the product of both factors' largest values: float32 holds a million of them."""
_LEAST_NORMAL = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}


def _generate(dtype: str, axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    def matrix(rows: int, columns: int, family: str = family) -> npt.NDArray[Any]:
        values = floats(family, (rows, columns), rng)
        if family == "denormals":
            values = values * np.float32(_LEAST_NORMAL[dtype] / _LEAST_NORMAL["float32"])
        return np.clip(values, -LARGEST, LARGEST).astype(named_dtype(dtype))

    if family == "large":
        return _large(dtype, axes, rng)
    if family == NONFINITE:
        made = {"a": matrix(axes["M"], axes["K"], "normal"), "b": matrix(axes["K"], axes["N"], "normal")}
        # In one factor or both: most rows and columns stay finite.
        for name in rng.permutation(list(made))[: int(rng.integers(1, 3))]:
            made[name] = with_nonfinite(made[name], rng, 4)
        return made
    return {"a": matrix(axes["M"], axes["K"]), "b": matrix(axes["K"], axes["N"])}


def _large(dtype: str, axes: Axes, rng: np.random.Generator) -> dict[str, Any]:
    """One factor as large as its dtype admits, the other so small that no sum overflows float32."""
    power = rng.uniform(*_LARGE[dtype])
    other = min(4.0, _PRODUCT - power)
    shapes = {"a": (axes["M"], axes["K"]), "b": (axes["K"], axes["N"])}
    powers = dict(zip(shapes, rng.permutation([power, other]), strict=True))
    return {
        name: (rng.uniform(-1, 1, shape) * 10.0 ** powers[name]).astype(named_dtype(dtype))
        for name, shape in shapes.items()
    }


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"c": ((axes["M"], axes["N"]), "float32")}


def _traffic(itemsize: int, axes: Axes, key: KernelKey) -> Traffic:
    M, N, K = axes["M"], axes["N"], axes["K"]
    return Traffic(read=itemsize * (M * K + K * N), written=4 * M * N, operations=2 * M * N * K)


def _op(dtype: str) -> Op:
    return Op(
        name=NAMES[dtype],
        summary=f"C = A B for {dtype} matrices, sums and output in float32",
        source="docs/specification.md, section 3.2; bounds: Higham 2002, Fasi et al. 2021",
        axes=("M", "N", "K"),
        inputs=(
            Tensor("a", ("M", "K"), dtype, "left factor; NaN and infinities propagate"),
            Tensor("b", ("K", "N"), dtype, "right factor; NaN and infinities propagate"),
        ),
        outputs=(Tensor("c", ("M", "N"), "float32", "the product"),),
        tolerance_kind=ToleranceKind.BOUNDED,
        input_families=FAMILIES,
        generate=partial(_generate, dtype),
        outputs_like=_outputs_like,
        reference=reference,
        traffic=partial(_traffic, 4 if dtype == "float32" else 2),
        sizes={"M": ROWS, "K": Sizes(largest=MAX_K)},
        independent_axis=lambda axes, key: ("M", 1),
    )


OPS: Mapping[str, Op] = {dtype: _op(dtype) for dtype in NAMES}
"""The op for each dtype of the inputs."""
