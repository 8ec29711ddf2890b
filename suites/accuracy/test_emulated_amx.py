"""Products with AMX's tiles in C, for processors without them: exactness and planted faults; and that the instructions
themselves are in what is compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated_sets import IN_C, emulated, lacking, needs_avx512
from grouped_tiles import GROUPS as TILES
from hypothesis import given
from hypothesis import strategies as st
from matmul_driver import (
    HERE,
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

DIGEST = HERE.parents[1] / "aarch64" / "digest.c"
TILED = [
    ((5, 70, 131), -128),
    ((16, 70, 131), -128),
    ((16, 130, 70), None),
    ((16, 130, 777), None),
    ((20, 130, 1100), None),
    ((33, 65, 2000), None),
    ((53, 129, 64), 127),
    ((300, 1, 4 * 8192 + 70), -128),
    ((17, 65, 4 * 40000), -128),
    ((40, 130, 200), None),
    ((277, 130, 300), None),
]
PACKING = (
    Edit("ternary_matmul/amx_rows.h", "PACKS = 1 << 25", "PACKS = 1 << 10"),
    Edit("ternary_matmul/ternary_matmul.h", "MOST_TILES = 8", "MOST_TILES = 2"),
)
"""So that activations are packed where few products are to be made, too, if they are not too long, and few tiles make
several stretches."""


@pytest.fixture(scope="module")
def builder(emulated_folder: Path) -> Builder:
    return emulated(emulated_folder)


def amx_fault_seen(driver: Driver) -> bool:
    return any(fault_seen(driver, ["amx"], TILED, threads) for threads in (1, 2))


@pytest.fixture(scope="module")
def amx(builder: Builder) -> Iterator[Driver]:
    with Driver([builder.program(*IN_C)]) as driver:
        assert not amx_fault_seen(driver)
        yield driver


@pytest.fixture(scope="module")
def packing_amx(builder: Builder) -> Iterator[Driver]:
    """Without a fault, which is looked at on the shapes that have to show one."""
    with Driver([builder.program(*IN_C, *PACKING)]) as driver:
        assert not amx_fault_seen(driver)
        yield driver


@needs_avx512
@pytest.mark.parametrize("driver", ["amx", "packing_amx"])
@given(
    shape=st.tuples(st.integers(1, 80), st.integers(1, 200), st.integers(1, 600)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_amx_gives_the_contracts_bits(
    request: pytest.FixtureRequest,
    driver: str,
    shape: tuple[int, int, int],
    seed: int,
    gap: int,
    threads: int,
    dtype: str,
) -> None:
    made = request.getfixturevalue(driver)
    check_outputs(made, "amx", cpu.ISAS["amx"].rank, shape, seed, gap, threads, dtype)


@needs_avx512
@pytest.mark.parametrize(
    "shape",
    [
        (600, 65, 131),
        (255, 64, 1024),
        (257, 3, 1025),
        (17, 130, 65536),
        (16, 63, 32 * 1024 + 63),
        (1, 65, 32 * 1024 + 64 * 3 + 2),
        (6, 1030, 32 * 1024),
        (31, 1, 131072 + 5),
        (40, 65, 32 * 1024 + 64 * 21 + 1),
        (272, 129, 1280 + 64),
        (16, 200, 65536 + 64),
    ],
)
@pytest.mark.parametrize("extreme", [None, -128])
def test_amx_is_exact_at_large_shapes(amx: Driver, shape: tuple[int, int, int], extreme: int | None) -> None:
    activations, codes = drawn(shape, 11, gap=3)
    if extreme is not None:
        activations, codes = np.full_like(activations, extreme), np.ones_like(codes)
    assert (amx.run("amx", activations, codes, threads=2)[0] == exact(activations, codes)).all()


@needs_avx512
@pytest.mark.parametrize(
    "fault",
    [
        Edit("ternary_matmul/amx.c", "_mm512_set1_epi8(63)", "_mm512_set1_epi8(31)"),
        Edit("ternary_matmul/amx.c", "SPAN = TM_MATMUL_CHUNK / GROUPS", "SPAN = 16 * TM_MATMUL_CHUNK / GROUPS"),
        Edit("ternary_matmul/amx.c", "w->due.more = begin > 0", "w->due.more = 0"),
        Edit("ternary_matmul/amx.c", "w->due.whole = begin + steps == s->steps", "w->due.whole = 1"),
        Edit("ternary_matmul/amx.c", "w->due.row = 0;", "w->due.row = 1;"),
        Edit("ternary_matmul/amx.c", "AHEAD = 2,", "AHEAD = 5,"),
        Edit("ternary_matmul/amx.c", "[(used + AHEAD) % PLACES]", "[(used + AHEAD + 1) % PLACES]"),
        Edit("ternary_matmul/amx.c", "return w->last[number % PLACES];", "return w->last[number % 1];"),
        Edit("ternary_matmul/amx_rows.h", "memset(last, 0, STEP);", "memset(last, 1, STEP);"),
        Edit("ternary_matmul/amx_rows.h", "for (size_t c = 1; c < CHAINS; c++)", "for (size_t c = 2; c < CHAINS; c++)"),
        Edit("ternary_matmul/amx_rows.h", "(rows > SIDE ? 2 : 1) * SIDE * STEP", "(rows > SIDE ? 1 : 1) * SIDE * STEP"),
        Edit("ternary_matmul/amx_rows.h", "(m / s->group + 1) * s->group", "(m / s->group + 1) * s->group - 1"),
        Edit("ternary_matmul/amx_rows.h", "at->m = pair / across * s->group", "at->m = 0"),
        Edit("ternary_matmul/amx_rows.h", "behind < group_end(s, at->m)", "behind + BLOCK < group_end(s, at->m)"),
        Edit("ternary_matmul/amx_rows.h", "at->pair = at->first;\n        return 1;", "return 1;"),
        Edit("ternary_matmul/amx_rows.h", "begin_stretch(s, at->behind, at);", "begin_stretch(s, at->behind + 1, at);"),
        Edit("ternary_matmul/amx_rows.h", "most < row_end ? most : row_end", "most < row_end + 1 ? most : row_end + 1"),
        Edit("ternary_matmul/amx_rows.h", "at->behind > at->end", "at->behind > at->end + 1"),
        Edit("ternary_matmul/amx.c", "= block_rows(s, w->next.at.m) > SIDE ? LOW : ALL", "= ALL"),
        Edit("ternary_matmul/amx.c", "tm_tile_multiply(3, 5, 7)", "tm_tile_multiply(3, 5, 6)"),
        Edit("ternary_matmul/amx.c", "configure(rows, rows, 5, w)", "configure(rows, rows, 6, w)"),
        Edit("ternary_matmul/amx.c", "configure(SIDE, rows - SIDE, 6, w)", "configure(SIDE, 1, 6, w)"),
        Edit("ternary_matmul/amx.c", "(masks == LOW ? 0 : 2 * SIDE)", "0"),
        Edit("ternary_matmul/amx.c", "PAIRS_ARRANGED : PAIRS);", "PAIRS_ARRANGED : PAIRS) + 1;"),
        Edit("amx_tiles.h", "four[k] * (is", "(uint8_t)four[k] * (is"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("packing_amx")
def test_a_fault_in_amx_is_seen(builder: Builder, fault: Edit) -> None:
    with Driver([builder.program(*IN_C, *PACKING, fault, only="tile64")]) as driver:
        assert amx_fault_seen(driver)


# Weights of other formats, which become tile64

UNITS = {"i2_s_x86": (1, 128), "iq2_bn_r4": (4, 64), "tl1": (32, 8), "tl2": (32, 32)}
"""The multiples of their N and K."""
OTHERS = [(5, 3, 5), (16, 70, 3), (37, 33, 9), (20, 65, 40), (53, 129, 2), (277, 130, 4)]
"""M, and N and K in these."""
LONGEST = 1 << 15


def sized(format: str, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    rows, columns = UNITS[format]
    return shape[0], max(shape[1] // rows, 1) * rows, shape[2] * columns


def arranged_fault_seen(driver: Driver, format: str) -> bool:
    cases = [(sized(format, shape), activation) for shape in OTHERS for activation in (None, -128)]
    if any(fault_seen(driver, ["amx"], cases, threads, format) for threads in (1, 2)):
        return True
    for dtype in ("float32", "bfloat16"):
        try:
            check_outputs(driver, "amx", cpu.ISAS["amx"].rank, sized(format, OTHERS[4]), 3, 0, 2, dtype, format)
        except AssertionError:
            return True
    return False


@needs_avx512
@pytest.mark.parametrize("driver", ["amx", "packing_amx"])
@pytest.mark.parametrize("format", UNITS)
@given(
    shape=st.tuples(st.integers(1, 80), st.integers(1, 200), st.integers(1, 12)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
def test_amx_gives_the_contracts_bits_of_other_formats(
    request: pytest.FixtureRequest,
    driver: str,
    format: str,
    shape: tuple[int, int, int],
    seed: int,
    gap: int,
    threads: int,
    dtype: str,
) -> None:
    made = request.getfixturevalue(driver)
    check_outputs(made, "amx", cpu.ISAS["amx"].rank, sized(format, shape), seed, gap, threads, dtype, format)


@needs_avx512
@pytest.mark.parametrize("format", UNITS)
@pytest.mark.parametrize(("M", "K"), [(40, LONGEST), (33, LONGEST - 256), (7, LONGEST + 256), (600, 256)])
@pytest.mark.parametrize("extreme", [None, -128, 127])
def test_amx_is_exact_with_long_rows_of_other_formats(
    amx: Driver, format: str, M: int, K: int, extreme: int | None
) -> None:
    """The longest that it takes, and longer ones, which it leaves to AVX-512."""
    assert not fault_seen(amx, ["amx"], [((M, 96, K), extreme)], threads=2, format=format)


@needs_avx512
def test_a_row_that_has_no_number_for_its_scale_has_none_for_outputs(amx: Driver) -> None:
    activations, codes = drawn((20, 132, 128), 3)
    scales = np.ones(132, np.float32)
    scales[[0, 70, 131]] = -np.nan
    for dtype, none in (("float32", np.isnan), ("bfloat16", lambda out: out == 0x7FC0)):
        out, *_ = amx.run(
            "amx", activations, codes, 1.0, np.ones(20, np.float32), dtype, format="iq2_bn_r4", group_scales=scales
        )
        assert (none(out) == np.isnan(scales)).all()


@needs_avx512
@pytest.mark.parametrize(
    ("format", "fault"),
    [
        ("i2_s_x86", None),
        ("iq2_bn_r4", None),
        ("tl1", None),
        ("tl2", None),
        ("i2_s_x86", Edit("ternary_matmul/amx.c", "w.first_tile + t, k", "w.first_tile, k")),
        (
            "i2_s_x86",
            Edit("ternary_matmul/amx.c", "w.first_tile = begin % across;", "w.first_tile = begin % (across + 1);"),
        ),
        ("i2_s_x86", Edit("ternary_matmul/amx.c", "begin = at.behind;", "begin = at.behind + 1;")),
        ("i2_s_x86", Edit("ternary_matmul/amx.c", "passes(begin, at.behind, &w);", "passes(begin, begin + 1, &w);")),
        ("i2_s_x86", Edit("ternary_matmul/amx.c", "(t * groups + k) * TM_TILE", "t * groups * TM_TILE")),
        ("iq2_bn_r4", Edit("ternary_matmul/amx.c", "t < at.behind - begin", "t + 1 < at.behind - begin")),
        ("iq2_bn_r4", Edit("ternary_matmul/amx.c", "w->scales + q * SIDE", "w->scales")),
        (
            "iq2_bn_r4",
            Edit("ternary_matmul/amx.c", "_mm512_extractf32x8_ps(scales, 1)", "_mm512_castps512_ps256(scales)"),
        ),
        ("iq2_bn_r4", Edit("ternary_matmul/amx.c", "s->format->scales(s->args, t,", "s->format->scales(s->args, 0,")),
        (
            "iq2_bn_r4",
            Edit("ternary_matmul/iq2_bn_r4/amx.c", "fours[f] - TM_FOUR_SCALES,", "fours[0] - TM_FOUR_SCALES,"),
        ),
        ("iq2_bn_r4", Edit("ternary_matmul/amx_outputs.h", "(0x7fff)", "(0x8000)")),
        ("tl2", Edit("ternary_matmul/tl2/amx.c", "TM_TL2_SIGNED / 4", "TM_TL2_SIGNED / 6")),
    ],
    ids=str,
)
@pytest.mark.usefixtures("packing_amx")
def test_a_fault_in_amx_of_other_formats_is_seen(builder: Builder, format: str, fault: Edit | None) -> None:
    shared = fault is not None and Path(fault.file).parent.name == "ternary_matmul"
    only = "" if fault is None else "tile64" if shared else format
    with Driver([builder.program(*IN_C, *PACKING, *([fault] if fault else []), only=only)]) as driver:
        assert arranged_fault_seen(driver, format) == (fault is not None)


# Formats with a scale for each group of weights

GROUPED = {"tq2_0": 256, "tq1_0": 256, "q2_0": 64, **TILES}
"""And how many weights that are."""
PANELS = [(8, 3, 1), (16, 33, 2), (17, 70, 5), (40, 31, 7), (70, 100, 2), (100, 32, 9), (300, 65, 6)]
"""M, N, and groups in K."""


def panel_fault_seen(driver: Driver, format: str) -> bool:
    """Sums with drawn codes, and the largest, which 16 bits do not hold."""
    cases = [("float32", None), ("bfloat16", None), ("float32", (-128, 1))]
    return group_fault_seen(driver, ["amx"], PANELS, format, seed=3, gap=5, threads=(1, 3), cases=cases)


@needs_avx512
@pytest.mark.parametrize("format", GROUPED)
@given(
    shape=st.tuples(st.integers(1, 150), st.integers(1, 100), st.integers(1, 9)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_panels_of_amx_give_the_contracts_bits(
    amx: Driver, format: str, shape: tuple[int, int, int], seed: int, gap: int, threads: int, dtype: str
) -> None:
    assert groups_right(amx, format, "amx", shape, seed, gap=gap, threads=threads, dtype=dtype)


@needs_avx512
@pytest.mark.parametrize("format", GROUPED)
@pytest.mark.parametrize("shape", [(33, 34, LONGEST), (7, 3, LONGEST + 256), (600, 33, 256)])
@pytest.mark.parametrize("extreme", [(-128, 1), (127, -1)])
def test_panels_of_amx_are_exact_where_sums_are_largest(
    amx: Driver, format: str, shape: tuple[int, int, int], extreme: tuple[int, int]
) -> None:
    M, N, K = shape
    activation, code = extreme
    shape = (M, N, K // GROUPED[format])
    assert groups_right(amx, format, "amx", shape, 3, extreme=extreme, threads=2)
    if format in ("q2_0", *TILES):  # whose codes go up to 2
        assert groups_right(amx, format, "amx", shape, 3, extreme=(activation, 2 * abs(code)), threads=2)


@needs_avx512
@pytest.mark.parametrize("format", GROUPED)
def test_a_group_that_has_no_number_for_its_scale_has_none_for_outputs(amx: Driver, format: str) -> None:
    activations, codes = drawn((20, 37, 3 * GROUPED[format]), 3)
    scales = np.ones((37, 3), np.float32)
    scales[[0, 17, 36], [0, 1, 2]] = -np.nan
    for dtype, none in (("float32", np.isnan), ("bfloat16", lambda out: out == 0x7FC0)):
        out, *_ = amx.run(
            "amx", activations, codes, 1.0, np.ones(20, np.float32), dtype, format=format, group_scales=scales
        )
        assert (none(out) == np.isnan(scales).any(axis=1)).all()


@needs_avx512
@pytest.mark.parametrize("format", GROUPED)
def test_sums_of_amx_are_added_in_the_contracts_order(amx: Driver, format: str) -> None:
    """The same bits as plain C with scales of any size, for which each order of additions rounds differently."""
    groups = 11
    activations, codes = drawn((70, 40, groups * GROUPED[format]), 7)
    rng = np.random.default_rng(7)
    sizes = np.array([6e-5, 3.1e-3, 0.77, 900.0, 6e4], np.float32)
    scales = rng.choice(sizes, (40, groups)) * rng.choice(np.array([-1, 1], np.float32), (40, groups))
    act_scale = rng.uniform(1e-2, 1e3, 70).astype(np.float32)
    found, plain = (
        amx.run(kernel, activations, codes, 0.37, act_scale, "float32", 2, format, scales)[0]
        for kernel in ("amx", "scalar")
    )
    assert np.array_equal(found, plain)


@needs_avx512
@pytest.mark.parametrize(
    ("format", "fault"),
    [
        ("tq2_0", None),
        ("tq1_0", None),
        ("q2_0", None),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "tm_tile_multiply_signed(3, 5, 7)", "tm_tile_multiply(3, 5, 7)")),
        (
            "tq2_0",
            Edit("ternary_matmul/panels_amx.h", "tm_tile_multiply_signed(2, 4, 7)", "tm_tile_multiply_signed(2, 4, 6)"),
        ),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "d.begins ? 0 : 0xff", "0xff")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", ".begins = step == 0", ".begins = unit < 2")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", ".ends = step + steps == s->steps", ".ends = unit == 0")),
        ("q2_0", Edit("ternary_matmul/panels_amx.h", "w->sums[w->turn]", "w->sums[0]")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", ".totals = w->totals + first", ".totals = w->totals")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "end - m > TOTALS ? UNIT * PANEL : 0", "0")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "if (m == begin)", "if (m == begin && !step)")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "w->at[r] += how->bytes;", "w->at[r] += how->bytes - 1;")),
        (
            "tq2_0",
            Edit(
                "ternary_matmul/panels_amx.h",
                "_mm512_store_pd(w->scales[g + i] + SIDE * half + DOUBLES, of[1])",
                "_mm512_store_pd(w->scales[g + i] + SIDE * half + DOUBLES, of[0])",
            ),
        ),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "(__mmask16)((1 << (w->count - v)) - 1)", "0xffff")),
        ("tq2_0", Edit("ternary_matmul/panels_amx.h", "w->s->factor[d->m + r]", "w->s->factor[r]")),
        (
            "tq2_0",
            Edit("ternary_matmul/amx_outputs.h", "(0x7fff)", "(0x8000)"),
        ),
        ("tq2_0", Edit("ternary_matmul/panels_avx512.h", "_mm512_sub_epi8(code, _mm512_set1_epi8(1))", "code")),
        ("tq1_0", Edit("ternary_matmul/panels_avx512.h", "how.shift ? _mm512", "!how.shift ? _mm512")),
        (
            "q2_0",
            Edit("ternary_matmul/panels_amx.h", "_mm512_fmadd_pd(scale[1], eight", "_mm512_fmadd_pd(scale[0], eight"),
        ),
        ("q2_0", Edit("ternary_matmul/panels_amx.h", "add_by(0, 3, d.sums", "add_by(0, 2, d.sums")),
        ("q2_0", Edit("ternary_matmul/panels_amx.h", "sums[s / in_set]", "sums[0]")),
        (
            "q2_0",
            Edit(
                "ternary_matmul/panels_amx.h",
                "add_rows(sets, BLOCK, w);\n}\n\ntypedef struct panels",
                "}\n\ntypedef struct panels",
            ),
        ),
        ("q2_0", Edit("ternary_matmul/panels_amx.h", "if (s % in_set == 0)", "if (s == 0)")),
        ("q2_0", Edit("ternary_matmul/q2_0/amx.c", ".by_fours = 1,", "")),
        (
            "q2_0",
            Edit(
                "ternary_matmul/amx_rows.h",
                "_mm512_setr_epi32(0, 4, 8, 12, 1,",
                "_mm512_setr_epi32(0, 4, 8, 12, 2,",
            ),
        ),
        ("tile64_g64", None),
        ("tile64_g64", Edit("ternary_matmul/panels_amx.h", "(at / SIDE * 2)", "(half * 2)")),
        (
            "tile64_g128",
            Edit("ternary_matmul/panels_amx.h", "pairs_by(2, p, begin, end)", "pairs_by(1, p, begin, end)"),
        ),
        ("tile64_g64", Edit("ternary_matmul/panels_amx.h", "before ? 0xffff : 0", "0xffff")),
        ("tile64_g256", Edit("ternary_matmul/panels_amx.h", "group + 2 * at)", "group + 2 * first)")),
        ("q2_0", Edit("amx_tiles.h", "(is_signed ?", "(!is_signed ?")),
    ],
    ids=str,
)
@pytest.mark.usefixtures("amx")
def test_a_fault_in_panels_of_amx_is_seen(builder: Builder, format: str, fault: Edit | None) -> None:
    folder = "tile64_grouped" if format in TILES else format
    with Driver([builder.program(*IN_C, *([fault] if fault else []), only=folder if fault else "")]) as driver:
        assert panel_fault_seen(driver, format) == (fault is not None)


@pytest.mark.skipif(shutil.which("objdump") is None or lacking(), reason="needs a C compiler and objdump")
def test_the_instructions_of_amx_are_what_is_compiled(emulated_folder: Path) -> None:
    """Signed bytes of the second operand, unsigned ones of the third."""
    command = ["cc", "-std=gnu11", "-O3", "-Wno-unknown-pragmas", "-c", str(SOURCES / "ternary_matmul" / "amx.c")]
    subprocess.run([*command, "-o", str(emulated_folder / "amx.o")], check=True)
    listing = ["objdump", "-d", "-M", "intel", "--no-show-raw-insn", str(emulated_folder / "amx.o")]
    code = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"\btdp\w+ +\S+", code)) == {
        f"tdpbsud tmm{c},tmm{a},tmm{b}"
        for pairs in (((0, 4, 6), (1, 5, 6), (2, 4, 7), (3, 5, 7)), ((0, 4, 5), (1, 4, 6), (2, 4, 7), (3, 4, 5)))
        for c, a, b in pairs
    }
    assert all(name in code for name in ("ldtilecfg", "tileloadd ", "tileloaddt1", "tilestored", "tilerelease"))


@needs_avx512
@pytest.mark.parametrize("fault", [None, ("+ 4 * n, right_bytes + 4 * i", "+ 4 * n, right_bytes + 4 * n")])
def test_the_probe_of_amx_does_every_dot_product(tmp_path: Path, fault: tuple[str, str] | None) -> None:
    """The fuzz target of the probes aborts if one gives other sums than plain C."""
    tree = tmp_path / "src"
    shutil.copytree(SOURCES, tree)
    isas = (tree / "isas.h").read_text(encoding="utf-8")
    (tree / "isas.h").write_text(isas.replace(",amx-tile,amx-int8", ""), encoding="utf-8")  # so that it is taken
    if fault is not None:
        text = (tree / "ceilings" / "amx.c").read_text(encoding="utf-8")
        assert fault[0] in text
        (tree / "ceilings" / "amx.c").write_text(text.replace(*fault), encoding="utf-8")
    flags = ["-std=gnu11", "-O1", "-fopenmp", "-w", "-DTM_TILES_EMULATED", f'-DDRIVER="{tree / "ceilings" / "fuzz.c"}"']
    kernels = [path for path in (tree / "ceilings").glob("*.c") if path.name != "fuzz.c"]
    sources = [DIGEST, tree / "cpu" / "cpu.c", *kernels]
    subprocess.run(["cc", *flags, "-o", tmp_path / "probes", *sources], check=True)
    done = subprocess.run([tmp_path / "probes", "100"], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (fault is None), done.stderr
    assert fault is None or "checksum (amx) differs" in done.stderr
