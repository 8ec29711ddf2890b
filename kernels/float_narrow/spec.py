"""The contract of float_narrow.

Rounded to nearest even; values half a step or more above the largest finite value become infinity. A NaN becomes the
quiet NaN of its sign and the leading bits of its payload, as IEEE 754-2019 (6.2.3) recommends and as in x86 (F16C) and
ARM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Axes, KernelKey, Op, Tensor, ToleranceKind, Traffic
from tritmark.harness.validate.families import ELEMENTS, FLOAT_FAMILIES, NONFINITE, floats, with_nonfinite
from tritmark.kernels.float_narrow.reference import reference

ORDER = 60
"""The place of the op in lists and reports."""
DTYPES = ("float16", "bfloat16")
FAMILIES = (*FLOAT_FAMILIES, NONFINITE)

_F32 = np.finfo(np.float32)
_F16 = np.finfo(np.float16)


def values(family: str, n: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """float32 values of a family with the special cases of float16 and bfloat16: ties, denormals and overflow of
    both."""
    if family == "ties":
        return _ties(n, rng)
    if family == "denormals":
        # Half of them are denormal in float16, the others in bfloat16 and float32.
        small = rng.uniform(-1, 1, n).astype(np.float32) * np.float32(_F16.tiny)
        return np.where(rng.random(n) < 0.5, small, floats(family, (n,), rng))
    if family == "extremes":
        half, single = np.float32(_F16.max), np.uint32(0x7F7F8000).view(np.float32)
        over = half + np.float32(16)  # half a step of float16 past its largest; `single` is that of bfloat16
        edges = [
            half,
            over,
            np.nextafter(over, np.float32(0)),
            single,
            np.nextafter(single, np.float32(0)),
            _F32.max,
            np.inf,
            _F32.tiny,
        ]
        pool = np.array(
            [*edges, _F16.tiny, _F16.smallest_subnormal, _F16.smallest_subnormal / 2, _F32.smallest_subnormal, 0],
            np.float32,
        )
        return rng.choice(np.concatenate([pool, -pool]), n)
    if family == NONFINITE:
        return with_nonfinite(floats("normal", (n,), rng), rng, 1 + n // 4)
    return floats(family, (n,), rng)


def _ties(n: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Midpoints between adjacent values of either type, and the adjacent floats."""
    patterns = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    lower = np.where(patterns & 0x7C00 == 0x7C00, patterns & 0x83FF, patterns).astype(np.uint16).view(np.float16)
    with np.errstate(over="ignore"):
        upper = np.nextafter(lower, np.float16(np.inf))
    of_half = ((lower.astype(np.float64) + upper.astype(np.float64)) / 2).astype(np.float32)
    finite = np.where(patterns & 0x7F80 == 0x7F80, patterns & 0x807F, patterns).astype(np.uint32)
    of_bfloat = (finite << 16 | 0x8000).view(np.float32)
    at = np.where(rng.random(n) < 0.5, of_half, of_bfloat)
    towards = rng.choice(np.array([-np.inf, 0.0, np.inf], np.float32), n)
    return np.where(towards == 0, at, np.nextafter(at, towards)).astype(np.float32)


def _generate(axes: Axes, family: str, rng: np.random.Generator) -> dict[str, Any]:
    return {"x": values(family, axes["n"], rng)}


def _outputs_like(axes: Axes, key: KernelKey) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {"h": ((axes["n"],), key.dtype)}


def _traffic(axes: Axes, key: KernelKey) -> Traffic:
    return Traffic(read=4 * axes["n"], written=2 * axes["n"], operations=axes["n"])


OP = Op(
    name="float_narrow",
    summary="float32 to float16 or bfloat16, to nearest even",
    source="docs/specification.md, section 3.3; IEEE 754-2019, 5.4.2",
    axes=("n",),
    inputs=(Tensor("x", ("n",), "float32", "any values"),),
    outputs=(Tensor("h", ("n",), "key", "x, rounded"),),
    tolerance_kind=ToleranceKind.EXACT,
    input_families=FAMILIES,
    generate=_generate,
    outputs_like=_outputs_like,
    reference=reference,
    traffic=_traffic,
    sizes={"n": ELEMENTS},
    independent_axis=lambda axes, key: ("n", 1),
)
