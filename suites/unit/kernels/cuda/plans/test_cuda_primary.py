"""The primary context with a fake driver: its requests, and the state that it restores."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tritmark.harness.errors import CompileError, DeviceError, DeviceUnavailableError
from tritmark.harness.machine import libcuda
from tritmark.kernels.cuda.driver.compile import Cubin
from tritmark.kernels.cuda.kernel import Kernel
from tritmark.kernels.cuda.plans import primary
from tritmark.kernels.cuda.plans.primary import PrimaryContext

FEW = Kernel(file="few.cu", name="few", threads=32, registers=32)
MANY = Kernel(file="few.cu", name="many", threads=32, registers=32)
ATTRIBUTES = {0: 1024, 1: 1000, 3: 0, 4: 40}


class MadeUpLibrary:
    """Functions of the driver by name; `refused` are those that fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refused: dict[str, int] = {}
        self.stack = [5]
        self.mode = 0
        self.dynamic: list[int] = []

    def call(self, function: str, *arguments: Any) -> None:
        self.asked.append(function)
        if function in self.refused:
            raise libcuda.DriverError(function, self.refused[function])
        answer: Callable[..., None] | None = getattr(self, f"_{function}", None)
        if answer is not None:
            answer(*arguments)

    def _cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:  # noqa: N802
        context._obj.value = 77 + device

    def _cuDeviceGet(self, out: Any, index: int) -> None:  # noqa: N802
        out._obj.value = index

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:  # noqa: N802
        self.mode, mode._obj.value = mode._obj.value, self.mode

    def _cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> None:  # noqa: N802
        self.stack.append(context.value or 0)

    def _cuCtxPopCurrent_v2(self, out: Any) -> None:  # noqa: N802
        out._obj.value = self.stack.pop()

    def _cuMemAlloc_v2(self, out: Any, nbytes: Any) -> None:  # noqa: N802
        assert (self.stack[-1], self.mode) == (78, 2)
        out._obj.value = 0x7000

    def _cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> None:  # noqa: N802
        assert self.stack[-1] == 78
        out._obj.value = len(name)

    def _cuFuncGetAttribute(self, out: Any, which: int, function: Any) -> None:  # noqa: N802
        out._obj.value = ATTRIBUTES[which]

    def _cuFuncSetAttribute(self, function: Any, which: int, value: int) -> None:  # noqa: N802
        assert which == 8
        self.dynamic.append(value)

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out: Any, *more: Any) -> None:  # noqa: N802
        out._obj.value = 3


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUpLibrary:
    library = MadeUpLibrary()
    info = SimpleNamespace(arch="sm_90", driver="none", shared_per_block_optin=200_000)
    monkeypatch.setattr(libcuda, "call", library.call)
    monkeypatch.setattr(primary, "device_info", lambda index: info)
    monkeypatch.setattr(primary, "compile_kernel", lambda kernel, arch: Cubin(b"code", arch, cached=True))
    return library


def untouched(made_up: MadeUpLibrary) -> bool:
    """Whether the current context and the capture mode are restored."""
    return (made_up.stack, made_up.mode) == ([5], 0)


def test_functions_of_one_binary_share_its_module_and_are_loaded_once(made_up: MadeUpLibrary) -> None:
    context = PrimaryContext(1)
    assert context.handle == 78
    assert context.bad.pointer == 0x7000
    few = context.function(FEW)
    assert context.function(FEW) is few
    assert context.function(MANY).handle == len("many")
    assert (few.handle, few.most_threads, few.shared, few.registers) == (3, 1024, 1000, 40)
    assert made_up.asked.count("cuModuleLoadData") == 1
    assert made_up.asked.count("cuModuleGetFunction") == 2
    assert untouched(made_up)


@pytest.mark.parametrize(("shared", "dynamic"), [(0, []), (48 * 1024 - 1000, []), (48 * 1024 - 999, [48 * 1024 - 999])])
def test_more_shared_memory_than_every_block_has_is_asked_for(
    made_up: MadeUpLibrary, shared: int, dynamic: list[int]
) -> None:
    assert PrimaryContext(1).prepared(FEW, shared) == 3
    assert made_up.dynamic == dynamic
    assert untouched(made_up)


def test_occupancy_is_the_drivers_and_none_past_the_devices_limits(made_up: MadeUpLibrary) -> None:
    few = PrimaryContext(1).function(FEW)
    assert few.blocks_per_sm(1024, 199_000) == 3
    assert (few.blocks_per_sm(1025), few.blocks_per_sm(32, 199_001)) == (0, 0)
    assert untouched(made_up)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        ("cuModuleLoadData", DeviceUnavailableError, "does not load few.cu"),
        ("cuModuleGetFunction", CompileError, "few.cu has no kernel few"),
        ("cuFuncSetAttribute", DeviceError, "90000 bytes of dynamic shared memory"),
    ],
)
def test_what_the_driver_refuses_is_said_and_leaves_the_context_as_it_was(
    made_up: MadeUpLibrary, function: str, error: type[DeviceError], words: str
) -> None:
    context = PrimaryContext(1)
    made_up.refused[function] = 200
    with pytest.raises(error, match=words):
        context.prepared(FEW, 90_000)
    assert untouched(made_up)
