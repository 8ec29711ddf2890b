"""Products over tile64 with a scale for each group, with AVX-VNNI in C where this processor lacks it, and the sets that
it has: exactness and planted faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_sets import IN_C, emulated, needs_avx2, needs_avx512
from grouped_tiles import GROUPS
from hypothesis import given
from hypothesis import strategies as st
from matmul_driver import Builder, Driver, Edit, group_fault_seen, groups_right

from tritmark.kernels.native import cpu

# Programs in C: neither the interpreter nor the set that is forced makes a difference.
pytestmark = pytest.mark.long

SETS = ["avx2", "avxvnni"] + ["avx512"] * (cpu.ISAS["avx512"].features <= cpu.features())
SHAPES = [(1, 70, 5), (2, 33, 3), (3, 65, 2), (5, 130, 7), (6, 64, 1), (70, 20, 9)]
CASES = [("float32", None), ("bfloat16", None), ("float32", (-128, 2))]


def tile_fault_seen(driver: Driver, kernels: list[str] = SETS) -> bool:
    return any(group_fault_seen(driver, kernels, SHAPES, format, gap=5, cases=CASES) for format in GROUPS)


@pytest.fixture(scope="module")
def builder(emulated_folder: Path) -> Builder:
    return emulated(emulated_folder)


@pytest.fixture(scope="module")
def avxvnni(builder: Builder) -> Iterator[Driver]:
    """Without a fault, which is looked at on the shapes that have to show one."""
    with Driver([builder.program(*IN_C)]) as driver:
        assert not tile_fault_seen(driver)
        yield driver


@needs_avx2
@pytest.mark.parametrize("format", GROUPS)
@given(
    shape=st.tuples(st.integers(1, 9) | st.integers(60, 70), st.integers(1, 140), st.integers(1, 9)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_avxvnni_gives_the_bits_of_all_sets(
    avxvnni: Driver, format: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    assert groups_right(avxvnni, format, "avxvnni", shape, seed, gap=gap, threads=threads, dtype=dtype)


@needs_avx2
@pytest.mark.parametrize("kernel", SETS)
@pytest.mark.parametrize("format", GROUPS)
@pytest.mark.parametrize("extreme", [(-128, 1), (-128, -1), (-128, 2), (127, 2)])
def test_tiles_are_exact_where_sums_are_largest(
    avxvnni: Driver, kernel: str, format: str, extreme: tuple[int, int]
) -> None:
    assert groups_right(avxvnni, format, kernel, (7, 81, 40), 3, extreme=extreme)


IN_FOLDER = "ternary_matmul/tile64_grouped/"


@needs_avx2
@pytest.mark.parametrize(
    "fault",
    [
        # the wrong group's scales, those of another row, the last group missing, a sum begun anew
        Edit(IN_FOLDER + "avx2.c", "scales_of(scales, r)", "scales_of(scales - (g ? bytes : 0), r)"),
        Edit(IN_FOLDER + "avx2.c", "scales_of(scales, of)", "scales_of(scales, of ^ 8)"),
        Edit(IN_FOLDER + "avx2.c", "run->starts[g])", "run->starts[0])"),
        Edit(IN_FOLDER + "avx2.c", "(size_t)r * run->starts_apart + g", "g"),
        Edit(IN_FOLDER + "avx2.c", "run->tile + first * bytes", "run->tile"),
        Edit(IN_FOLDER + "avx2.c", "_mm256_load_ps(sums)", "_mm256_setzero_ps()"),
        Edit(IN_FOLDER + "tile64_grouped.h", "g < groups; g += step", "g + 1 < groups; g += step"),
        Edit(IN_FOLDER + "tile64_grouped.h", "(t * groups + g) * bytes", "(t * groups) * bytes"),
        Edit(IN_FOLDER + "tile64_grouped.h", "args->lda + g * weights,\n", "args->lda,\n"),
        Edit(IN_FOLDER + "start_nested.h", "+ 5 * sum", "+ 4 * sum"),
        Edit(IN_FOLDER + "start_nested.h", "85 * sum", "21 * sum"),
        Edit(IN_FOLDER + "avxvnni.c", "u[r][h][f - 1]) >> 2 * f", "u[r][h][f - 1]) >> f"),
        Edit(IN_FOLDER + "avxvnni.c", "16 * f + 8 * (first + h)", "16 * f + 8 * h"),
        Edit(IN_FOLDER + "avxvnni.c", "(scales + 2 * of)", "(scales + 2 * (of ^ 16))"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_tiles_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only="tile64_grouped")]) as driver:
        assert tile_fault_seen(driver)


@needs_avx512
@pytest.mark.parametrize(
    "fault",
    [
        Edit(IN_FOLDER + "avx512.c", "(float)(1 << 2 * f)", "(float)(1 << f)"),
        Edit(IN_FOLDER + "avx512.c", "_mm512_castsi512_ps(u[2]), _mm512_castsi512_ps(u[1])", "bias, bias"),
        Edit(  # differences beyond 2^22
            IN_FOLDER + "avx512.c",
            "_mm512_cvtepi32_ps(_mm512_sub_epi32(u[3], u[2]))",
            "_mm512_sub_ps(_mm512_castsi512_ps(u[3]), _mm512_castsi512_ps(u[2]))",
        ),
        Edit(IN_FOLDER + "avx512.c", "scales + 32 * f", "scales + 16 * f"),
        Edit(IN_FOLDER + "avx512.c", "(size_t)r * run->starts_apart + g * TM_GROUPED_SUMS", "g * TM_GROUPED_SUMS"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("avxvnni")
def test_a_fault_in_tiles_of_avx512_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, fault, only="tile64_grouped")]) as driver:
        assert tile_fault_seen(driver, ["avx512"])
