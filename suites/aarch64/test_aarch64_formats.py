"""Products with the weights of other formats than tile64, on processors that QEMU has."""

from __future__ import annotations

from pathlib import Path

import pytest
from aarch64 import RANKS, on, skip_without_emulator
from grouped_tiles import GROUPS as TILES
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_driver import Builder, Driver, Edit, check_outputs, fault_seen, group_fault_seen, groups_right

from tritmark.kernels.ternary_matmul.tables import tiles

skip_without_emulator()

LEAST = {"neon": "cortex-a53", "dotprod": "neoverse-n1", "i8mm": "max"}
"""A processor that has no more than the set needs."""
UNITS = {"i2_s_x86": (1, 128), "iq2_bn_r4": (4, 64), "tile80": (1, 1), "tl1": (32, 8), "tl2": (32, 32)}
"""What N and K are multiples of in formats of one scale, or one a row."""
GROUPED = {"tq2_0": 256, "tq1_0": 256, "q2_0": 64, **TILES}
"""How many weights share a scale."""
ARRANGED = {"tile80", "tl1", "tl2"}
"""Formats whose weights become tile64, which the matrix products take too."""


def sets(format: str) -> list[str]:
    return [*LEAST] if format in (*ARRANGED, *TILES) else ["neon", "dotprod"]


WIDE = [(1, 1024, 4096), (5, 1536, 1536)]
"""With 64 rows of tl1 side by side, where others have 32."""
ROWED = [(format, kernel) for format in UNITS for kernel in sets(format)]
PANELED = [(format, kernel) for format in GROUPED for kernel in sets(format)]


def sized(format: str, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Rows of activations, and the least N and K that the format has from these on."""
    rows, columns = UNITS[format]
    return shape[0], -(-shape[1] // rows) * rows, -(-shape[2] // columns) * columns


@pytest.mark.parametrize(("format", "kernel"), ROWED)
@given(
    shape=st.tuples(st.integers(1, 9) | st.integers(1, 150), st.integers(1, 150), st.integers(1, 700)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
@settings(max_examples=40)
def test_all_outputs_are_the_contracts_bits(
    drivers: dict[str, Driver],
    format: str,
    kernel: str,
    shape: tuple[int, int, int],
    seed: int,
    gap: int,
    threads: int,
    dtype: str,
) -> None:
    check_outputs(
        drivers[LEAST[kernel]], kernel, RANKS[kernel], sized(format, shape), seed, gap, threads, dtype, format
    )


@pytest.mark.parametrize(("format", "kernel"), PANELED)
@given(
    shape=st.tuples(st.integers(1, 9) | st.integers(1, 150), st.integers(1, 70), st.integers(1, 9)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
@settings(max_examples=40)
def test_groups_give_the_contracts_bits(
    drivers: dict[str, Driver],
    format: str,
    kernel: str,
    shape: tuple[int, int, int],
    seed: int,
    gap: int,
    threads: int,
    dtype: str,
) -> None:
    driver = drivers[LEAST[kernel]]
    assert groups_right(driver, format, kernel, shape, seed, gap=gap, threads=threads, dtype=dtype)


@pytest.mark.parametrize(("format", "kernel"), ROWED)
@pytest.mark.parametrize("shape", [(3, 67, 65536), (600, 5, 640), (2, 129, 40000), (1, 200, 1280), (5, 81, 32771)])
@pytest.mark.parametrize("extreme", [None, -128, 127])
def test_large_shapes_and_the_largest_sums_are_exact(
    drivers: dict[str, Driver], format: str, kernel: str, shape: tuple[int, int, int], extreme: int | None
) -> None:
    case = (sized(format, shape), extreme)
    assert not fault_seen(drivers[LEAST[kernel]], [kernel], [case], threads=2, format=format)


@pytest.mark.parametrize("kernel", LEAST)
@pytest.mark.parametrize("shape", WIDE)
def test_tl1_is_exact_in_the_other_layout(drivers: dict[str, Driver], kernel: str, shape: tuple[int, int, int]) -> None:
    layout = tiles("tl1", dict(zip("MNK", shape, strict=True)))
    assert layout is not None
    assert layout.bm == 64
    assert not fault_seen(drivers[LEAST[kernel]], [kernel], [(shape, None)], threads=2, format="tl1")


@pytest.mark.parametrize(("format", "kernel"), PANELED)
@pytest.mark.parametrize("shape", [(3, 67, 16384), (600, 5, 512), (5, 3, 65536)])
@pytest.mark.parametrize("extreme", [(-128, 1), (-128, -1), (127, 1)])
def test_groups_are_exact_where_sums_are_largest(
    drivers: dict[str, Driver], format: str, kernel: str, shape: tuple[int, int, int], extreme: tuple[int, int]
) -> None:
    M, N, K = shape
    driver, shape = drivers[LEAST[kernel]], (M, N, K // GROUPED[format])
    assert groups_right(driver, format, kernel, shape, 3, extreme=extreme, threads=2)
    if format in ("q2_0", *TILES):  # whose codes go up to 2
        assert groups_right(driver, format, kernel, shape, 3, extreme=(extreme[0], 2), threads=2)


# Whether a fault would be seen

CASES = [(1, 70, 640), (2, 65, 900), (3, 81, 1300), (4, 1, 64), (5, 129, 77), (1, 330, 33)]
GROUPS = [(1, 5, 3), (2, 17, 1), (3, 3, 5), (4, 33, 2), (7, 6, 4)]
FAULTS = [
    Edit("ternary_matmul/dots_smlal.h", "TM_DOTS_COLUMNS = 640", "TM_DOTS_COLUMNS = 1152"),
    Edit("ternary_matmul/dots_smlal.h", "vget_low_s8(x)), c, x)", "vget_low_s8(x)), x, x)"),
    Edit("ternary_matmul/rows_neon.h", "down ? 3 - g : g", "down ? g : 3 - g"),
    Edit("ternary_matmul/rows_neon.h", "vld1q_u8(rows[r] + at)", "vld1q_u8(rows[0] + at)"),
    Edit("ternary_matmul/rows.h", "case 3: micro(3,", "case 3: micro(2,"),
    Edit(
        "ternary_matmul/rows_neon.h", "tm_dots_sum(of[2]), tm_dots_sum(of[3])", "tm_dots_sum(of[3]), tm_dots_sum(of[2])"
    ),
    Edit(
        "ternary_matmul/i2_s_x86/i2_s_x86_neon.h",
        "vaddq_s32(vld1q_s32(acc[m]), tm_rows_sum(&s, m))",
        "tm_rows_sum(&s, m)",
    ),
    Edit("ternary_matmul/tq2_0/tq2_0_neon.h", "TM_TQ2_0_HALF * (q / 2)", "TM_TQ2_0_HALF"),
    Edit("ternary_matmul/digits_neon.h", "vdupq_n_u8(170)", "vdupq_n_u8(171)"),
    Edit("ternary_matmul/digits_neon.h", "vdupq_n_u8(85)", "vdupq_n_u8(84)"),
    Edit("ternary_matmul/tq1_0/tq1_0_neon.h", "9, 9, 9, 9, 27", "9, 9, 9, 3, 27"),
    Edit("ternary_matmul/tq1_0/tq1_0_neon.h", "5, 16, &s", "4, 16, &s"),
    Edit("ternary_matmul/q2_0/q2_0_neon.h", "fields.val[s]", "fields.val[s ^ 1]"),
    Edit("ternary_matmul/q2_0/q2_0_neon.h", "scales + 2", "scales"),
    Edit("ternary_matmul/q2_0/q2_0_neon.h", "memset(of[i], 0, sizeof of[i])", "memset(of[i], 64, sizeof of[i])"),
    Edit("ternary_matmul/q2_0/q2_0_neon.h", "(size_t)m * apart", "0 * apart"),
    Edit("ternary_matmul/q2_0/q2_0_neon.h", "left < TM_ROWS ? left : TM_ROWS", "TM_ROWS + 0 * left"),
    Edit("ternary_matmul/iq2_bn_r4/neon.c", "80 / 4 * 16", "160 / 4 * 16"),
    Edit("ternary_matmul/iq2_bn_r4/iq2_bn_r4_neon.h", "TM_FOUR_FIELD(3);", "TM_FOUR_FIELD(2);"),
    Edit("ternary_matmul/iq2_bn_r4/iq2_bn_r4_neon.h", "(f < fours ? (size_t)f", "(f + 1 < fours ? (size_t)f"),
    Edit("ternary_matmul/iq2_bn_r4/iq2_bn_r4_neon.h", "tm_fours_by(2,", "tm_fours_by(1,"),
    Edit("ternary_matmul/i2_s_x86/i2_s_x86_neon.h", "k / 4 + half", "k / 4"),
    Edit("ternary_matmul/tile80/arrange_neon.h", "start + g == TM_TILE80_DIGITS", "start + g == 4"),
    Edit("ternary_matmul/tile80/arrange_neon.h", "i < start", "i < 1"),
    Edit("ternary_matmul/tile64_grouped/start_neon.h", "5 * sum", "4 * sum"),
    Edit("ternary_matmul/tile64_grouped/start_neon.h", "21 * sum", "20 * sum"),
    Edit("ternary_matmul/tile64_grouped/neon.c", "16 * f + 4 * (first + q)", "16 * f + 4 * first"),
    Edit("ternary_matmul/tile64_grouped/neon.c", "vaddq_s32(part, start)", "vaddq_s32(part, start - start)"),
    Edit("ternary_matmul/tile64_grouped/dots_neon.h", "16 * f + 4 * (first + q)", "16 * f"),
    Edit("ternary_matmul/tile64_grouped/i8mm.c", "if (2 * p + 1 < rows)", "if (2 * p + 2 < rows)"),
    Edit("ternary_matmul/tile64_grouped/i8mm.c", "vdupq_n_s32(starts[run->starts_apart])", "vdupq_n_s32(starts[0])"),
    Edit("ternary_matmul/lut_tiles_neon.h", "1, 1, 1, 2, 2, 2}, {0", "1, 1, 2, 2, 2, 2}, {0"),
    Edit(
        "ternary_matmul/tl1/arrange_neon.h",
        "bytes, bytes + 32, others, others + 32",
        "bytes, bytes + 32, others, bytes + 32",
    ),
    Edit("ternary_matmul/tl1/arrange_neon.h", "bytes + 80, bytes + 96", "bytes + 96, bytes + 80"),
    Edit("ternary_matmul/tl2/arrange_neon.h", "vzip2q_u64(first, second)", "vzip1q_u64(first, second)"),
    Edit("ternary_matmul/tl2/arrange_neon.h", "128 >> (2 * t + h)", "128 >> 2 * t"),
    Edit("ternary_matmul/tl2/arrange_neon.h", "2 - code, code", "code, 2 - code"),
    Edit("ternary_matmul/tl2/arrange_neon.h", "lower[2] = {first.val[0]", "lower[2] = {first.val[1]"),
    Edit("ternary_matmul/tl2/arrange_neon.h", "nibbles[1] + 64", "nibbles[1] + 32"),
    Edit("ternary_matmul/tl2/arrange_neon.h", "tm_tl2_quarters(high,", "tm_tl2_quarters(low + 0 * (high - low),"),
]


def seen(program: Path, formats: list[str]) -> bool:
    with on("max", program) as driver:
        for format in formats:
            if format in GROUPED:
                cases = [("float32", None), ("float32", (-128, 1))]
                if group_fault_seen(driver, sets(format), GROUPS, format, cases=cases):
                    return True
            else:
                shapes = [*CASES, *WIDE * (format == "tl1")]
                plain = [(sized(format, shape), activation) for shape in shapes for activation in (None, -128)]
                if fault_seen(driver, sets(format), plain, format=format):
                    return True
    return False


def concerned(fault: Edit) -> list[str]:
    """The formats whose kernels have it, as far as one of them is enough to see it."""
    folder = Path(fault.file).parent.name
    if folder in {*UNITS, *GROUPED}:
        return [folder]
    if folder == "tile64_grouped":
        return [*TILES]
    return ["tl1"] if "lut" in fault.file else ["i2_s_x86", "tq1_0"]


def test_nothing_is_seen_where_no_fault_is(program: Path) -> None:
    assert not seen(program, [*UNITS, *GROUPED])


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_seen(builder: Builder, fault: Edit) -> None:
    assert seen(builder.program(fault), concerned(fault))
