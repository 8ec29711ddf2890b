"""The C code built for aarch64 and run by QEMU, on processors with and without dot products and matrix products.

Only what is right is looked at: an emulator says nothing about speed.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aarch64 import EMULATOR, PROCESSORS, RANKS, on, skip_without_emulator
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_driver import SOURCES, Builder, Driver, DriverEndedError, Edit, check_outputs, drawn, exact, fault_seen

from tritmark import cython_ext

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
native = import_module("native")

skip_without_emulator()

CALLS = 60
"""Of each fuzz target."""
PAIRS = [(processor, isa) for processor, (_, sets) in PROCESSORS.items() for isa in sets]


# What the processor has


@pytest.mark.parametrize("processor", PROCESSORS)
def test_each_set_is_admitted_where_the_processor_has_it(drivers: dict[str, Driver], processor: str) -> None:
    features, sets = PROCESSORS[processor]
    assert drivers[processor].features == features
    assert tuple(drivers[processor].sets) == tuple(RANKS)
    assert tuple(name for name, needs in drivers[processor].sets.items() if needs <= features) == sets


@pytest.mark.parametrize(
    ("processor", "kernel"), [("cortex-a53", "dotprod"), ("cortex-a53", "i8mm"), ("neoverse-n1", "i8mm")]
)
def test_a_set_that_is_refused_could_not_have_run(program: Path, processor: str, kernel: str) -> None:
    with on(processor, program) as driver, pytest.raises(DriverEndedError, match="status -4"):  # SIGILL
        driver.run(kernel, *drawn((3, 64, 64), 1))


# The product


@pytest.mark.parametrize(("processor", "kernel"), PAIRS)
@given(
    shape=st.tuples(st.integers(1, 9) | st.integers(1, 600), st.integers(1, 200), st.integers(1, 700)),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
)
@settings(max_examples=40)
def test_all_outputs_are_the_contracts_bits(
    drivers: dict[str, Driver], processor: str, kernel: str, shape: Any, seed: int, gap: int, threads: int, dtype: str
) -> None:
    M, N, K = shape
    shape = (M if M * N * K < 1 << 22 else 1 + M % 9, N, K)
    check_outputs(drivers[processor], kernel, RANKS[kernel], shape, seed, gap, threads, dtype)


@pytest.mark.parametrize("kernel", RANKS)
@pytest.mark.parametrize("K", [127 * 4, 128 * 4, 129 * 4 + 1, 32771, 65536])
@pytest.mark.parametrize("activation", [127, -128])
def test_the_largest_sums_are_exact(drivers: dict[str, Driver], kernel: str, K: int, activation: int) -> None:
    """K of 512 is where int16 sums of the lowest products are full, 32768 where a chunk ends."""
    codes = np.ones((67, K), np.int8)
    codes[1], codes[2] = -1, 0
    activations = np.full((3, K), activation, np.int8)
    found, *_ = drivers["max"].run(kernel, activations, codes, threads=2)
    assert np.array_equal(found, exact(activations, codes))


@pytest.mark.parametrize("kernel", RANKS)
@pytest.mark.parametrize("shape", [(600, 65, 131), (599, 1, 64), (5, 129, 65536), (1, 63, 65535), (2, 191, 40000)])
def test_large_shapes_are_exact(drivers: dict[str, Driver], kernel: str, shape: tuple[int, int, int]) -> None:
    activations, codes = drawn(shape, 11, gap=3)
    found, *_ = drivers["max"].run(kernel, activations, codes, threads=2)
    assert np.array_equal(found, exact(activations, codes))


# Every op, on every processor

HERE = """
import ctypes, importlib, sys
importlib.import_module(sys.argv[4])  # which finds the pool of threads
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
digest = ctypes.CDLL(sys.argv[2]).fuzz_digest_of
digest.restype = ctypes.c_uint64
print(f"{digest(int(sys.argv[3])):016x}")
"""


def here(folder: Path, name: str) -> str:
    """The digest of a fuzz target over the installed module of its op, in a process of its own."""
    driver, cpu, *_ = native.sources(name)
    op = driver.parent.name
    (module,) = Path(next(iter(cython_ext.__path__))).glob(f"{op}.*.so")
    library = folder / f"{name}.so"
    flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-DFUZZ_DIGEST"]
    subprocess.run(["cc", *flags, "-o", library, driver, cpu], check=True)
    command = [sys.executable, "-c", HERE, str(module), str(library), str(CALLS), f"{cython_ext.__name__}.{op}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def digest(builder: Builder, name: str, *edits: Edit) -> Path:
    """The program that prints the digest of a fuzz target over edited sources."""
    tree = builder.tree(*edits)
    driver, *kernels = (tree / path.relative_to(SOURCES) for path in native.sources(name))
    program = builder.folder / f"digest_{name}_{tree.name}.c"
    program.write_text(f'#define DRIVER "{driver}"\n#include "{Path(__file__).with_name("digest.c")}"\n')
    return builder.built(name, [program, *kernels])


def ran(program: Path, processor: str) -> subprocess.CompletedProcess[str]:
    """The program of `digest` after it ended."""
    return subprocess.run(
        [EMULATOR, "-cpu", processor, str(program), str(CALLS)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", native.targets())
def test_every_op_gives_the_bits_that_it_gives_here(builder: Builder, name: str) -> None:
    """The fuzz targets on calls that are the same everywhere: there each set gives the scalar code's bytes, and that
    what it gives here."""
    program, wanted = digest(builder, name), here(builder.folder, name)
    assert int(wanted, 16)
    for processor in PROCESSORS:
        done = ran(program, processor)
        assert (done.stdout, done.stderr) == (wanted, ""), processor


# Whether a fault would be seen

FAULTS = [
    Edit("ternary_matmul/tiles_neon.h", "TM_TILES_FLUSH = 128", "TM_TILES_FLUSH = 136"),
    Edit("ternary_matmul/tiles_neon.h", "vshrq_n_u8(w, 4)", "vshrq_n_u8(w, 3)"),
    Edit("ternary_matmul/tiles_neon.h", "vpaddlq_s16(high[r][q][g])", "vpaddlq_s16(low[r][q][g])"),
    Edit("ternary_matmul/dot_neon.h", "TM_DOT_GROUP(k + 3, 3)", "TM_DOT_GROUP(k + 3, 2)"),
    Edit("ternary_matmul/dot_neon.h", "for (; k < groups; k++)", "for (; k + 1 < groups; k++)"),
    Edit("ternary_matmul/tiles_dotprod.h", "tm_dot_quarters(3, 1", "tm_dot_quarters(2, 1"),
    Edit("ternary_matmul/tiles_i8mm.h", "if (k < groups)", "if (k + 1 < groups)"),
    Edit("ternary_matmul/tiles_i8mm.h", "2 * p + 1 < rows ? row[2 * p] + lda", "1 < rows ? row[2 * p] + lda"),
    Edit("ternary_matmul/tiles_i8mm.h", "vuzp2q_s32(low_i32x4, high_i32x4)", "vuzp1q_s32(low_i32x4, high_i32x4)"),
    Edit("ternary_matmul/tiles_i8mm.h", "2 * g);", "2 * g + (g == 3));"),
]
CASES = [
    ((1, 70, 131), -128),
    ((2, 65, 4 * 136), None),
    ((3, 70, 4 * 136), -128),
    ((4, 1, 4), 127),
    ((5, 129, 77), None),
]
"""Shapes, and what all activations are; None for any. Of 136 groups int16 sums are too small for."""


def seen(program: Path) -> bool:
    with on("max", program) as driver:
        return fault_seen(driver, RANKS, CASES)


def test_nothing_is_seen_where_no_fault_is(program: Path) -> None:
    assert not seen(program)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_seen(builder: Builder, fault: Edit) -> None:
    assert seen(builder.program(fault))


HADAMARD = "hadamard_quantize/neon.c"
OF_OPS = [
    Edit(HADAMARD, "{1.0f, -1.0f, 1.0f, -1.0f}", "{1.0f, -1.0f, -1.0f, 1.0f}"),
    Edit(HADAMARD, "vextq_f32(v, v, 2)", "vextq_f32(v, v, 1)"),
    Edit(HADAMARD, "vmovl_high_s16(low_i16x8)", "vmovl_high_s16(high_i16x8)"),
    Edit(HADAMARD, "vreinterpretq_f32_u32(vshll_n_u16(x_u16x4, 16))", "vcvt_f32_f16(vreinterpret_f16_u16(x_u16x4))"),
    Edit(HADAMARD, "last(y, 64, 16, factor)", "last(y, 64, 8, factor)"),
    Edit(HADAMARD, "last(y, 64, 1, factor)", "vdupq_n_u32(0)"),
    Edit(HADAMARD, "vmaxq_u32(largest_u32x4,", "vmaxq_u32(vdupq_n_u32(0),"),
    Edit(HADAMARD, "vreinterpretq_u32_f32(v[i]), 1", "vreinterpretq_u32_f32(v[i]), 2"),
    Edit(HADAMARD, "vpadalq_s16(sum_i32x4,", "vpadalq_s16(vdupq_n_s32(0),"),
    Edit(HADAMARD, "vld1q_f32(y + 4), scale", "vld1q_f32(y), scale"),
    Edit(HADAMARD, "vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(y + 4)", "vcvtaq_s32_f32(vmulq_n_f32(vld1q_f32(y + 4)"),
    Edit(HADAMARD, "vdupq_n_u32(0x7fff)", "vdupq_n_u32(0x8000)"),
    Edit(HADAMARD, "vcombine_u16(bfloats4(low)", "vcombine_u16(bfloats4(high)"),
]
"""In ops other than the product."""


@pytest.mark.parametrize("fault", OF_OPS, ids=str)
def test_a_planted_fault_of_an_op_is_seen(builder: Builder, fault: Edit) -> None:
    done = ran(digest(builder, f"native.{Path(fault.file).parent.name}", fault), "cortex-a53")
    assert done.returncode < 0
    assert "(neon) differs at byte" in done.stderr
