"""The GPU's backend: on a real GPU where there is one, and on a PyCUDA that answers as the real one was seen to when
something is wrong."""

# ruff: noqa: N802 (the names of PyCUDA and of the driver)
from __future__ import annotations

import gc
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import (
    CompileError,
    DeviceError,
    DeviceFaultError,
    DeviceUnavailableError,
    InsufficientMemoryError,
    LaunchError,
    UsageError,
)
from tritmark.harness.machine import gpu
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda import driver, source_module
from tritmark.kernels.cuda.compile import Cubin
from tritmark.kernels.cuda.driver import DriverBackend, DriverFunction
from tritmark.kernels.cuda.kernel import Kernel

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


def kernel(name: str, file: str = "test/test.cu", **more: Any) -> Kernel:
    fields: dict[str, Any] = {"file": file, "name": name, "threads": 256, "registers": 64}
    return Kernel(**fields | more)


# A PyCUDA without a GPU behind it


class Error(Exception):
    pass


class LogicError(Error):
    pass


class LaunchFailedError(Error):
    pass


class RuntimeFailedError(Error):
    pass


class OutOfMemoryError(Error):
    pass


class Raw:
    """Whatever PyCUDA hands out."""

    handle = 77

    def __init__(self, cuda: FakeCuda, name: str = "") -> None:
        self.cuda = cuda
        self.name = name
        cuda.needs_context()
        cuda.alive += 1

    def __del__(self) -> None:
        self.cuda.alive -= 1
        if not self.cuda.stack.contexts:
            self.cuda.leaked.append(self.name)

    def __int__(self) -> int:
        return 0x7000

    def synchronize(self) -> None:
        self.cuda.answer("cuStreamSynchronize")

    def record(self, stream: Raw) -> None:
        self.cuda.answer("cuEventRecord")

    def wait_for_event(self, event: Raw) -> None:
        self.cuda.answer("cuStreamWaitEvent")

    def time_since(self, earlier: Raw) -> float:
        self.cuda.answer("cuEventElapsedTime")
        return 1.5

    def get_function(self, name: str) -> Raw:
        if "absent" in name:
            raise LogicError("cuModuleGetFunction failed: named symbol not found")
        return Raw(self.cuda, name)

    def get_attribute(self, attribute: str) -> int:
        return {"NUM_REGS": 40, "SHARED_SIZE_BYTES": 1024, "LOCAL_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 256}[
            attribute
        ]

    def set_attribute(self, attribute: str, value: int) -> None:
        self.cuda.raised.append((attribute, value))

    def _launch_kernel(self, grid: Any, block: Any, arguments: bytes, shared: int, stream: Raw) -> None:
        self.cuda.answer("cuLaunchKernel")
        if any(size > 1 << 32 for size in grid):
            raise OverflowError("bad numeric conversion: positive overflow")
        if np.prod(block) > 256 or 0 in grid or shared > 231 * 1024:
            raise LogicError("cuLaunchKernel failed: invalid argument")
        self.cuda.launched.append((self.name, grid, block, arguments, shared))


class FakeCuda:
    """pycuda.driver and cuda.bindings.driver in one. `refusals` has what a function of the driver raises."""

    Error, LogicError, LaunchError, RuntimeError, MemoryError = (
        Error,
        LogicError,
        LaunchFailedError,
        RuntimeFailedError,
        OutOfMemoryError,
    )
    function_attribute = SimpleNamespace(
        **{
            name: name
            for name in (
                "NUM_REGS",
                "SHARED_SIZE_BYTES",
                "LOCAL_SIZE_BYTES",
                "MAX_THREADS_PER_BLOCK",
                "MAX_DYNAMIC_SHARED_SIZE_BYTES",
            )
        }
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    class Stack(threading.local):
        contexts = 0

    def __init__(self) -> None:
        self.refusals: dict[str, Exception] = {}
        self.alive = 0
        self.leaked: list[str] = []
        self.launched: list[Any] = []
        self.raised: list[Any] = []
        self.lost = 0
        self.stack = self.Stack()
        self.Context = SimpleNamespace(synchronize=lambda: self.answer("cuCtxSynchronize"), pop=self.pop)

    def answer(self, function: str) -> None:
        self.needs_context()
        if function in self.refusals:
            raise self.refusals[function]

    def needs_context(self) -> None:
        if not self.stack.contexts:
            raise LogicError("explicit_context_dependent failed: invalid device context - no currently active context?")

    def push(self) -> None:
        self.stack.contexts += 1

    def pop(self) -> None:
        self.stack.contexts -= 1

    detach = pop

    def init(self) -> None:
        pass

    def Device(self, index: int) -> FakeCuda:
        return self

    def retain_primary_context(self) -> FakeCuda:
        if "cuDevicePrimaryCtxRetain" in self.refusals:
            raise self.refusals["cuDevicePrimaryCtxRetain"]
        return self

    def Stream(self) -> Raw:
        return Raw(self, "stream")

    def Event(self) -> Raw:
        return Raw(self, "event")

    def mem_alloc(self, nbytes: int) -> Raw:
        self.answer("cuMemAlloc")
        return Raw(self, "memory")

    def mem_get_info(self) -> tuple[int, int]:
        return 1000, 2000

    def pagelocked_empty(self, nbytes: int, dtype: Any) -> Any:
        self.answer("cuMemHostAlloc")
        return np.empty(nbytes, dtype)

    def memcpy_htod(self, pointer: int, values: Any) -> None:
        self.answer("cuMemcpyHtoD")

    def memcpy_dtoh(self, into: Any, pointer: int) -> None:
        self.answer("cuMemcpyDtoH")

    def module_from_buffer(self, code: bytes) -> Raw:
        self.answer("cuModuleLoadDataEx")
        return Raw(self, "module")

    # cuda-bindings

    def cuCtxSynchronize(self) -> tuple[int]:
        return (self.lost,)

    def cuModuleLoadData(self, code: bytes) -> tuple[int, int]:
        return 0, 5

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int, int]:
        return 0, 6

    def cuFuncGetParamCount(self, function: int) -> tuple[int, int]:
        return 0, 2

    def cuFuncGetParamInfo(self, function: int, index: int) -> tuple[int, int, int]:
        sizes = (4, 8)
        return (0, 8 * index, sizes[index]) if index < len(sizes) else (1, 0, 0)

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> tuple[int]:
        return (0,)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> tuple[int, int]:
        return 0, 2048 // threads


def info(**more: Any) -> DeviceInfo:
    fields: dict[str, Any] = dict.fromkeys(DeviceInfo.__dataclass_fields__, 1024) | {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "capability": (9, 0),
        "shared_per_block_optin": 227 * 1024,
        "driver": "CUDA 12.9",
    }
    return DeviceInfo(**fields | more)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()

    monkeypatch.setattr(driver, "_packages", lambda index: (made, made))
    monkeypatch.setattr(driver, "_ENTERED", driver._Entered())
    monkeypatch.setattr(gpu, "device_info", lambda index: info())
    monkeypatch.setattr(driver.compiler, "compile_kernel", lambda kernel, arch: Cubin(b"code", "", cached=True))  # type: ignore[attr-defined]
    monkeypatch.setattr(driver.compiler, "compiler", lambda: "nvcc 13.0.88")  # type: ignore[attr-defined]
    monkeypatch.setattr("atexit.register", lambda *arguments: None)
    monkeypatch.setattr("os.register_at_fork", lambda **arguments: None)
    return made


@pytest.fixture
def fake(cuda: FakeCuda) -> DriverBackend:
    return DriverBackend()


@pytest.fixture
def function(fake: DriverBackend) -> DriverFunction:
    return fake.function(kernel("gemm_line"))


def enqueue(
    fake: DriverBackend, function: DriverFunction, grid: Any = (1, 1, 1), block: Any = (32, 1, 1), shared: int = 0
) -> None:
    fake.enqueue(function, grid, block, fake.arguments(function, [np.float32(1), np.uint64(2)]), shared, fake.stream)


@pytest.mark.parametrize(
    "why",
    [
        LogicError("cuDevicePrimaryCtxRetain failed: CUDA-capable device(s) is/are busy or unavailable"),
        OutOfMemoryError("cuDevicePrimaryCtxRetain failed: out of memory"),
    ],
)
def test_device_that_cannot_be_had(cuda: FakeCuda, why: Exception) -> None:
    cuda.refusals["cuDevicePrimaryCtxRetain"] = why
    with pytest.raises(DeviceUnavailableError, match="NVIDIA H200 is busy or cannot be had") as caught:
        DriverBackend()
    assert str(why) in str(caught.value)
    assert "nvidia-smi" in caught.value.next_step


class SeveralGpus(FakeCuda):
    """A PyCUDA with several GPUs, which tells whose context is current."""

    def __init__(self) -> None:
        super().__init__()
        self.current: list[int] = []
        self.allocated_on: list[int] = []

    def Device(self, index: int) -> Any:
        def push() -> None:
            self.current.append(index)
            self.push()

        return SimpleNamespace(retain_primary_context=lambda: SimpleNamespace(push=push, detach=self.pop))

    def pop(self) -> None:
        super().pop()
        self.current.pop()

    def mem_alloc(self, nbytes: int) -> Raw:
        self.allocated_on.append(self.current[-1])
        return super().mem_alloc(nbytes)


def test_backends_of_several_gpus_take_turns(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    several = SeveralGpus()
    monkeypatch.setattr(driver, "_packages", lambda index: (several, several))
    first, second = DriverBackend(0), DriverBackend(1)
    assert several.current == [0], "the first has the main thread all its life, the other while it is used"
    with second:
        second.allocate(1)
        with first:
            first.allocate(1)
            with first, second:
                kept = second.allocate(1)
                first.allocate(1)
            first.allocate(1)
        second.allocate(1)
        del kept
    first.allocate(1)
    assert several.allocated_on == [1, 0, 1, 0, 0, 1, 0]
    assert several.current == [0]


def test_another_thread_enters_each_gpu_for_itself(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    several = SeveralGpus()
    several.current = [9]  # this list is not of one thread, and a thread of its own begins with none
    monkeypatch.setattr(driver, "_packages", lambda index: (several, several))

    def work() -> None:
        first, second = DriverBackend(0), DriverBackend(1)
        second.allocate(1)
        first.allocate(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert several.allocated_on == [1, 0]
    assert several.current == [9]


def test_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    why = DeviceUnavailableError("PyCUDA is not installed", next_step="install it")
    monkeypatch.setattr(gpu, "problem", lambda index: why)
    with pytest.raises(DeviceUnavailableError, match="PyCUDA is not installed"):
        DriverBackend()


def test_launch_and_its_parameters(cuda: FakeCuda, fake: DriverBackend, function: DriverFunction) -> None:
    assert (function.registers, function.shared, function.local, function.most_threads) == (40, 1024, 0, 256)
    assert (function.parameters(2), function.cached, function.handle) == (((0, 4), (8, 8)), True, 6)
    enqueue(fake, function, (5, 1, 1), (64, 1, 1))
    assert cuda.launched == [("gemm_line", (5, 1, 1), (64, 1, 1), struct.pack("fL", 1.0, 2), 0)]
    with pytest.raises(TypeError, match=r"takes parameters of \(4, 8\) bytes, and was given \(8, 8\)"):
        fake.arguments(function, [np.float64(1), np.uint64(2)])
    with pytest.raises(TypeError, match=r"argument 1 is int; legal"):
        fake.arguments(function, [np.float32(1), 2])


def test_arguments_lie_where_the_driver_says(
    cuda: FakeCuda, fake: DriverBackend, function: DriverFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a map there may be a gap, which C has not."""
    monkeypatch.setattr(type(function), "parameters", lambda *asked: ((48, 128), (176, 4)))
    packed = fake.arguments(function, [np.void(b"m" * 128), np.int32(7)])
    assert packed == bytes(48) + b"m" * 128 + struct.pack("i", 7)
    monkeypatch.setattr(type(function), "parameters", lambda *asked: None)
    with pytest.raises(LaunchError, match="does not tell where"):
        fake.arguments(function, [np.void(b"m" * 128), np.int32(7)])
    assert fake.arguments(function, [np.float32(1), np.uint64(2)]) == struct.pack("fL", 1.0, 2)


def test_source_module_takes_the_place_of_nvcc(
    cuda: FakeCuda, fake: DriverBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module's function is launched, its code's hash is told, and what the driver does not take is an error."""
    made = Cubin(b"PyCUDA's", "", cached=False)
    monkeypatch.setattr(source_module, "source_module", lambda kernel, arch: (Raw(cuda, f"module for {arch}"), made))
    monkeypatch.setenv(driver.compiler.LOADER, "SourceModule")  # type: ignore[attr-defined]
    function = fake.function(kernel("gemm_line"))
    assert (function.code_hash, function.cached) == (made.hash, False)

    def refuse(kernel: Kernel, arch: str) -> Any:
        raise LogicError("cuModuleLoadDataEx failed: no kernel image is available")

    monkeypatch.setattr(source_module, "source_module", refuse)
    with pytest.raises(DeviceUnavailableError, match=r"does not take test/test\.cu .* no kernel image"):
        fake.function(kernel("gemm_line"))
    monkeypatch.setenv(driver.compiler.LOADER, "modul")  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"TRITMARK_CUDA_LOADER is 'modul'; .*legal: nvcc, sourcemodule"):
        fake.function(kernel("gemm_line"))


def test_more_shared_memory_is_asked_for_once(cuda: FakeCuda, fake: DriverBackend, function: DriverFunction) -> None:
    enqueue(fake, function, shared=47 * 1024)
    assert cuda.raised == []
    for _ in range(2):
        enqueue(fake, function, shared=100 * 1024)
    assert cuda.raised == [("MAX_DYNAMIC_SHARED_SIZE_BYTES", 100 * 1024)]
    assert function.blocks_per_sm(128, 100 * 1024) == 16
    assert function.blocks_per_sm(257) == function.blocks_per_sm(128, 227 * 1024) == 0
    assert len(cuda.raised) == 1


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        ((1, 1, 1), (512, 1, 1), 0, "512 threads a block; next: use 1 to 256, which its 40 registers"),
        ((0, 1, 1), (32, 1, 1), 0, "grid (0, 1, 1); next: use (1, 1, 1) to (2147483647, 65535, 65535)"),
        ((1 << 33, 1, 1), (32, 1, 1), 0, "grid (8589934592, 1, 1)"),
        (
            (1, 1, 1),
            (32, 1, 1),
            232 * 1024,
            "238592 bytes of shared memory a block; next: use at most 232448, which NVIDIA H200 has",
        ),
    ],
)
def test_refused_launches_name_the_limit(
    fake: DriverBackend, function: DriverFunction, grid: Any, block: Any, shared: int, words: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        enqueue(fake, function, grid, block, shared)
    assert words in str(caught.value)
    enqueue(fake, function)


def test_out_of_resources(cuda: FakeCuda, fake: DriverBackend, function: DriverFunction) -> None:
    cuda.refusals["cuLaunchKernel"] = LaunchFailedError(
        "cuLaunchKernel failed: too many resources requested for launch"
    )
    with pytest.raises(LaunchError, match=r"too many resources requested for launch \(grid"):
        enqueue(fake, function)


def test_stream_that_records_is_no_fault(cuda: FakeCuda, fake: DriverBackend, function: DriverFunction) -> None:
    cuda.lost = 900
    with pytest.raises(LaunchError):
        enqueue(fake, function, block=(512, 1, 1))
    enqueue(fake, function)


@pytest.mark.parametrize(
    "why",
    [
        LogicError("cuStreamSynchronize failed: an illegal memory access was encountered"),
        LogicError("cuStreamSynchronize failed: misaligned address"),
        LaunchFailedError("cuStreamSynchronize failed: unspecified launch failure"),
        LogicError("cuStreamSynchronize failed: device-side assert triggered"),
    ],
)
def test_fault_ends_the_gpu_and_names_the_kernel(
    cuda: FakeCuda, fake: DriverBackend, function: DriverFunction, why: Exception
) -> None:
    memory = fake.allocate(100)
    enqueue(fake, function)
    cuda.refusals["cuStreamSynchronize"] = why
    cuda.lost = 700
    with pytest.raises(DeviceFaultError) as caught:
        fake.stream.synchronize()
    for words in (str(why), "gemm_line", "start a fresh one", "CPU's kernels still work"):
        assert words in str(caught.value)
    later: list[Callable[[], object]] = [
        fake.new_event,
        fake.new_stream,
        fake.synchronize,
        fake.memory,
        lambda: fake.allocate(1),
        lambda: fake.pinned(1),
        lambda: fake.write(1, np.zeros(1)),
        lambda: enqueue(fake, function),
        lambda: fake.function(kernel("gemm_line")),
    ]
    for call in later:
        with pytest.raises(DeviceFaultError, match="gemm_line"):
            call()
    alive = cuda.alive
    memory.free()
    del memory
    gc.collect()
    assert cuda.alive == alive, "nothing is given back to a driver that would refuse it"


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("cuLaunchKernel", enqueue),
        ("cuMemcpyHtoD", lambda fake, known: fake.write(1, np.zeros(1))),
        ("cuMemcpyDtoH", lambda fake, known: fake.read(1, np.zeros(1))),
        ("cuCtxSynchronize", lambda fake, known: fake.synchronize()),
        ("cuMemAlloc", lambda fake, known: fake.allocate(1)),
        ("cuModuleLoadDataEx", lambda fake, known: fake._modules.clear() or fake.function(kernel("gemm_line"))),
        ("cuEventRecord", lambda fake, known: fake.new_event().record(fake.stream)),
    ],
)
def test_fault_shows_wherever_it_is_met_first(cuda: FakeCuda, fake: DriverBackend, function: str, call: Any) -> None:
    known = fake.function(kernel("gemm_line"))
    enqueue(fake, known)
    cuda.refusals[function] = LogicError(f"{function} failed: an illegal memory access was encountered")
    cuda.lost = 700
    with pytest.raises(DeviceFaultError, match="gemm_line"):
        call(fake, known)


def test_refused_call_that_is_no_fault(cuda: FakeCuda, fake: DriverBackend) -> None:
    cuda.refusals["cuMemcpyHtoD"] = LogicError("cuMemcpyHtoD failed: invalid argument")
    with pytest.raises(DeviceError, match=r"copying 8 bytes to the device.*invalid argument") as caught:
        fake.write(0, np.zeros(1))
    assert type(caught.value) is DeviceError
    del cuda.refusals["cuMemcpyHtoD"]
    fake.write(0, np.zeros(1))


def test_out_of_memory(cuda: FakeCuda, fake: DriverBackend) -> None:
    cuda.refusals["cuMemAlloc"] = OutOfMemoryError("cuMemAlloc failed: out of memory")
    with pytest.raises(InsufficientMemoryError) as caught:
        fake.allocate(5000)
    assert (caught.value.required, caught.value.available) == (5000, 1000)
    del cuda.refusals["cuMemAlloc"]
    assert fake.allocate(10).nbytes == 10
    cuda.refusals["cuMemHostAlloc"] = OutOfMemoryError("cuMemHostAlloc failed: out of memory")
    with pytest.raises(DeviceError, match="5000 bytes of the host's memory cannot be pinned"):
        fake.pinned(5000)


def test_driver_older_than_the_compiler(cuda: FakeCuda, fake: DriverBackend) -> None:
    cuda.refusals["cuModuleLoadDataEx"] = RuntimeFailedError(
        "cuModuleLoadDataEx failed: no kernel image is available for execution on the device - "
    )
    with pytest.raises(
        DeviceUnavailableError, match=r"the driver \(CUDA 12.9\) does not take test/test.cu as nvcc 13.0.88"
    ) as caught:
        fake.function(kernel("gemm_line"))
    assert "TRITMARK_NVCC" in caught.value.next_step


def test_function_that_is_not_there(fake: DriverBackend) -> None:
    with pytest.raises(CompileError, match="no kernel gemm_absent"):
        fake.function(kernel("gemm_absent"))


def test_too_low_a_capability(fake: DriverBackend) -> None:
    with pytest.raises(
        DeviceUnavailableError, match=r"needs compute capability 10\.0 or newer and NVIDIA H200 has 9\.0"
    ):
        fake.function(kernel("gemm_line", capability=(10, 0)))


def test_threads_leave_no_context_behind(cuda: FakeCuda, fake: DriverBackend) -> None:
    """A thread that ended with a context on PyCUDA's stack would end the process; what it freed without one would
    leak."""
    left: list[int] = []
    memory = [fake.allocate(10)]

    def work() -> None:
        event = fake.new_event()
        event.record(fake.new_stream())
        with fake:
            memory.append(fake.allocate(10))
            assert cuda.stack.contexts == 1
        del event
        memory.clear()
        left.append(cuda.stack.contexts)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert left == [0]
    assert cuda.leaked == []
    assert cuda.stack.contexts == 1


def test_backend_made_in_a_thread(cuda: FakeCuda) -> None:
    made: list[DriverBackend] = []
    left: list[int] = []

    def work() -> None:
        made.append(DriverBackend())
        left.append(cuda.stack.contexts)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert left == [0]
    assert made[0].allocate(10).nbytes == 10
    assert cuda.stack.contexts == 0
    made[0]._leave(driver.os.getpid())  # type: ignore[attr-defined]
    assert cuda.stack.contexts == 0


def test_forked_process_is_refused(fake: DriverBackend) -> None:
    fake._forked()
    with pytest.raises(DeviceUnavailableError, match=r"forked.*spawn"):
        fake.allocate(1)


# A real GPU

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
from tritmark.kernels.cuda.driver import DriverBackend
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
from tritmark.kernels.cpu import features
features()
"""


@needs_gpu
@pytest.mark.parametrize("name", ["gemm_illegal", "gemm_trap"])
def test_fault_and_a_clean_end(file: str, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAULT, file, name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
