"""A context for plans in the simulator: cuLaunchKernelEx is replaced by a function that runs the simulated kernel."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.kernel import NONE_BAD, Dim, Kernel
from tritmark.kernels.cuda.simulator.backend import SimulatorBackend, SimulatorFunction

HANDLE = 0x7717
_OUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
_IN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_uint64,
    *[ctypes.POINTER(ctypes.c_uint64)] * 2,
    *[ctypes.POINTER(ctypes.c_uint)] * 2,
    *[ctypes.c_int] * 4,
)


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(ctypes.c_int * 18)),
        ("attribute_count", ctypes.c_uint),
    )


_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


class MadeUpDriver:
    """The five driver functions that a plan calls; `launch` and `encode` do nothing, and may be replaced."""

    def __init__(self, current: int = 0) -> None:
        self.stack = [current]
        self.calls: list[str] = []
        self._kept = (
            _OUT(self._current),
            _IN(self._push),
            _OUT(self._pop),
            _LAUNCH(self._launch),
            _ENCODE(self._encode),
        )

    @property
    def addresses(self) -> tuple[int, ...]:
        return tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._kept)

    def launch(self, function: int, grid: Dim, block: Dim, shared: int, stream: int, parameters: Any) -> int:
        """A CUresult: CUDA_SUCCESS."""
        return 0

    def encode(self, to: int, address: int, numbers: tuple[int, ...]) -> int:
        """A CUresult: CUDA_SUCCESS. `numbers` are those of TensorMap."""
        return 0

    def _encode(self, to: int, dtype: int, rank: int, address: int, sizes: Any, apart: Any, *more: Any) -> int:
        box, steps, *constants, swizzle, promotion, fill = more
        assert (dtype, rank, steps[0], steps[1], constants, promotion, fill, to % 64) == (0, 2, 1, 1, [0], 2, 0, 0)
        return self.encode(to, address, (sizes[0], sizes[1], apart[0], box[0], box[1], swizzle))

    def _current(self, out: Any) -> int:
        out[0] = self.stack[-1] or None
        return 0

    def _push(self, context: int) -> int:
        self.calls.append("push")
        self.stack.append(context)
        return 0

    def _pop(self, out: Any) -> int:
        self.calls.append("pop")
        out[0] = self.stack.pop()
        return 0

    def _launch(self, config: Any, function: int, parameters: Any, _: int) -> int:
        told = config.contents
        assert self.stack[-1] == HANDLE
        # Programmatic stream serialization as in cuda.h, or nothing.
        assert [list(told.attributes[place][:3]) for place in range(told.attribute_count)] in ([], [[6, 0, 1]])
        self.calls.append("launch, overlapping" if told.attribute_count else "launch")
        sizes = tuple(told.sizes)
        return self.launch(function, sizes[:3], sizes[3:], told.shared, told.stream or 0, parameters)


class SimulatedPlans(MadeUpDriver):
    """A PlanContext in the simulator."""

    handle = HANDLE

    def __init__(self, context: CudaContext) -> None:
        super().__init__()
        assert isinstance(context.backend, SimulatorBackend)
        self._backend = context.backend
        self.info = context.backend.info
        self.bad = context.upload(np.full(1, NONE_BAD))
        self._context = context
        self._functions: dict[int, SimulatorFunction] = {}
        self.failed: Exception | None = None

    @property
    def driver(self) -> tuple[int, ...]:
        return self.addresses

    def function(self, kernel: Kernel) -> SimulatorFunction:
        found = self._context.function(kernel)
        assert isinstance(found, SimulatorFunction)
        return found

    def prepared(self, kernel: Kernel, shared: int) -> int:
        function = self.function(kernel)
        self._functions[function.handle] = function
        return function.handle

    def launch(self, function: int, grid: Dim, block: Dim, shared: int, stream: int, parameters: Any) -> int:
        """The simulator's fault is stored in `failed`, because it cannot pass through the caller, which is C."""
        found = self._functions[function]
        try:
            arguments = [_value(parameters[i], *each) for i, each in enumerate(found.parameters)]
            ready = self._backend.arguments(found, arguments)
            self._backend.enqueue(found, grid, block, ready, shared, self._backend.stream)
        except Exception as why:
            self.failed = why
            return 719
        return 0


def _value(address: int, sort: str, nbytes: int) -> Any:
    """The value of a kernel's parameter: a pointer, a float, an integer or a map of so many bytes."""
    if sort == "V":
        return np.void(ctypes.string_at(address, nbytes))
    kind = np.dtype(f"{'u' if sort == 'P' else sort}{nbytes}")
    return np.frombuffer(ctypes.string_at(address, nbytes), kind)[0]
