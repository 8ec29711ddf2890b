"""Every CUDA kernel compiles for its architectures within its budget, by the stored report of the compiler
(kept_resources.py). No GPU is needed."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import kept_resources
import pytest
from kept_resources import ROOM, Case, every_kernel

from tritmark.harness.errors import CompileError, DeviceUnavailableError
from tritmark.kernels.cuda.driver import compile as compiler
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.launch import resources
from tritmark.kernels.cuda.launch.launch import KERNELS
from tritmark.kernels.cuda.launch.resources import Resources

REQUIRE = "TRITMARK_REQUIRE_NVCC"
"""If set, a missing compiler is a failure instead of a skip."""

SAMPLE = 8
"""Kernels that are compiled although their resources are stored."""


@pytest.fixture(scope="module")
def nvcc() -> str:
    try:
        return compiler.compiler()
    except DeviceUnavailableError as why:
        if os.environ.get(REQUIRE):
            pytest.fail(f"{REQUIRE} is set: {why}")
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def used(nvcc: str) -> dict[Case, Resources]:
    """The resources of every kernel on every architecture."""
    return kept_resources.used(kept_resources.load()[1])


def test_kernels_are_registered() -> None:
    """An empty registry would pass every check."""
    assert {Path(kernel.file).parts[0] for kernel in every_kernel()} == {
        path.parent.name for path in ROOM.glob("*/*.cu")
    }
    assert all(kernel.path.is_file() for kernel in every_kernel())
    assert all(variant.startswith("cuda/") for variant in KERNELS)


def test_threads_of_a_block_are_written_once() -> None:
    """The number is in cuda.py; sources get it as a macro with the name in their launch bounds."""
    for kernel in every_kernel():
        text, macros = kernel.path.read_text(encoding="utf-8"), dict(kernel.defines)
        bounds = {each.removesuffix(", 1") for each in re.findall(r"__launch_bounds__\((.*?)\)", text)}
        assert bounds <= macros.keys(), f"{kernel.file}: launch bounds that no macro gives"
        assert not bounds or str(kernel.threads) in {macros[name] for name in bounds}, (
            f"{kernel.name}: other threads than its bounds"
        )
        assert not re.search(r"(#define|const\w*\s+int)\s+\w*THREADS", text), f"{kernel.file}: defines its threads"


def test_architectures(nvcc: str) -> None:
    """CUDA 13 does not support sm_70 any more."""
    assert set(resources.checked_architectures()) >= {"sm_75", "sm_80", "sm_90"}


def test_every_kernel_is_within_its_budget(used: dict[Case, Resources]) -> None:
    assert {kernel for kernel, _ in used} == set(every_kernel())
    assert [line for (kernel, arch), use in used.items() for line in resources.violations(kernel, arch, use)] == []


def test_what_is_kept_is_of_these_kernels_and_of_no_others(nvcc: str) -> None:
    told, kept = kept_resources.load()
    if nvcc != told:
        pytest.skip(f"no {told}, of which it is kept, but {nvcc}: all kernels were compiled; tox -e cuda has it")
    keys = {kept_resources.key(*case) for case in kept_resources.cases(every_kernel())}
    assert kept.keys() == keys, "run python suites/unit/helpers/kept_resources.py"


def test_the_compiler_still_says_what_is_kept(used: dict[Case, Resources]) -> None:
    """Different ones in each run."""
    for kernel, arch in random.sample(sorted(used, key=str), SAMPLE):
        assert resources.resources(kernel, arch) == used[kernel, arch], f"{kernel.name} on {arch}"


def test_what_is_kept_is_of_one_source_and_its_options(tmp_path: Path, nvcc: str) -> None:
    source, included = tmp_path / "a.cu", tmp_path / "b.cuh"
    source.write_text('#include "b.cuh"\n')
    included.write_text("\n")
    one = kernel(file=str(source))
    others = [replace(one, name="gemm_b"), replace(one, defines=(("TILE", "8"),)), replace(one, options=("-G",))]
    keys = {kept_resources.key(each, "sm_90") for each in (one, *others)} | {kept_resources.key(one, "sm_80")}
    included.write_text("int x;\n")
    assert len(keys | {kept_resources.key(one, "sm_90")}) == 6


def test_i2s_kernels_keep_to_the_specification(used: dict[Case, Resources]) -> None:
    """At most 32 registers per thread, 16 KiB of shared memory and 256 threads per block."""
    found = [
        (kernel, use)
        for (kernel, _), use in used.items()
        if Path(kernel.file).parts[0] in {"i2s_quantize", "i2s_dequantize"}
    ]
    assert {Path(kernel.file).parts[0] for kernel, _ in found} == {"i2s_quantize", "i2s_dequantize"}
    for kernel, use in found:
        assert use.registers <= 32
        assert max(use.shared, kernel.shared) <= 16 * 1024
        assert kernel.threads == 256
        assert use.stack == use.spill_stores == use.spill_loads == 0


# The report

CUDA_12_9 = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm_b' for 'sm_70'
ptxas info    : Function properties for gemm_b
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 160 bytes cumulative stack size, 372 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 14.776 ms
ptxas info    : Compiling entry function 'i2s_gpu_a' for 'sm_70'
ptxas info    : Function properties for i2s_gpu_a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 11 registers, used 1 barriers, 256 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 1.994 ms
"""
CUDA_12_0 = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm_a' for 'sm_80'
ptxas info    : Function properties for gemm_a
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, 1024+64 bytes smem, 400 bytes cmem[0]
"""
CUDA_13_0 = """ptxas info    : 28 bytes gmem
ptxas info    : Compiling entry function 'gemm_c' for 'sm_90'
ptxas info    : Function properties for gemm_c
    192 bytes stack frame, 188 bytes spill stores, 188 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 192 bytes cumulative stack size
ptxas info    : Compile time = 26.246 ms
ptxas info    : Function properties for _Z3recfi
    136 bytes stack frame, 48 bytes spill stores, 40 bytes spill loads
"""


def test_reports_of_several_compilers() -> None:
    assert resources.parse(CUDA_12_9) == {
        "gemm_b": Resources(registers=32, stack=160, spill_stores=0, spill_loads=0, shared=0, constant=380),
        "i2s_gpu_a": Resources(registers=11, stack=0, spill_stores=0, spill_loads=0, shared=256, constant=372),
    }
    assert resources.parse(CUDA_12_0) == {
        "gemm_a": Resources(registers=255, stack=8, spill_stores=12, spill_loads=16, shared=1088, constant=400)
    }
    assert resources.parse(CUDA_13_0) == {
        "gemm_c": Resources(registers=32, stack=192, spill_stores=236, spill_loads=228, shared=0, constant=0)
    }
    assert resources.parse("") == {}


def kernel(**budget: Any) -> Kernel:
    fields: dict[str, Any] = {"file": "gemm/a.cu", "name": "gemm_a", "threads": 256, "registers": 32}
    return Kernel(**fields | budget)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ({"registers": 33}, "33 registers a thread, budget 32"),
        ({"shared": 16385}, "16385 bytes of static shared memory a block, budget 16384"),
        ({"stack": 8}, "8 bytes of local memory a thread, budget 0"),
        ({"spill_stores": 4}, "4 bytes spilled, budget 0"),
        ({"spill_loads": 4}, "4 bytes spilled, budget 0"),
    ],
)
def test_passed_budgets(use: dict[str, int], words: str) -> None:
    budget = kernel(shared=16384)
    within = {"registers": 32, "stack": 0, "spill_stores": 0, "spill_loads": 0, "shared": 16384, "constant": 400}
    assert resources.violations(budget, "sm_90", Resources(**within)) == []
    assert resources.violations(budget, "sm_90", Resources(**within | use)) == [f"gemm/a.cu:gemm_a on sm_90: {words}"]


def test_a_block_has_registers_for_all_its_threads() -> None:
    use = Resources(registers=65, stack=0, spill_stores=0, spill_loads=0, shared=0, constant=0)
    assert resources.violations(kernel(threads=896, registers=255), "sm_90", use) == []
    (line,) = resources.violations(kernel(threads=1024, registers=255), "sm_90", use)
    assert "73728 registers a block, budget 65536" in line


def test_which_kernels_an_architecture_runs() -> None:
    assert resources.runs_on(kernel(capability=(8, 0)), "sm_80")
    assert resources.runs_on(kernel(capability=(8, 0)), "sm_100")
    assert not resources.runs_on(kernel(capability=(8, 0)), "sm_75")


# Planted faults

GREEDY = """
extern "C" __global__ void gemm_lean(float *y) { y[threadIdx.x] = 1.0f; }
extern "C" __global__ void __launch_bounds__(1024, 2) gemm_spills(float *y, const float *x, int n) {
    float held[96];
#pragma unroll
    for (int i = 0; i < 96; i++) held[i] = x[i * n + threadIdx.x];
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 96; i++) sum += held[i] * held[95 - i] * held[(i * 7) % 96];
    y[threadIdx.x] = sum;
}
extern "C" __global__ void gemm_stack(float *y, const float *x, int n) {
    float held[1024];
    for (int i = 0; i < 1024; i++) held[i] = x[i];
    held[n % 1024] = 3.0f;
    y[threadIdx.x] = held[(n * 5) % 1024];
}
extern "C" __global__ void gemm_shared(float *y) {
    __shared__ float held[6144];
    held[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x ^ 1];
}
"""


@pytest.fixture(scope="module")
def greedy(nvcc: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("greedy") / "greedy.cu"
    path.write_text(GREEDY)
    return str(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemm_lean", []),
        ("gemm_spills", ["bytes of local memory a thread", "bytes spilled"]),
        ("gemm_stack", ["bytes of local memory a thread"]),
        ("gemm_shared", ["24576 bytes of static shared memory a block, budget 16384"]),
    ],
)
def test_planted_greed_is_found(greedy: str, name: str, words: list[str]) -> None:
    lines = resources.check([kernel(file=greedy, name=name, registers=64, shared=16384)], ["sm_90"])
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


def test_planted_registers_are_found(greedy: str) -> None:
    (line,) = resources.check([kernel(file=greedy, name="gemm_lean", registers=1)], ["sm_90"])
    assert "registers a thread, budget 1" in line


def test_kernel_that_is_not_in_its_source(greedy: str) -> None:
    with pytest.raises(CompileError, match=r"no kernel gemm_absent.*gemm_lean"):
        resources.check([kernel(file=greedy, name="gemm_absent")], ["sm_90"])
