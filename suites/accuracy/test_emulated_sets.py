"""Products with AVX-VNNI, written in C where this processor lacks it, and with what shares its code: exactness and
planted faults; and that the instruction itself is in what is compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated_sets import IN_C, emulated, needs_avx2, needs_avx512
from hypothesis import given
from hypothesis import strategies as st
from matmul_driver import (
    SOURCES,
    Builder,
    Driver,
    Edit,
    check_outputs,
    drawn,
    exact,
    fault_seen,
    group_fault_seen,
    groups_right,
)

from tritmark.kernels.native import cpu

# Programs in C: neither the interpreter nor the set that is forced makes a difference.
pytestmark = pytest.mark.long

CASES = [((1, 70, 131), -128), ((2, 65, 600), None), ((3, 129, 77), None), ((2, 1, 4 * 8192 + 8), -128)]
PANELED = ("tq2_0", "tq1_0", "q2_0")
"""Formats whose kernels take panels of rows of weights."""


# AVX-VNNI


@pytest.fixture(scope="module")
def builder(emulated_folder: Path) -> Builder:
    return emulated(emulated_folder)


@pytest.fixture(scope="module")
def avxvnni(builder: Builder) -> Iterator[Driver]:
    """Without a fault, which is looked at on the shapes that have to show one."""
    with Driver([builder.program(*IN_C)]) as driver:
        assert not fault_seen(driver, ["avxvnni"], CASES)
        assert not digit_fault_seen(driver)
        assert not panel_fault_seen(driver)
        assert not row_fault_seen(driver)
        yield driver


@needs_avx2
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 200), st.integers(1, 600)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_avxvnni_gives_the_contracts_bits(
    avxvnni: Driver, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    check_outputs(avxvnni, "avxvnni", cpu.ISAS["avxvnni"].rank, shape, seed, gap, threads, dtype)


@needs_avx2
@pytest.mark.parametrize("shape", [(600, 65, 131), (5, 129, 65536), (1, 63, 65535)])
def test_avxvnni_is_exact_at_large_shapes(avxvnni: Driver, shape: tuple[int, int, int]) -> None:
    activations, codes = drawn(shape, 11, gap=3)
    assert (avxvnni.run("avxvnni", activations, codes, threads=2)[0] == exact(activations, codes)).all()


@needs_avx2
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/tiles_avxvnni.h", "_mm256_set1_epi8(63)", "_mm256_set1_epi8(31)"),
        Edit("ternary_matmul/tiles_avxvnni.h", "halves_by(2, 1, 1,", "halves_by(2, 1, 0,"),
        Edit("ternary_matmul/tiles_avxvnni.h", "_mm256_srai_epi32(", "_mm256_srli_epi32("),
        Edit("ternary_matmul/tiles_avxvnni.h", "bytes + 32 * h", "bytes + 16 * h"),
        Edit("ternary_matmul/tiles_avxvnni.h", "(size_t)r * lda + 4 * k", "(size_t)r * lda + 2 * k"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_avxvnni_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault)]) as driver:
        assert fault_seen(driver, ["avxvnni"], CASES)


# tile80

DIGIT_SETS = ["avx2", "avxvnni"] + ["avx512"] * (cpu.ISAS["avx512"].features <= cpu.features())
DIGIT_CASES = [
    ((1, 85, 131), -128),
    ((2, 81, 600), None),
    ((3, 159, 77), None),
    ((5, 400, 45), None),
    ((9, 330, 66), None),
    ((2, 1, 4 * 8192 + 8), -128),
]
"""Few rows of activations, whose digits are met as they are, and more, which meet all five kinds of tiles of tile64."""


def digit_fault_seen(driver: Driver, kernels: list[str] = DIGIT_SETS) -> bool:
    return fault_seen(driver, kernels, DIGIT_CASES, format="tile80")


@needs_avx2
@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 400), st.integers(1, 600)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_avxvnni_gives_the_contracts_bits_of_tile80(
    avxvnni: Driver, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    check_outputs(avxvnni, "avxvnni", cpu.ISAS["avxvnni"].rank, shape, seed, gap, threads, dtype, "tile80")


@needs_avx2
@pytest.mark.parametrize("kernel", DIGIT_SETS)
@pytest.mark.parametrize("shape", [(600, 65, 131), (5, 129, 65536), (1, 63, 65535), (2, 80, 4 * 4096 * 3 + 5)])
def test_tile80_is_exact_at_large_shapes(avxvnni: Driver, kernel: str, shape: tuple[int, int, int]) -> None:
    activations, codes = drawn(shape, 11, gap=3)
    for a, w in ((activations, codes), (np.full_like(activations, -128), np.ones_like(codes))):
        assert (avxvnni.run(kernel, a, w, threads=2, format="tile80")[0] == exact(a, w)).all()


@needs_avx2
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/tile80/tile80.h", "tile + 1 == tm_tile80_across(args)", "1"),
        Edit("ternary_matmul/tile80/tile80.h", "first + groups * TM_TILE", "first + groups"),
        Edit("ternary_matmul/tile80/tile80.h", "from(3, (blocks)", "from(2, (blocks)"),
        Edit("ternary_matmul/tile80/tile80.h", "slab->last[0], sizeof slab->last[0]", "a, sizeof slab->last[0]"),
        Edit("ternary_matmul/digits_avx2.h", "85 - 128", "84 - 128"),
        Edit("ternary_matmul/tile80/arrange_avx2.h", "i < start", "i <= start"),
        Edit("ternary_matmul/tile80/arrange_avx2.h", "biased(second + at)", "biased(second)"),
        Edit("ternary_matmul/tile80/avx2.c", "k += TM_TILES_FLUSH", "k += TM_TILES_FLUSH + 1"),
        Edit("ternary_matmul/tile80/avx2.c", "half_by(2, 1,", "half_by(2, 0,"),
        Edit("ternary_matmul/tile80/avxvnni.c", "digits_by(2, 1, 1,", "digits_by(2, 1, 0,"),
        Edit("ternary_matmul/tile80/avxvnni.c", "_mm256_srai_epi32(", "_mm256_srli_epi32("),
        Edit("ternary_matmul/tile80/avxvnni.c", "bytes + 32 * h", "bytes + 16 * h"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_tile80_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only="tile80")]) as driver:
        assert digit_fault_seen(driver)


@needs_avx512
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/tile80/avx512.c", "sub_epi32(three, u[i + 1]), 8)", "sub_epi32(three, u[i + 1]), 7)"),
        Edit("ternary_matmul/tile80/avx512.c", "_mm512_srai_epi32(_mm512_sub", "_mm512_srli_epi32(_mm512_sub"),
        Edit("ternary_matmul/tile80/avx512.c", "(size_t)r * lda + 4 * k", "(size_t)r * lda + 2 * k"),
        Edit("ternary_matmul/tile80/avx512.c", "case 3: groups_by(3,", "case 3: groups_by(2,"),
        Edit("ternary_matmul/tile80/avx512.c", "start + g == TM_TILE80_DIGITS", "start + g == 4"),
        Edit("ternary_matmul/tile80/avx512.c", "top, 0xf8", "top, 0xea"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_tile80_of_avx512_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only="tile80")]) as driver:
        assert digit_fault_seen(driver, ["avx512"])


# Panels


@needs_avx2
@pytest.mark.parametrize("format", PANELED)
@given(
    shape=st.tuples(
        st.integers(1, 9) | st.integers(60, 70), st.integers(1, 70), st.integers(1, 9) | st.integers(16, 33)
    ),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_panels_of_avxvnni_give_the_contracts_bits(
    avxvnni: Driver, format: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    assert groups_right(avxvnni, format, "avxvnni", shape, seed, gap=gap, threads=threads, dtype=dtype)


PANEL_SETS = ["avx2", "avxvnni"] + ["avx512"] * (cpu.ISAS["avx512"].features <= cpu.features())
PANEL_SHAPES = [(2, 5, 3), (4, 6, 9), (3, 17, 2), (1, 3, 5), (5, 37, 7), (70, 20, 2), (1, 3, 38), (1, 3, 133)]


def panel_fault_seen(driver: Driver, formats: Iterable[str] = PANELED) -> bool:
    return any(group_fault_seen(driver, PANEL_SETS, PANEL_SHAPES, format) for format in formats)


def shows(fault: Edit) -> str:
    """The format to compile with a fault: that of the file, or one of the formats that share it."""
    format = Path(fault.file).parent.name
    return format if format in PANELED else "tq2_0"


@needs_avx2
@pytest.mark.parametrize("kernel", PANEL_SETS)
@pytest.mark.parametrize("extreme", [(-128, 1), (-128, -1), (127, 1), (127, -1)])
def test_panels_are_exact_where_sums_are_largest(avxvnni: Driver, kernel: str, extreme: tuple[int, int]) -> None:
    for format in PANELED:
        assert groups_right(avxvnni, format, kernel, (7, 19, 300), 3, extreme=extreme)
    assert groups_right(avxvnni, "q2_0", kernel, (7, 19, 300), 3, extreme=(extreme[0], 2))


@needs_avx2
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/rows.h", "(r < count ? r : 0)", "(r <= count ? r : 0)"),
        Edit("ternary_matmul/panels.h", "first += most)", "first += most + 1)"),
        Edit("ternary_matmul/panels_avx2.h", "case 3: tm_panel_block(3,", "case 3: tm_panel_block(2,"),
        Edit("ternary_matmul/panels_avx2.h", "starts[(size_t)m * groups]", "starts[(size_t)m * (groups - 1)]"),
        Edit("ternary_matmul/panels_avx2.h", "left < (size_t)how.together ? (int)left", "left < 3 ? (int)left"),
        Edit("ternary_matmul/panels_avx2.h", "at + 8 * v, how.scale_at", "at, how.scale_at"),
        Edit("ternary_matmul/dots_dpbusd.h", "-tm_sum(", "tm_sum("),
        Edit("ternary_matmul/dots_maddubs.h", "_mm_shuffle_epi32(half, 0x4e)", "_mm_shuffle_epi32(half, 0x44)"),
        Edit("ternary_matmul/tq2_0/tq2_0_avx2.h", "8 * s + i", "8 * i + s"),
        Edit("ternary_matmul/digits_avx2.h", "85 - 128", "84 - 128"),
        Edit("ternary_matmul/tq1_0/tq1_0_avx2.h", "TM_TQ1_0_THIRD - 12", "TM_TQ1_0_THIRD - 8"),
        Edit("ternary_matmul/tq2_0/tq2_0_avx2.h", "x + i * TM_TQ2_0_GROUP", "x + i * TM_TQ2_0_HALF"),
        Edit("ternary_matmul/tq1_0/tq1_0_avx2.h", "arranged + 160 * i", "arranged + 128 * i"),
        Edit("ternary_matmul/tq1_0/tq1_0_avx2.h", "blend_epi32(both, zero, 0x0f)", "blend_epi32(both, zero, 0xf0)"),
        Edit("ternary_matmul/tq1_0/tq1_0_avx2.h", "first, 1, arranged + 960", "first, 2, arranged + 960"),
        Edit("ternary_matmul/tq1_0/tq1_0_avx2.h", "TM_TQ1_0_GROUP + 240 + 4 * n", "TM_TQ1_0_GROUP + 240 + 3 * n"),
        Edit("ternary_matmul/q2_0/arrange_avx2.h", "args->M <= TM_Q2_0_FEW", "args->M <= TM_Q2_0_FEW + 1"),
        Edit(
            "ternary_matmul/q2_0/q2_0_avx2.h",
            "_mm256_extracti128_si256(words, 1), 0xc",
            "_mm256_castsi256_si128(words), 0xc",
        ),
        Edit("ternary_matmul/q2_0/q2_0_avx2.h", "x + i * TM_Q2_0_BLOCK + 32 * j", "x + i * TM_Q2_0_BLOCK + 32"),
        Edit("ternary_matmul/q2_0/q2_0_avx2.h", "act_sums + 8 * j", "act_sums + 4 * j"),
        Edit(
            "ternary_matmul/q2_0/q2_0_avx2.h",
            "sums[i % TM_Q2_0_FOUR][i / TM_Q2_0_FOUR]",
            "sums[i / TM_Q2_0_FOUR][i % TM_Q2_0_FOUR]",
        ),
        Edit("ternary_matmul/q2_0/q2_0_avx2.h", "_mm256_add_pd(p[1][0], p[1][1])", "_mm256_add_pd(p[1][0], p[0][1])"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_panels_is_seen(builder: Builder, fault: Edit) -> None:
    format = "tq1_0" if fault.file.endswith("digits_avx2.h") else shows(fault)
    with Driver([builder.program(*IN_C, fault, only=format)]) as driver:
        assert panel_fault_seen(driver, [format])


@needs_avx512
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/panels_avx512.h", "rows[8 + j] + at", "rows[4 + j] + at"),
        Edit("ternary_matmul/tq1_0/avx512.c", "groups[2 * i + 1])", "groups[2 * i])"),
        Edit("ternary_matmul/tq1_0/avx512.c", "groups[2] + TM_TQ1_0_SECOND", "groups[1] + TM_TQ1_0_SECOND"),
        Edit("ternary_matmul/tq1_0/avx512.c", "groups[i] + TM_TQ1_0_THIRD", "groups[i] + TM_TQ1_0_SECOND"),
        Edit("ternary_matmul/tq1_0/avx512.c", "lda + 160 + 16 * (size_t)n", "lda + 144 + 16 * (size_t)n"),
        Edit("ternary_matmul/tq1_0/avx512.c", "first, second, 0xdd", "first, second, 0x88"),
        Edit("ternary_matmul/q2_0/avx512.c", "count, row, TM_ROWS, at", "TM_ROWS, row, TM_ROWS, at"),
        Edit(
            "ternary_matmul/q2_0/avx512.c",
            "across = _mm512_setr_epi32(0, 0, 0, 0, 1",
            "across = _mm512_setr_epi32(0, 0, 0, 0, 0",
        ),
        Edit("ternary_matmul/q2_0/avx512.c", "at[r], groups - g, args->a", "at[0], groups - g, args->a"),
        Edit(
            "ternary_matmul/q2_0/avx512.c",
            "*of_x = args->act_sums + (size_t)m * groups + g",
            "*of_x = args->act_sums + g",
        ),
        Edit("ternary_matmul/tq1_0/avx512.c", "TM_TQ1_0_THIRD - 12", "TM_TQ1_0_THIRD - 8"),
        Edit("ternary_matmul/tq1_0/avx512.c", "160 + 16 * n + 4", "160 + 15 * n + 4"),
        Edit("ternary_matmul/tq1_0/avx512.c", "room[12 + part / 2]", "room[12]"),
        Edit("ternary_matmul/tq1_0/avx512.c", "thrice(thrice(thrice(q[0])))", "thrice(thrice(q[0]))"),
        Edit("ternary_matmul/tq1_0/avx512.c", "n < 4; n++, w[3] = thrice(w[3])", "n < 4; n++"),
        Edit("ternary_matmul/tq1_0/avx512.c", "DIGIT_SHIFT = 6", "DIGIT_SHIFT = 5"),
        Edit("ternary_matmul/tq2_0/avx512.c", "32 * (i % 4)", "32 * (i % 3)"),
        Edit("ternary_matmul/four_rows.h", "there, row, TM_ROWS, at", "TM_ROWS, row, TM_ROWS, at"),
        Edit("ternary_matmul/fours.h", "groups[i] + scale_at", "groups[0] + scale_at"),
        Edit("ternary_matmul/four_rows.h", "args->act_sums[(size_t)m * groups + g]", "args->act_sums[g]"),
        Edit("ternary_matmul/four_rows.h", "r < there; r++)\n", "r < TM_ROWS; r++)\n"),
        Edit("ternary_matmul/tq2_0/avx512.c", "w[r], (unsigned)(2 * g)", "w[r], (unsigned)g"),
        Edit("ternary_matmul/tq2_0/avx512.c", "i * TM_TQ2_0_BYTES, arranged", "i * TM_TQ2_0_BYTES + 1, arranged"),
        Edit("ternary_matmul/panels_avx512.h", "room[2 * part + i / 4]", "room[0 * part + i / 4]"),
        Edit("ternary_matmul/panels_avx512.h", "room[one ? 0 : u], one ? part + u : part", "room[one ? 0 : u], part"),
        Edit("ternary_matmul/panels_avx512.h", "room[one ? 0 : u]", "room[0]"),
        Edit("ternary_matmul/panels_avx512.h", "if (one)\n", "if (0)\n"),
        Edit("ternary_matmul/panels_avx512.h", "at + 16 * v, how.scale_at", "at, how.scale_at"),
        Edit("ternary_matmul/panels_avx512.h", "if (left == 3)", "if (left == 4)"),
        Edit("ternary_matmul/panels_avx512.h", "else if (left)", "else if (left == 1)"),
        Edit("ternary_matmul/panels_avx512.h", "n < stop; n += 16)", "n < stop; n += 32)"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_panels_of_avx512_is_seen(builder: Builder, fault: Edit) -> None:
    format = "q2_0" if "left" in fault.old else shows(fault)
    with Driver([builder.program(*IN_C, fault, only=format)]) as driver:
        assert panel_fault_seen(driver, [format])


# i2_s_x86 and iq2_bn_r4

ROWED = {"i2_s_x86": (1, 128, (1 << 23) - 128), "iq2_bn_r4": (4, 64, (1 << 20) + 64)}
"""The multiples of N and K, and a K at which sums of shifted codes exceed int32 unless they are shifted back."""
ROW_SHAPES = [(1, 3, 2), (1, 5, 33), (2, 7, 19), (3, 5, 1), (4, 6, 34), (5, 9, 3), (9, 37, 5), (13, 61, 3), (70, 19, 9)]
"""M, and N and K in these: odd numbers of blocks, more than sums of int16 take, more rows than are met at once."""


def sized(format: str, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    row, column, _ = ROWED[format]
    return shape[0], shape[1] * row, shape[2] * column


def row_fault_seen(driver: Driver, formats: Iterable[str] = ROWED, kernels: Iterable[str] = PANEL_SETS) -> bool:
    """Whether a kernel is incorrect at one of the shapes, with drawn values or the largest sums, or at a row of that
    length."""
    for format in formats:
        row, _, long = ROWED[format]
        cases = [(sized(format, shape), activation) for shape in ROW_SHAPES for activation in (None, -128)]
        if fault_seen(driver, kernels, [*cases, ((1, row, long), -128)], format=format):
            return True
    return False


@needs_avx2
@pytest.mark.parametrize("format", ROWED)
@given(
    shape=st.tuples(
        st.integers(1, 9) | st.integers(60, 70), st.integers(1, 70), st.integers(1, 9) | st.integers(16, 33)
    ),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_avxvnni_gives_the_contracts_bits_of_formats_by_rows(
    avxvnni: Driver, format: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    rank = cpu.ISAS["avxvnni"].rank
    check_outputs(avxvnni, "avxvnni", rank, sized(format, shape), seed, gap, threads, dtype, format)


@needs_avx2
@pytest.mark.parametrize("format", ROWED)
@pytest.mark.parametrize("shape", [(600, 68, 128), (5, 132, 65536)])
@pytest.mark.parametrize("extreme", [None, -128, 127])
def test_avxvnni_is_exact_at_large_shapes_of_formats_by_rows(
    avxvnni: Driver, format: str, shape: tuple[int, int, int], extreme: int | None
) -> None:
    assert not fault_seen(avxvnni, ["avxvnni"], [(shape, extreme)], threads=2, format=format)


@needs_avx2
@pytest.mark.parametrize(
    ("format", "fault"),
    [
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/i2_s_x86_avx2.h", "TM_I2_S_FLUSH = 16", "TM_I2_S_FLUSH = 17")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/i2_s_x86_avx2.h", "w[r], 6 - 2 * g", "w[r], 2 * g")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/i2_s_x86_avx2.h", "by(fetch, 2, rows", "by(fetch, 1, rows")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/i2_s_x86_avx2.h", "16 * q + 8 * half", "16 * q + 4 * half")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/i2_s_x86_avx2.h", "(8 * f + i)", "(4 * f + i)")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/row_after_row.h", "_mm256_set1_epi8(48)", "_mm256_set1_epi8(32)")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/row_after_row.h", "if (k < end)", "if (k > end)")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/row_after_row.h", "_mm256_srai_epi32(", "_mm256_srli_epi32(")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/row_after_row.h", "s[0][g] + s[1][g]", "s[0][g] + s[0][g]")),
        (
            "i2_s_x86",
            Edit("ternary_matmul/i2_s_x86/row_after_row.h", "TM_I2_S_CHUNK = 1 << 20", "TM_I2_S_CHUNK = 1 << 24"),
        ),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx2.c", "FLUSH = 8", "FLUSH = 9")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx2.c", "4 * q + 2 * half", "4 * q + half")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx2.c", "at + 4 * l + s", "at + 4 * s + l")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx2.c", "of[1] + 4 * at + 16 * l", "of[1] + 4 * at")),
        ("iq2_bn_r4", Edit("ternary_matmul/turned_avx2.h", "_mm256_slli_epi16(low23, 4)", "low23")),
        ("i2_s_x86", Edit("ternary_matmul/turned_avx2.h", "(0x33, w[2]", "(0x3f, w[2]")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/iq2_bn_r4_avx2.h", "0xaa", "0xa8")),
        (
            "iq2_bn_r4",
            Edit(
                "ternary_matmul/iq2_bn_r4/iq2_bn_r4_avx2.h", "extracti128_si256(s_i32x8, 1)", "castsi256_si128(s_i32x8)"
            ),
        ),
        (
            "iq2_bn_r4",
            Edit("ternary_matmul/iq2_bn_r4/avxvnni.c", "(size_t)f * tm_four_bytes(K) + k", "(size_t)f * K + k"),
        ),
        (
            "iq2_bn_r4",
            Edit(
                "ternary_matmul/iq2_bn_r4/avxvnni.c",
                "case 3: blocks_by(fours, 3,",
                "case 3: blocks_by(fours, 2,",
            ),
        ),
        (
            "iq2_bn_r4",
            Edit("ternary_matmul/iq2_bn_r4/avxvnni.c", "tm_four_half(x + k + 32 * (size_t)h)", "tm_four_half(x + k)"),
        ),
        (
            "iq2_bn_r4",
            Edit(
                "ternary_matmul/iq2_bn_r4/avxvnni.c",
                "tm_dots_sum(s[0][i] + s[1][i]), 2 * i",
                "tm_dots_sum(s[0][i] + s[1][i]), i",
            ),
        ),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avxvnni.c", "CHUNK = 1 << 19", "CHUNK = 1 << 21")),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_formats_by_rows_is_seen(builder: Builder, format: str, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only=format)]) as driver:
        assert row_fault_seen(driver, [format])


@needs_avx2
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/i2_s_x86/avx2.c", "rows[0], *const second = rows[1]", "rows[1], *const second = rows[1]"),
        Edit("ternary_matmul/i2_s_x86/avx2.c", "acc[1] = tm_sum_of(s_i32x8[1])", "acc[1] = tm_sum_of(s_i32x8[0])"),
        Edit("ternary_matmul/i2_s_x86/avx2.c", "begin += 4 * TM_I2_S_FLUSH", "begin += 5 * TM_I2_S_FLUSH"),
        Edit("ternary_matmul/rows.h", "n + i, count - i, row_bytes", "n + i, TM_ROWS, row_bytes"),
        Edit("ternary_matmul/rows.h", "(r < count ? r : 0)", "(r + 1 < count ? r : 0)"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_one_row_by_several_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only="i2_s_x86")]) as driver:
        assert row_fault_seen(driver, ["i2_s_x86"])


@needs_avx512
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/i2_s_x86/avx512.c", "_mm256_set1_epi8(48), _mm256", "_mm256_set1_epi8(49), _mm256"),
        Edit("ternary_matmul/i2_s_x86/avx512.c", "x + k + 32 * g))", "x + k + 16 * g))"),
        Edit("ternary_matmul/i2_s_x86/avx512.c", "_mm256_srai_epi32(tm", "_mm256_srli_epi32(tm"),
        Edit("ternary_matmul/i2_s_x86/avx512.c", "for (int g = 0; g < 3; g++)", "for (int g = 0; g < 2; g++)"),
        Edit("ternary_matmul/i2_s_x86/avx512.c", "rows[r] + k / 4", "rows[0] + k / 4"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_four_rows_of_avx512_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only="i2_s_x86")]) as driver:
        assert row_fault_seen(driver, ["i2_s_x86"], ["avx512"])


ARRANGING = (
    Edit("ternary_matmul/i2_s_x86/avx512.c", "ARRANGED = 48", "ARRANGED = 2"),
    Edit("ternary_matmul/iq2_bn_r4/avx512.c", "ARRANGED = 192", "ARRANGED = 2"),
    Edit("ternary_matmul/tiles_avx512.h", "TM_TILES_INTEL = 12", "TM_TILES_INTEL = 2"),
)
"""So that few rows of activations meet weights that are arranged as tile64."""


@needs_avx512
@pytest.mark.parametrize(
    ("format", "fault"),
    [
        ("i2_s_x86", None),
        ("iq2_bn_r4", None),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/avx512.c", "turned[3 - f]", "turned[f]")),
        ("i2_s_x86", Edit("ternary_matmul/i2_s_x86/avx512.c", "(8 * f + i)", "(4 * f + i)")),
        ("i2_s_x86", Edit("ternary_matmul/turned_avx512.h", "_mm512_slli_epi16(low23, 4)", "low23")),
        ("iq2_bn_r4", Edit("ternary_matmul/turned_avx512.h", "(0x33, w[0]", "(0x3f, w[0]")),
        ("iq2_bn_r4", Edit("ternary_matmul/turned_avx512.h", "_mm512_srli_epi16(w[2], 2), w[3]", "w[2], w[3]")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/iq2_bn_r4.h", "TM_FOUR_SCALES + 4 * k", "TM_FOUR_SCALES + k")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx512.c", "low01, low23, 0xdd", "low01, low23, 0x88")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx512.c", "high01, high23, 0x88", "high01, high23, 0xdd")),
        ("iq2_bn_r4", Edit("ternary_matmul/iq2_bn_r4/avx512.c", "4 * (size_t)l + s", "(size_t)l + 4 * s")),
        (
            "iq2_bn_r4",
            Edit("ternary_matmul/iq2_bn_r4/iq2_bn_r4.h", "(n + i) / TM_FOUR, acc + i", "n / TM_FOUR, acc + i"),
        ),
        ("iq2_bn_r4", Edit("ternary_matmul/tiles.h", "groups, a + 4 * k, args->lda", "groups, a, args->lda")),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_what_becomes_tile64_is_seen(builder: Builder, format: str, fault: Edit | None) -> None:
    edits = (*ARRANGING, fault) if fault else ARRANGING
    with Driver([builder.program(*IN_C, *edits, only=format if fault else "")]) as driver:
        assert row_fault_seen(driver, [format], ["avx512"]) == (fault is not None)


@needs_avx2
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("of", [".", *PANELED, "tile80", *ROWED])
def test_the_instruction_of_avxvnni_is_what_is_compiled(emulated_folder: Path, of: str) -> None:
    """In the encoding without AVX-512, which distinguishes it."""
    made = emulated_folder / f"avxvnni{of}.o"
    source = SOURCES / "ternary_matmul" / of / "avxvnni.c"
    command = ["cc", "-std=gnu11", "-O3", "-Wno-unknown-pragmas", "-c", str(source)]
    subprocess.run([*command, "-o", str(made)], check=True)
    code = subprocess.run(["objdump", "-d", made], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\{vex\} vpdpbusd .*%ymm", code)
    assert "%zmm" not in code
