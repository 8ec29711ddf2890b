"""The GPU's backend on a fake PyCUDA that reproduces the errors of the real one."""

# ruff: noqa: N802 (the names of PyCUDA and of the driver)
from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_pycuda import (
    FakeCuda,
    LaunchFailedError,
    LogicError,
    OutOfMemoryError,
    Raw,
    RuntimeFailedError,
    info,
    kernel,
)

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
from tritmark.kernels.cuda import context as contexts
from tritmark.kernels.cuda import device
from tritmark.kernels.cuda.driver import driver, source_module
from tritmark.kernels.cuda.driver.compile import Cubin
from tritmark.kernels.cuda.driver.driver import DriverBackend
from tritmark.kernels.cuda.driver.handles import DriverFunction
from tritmark.kernels.cuda.kernel import Kernel


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


def test_the_driver_is_asked_for_a_gpu_until_it_is_in_use(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    for name in (contexts.SELECT, contexts.ALONE, *gpu.FAKES):
        monkeypatch.delenv(name, raising=False)

    def why_not(index: int) -> str:
        asked.append(index)
        return "none"

    monkeypatch.setattr(gpu, "why_not", why_not)
    monkeypatch.setattr(contexts, "CudaContext", lambda backend: backend)
    monkeypatch.setattr(contexts, "_CONTEXTS", {})
    assert device.missing() == "none"
    contexts.cuda_context(0)
    assert device.missing() is None
    assert asked == [0]
    with contexts.on_gpu(1):
        assert device.missing() == "none"
    monkeypatch.setenv(gpu.FAKES[0], "no")
    assert device.missing() == "none"
    assert asked == [0, 1, 0]


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
    with pytest.raises(DeviceUnavailableError, match="NVIDIA H200 is busy or unavailable") as caught:
        DriverBackend()
    assert str(why) in str(caught.value)
    assert "nvidia-smi" in caught.value.next_step


class SeveralGpus(FakeCuda):
    """A PyCUDA with several GPUs, which reports the current context."""

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
    several.current = [9]  # not thread-local; a new thread begins with none
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
    with pytest.raises(TypeError, match=r"takes parameters of \(4, 8\) bytes; found \(8, 8\)"):
        fake.arguments(function, [np.float64(1), np.uint64(2)])
    with pytest.raises(TypeError, match=r"argument 1 is int; legal"):
        fake.arguments(function, [np.float32(1), 2])


def test_arguments_lie_where_the_driver_says(
    cuda: FakeCuda, fake: DriverBackend, function: DriverFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap may precede a map; in C there is none."""
    monkeypatch.setattr(type(function), "parameters", lambda *asked: ((48, 128), (176, 4)))
    packed = fake.arguments(function, [np.void(b"m" * 128), np.int32(7)])
    assert packed == bytes(48) + b"m" * 128 + struct.pack("i", 7)
    monkeypatch.setattr(type(function), "parameters", lambda *asked: None)
    with pytest.raises(LaunchError, match="does not report the parameter offsets of"):
        fake.arguments(function, [np.void(b"m" * 128), np.int32(7)])
    assert fake.arguments(function, [np.float32(1), np.uint64(2)]) == struct.pack("fL", 1.0, 2)


def test_source_module_takes_the_place_of_nvcc(
    cuda: FakeCuda, fake: DriverBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module's function is launched, its code's hash is reported, and code that the driver refuses is an error."""
    made = Cubin(b"PyCUDA's", "", cached=False)
    monkeypatch.setattr(source_module, "source_module", lambda kernel, arch: (Raw(cuda, f"module for {arch}"), made))
    monkeypatch.setenv(driver.compiler.LOADER, "SourceModule")  # type: ignore[attr-defined]
    function = fake.function(kernel("gemm_line"))
    assert (function.code_hash, function.cached) == (made.hash, False)

    def refuse(kernel: Kernel, arch: str) -> Any:
        raise LogicError("cuModuleLoadDataEx failed: no kernel image is available")

    monkeypatch.setattr(source_module, "source_module", refuse)
    with pytest.raises(DeviceUnavailableError, match=r"does not load test/test\.cu.* no kernel image"):
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
    for words in (str(why), "gemm_line", "start a new process", "CPU kernels still work"):
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
        with pytest.raises(DeviceFaultError, match="gemm_line") as again:
            call()
        assert again.value.code == caught.value.code == 700
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
        DeviceUnavailableError, match=r"the driver \(CUDA 12.9\) does not load test/test.cu, compiled by nvcc 13.0.88"
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
    """A thread that ends with a context on PyCUDA's stack would end the process; memory that it freed without one would
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


def test_a_stream_apart_is_asked_for(cuda: FakeCuda, fake: DriverBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []

    def stream(flag: int) -> Raw:
        flags.append(flag)
        return Raw(cuda, "stream")

    monkeypatch.setattr(cuda, "Stream", stream)
    fake.new_stream()
    fake.new_stream(apart=True)
    assert flags == [0, 1]  # CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING
