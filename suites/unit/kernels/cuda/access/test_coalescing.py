"""Access patterns of plain indices, and of kernels that the simulator traced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels.cuda.access.coalescing import (
    RANDOM,
    SEQUENTIAL,
    AccessPattern,
    AccessSite,
    access_pattern,
    analyse,
)
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.simulator import SimulatorBackend

N = 1024
SOURCE = """
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void walk(const float *x, float *y, const int *from, int stride, int n)
{
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i * stride % n];
}
extern "C" __global__ void gather(const float *x, float *y, const int *from, int stride, int n)
{
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[from[i]];
}
extern "C" __global__ void vectors(const float4 *x, float4 *y, const int *from, int stride, int n)
{
    for (int i = INDEX; i < n / 4; i += gridDim.x * blockDim.x)
        __stcs(y + i, __ldcs(x + i));
}
extern "C" __global__ void count(const float *x, float *y, const int *from, int stride, int n)
{
    atomicAdd(y, x[INDEX]);
}
"""


def traced(folder: Path, name: str, stride: int = 1, begin: int = 0) -> dict[str, AccessSite]:
    """The sites of a kernel over N floats by the name of the array: x, y."""
    backend = SimulatorBackend()
    (folder / "walks.cu").write_text(SOURCE)
    function = backend.function(Kernel(file=str(folder / "walks.cu"), name=name, threads=64, registers=32))
    memory = [backend.allocate(4 * (N + 8)) for _ in range(3)]
    backend.write(memory[0].pointer, np.ones(N + 8, np.float32))
    backend.write(memory[1].pointer, np.zeros(N + 8, np.float32))
    backend.write(memory[2].pointer, np.random.default_rng(1).permutation(N).astype(np.int32))
    pointers = [np.uint64(each.pointer + 4 * begin * (i < 2)) for i, each in enumerate(memory)]
    args = backend.arguments(function, [*pointers, np.int32(stride), np.int32(N)])
    with backend.trace() as trace:
        backend.enqueue(function, (3, 1, 1), (64, 1, 1), args, 0, backend.stream)
    backend.enqueue(function, (3, 1, 1), (64, 1, 1), args, 0, backend.stream)
    assert len(trace.launches) == 1
    assert trace.launches[0].complete
    by_memory = {}
    for launch in trace.launches:
        for pc in np.unique(launch.records["pc"]):
            address = launch.records["address"][launch.records["pc"] == pc][0]
            where = next(i for i, each in enumerate(memory) if each.pointer <= address < each.pointer + each.nbytes)
            by_memory[launch.line(int(pc)), "xyf"[where]] = where
    return {name: site for site, (_, name) in zip(analyse(trace), by_memory, strict=True)}


def test_plain_indices() -> None:
    assert access_pattern(np.diff(range(5, 40))) == SEQUENTIAL
    assert access_pattern(np.diff([7])) == SEQUENTIAL
    assert access_pattern(np.diff([0, 4, 8, 12])) == AccessPattern("strided", 4)
    assert access_pattern(np.diff([9, 6, 3])) == AccessPattern("strided", -3)
    assert access_pattern(np.diff([2, 2, 2])) == AccessPattern("strided", 0)
    assert access_pattern(np.diff([0, 4, 9])) == RANDOM
    assert str(access_pattern(np.diff([0, 4, 8]))) == "strided by 4"


@given(
    st.integers(-(10**6), 10**6),
    st.integers(-100, 100).filter(lambda stride: stride != 1),
    st.integers(2, 50),
    st.data(),
)
def test_one_index_off_is_random(first: int, stride: int, count: int, data: st.DataObject) -> None:
    indices = [first + stride * i for i in range(count)]
    assert access_pattern(np.diff(indices)) == AccessPattern("strided", stride)
    if count > 2:
        indices[data.draw(st.integers(0, count - 1))] += data.draw(st.integers(1, 9))
        assert access_pattern(np.diff(indices)) == RANDOM


def test_neighbours_are_coalesced(tmp_path: Path) -> None:
    sites = traced(tmp_path, "walk")
    for name, kind in (("x", "read"), ("y", "write")):
        site = sites[name]
        assert (site.kind, site.size, site.pattern, site.percent) == (kind, 4, SEQUENTIAL, 100)
        assert (site.instructions, site.accesses, site.sectors) == (N // 32, N, N // 8)
        assert site.line == "walks.cu:6"
        assert "sequential, 100 % coalesced" in str(site)


def test_a_stride_of_four_wastes_three_quarters(tmp_path: Path) -> None:
    site = traced(tmp_path, "walk", 4)["x"]
    assert site.pattern == AccessPattern("strided", 4)
    assert site.percent == 25


def test_one_word_for_all_is_one_sector(tmp_path: Path) -> None:
    site = traced(tmp_path, "walk", 0)["x"]
    assert site.pattern == AccessPattern("strided", 0)
    assert (site.sectors, site.percent) == (N // 32, 100)


def test_a_shifted_row_takes_one_sector_more(tmp_path: Path) -> None:
    site = traced(tmp_path, "walk", 1, begin=1)["x"]
    assert site.pattern == SEQUENTIAL
    assert site.percent == pytest.approx(80)


def test_gathering_at_random(tmp_path: Path) -> None:
    site = traced(tmp_path, "gather")["x"]
    assert site.pattern == RANDOM
    assert 12.5 <= site.percent < 15


def test_vectors_are_one_access(tmp_path: Path) -> None:
    sites = traced(tmp_path, "vectors")
    for name in "xy":
        assert (sites[name].size, sites[name].pattern, sites[name].percent) == (16, SEQUENTIAL, 100)


def test_atomics_are_named(tmp_path: Path) -> None:
    assert traced(tmp_path, "count")["y"].kind == "atomic"
