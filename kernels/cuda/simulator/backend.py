"""The simulator as a Backend.

It detects these faults and raises DeviceFaultError with kernel, block, thread, address and line:

- accesses outside of an allocation or a shared variable, to freed memory, and misaligned ones;
- reads of memory that was never written;
- races on shared memory, and on device memory between a write and a later access of the same block;
- divergent barriers, masks that name exited threads, deadlocks, kernels that do not end.

It does not detect races between blocks, nor faults that depend on registers, caches or time. It is stricter than the
device in two cases: if threads exit while others of the block reach a barrier, and if two threads write the same value
to one place.

It simulates a device with the limits of an H100 and few multiprocessors, so that grids that fill the device stay small
and grid-stride loops iterate. Environment variables for tests: TRITMARK_SIMULATOR_CAPABILITY (such as 7.5),
TRITMARK_SIMULATOR_MEMORY (bytes), TRITMARK_SIMULATOR_SEED (order of blocks and threads, and the content of unwritten
memory), TRITMARK_SIMULATOR_SECONDS (limit of one launch). For several devices: TRITMARK_SIMULATOR_GPUS (their number),
TRITMARK_SIMULATOR_MEMORY with comma-separated numbers, TRITMARK_SIMULATOR_PEERS (0: no access to another's memory),
TRITMARK_SIMULATOR_FAILS (such as 1@3: GPU 1 is lost at its third launch).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import (
    CompileError,
    DeviceFaultError,
    DeviceUnavailableError,
    LaunchError,
    UsageError,
)
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda import backend
from tritmark.kernels.cuda.driver.tensor_map import NO_MAP
from tritmark.kernels.cuda.kernel import Dim, Kernel
from tritmark.kernels.cuda.simulator import runtime, toolchain
from tritmark.kernels.cuda.simulator.memory import SimulatorAllocation, arena

_MOST_RECORDS = 1 << 22
_CONTEXTS = count()
"""Numbers of contexts."""
_GO_ON = "correct the kernel or its launch; the simulator can continue, unlike a GPU"

RECORD = np.dtype(
    [
        ("pc", np.uint64),
        ("address", np.uint64),
        ("block", np.uint32),
        ("thread", np.uint16),
        ("size", np.uint8),
        ("kind", np.uint8),
    ]
)
"""One access: return address within the module, linear indices of block and thread; kind 0 read, 1 write, 3 atomic.
OF_SHARED is added to the kind for shared memory, where the address is an offset."""

OF_SHARED = 4


def _number(name: str, default: int) -> int:
    reported = os.environ.get(name, "").strip()
    if reported and not reported.isdecimal():
        raise UsageError(f"{name} is {reported!r}; legal: a whole number")
    return int(reported or default)


def gpu_count() -> int:
    """Number of simulated devices."""
    return max(1, _number("TRITMARK_SIMULATOR_GPUS", 1))


def _memory(index: int) -> int:
    """Bytes of a device: each has its own number, or the last one applies."""
    name = "TRITMARK_SIMULATOR_MEMORY"
    reported = [each.strip() for each in os.environ.get(name, "").split(",") if each.strip()]
    if not all(each.isdecimal() for each in reported):
        raise UsageError(f"{name} is {os.environ[name]!r}; legal: a whole number, or one per GPU, comma-separated")
    return int(reported[min(index, len(reported) - 1)]) if reported else 4 << 30


def _fails(index: int) -> int:
    """Number of the launch at which the device is lost; 0 for none."""
    name = "TRITMARK_SIMULATOR_FAILS"
    reported = os.environ.get(name, "").strip()
    if reported and not re.fullmatch(r"\d+@[1-9]\d*(,\d+@[1-9]\d*)*", reported):
        raise UsageError(f"{name} is {reported!r}; legal: GPU@LAUNCH, such as 1@3, or several, comma-separated")
    planted = (each.split("@") for each in reported.split(",") if each)
    return next((int(launch) for gpu, launch in planted if int(gpu) == index), 0)


def _device_info(index: int) -> DeviceInfo:
    reported = os.environ.get("TRITMARK_SIMULATOR_CAPABILITY", "").strip() or "9.0"
    if not re.fullmatch(r"\d+\.\d", reported):
        raise UsageError(f"TRITMARK_SIMULATOR_CAPABILITY is {reported!r}; legal: MAJOR.MINOR, such as 7.5")
    major, minor = map(int, reported.split("."))
    return DeviceInfo(
        index=index,
        name="simulated GPU (tritmark, on the CPU)",
        uuid="SIMULATOR",
        capability=(major, minor),
        memory=_memory(index),
        l2=50 << 20,
        sms=4,
        warp=32,
        threads_per_block=1024,
        threads_per_sm=2048,
        blocks_per_sm=32,
        registers_per_block=65536,
        registers_per_sm=65536,
        shared_per_block=49152,
        shared_per_block_optin=232448,
        shared_per_sm=233472,
        memory_clock_hz=0,
        memory_bus_bits=0,
        clock_hz=0,
        driver=f"tritmark's simulator, {toolchain.compiler()[1]}",
    )


class SimulatorFunction:
    """A kernel compiled by g++."""

    def __init__(self, kernel: Kernel, info: DeviceInfo) -> None:
        self._info = info
        self.name = kernel.name
        self.module = toolchain.module(kernel, info.capability)
        library = ctypes.CDLL(str(self.module))
        try:
            entry, parameters = library[f"tritmark_entry_{kernel.name}"], library[f"tritmark_parameters_{kernel.name}"]
        except AttributeError:
            raise CompileError(
                f'{kernel.file} has no extern "C" __global__ void {kernel.name}(...)',
                next_step="correct the name in the Kernel, or the source",
            ) from None
        self.handle = ctypes.cast(entry, ctypes.c_void_p).value or 0
        parameters.restype = ctypes.POINTER(ctypes.c_char)
        text = parameters()
        count = next(i for i in range(1 << 12) if text[i] == b"\0")
        self.parameters = [(text[i].decode(), text[count + 1 + i][0] - ord("0")) for i in range(count)]
        (begin, end), variables = toolchain.shared_variables(self.module, kernel.name)
        self.registers = self.local = 0
        self.shared = sum(nbytes for _, nbytes, _ in variables)
        self.most_threads = min(kernel.threads, info.threads_per_block)
        self.code_hash = sha256(self.module.read_bytes()).hexdigest()
        if self.shared > info.shared_per_block:
            raise CompileError(
                f"{kernel.name} has {self.shared} bytes of static shared memory",
                next_step=f"use at most {info.shared_per_block}, and dynamic shared memory for the rest",
            )
        module_begin, module_end = ctypes.c_uint64(), ctypes.c_uint64()
        runtime.library().tritmark_module(
            ctypes.c_void_p(self.handle), ctypes.byref(module_begin), ctypes.byref(module_end)
        )
        base = module_begin.value
        self._ranges = (ctypes.c_uint64 * (2 * len(variables)))(
            *(part for at, nbytes, _ in variables for part in (at - begin, nbytes))
        )
        self._shared = [(base + at, nbytes, f"{name} ({nbytes} bytes)") for at, nbytes, name in variables]
        self._shared.append(
            (runtime.library().tritmark_dynamic_shared(), info.shared_per_block_optin, "the dynamic shared memory")
        )
        self._request = toolchain.LaunchRequest(
            entry=self.handle,
            module_begin=base,
            module_end=module_end.value,
            shared_begin=base + begin,
            shared_end=base + end,
            ranges=ctypes.addressof(self._ranges),
            range_count=len(variables),
        )

    def blocks_per_sm(self, threads: int, shared: int = 0) -> int:
        """Computed only from threads and shared memory (the system takes 1 KiB per block), because registers are not
        known."""
        warps = -(-threads // self._info.warp) * self._info.warp
        return min(
            self._info.blocks_per_sm,
            self._info.threads_per_sm // warps,
            self._info.shared_per_sm // (self.shared + shared + 1024),
        )

    def shared_place(self, address: int) -> str:
        """The shared variable at the address, or up to 32 bytes from it; "" for none."""
        for at, nbytes, name in self._shared:
            if at - 32 <= address < at + nbytes + 32:
                return f"byte {address - at} of {name}"
        return ""

    def request(self, grid: Dim, block: Dim, arguments: Arguments, shared: int, seed: int) -> toolchain.LaunchRequest:
        """The request to the runtime."""
        made = toolchain.LaunchRequest.from_buffer_copy(self._request)
        made.arguments = ctypes.addressof(arguments.pointers)
        made.grid[:], made.block[:] = grid, block
        made.dynamic_bytes, made.seed = shared, seed
        made.seconds = _number("TRITMARK_SIMULATOR_SECONDS", 120)
        return made


class Arguments:
    """A kernel's arguments in the driver's form: an array of pointers to the values."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = [np.array(value) for value in values]
        self.pointers = (ctypes.c_void_p * max(1, len(self.values)))(*(value.ctypes.data for value in self.values))


class SimulatorStream:
    """A stream whose work runs immediately, so it is always empty."""

    handle = 0

    def synchronize(self) -> None:
        """Does nothing; all work is complete."""

    def wait(self, event: backend.Event) -> None:
        """Does nothing; work runs in order anyway."""

    def __enter__(self) -> SimulatorStream:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


class SimulatorEvent:
    """An event that measures nothing: a simulated kernel has no speed."""

    def record(self, stream: backend.Stream) -> None:
        """Does nothing."""

    def synchronize(self) -> None:
        """Does nothing."""

    def since(self, earlier: backend.Event) -> float:
        """Always 0.0."""
        return 0.0


@dataclass
class TracedLaunch:
    """The accesses of one launch to device memory, and to shared memory if that was traced."""

    kernel: str
    records: npt.NDArray[Any]
    """Of dtype RECORD; those of each thread are in order."""
    complete: bool
    """Whether all accesses were recorded; only the first 2^22 are kept."""
    module: Path

    def line(self, pc: int) -> str:
        """ "file:line" of an access."""
        return toolchain.source_line(self.module, pc)


@dataclass
class Trace:
    """The launches of a `with backend.trace()` block."""

    shared: bool = False
    """Accesses to shared memory are recorded too, of one block of each launch."""
    launches: list[TracedLaunch] = field(default_factory=list)


class SimulatorBackend:
    """Runs kernels on the CPU, one thread at a time, immediately. All simulated devices share the process's memory."""

    simulated = True

    def __init__(self, index: int = 0) -> None:
        if index >= gpu_count():
            raise DeviceUnavailableError(f"no GPU {index}", next_step=f"legal: 0 to {gpu_count() - 1}")
        self.info = _device_info(index)
        self._fails = _fails(index)
        self.launches = 0
        """Number of launches so far."""
        self._lost = False
        self.seed = _number("TRITMARK_SIMULATOR_SEED", 0)
        self._arena = arena()
        self._context = next(_CONTEXTS)
        self._trace: Trace | None = None
        self.stream: backend.Stream = SimulatorStream()

    def __enter__(self) -> SimulatorBackend:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def function(self, kernel: Kernel) -> SimulatorFunction:
        """Compile (or take from the cache) and load."""
        if not kernel.simulated:
            raise DeviceUnavailableError(
                f"{kernel.name} cannot be simulated (it needs wgmma, TMA or similar hardware)", next_step="use a GPU"
            )
        if not kernel.runs_on(self.info.capability):
            has = ".".join(map(str, self.info.capability))
            raise DeviceUnavailableError(
                f"{kernel.name} needs compute capability {kernel.needs}; the simulator has {has}",
                next_step="use another variant",
            )
        return SimulatorFunction(kernel, self.info)

    def arguments(self, function: backend.DeviceFunction, args: Sequence[Any]) -> Arguments:
        """Pack the arguments and compare them with the parameters of the source. Raises LaunchError if their number,
        types or sizes differ."""
        assert isinstance(function, SimulatorFunction)
        made = Arguments(args)
        if len(made.values) != len(function.parameters):
            raise LaunchError(
                f"{function.name}: {len(made.values)} arguments",
                next_step=f"pass {len(function.parameters)} like the source",
            )
        for i, (value, (sort, nbytes)) in enumerate(zip(made.values, function.parameters, strict=True)):
            if value.itemsize != nbytes or (value.dtype.kind != ("u" if sort == "P" else sort) and sort != "V"):
                wanted = {
                    "P": "pointer",
                    "i": "signed integer",
                    "u": "unsigned integer",
                    "f": "float",
                    "V": "structure",
                }[sort]
                raise LaunchError(
                    f"{function.name}: argument {i + 1} is {value.dtype}",
                    next_step=f"pass a {wanted} of {nbytes} bytes like the source",
                )
        return made

    def tensor_map(self, pointer: int, numbers: tuple[int, ...]) -> Any:
        """NO_MAP: there is no copy engine, and kernels read the matrix directly."""
        return NO_MAP

    def enqueue(
        self,
        function: backend.DeviceFunction,
        grid: Dim,
        block: Dim,
        arguments: Any,
        shared: int,
        stream: backend.Stream,
    ) -> None:
        """Run the launch immediately. Raises LaunchError, DeviceFaultError."""
        assert isinstance(function, SimulatorFunction)
        self._alive()
        self._admit(function, grid, block, shared)
        self._mine(function, arguments)
        self.launches += 1
        if self.launches == self._fails:
            self._lost = True
        self._alive()
        fault = toolchain.FaultStruct()
        request = function.request(grid, block, arguments, shared, self.seed)
        with runtime.LOCK:
            runtime.library().tritmark_trace(
                0 if self._trace is None else 3 if self._trace.shared else 1, _MOST_RECORDS
            )
            failed = runtime.library().tritmark_launch(ctypes.byref(request), ctypes.byref(fault))
            if self._trace is not None:
                records = _records()
                self._trace.launches.append(
                    TracedLaunch(function.name, records, len(records) < _MOST_RECORDS, function.module)
                )
        if failed:
            raise DeviceFaultError(self._fault_text(function, arguments, fault), next_step=_GO_ON)

    def _alive(self) -> None:
        """Raises DeviceFaultError if the device was lost, as planted."""
        if self._lost:
            raise DeviceFaultError(
                f"simulated: GPU {self.info.index} was lost at its launch {self._fails}, as planted", next_step=_GO_ON
            )

    def _mine(self, function: SimulatorFunction, arguments: Arguments) -> None:
        """Raises DeviceFaultError if an argument points to the memory of another device."""
        if gpu_count() == 1:
            return
        for place, (value, (sort, _)) in enumerate(zip(arguments.values, function.parameters, strict=True)):
            owner = self._arena.owner(int(value)) if sort == "P" and value else None
            if owner not in {None, self.info.index}:
                raise DeviceFaultError(
                    f"simulated: {function.name}: argument {place + 1} is in the memory of GPU {owner}, but this is "
                    f"GPU {self.info.index}",
                    next_step="copy it there first",
                )

    def _admit(self, function: SimulatorFunction, grid: Dim, block: Dim, shared: int) -> None:
        threads = block[0] * block[1] * block[2]
        most = self.info.shared_per_block_optin
        refusal = (
            (not 1 <= threads <= function.most_threads or block[2] > 64 or min(block) < 1)
            and f"a block of {block} threads; at most {function.most_threads} in all, at most 64 in z"
        ) or (
            not (1 <= grid[0] < 1 << 31 and 1 <= grid[1] < 1 << 16 and 1 <= grid[2] < 1 << 16)
            and f"a grid of {grid} blocks; at most (2147483647, 65535, 65535), at least 1"
        )
        if not refusal and (shared < 0 or function.shared + shared > most):
            refusal = f"{function.shared} + {shared} bytes of shared memory; at most {most}"
        if refusal:
            raise LaunchError(f"{function.name}: {refusal}", next_step="change the launch parameters")

    def _fault_text(self, function: SimulatorFunction, arguments: Arguments, fault: toolchain.FaultStruct) -> str:
        said = f"simulated: {function.name}: {fault.text.decode()}"
        line = toolchain.source_line(function.module, fault.pc)
        near = self._arena.near(fault.address) if fault.address else None
        if near:
            pointer, nbytes = near
            which = [
                i + 1
                for i, (value, (sort, _)) in enumerate(zip(arguments.values, function.parameters, strict=True))
                if sort == "P" and pointer <= value < pointer + nbytes
            ]
            name = f"argument {which[0]}" if which else f"the allocation at {pointer:#x}"
            said += f", byte {fault.address - pointer} of {name} ({nbytes} bytes)"
        elif fault.address:
            said += f", {function.shared_place(fault.address) or f'address {fault.address:#x}'}"
        said += f"; block {tuple(fault.block)}, thread {tuple(fault.thread)}"
        return f"{said}, {line}" if line else said

    @contextmanager
    def trace(self, *, shared: bool = False) -> Iterator[Trace]:
        """Record the accesses of all launches within the `with` to device memory, and those of one block of each to
        `shared` memory."""
        self._trace = Trace(shared=shared)
        try:
            yield self._trace
        finally:
            self._trace = None

    def new_stream(self, *, apart: bool = False) -> backend.Stream:
        """Another stream that runs work immediately."""
        return SimulatorStream()

    def new_event(self) -> backend.Event:
        """An event that measures nothing."""
        return SimulatorEvent()

    def allocate(self, nbytes: int) -> SimulatorAllocation:
        """Memory filled with a pattern that depends on the seed."""
        self._alive()
        pattern = (0xCB + 37 * self.seed) & 0xFF
        made = self._arena.allocate(nbytes, self.info.memory, pattern, self.info.index, self._context)
        return SimulatorAllocation(self._arena, made, nbytes)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        return max(0, self.info.memory - self._arena.used[self._context]), self.info.memory

    def pinned(self, nbytes: int) -> npt.NDArray[Any]:
        """Ordinary host memory, which the simulator needs no pinning for."""
        return np.empty(nbytes, np.uint8)

    def is_pinned(self, values: npt.NDArray[Any]) -> bool:
        """False: copies gain nothing from pinning."""
        return False

    def array_copier(self, lanes: int, piece: int) -> None:
        """Returns None, so Python copies."""

    def write(self, pointer: int, values: npt.NDArray[Any], stream: backend.Stream | None = None) -> None:
        """Copy to the device."""
        self._alive()
        self._arena.must_hold(pointer, values.nbytes, "a copy to the device", self.info.index)
        ctypes.memmove(pointer, values.ctypes.data, values.nbytes)
        runtime.library().tritmark_written(pointer, values.nbytes)

    def read(self, pointer: int, into: npt.NDArray[Any], stream: backend.Stream | None = None) -> None:
        """Copy from the device."""
        self._alive()
        self._arena.must_hold(pointer, into.nbytes, "a copy from the device", self.info.index)
        ctypes.memmove(into.ctypes.data, pointer, into.nbytes)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: backend.Stream | None = None) -> None:
        """Set bytes."""
        self._alive()
        self._arena.must_hold(pointer, nbytes, "a fill", self.info.index)
        ctypes.memset(pointer, byte, nbytes)
        runtime.library().tritmark_written(pointer, nbytes)

    def synchronize(self) -> None:
        """Does nothing; all work is complete. Raises DeviceFaultError if the device was lost."""
        self._alive()

    def reaches(self, other: SimulatorBackend) -> bool:
        """The value of TRITMARK_SIMULATOR_PEERS."""
        return bool(_number("TRITMARK_SIMULATOR_PEERS", 1))

    def copy_from(self, pointer: int, other: SimulatorBackend, source: int, nbytes: int) -> None:
        """Copy from the memory of another simulated device."""
        self._alive()
        other._alive()
        self._arena.must_hold(pointer, nbytes, "a copy to the device", self.info.index)
        self._arena.must_hold(source, nbytes, "a copy from the device", other.info.index)
        ctypes.memmove(pointer, source, nbytes)
        runtime.library().tritmark_written(pointer, nbytes)


def _records() -> npt.NDArray[Any]:
    count = ctypes.c_uint64()
    first = runtime.library().tritmark_records(ctypes.byref(count))
    if not count.value:
        return np.empty(0, RECORD)
    return np.frombuffer(ctypes.string_at(first, count.value * RECORD.itemsize), RECORD)
