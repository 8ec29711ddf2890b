"""What kernels of products declare to work in, for the sets of another architecture than this one's too."""

from __future__ import annotations

import pytest

from tritmark.kernels.native import cpu
from tritmark.kernels.native.extensions import native
from tritmark.kernels.ternary_matmul.cpu import FORMATS, stack_bytes

OF_ARM = {"neon": 15, "dotprod": 25, "i8mm": 45}
"""Their ranks in isas.h."""
SUMS, ARRANGED = 4 * 64, 24576
"""Bytes of a tile's sums for a row of activations, and of a stretch that became tile64."""
UNKNOWN = 99
"""The rank of no instruction set."""


def thread_stack(format: str, rank: int, M: int) -> int:
    return int(native("ternary_matmul").stack(format, rank, M, 640, 2560, 1))


@pytest.mark.parametrize("of_arm", OF_ARM)
def test_what_works_by_tiles_on_arm_declares_it(of_arm: str) -> None:
    """Sums in tile64, and with weights that become it these too; what takes rows of weights has next to nothing."""
    room = {"tile64": SUMS, "tile80": SUMS + ARRANGED, "tl1": SUMS + ARRANGED, "tl2": SUMS + ARRANGED}
    room |= {f"tile64_g{group}": SUMS for group in (32, 64, 128, 256)}
    assert {format: thread_stack(format, OF_ARM[of_arm], 1) for format in FORMATS} == dict.fromkeys(FORMATS, 0) | room


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("M", [2, 9, 600])
def test_a_new_set_has_the_most_that_any_set_without_tiles_has(format: str, M: int) -> None:
    ranks = [isa.rank for isa in cpu.ISAS.values() if isa.name != "amx"] + list(OF_ARM.values())
    assert thread_stack(format, UNKNOWN, M) == max(thread_stack(format, rank, M) for rank in ranks) > 0


@pytest.mark.parametrize("format", FORMATS)
def test_every_thread_has_its_own(format: str) -> None:
    table, _ = FORMATS[format]
    isa = cpu.KERNELS[table][-1]
    one = thread_stack(format, isa.rank, 9)
    many = stack_bytes(format, isa.name, {"M": 9, "N": 640, "K": 2560})
    assert many == cpu.cores() * one or (isa.name == "amx" and many > one)
