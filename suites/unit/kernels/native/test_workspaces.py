"""What kernels of products declare to work in, for the sets of another architecture than this one's too."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.cpu import FORMATS, stack_bytes

TABLES = runpy.run_path(str(Path(__file__).parents[4] / "cython_ext" / "src" / "tables.py"))["tables"]()
SUMS, ARRANGED = 4 * 64, 24576
"""Bytes of a tile's sums for a row of activations, and of a stretch that became tile64."""


def of_both(table: str) -> set[str]:
    """The sets of a table, of both architectures."""
    return set(TABLES[table])


def test_the_tables_are_read() -> None:
    assert of_both("ternary_matmul_tl1") == {"scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"}
    for _, (table, _) in FORMATS.items():
        assert {each.name for each in cpu.KERNELS[table]} <= of_both(table)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("M", [1, 2, 9, 600])
def test_every_set_has_a_number(format: str, M: int) -> None:
    """A missing one was met only on such a processor, where it made every memory verdict of the format an ERROR."""
    table, _ = FORMATS[format]
    for isa in of_both(table):
        assert stack_bytes(format, isa, {"M": M, "N": 640, "K": 2560}) >= 0


@pytest.mark.parametrize("of_arm", ["neon", "dotprod", "i8mm"])
def test_what_works_by_tiles_on_arm_declares_it(of_arm: str) -> None:
    """Sums in tile64, and with weights that become it these too; what takes rows of weights has next to nothing."""
    room = {"tile64": SUMS, "tile80": SUMS + ARRANGED, "tl1": SUMS + ARRANGED, "tl2": SUMS + ARRANGED}
    for format, (table, _) in FORMATS.items():
        if of_arm in of_both(table):
            assert stack_bytes(format, of_arm, {"M": 1, "N": 640, "K": 2560}) == cpu.cores() * room.get(format, 0)
