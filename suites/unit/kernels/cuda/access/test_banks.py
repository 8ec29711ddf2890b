"""Bank conflicts of plain addresses, and of kernels that the simulator traced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels.cuda.access.banks import SharedSite, bank_passes, shared_sites
from tritmark.kernels.cuda.access.coalescing import AccessPattern, analyse
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.simulator import SimulatorBackend

SOURCE = """
extern "C" __global__ void walk(float *y, int stride)
{
    __shared__ float tile[32 * 33];
    for (int i = threadIdx.x; i < 32 * 33; i += 32)
        tile[i] = i;
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x * stride];
}
extern "C" __global__ void vectors(float4 *y, int stride)
{
    __shared__ float4 tile[32 * 4];
    for (int i = threadIdx.x; i < 32 * 4; i += 32)
        tile[i] = make_float4(i, i, i, i);
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x * stride];
}
"""


def traced(folder: Path, name: str, stride: int) -> SharedSite:
    """The read of `tile` with that stride, in three blocks of one warp."""
    backend = SimulatorBackend()
    (folder / "tiles.cu").write_text(SOURCE)
    function = backend.function(Kernel(file=str(folder / "tiles.cu"), name=name, threads=32, registers=32))
    memory = backend.allocate(4 * 4 * 96)
    args = backend.arguments(function, [np.uint64(memory.pointer), np.int32(stride)])
    with backend.trace(shared=True) as trace:
        backend.enqueue(function, (3, 1, 1), (32, 1, 1), args, 0, backend.stream)
    (stored,) = analyse(trace)
    assert (stored.kind, stored.instructions) == ("write", 3), "device memory is traced in every block"
    found = {site.kind: site for site in shared_sites(trace)}
    assert found["write"].passes == found["write"].least
    with backend.trace() as without:
        backend.enqueue(function, (3, 1, 1), (32, 1, 1), args, 0, backend.stream)
    assert shared_sites(without) == ()
    return found["read"]


@pytest.mark.parametrize(("stride", "passes"), [(0, 1), (1, 1), (2, 2), (8, 8), (31, 1), (32, 32), (33, 1)])
def test_a_stride_in_words(tmp_path: Path, stride: int, passes: int) -> None:
    site = traced(tmp_path, "walk", stride)
    assert (site.instructions, site.passes, site.least) == (1, passes, 1), "one block of one warp"
    assert site.size == 4
    assert site.line == "tiles.cu:8"
    assert str(site).endswith(f"{passes} passes for one")


@pytest.mark.parametrize(("stride", "passes"), [(1, 4), (2, 8), (4, 16)])
def test_a_stride_in_vectors(tmp_path: Path, stride: int, passes: int) -> None:
    site = traced(tmp_path, "vectors", stride)
    assert (site.size, site.pattern) == (16, AccessPattern("strided", stride) if stride > 1 else site.pattern)
    assert (site.instructions, site.passes, site.least) == (1, passes, 4)


def slowly(accesses: list[tuple[int, int, int]], size: int) -> tuple[int, int]:
    """The passes as the definition has them: request by request, pass by pass."""
    lanes = min(32, 128 // max(size, 4))
    groups: dict[tuple[int, int], dict[int, set[int]]] = {}
    for request, lane, address in accesses:
        banks = groups.setdefault((request, lane // lanes), {})
        for word in range(address // 4, address // 4 + max(1, size // 4)):
            banks.setdefault(word % 32, set()).add(word)
    return sum(max(map(len, banks.values())) for banks in groups.values()), len(groups)


@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 31), st.integers(0, 300)), min_size=1, max_size=80),
)
def test_any_addresses(size: int, drawn: list[tuple[int, int, int]]) -> None:
    accesses = [(request, lane, place * size) for request, lane, place in drawn]
    request, lane, address = (np.array(column, np.int64) for column in zip(*accesses, strict=True))
    passes, least = bank_passes(request, lane, address, size)
    assert (passes, least) == slowly(accesses, size)
    moved, _ = bank_passes(request, lane, address + 128, size)
    assert moved == passes, "the place of the array does not matter"
