"""Products with instructions that this processor may lack, written in C: exactness and planted faults; and that the
instructions themselves are in what is compiled."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matmul_driver import HERE, SOURCES, Builder, Driver, Edit, check_outputs, drawn, exact, fault_seen

from tritmark.kernels import cpu

SETS = [isa.name for isa in cpu.KERNELS["ternary_matmul"]]
"""All of the table are linked, whatever is called."""
CASES = [((1, 70, 131), -128), ((2, 65, 600), None), ((3, 129, 77), None), ((2, 1, 4 * 8192 + 8), -128)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared with the other processes that test."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "emulated"
    made.mkdir(exist_ok=True)
    return made


def lacking(*features: str) -> bool:
    return shutil.which("cc") is None or not cpu.features() >= set(features)


# AVX-VNNI

needs_avx2 = pytest.mark.skipif(lacking("avx2", "f16c"), reason="needs a C compiler and AVX2")
IN_C = (
    # So that the compiler has no such instruction either.
    Edit("isas.h", '"avx2,f16c,avxvnni"', '"avx2,f16c"'),
    Edit("ternary_matmul/avxvnni.c", "_mm256_dpbusd_avx_epi32", "dpbusd"),
)


@pytest.fixture(scope="module")
def avxvnni_builder(folder: Path) -> Builder:
    return Builder("cc", folder, SETS, ["-include", str(HERE / "dpbusd.h")])


@pytest.fixture(scope="module")
def avxvnni(avxvnni_builder: Builder) -> Iterator[Driver]:
    with Driver([avxvnni_builder.program(*IN_C)]) as driver:
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
        Edit("ternary_matmul/avxvnni.c", "_mm256_set1_epi8(63)", "_mm256_set1_epi8(31)"),
        Edit("ternary_matmul/avxvnni.c", "halves_by(2, 1, 1,", "halves_by(2, 1, 0,"),
        Edit("ternary_matmul/avxvnni.c", "_mm256_srai_epi32(", "_mm256_srli_epi32("),
        Edit("ternary_matmul/avxvnni.c", "bytes + 32 * h", "bytes + 16 * h"),
        Edit("ternary_matmul/avxvnni.c", "(size_t)r * lda + 4 * k", "(size_t)r * lda + 2 * k"),
    ],
    ids=str,
)
def test_a_fault_in_avxvnni_is_seen(avxvnni: Driver, avxvnni_builder: Builder, fault: Edit) -> None:
    with Driver([avxvnni_builder.program(*IN_C, fault)]) as driver:
        assert fault_seen(driver, ["avxvnni"], CASES)
    assert not fault_seen(avxvnni, ["avxvnni"], CASES)


@needs_avx2
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_the_instruction_of_avxvnni_is_what_is_compiled(folder: Path) -> None:
    """In the encoding without AVX-512, which is what tells it apart."""
    command = ["cc", "-std=gnu11", "-O3", "-Wno-unknown-pragmas", "-c", str(SOURCES / "ternary_matmul" / "avxvnni.c")]
    subprocess.run([*command, "-o", str(folder / "avxvnni.o")], check=True)
    code = subprocess.run(["objdump", "-d", folder / "avxvnni.o"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\{vex\} vpdpbusd .*%ymm", code)
    assert "%zmm" not in code
