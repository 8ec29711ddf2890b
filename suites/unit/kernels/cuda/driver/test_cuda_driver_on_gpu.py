"""The GPU's backend on a real GPU, if there is one."""

from __future__ import annotations

import ctypes
import gc
import mmap
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_pycuda import kernel

from tritmark.harness.errors import (
    InsufficientMemoryError,
    LaunchError,
)
from tritmark.harness.machine import gpu, libcuda
from tritmark.kernels.cuda.driver.driver import DriverBackend

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256)
gemm_line(float a, const float *x, float *y, long long n, unsigned int more) {
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        y[i] = a * x[i] + (float)more;
}
extern "C" __global__ void gemm_dynamic(int *out, int n) {
    extern __shared__ __align__(16) int room[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = i;
    __syncthreads();
    int sum = 0;
    if (threadIdx.x == 0) { for (int i = 0; i < n; i++) sum += room[i] & 7; out[blockIdx.x] = sum; }
}
extern "C" __global__ void gemm_illegal(int *out) { *(volatile int *)((char *)out + (1ll << 46)) = 1; }
extern "C" __global__ void gemm_trap(int *out) { if (out) __trap(); }
"""

NO_GPU = gpu.why_not() or (gpu.faked() and f"{gpu.faked()}: no GPU is meant to be asked")
needs_gpu = pytest.mark.skipif(bool(NO_GPU), reason=str(NO_GPU))


@pytest.fixture(scope="module")
def backend() -> DriverBackend:
    return DriverBackend()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("driver") / "driver.cu"
    path.write_text(SOURCE)
    return str(path)


def pointer(allocation: Any) -> np.uint64:
    return np.uint64(allocation.pointer)


@pytest.fixture
def line(backend: DriverBackend, file: str) -> Iterator[Callable[..., Any]]:
    """Run y = 2.5 x + 3 over 2^20 values: upload, launch, download."""
    function = backend.function(kernel("gemm_line", file))
    x = np.random.default_rng(1).standard_normal(1 << 20, dtype=np.float32)

    def run(stream: Any = None) -> None:
        source, target = backend.allocate(x.nbytes), backend.allocate(x.nbytes)
        backend.write(source.pointer, x)
        args = [np.float32(2.5), pointer(source), pointer(target), np.int64(x.size), np.uint32(3)]
        stream = stream or backend.stream
        backend.enqueue(function, (100, 1, 1), (256, 1, 1), backend.arguments(function, args), 0, stream)
        stream.synchronize()
        found = np.empty_like(x)
        backend.read(target.pointer, found)
        np.testing.assert_array_equal(found, np.float32(2.5) * x + np.float32(3))

    yield run
    backend.synchronize()


@needs_gpu
def test_kernel_runs(line: Callable[..., Any], backend: DriverBackend, file: str) -> None:
    line()
    function = backend.function(kernel("gemm_line", file))
    assert function.cached
    assert function.parameters(5) in {None, ((0, 4), (8, 8), (16, 8), (24, 8), (32, 4))}
    assert function.most_threads == 256
    assert 1 <= function.blocks_per_sm(256) <= backend.info.blocks_per_sm
    assert not backend.simulated


@needs_gpu
def test_events_streams_and_pinned_memory(backend: DriverBackend) -> None:
    begin, copied, end = (backend.new_event() for _ in range(3))
    memory, host = backend.allocate(1 << 20), backend.pinned(1 << 20)
    host[:] = 5
    with backend.new_stream() as first, backend.new_stream() as second:
        begin.record(first)
        backend.write(memory.pointer, host, first)
        copied.record(first)
        second.wait(copied)
        backend.fill(memory.pointer, 7, 1 << 10, second)
        backend.read(memory.pointer, host, second)
        end.record(second)
    assert end.since(begin) > 0
    assert (host[: 1 << 10] == 7).all()
    assert (host[1 << 10 :] == 5).all()


@needs_gpu
def test_who_pinned_an_array_does_not_matter(backend: DriverBackend) -> None:
    ordinary, pinned = np.zeros(1 << 20, np.uint8), backend.pinned(1 << 20)
    assert not backend.is_pinned(ordinary)
    assert not backend.is_pinned(np.zeros(0, np.uint8))
    for part in (pinned, pinned[5:99], pinned[-1:]):
        assert backend.is_pinned(part)
    beyond = np.lib.stride_tricks.as_strided(pinned, (pinned.size + 1,))
    assert not backend.is_pinned(beyond)
    pages = np.frombuffer(mmap.mmap(-1, 1 << 20), np.uint8)
    with backend:
        libcuda.call("cuMemHostRegister_v2", ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(1 << 19), 0)
    try:
        assert backend.is_pinned(pages[: 1 << 19])
        assert not backend.is_pinned(pages[: (1 << 19) + 1])
        assert not backend.is_pinned(pages[1 << 19 :])
    finally:
        with backend:
            libcuda.call("cuMemHostUnregister", ctypes.c_void_p(pages.ctypes.data))
    assert not backend.is_pinned(pages[: 1 << 19])


@needs_gpu
def test_two_backends_take_turns(line: Callable[..., Any], backend: DriverBackend) -> None:
    other = DriverBackend(min(1, gpu.device_count() - 1))
    x, found = np.arange(1 << 20, dtype=np.uint8), np.empty(1 << 20, np.uint8)
    there = other.allocate(x.nbytes)
    other.write(there.pointer, x)
    with other:
        line()
        other.read(there.pointer, found)
        with backend:
            line()
            there.free()
        other.allocate(1 << 20).free()
    np.testing.assert_array_equal(found, x)
    line()


@needs_gpu
def test_copies_from_another_backend(backend: DriverBackend) -> None:
    other = DriverBackend(min(1, gpu.device_count() - 1))
    x, found = np.arange(1 << 22, dtype=np.uint8), np.empty(1 << 22, np.uint8)
    source, target = other.allocate(x.nbytes), backend.allocate(x.nbytes)
    other.write(source.pointer, x)
    backend.copy_from(target.pointer, other, source.pointer, x.nbytes)
    backend.read(target.pointer, found)
    np.testing.assert_array_equal(found, x)


@needs_gpu
def test_much_dynamic_shared_memory(backend: DriverBackend, file: str) -> None:
    function = backend.function(kernel("gemm_dynamic", file))
    count = backend.info.shared_per_block_optin // 4
    out = backend.allocate(8)
    arguments = backend.arguments(function, [pointer(out), np.int32(count)])
    backend.enqueue(function, (2, 1, 1), (256, 1, 1), arguments, 4 * count, backend.stream)
    backend.stream.synchronize()
    found = np.zeros(2, np.int32)
    backend.read(out.pointer, found)
    assert (found == (np.arange(count) & 7).sum()).all()
    assert function.blocks_per_sm(256, 4 * count) == 1
    assert function.blocks_per_sm(256, 4 * count + 1024) == 0


@needs_gpu
def test_refused_launch_leaves_the_device_usable(line: Callable[..., Any], backend: DriverBackend, file: str) -> None:
    function = backend.function(kernel("gemm_line", file))
    for grid, block, shared in (
        ((1, 1, 1), (512, 1, 1), 0),
        ((1, 1 << 17, 1), (32, 1, 1), 0),
        ((1, 1, 1), (32, 1, 1), 1 << 20),
    ):
        with pytest.raises(LaunchError):
            backend.enqueue(function, grid, block, bytes(40), shared, backend.stream)
    with pytest.raises(InsufficientMemoryError):
        backend.allocate(1 << 50)
    line()


@needs_gpu
def test_threads(line: Callable[..., Any], backend: DriverBackend) -> None:
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                line(backend.new_stream())
        except BaseException as why:
            problems.append(why)

    line()
    gc.collect()
    before = backend.memory()[0]
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert problems == []
    assert backend.memory()[0] >= before - (4 << 20), "a few streams, no arrays"


FAULT = """
import sys
import numpy as np
from tritmark.harness.errors import DeviceFaultError
from tritmark.kernels.cuda.driver.driver import DriverBackend
from tritmark.kernels.cuda.kernel import Kernel

backend = DriverBackend()
function = backend.function(Kernel(file=sys.argv[1], name=sys.argv[2], threads=32, registers=32))
out, spare = backend.allocate(1024), backend.allocate(1024)
arguments = backend.arguments(function, [np.uint64(out.pointer)])
backend.enqueue(function, (1, 1, 1), (1, 1, 1), arguments, 0, backend.stream)
for call in (backend.stream.synchronize, backend.new_event):
    try:
        call()
    except DeviceFaultError as why:
        assert sys.argv[2] in str(why), why
    else:
        raise SystemExit("no fault")
from tritmark.kernels.native.cpu import features
features()
"""


@needs_gpu
@pytest.mark.parametrize("name", ["gemm_illegal", "gemm_trap"])
def test_fault_and_a_clean_end(file: str, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAULT, file, name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
