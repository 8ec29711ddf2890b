"""Short rows: no instruction set is slower than plain C if a row is shorter or slightly longer than its vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.stopping import MinimumSamples, TimeLimit
from tritmark.harness.spec import Launch
from tritmark.kernels.native import cpu
from tritmark.kernels.numerics.input_dtypes import FORMATS

pytestmark = [pytest.mark.timing, pytest.mark.nightly]

ROWS, PAIRS = 64, 15
LENGTHS = (7, 8, 15, 31, 47, 63)
"""Each leaves most of a vector of some set unused. Below 4, an instruction set saves less than its horizontal sums
cost."""
SETS = [each.name for each in cpu.KERNELS["activation_quantize"] if each.features <= cpu.features()][1:]


def over_plain_c(made: dict[str, Launch], rng: np.random.Generator) -> float:
    """The time of the second over the first."""
    sides = [Timed([launch], clock_for(cpu.DEVICE, [launch])) for launch in made.values()]
    for side in sides:
        side.warm = True
        calibrate(side)
    return alternate(sides[0], sides[1], rng, MinimumSamples(PAIRS, TimeLimit(0))).ratio().median


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", SETS)
def test_activation_quantize(name: str, format: str) -> None:
    native, rng, slower = cpu.native("activation_quantize"), np.random.default_rng(5), {}
    for K in LENGTHS:
        x: Any = rng.standard_normal((ROWS, K), np.float32)
        if format != "none":
            x = x.astype(np.float16).view(np.uint16) if format == "float16" else (x.view(np.uint32) >> 16).astype("u2")
        made = {
            each: native.ActivationQuantize(
                each, format, x, np.empty((ROWS, K), np.int8), np.empty(ROWS, np.float32), np.empty(ROWS, np.int32), 1
            )
            for each in ("scalar", name)
        }
        slower[K] = over_plain_c(made, rng)
    assert max(slower.values()) <= 1, slower


@pytest.mark.parametrize("name", SETS)
def test_ternary_quantize(name: str) -> None:
    native, rng, slower = cpu.native("ternary_quantize"), np.random.default_rng(5), {}
    for block in LENGTHS:
        n = ROWS * block
        x = rng.standard_normal(n, np.float32)
        made = {
            each: native.TernaryQuantize(each, x, block, np.empty(n, np.int8), np.empty(ROWS, np.float32), False, 1)
            for each in ("scalar", name)
        }
        slower[block] = over_plain_c(made, rng)
    assert max(slower.values()) <= 1, slower
