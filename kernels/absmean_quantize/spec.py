"""The contract of absmean_quantize.

scale = float32(max(mean |x|, 1e-5)) over the whole tensor; codes = clamp(rint(x / scale), -1, 1), the division in
float32, ties to even.

The mean is a float64 sum, divided by n and rounded to float32 once. Its order is part of the contract, so the
result does not depend on the instruction set or the thread count. x is cut into chunks of 4096 * ceil(n / 2**22)
elements, at most 1024 (the last may be shorter). In a chunk 16 lanes begin at 0; element i of the chunk is added to
lane i mod 16, in ascending order of i. The lanes are added pairwise: lane j and lane j + 8, then j + 4, j + 2, j + 1.
The sums of 1024 chunks, 0 for missing chunks, are added in the same way: c and c + 512, then c + 256, and so on to
c + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic, Values
from tritmark.harness.validate.families import ELEMENTS, FLOAT_FAMILIES, floats
from tritmark.kernels.absmean_quantize.reference import reference

ORDER = 40
"""The place of the op in lists and reports."""


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    if family == "ties":
        return {"x": _ties(axes["n"], rng)}
    return {"x": floats(family, (axes["n"],), rng)}


def _ties(n: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Half of the mean and the adjacent floats. As many elements are 1.5 times the mean; an odd element is the mean.

    The mean has 11 bits, so sums of its multiples are exact, and the adjacent floats do not change the mean as float32.
    """
    means = np.arange(1 << 10, 1 << 11, dtype=np.float32)
    above = np.nextafter(means / 2, np.float32(np.inf))
    # Means for which a quotient differs from the product with the inverse.
    mean = rng.choice(means[above * (1 / means) == 0.5]) * np.ldexp(np.float32(1), rng.integers(-20, 10))
    x = np.full(n, mean, np.float32)
    low = x[: n // 2]
    low *= np.float32(0.5)
    towards = rng.choice(np.array([-np.inf, 0.0, np.inf], np.float32), low.size)
    low[...] = np.where(towards == 0, low, np.nextafter(low, towards))
    x[n // 2 : n // 2 * 2] *= np.float32(1.5)
    mixed: npt.NDArray[np.float32] = rng.permutation(x) * rng.choice(np.array([-1, 1], np.float32), n)
    return mixed


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"codes": ((axes["n"],), "int8"), "scale": ((), "float32")}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    # One read: whether the second one hits a cache depends on the machine.
    return Traffic(read=4 * axes["n"], written=axes["n"] + 4, operations=2 * axes["n"])


def largest(inputs: Arrays, axes: Axes) -> float:
    """A bound of results beyond the magnitude of inputs: there are none."""
    return 0.0


OP = Op(
    name="absmean_quantize",
    summary="scale = max(mean |x|, 1e-5), codes = clamp(rint(x / scale), -1, 1); the mean is a float64 sum in a "
    "stated order",
    source="BitNet b1.58 (arXiv:2402.17764), section 2; order of the sum: kernels/absmean_quantize/spec.py",
    axes=("n",),
    inputs=(Tensor("x", ("n",), "float32", "weights of one tensor", Values.FINITE),),
    outputs=(
        Tensor("codes", ("n",), "int8", "-1, 0 or 1"),
        Tensor("scale", (), "float32", "value of code 1"),
    ),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=FLOAT_FAMILIES,
    generate=_generate,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"n": ELEMENTS},
)
