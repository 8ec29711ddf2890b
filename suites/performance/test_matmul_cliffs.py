"""Products just above a block: the cost of one more row of activations or of weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tritmark.harness.measure.alternate import Timed, calibrate
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.spec import Launch
from tritmark.kernels import OPS
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.cpu import FORMATS
from tritmark.kernels.ternary_matmul.tables import tiles

pytestmark = [pytest.mark.timing, pytest.mark.nightly]

ROUNDS, K = 41, 2560
(OP,) = (each for each in OPS if each.name == "ternary_matmul")
SETS = [each.name for each in cpu.KERNELS[OP.name] if each.features <= cpu.features() and each.name not in {"amx"}]
OVER_TILES = [
    (format, name)
    for format in ("tile64", "i2_s_x86", "tile80")
    for name in SETS
    if format == "tile64" or name not in {"scalar", "sse41"}
]
"""Scalar kernels of other formats process single rows of weights, and there are none with SSE4.1."""


def bound(format: str, isa: str, M: int, N: int) -> Launch:
    axes = {"M": M, "N": N, "K": K}
    given = OP.encode(OP.generate(axes, OP.input_families[0], np.random.default_rng(0)), axes, format)
    launch: Launch = cpu.native(OP.name).TernaryMatmul(
        format, isa, given["activations"], given["weights"].reshape(-1), N, given["weight_scale"], given["act_scale"],
        np.empty((M, N), np.float32), 1, tiles(format, axes) or (0, 0, 0),
    )  # fmt: skip
    return launch


def least(launches: Sequence[Launch]) -> list[float]:
    """Nanoseconds of each, the minimum of interleaved samples: other load can only add time."""
    sides = [Timed([launch], clock_for(cpu.DEVICE, [launch]), warm=True) for launch in launches]
    for side in sides:
        calibrate(side)
    rng, found = np.random.default_rng(1), [float("inf")] * len(sides)
    for _ in range(ROUNDS):
        for index in rng.permutation(len(sides)):
            found[index] = min(found[index], sides[index].sample())
    return found


@pytest.mark.parametrize("format", [each for each in FORMATS if each != "tile80"])
def test_two_rows_of_activations_take_less_than_two_calls(format: str) -> None:
    """With the best instruction set that has kernels for them."""
    name = "avx512" if "avx512" in SETS else SETS[-1]
    one, two = least([bound(format, name, M, 2560) for M in (1, 2)])
    assert two < 2 * one


@pytest.mark.parametrize(("format", "name"), OVER_TILES)
def test_one_row_more_than_a_tile_takes_less_than_half_a_tile(format: str, name: str) -> None:
    """One more than 64 rows of activations, or of weights: 64 rows are a tile, also for formats converted to tile64."""
    tile, more, two = least([bound(format, name, 64, N) for N in (64, 65, 128)])
    assert more - tile < (two - tile) / 2
