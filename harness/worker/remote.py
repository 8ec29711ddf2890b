"""Stand-ins for what lies in a worker: memory and launches, so that judging need not know where a candidate runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.buffers import Uncounted
from tritmark.harness.spec import Arrays, Axes, Device, Launch, Proof, Variant
from tritmark.harness.worker import tasks
from tritmark.harness.worker.shared import Block, Edge, view
from tritmark.harness.worker.tasks import Handle, Ran

if TYPE_CHECKING:
    from tritmark.harness.worker.workers import Isolated


class Buffer:
    """A buffer of the worker, by its number; gone there when this object is gone here."""

    def __init__(self, worker: Isolated, nbytes: int, block: Block | None = None) -> None:
        self._worker = worker
        self.number = worker.number()
        self.nbytes = nbytes
        self.block = block

    def __int__(self) -> int:
        return self.number

    def __del__(self) -> None:
        self._worker.drop_buffer(self.number)


class SharedMemory:
    """The host's memory, as a worker sees it: see Memory. Every buffer ends, or begins, at a page that traps."""

    cache: int | None = None

    def __init__(self, worker: Isolated) -> None:
        self._worker = worker

    def available(self) -> int:
        """See Memory."""
        from tritmark.harness.machine.memory import available

        return available()

    def allocate(self, nbytes: int, edge: Edge = "end") -> Buffer:
        """See Memory. `edge` is the end that lies against the page that traps."""
        block = Block(nbytes, edge)
        buffer = Buffer(self._worker, nbytes, block)
        self._worker.call("attaching memory", tasks.attach, buffer.number, block)
        block.close()
        return buffer

    def view(
        self, buffer: Buffer, offset: int, shape: tuple[int, ...], dtype: npt.DTypeLike, strides: tuple[int, ...] | None = None
    ) -> Handle:
        """See Memory."""
        return Handle(buffer, offset, shape, np.dtype(dtype), strides)

    def write(self, array: Buffer | Handle, values: npt.NDArray[Any]) -> None:
        """See Memory; `array` is a buffer or a view of one."""
        _bytes(array)[...] = values.reshape(-1).view(np.uint8)

    def read(self, array: Buffer | Handle, into: npt.NDArray[Any]) -> None:
        """See Memory; `array` is a buffer or a view of one."""
        into.reshape(-1).view(np.uint8)[...] = _bytes(array)

    def watch(self) -> Uncounted:
        """See Memory. Counted is where the candidate runs, see validate.memory; nobody counts here."""
        return Uncounted()


class DeviceMemory:
    """The memory of a device that the worker works on: see Memory."""

    def __init__(self, worker: Isolated) -> None:
        self._worker = worker
        self._staging = Block(0)

    @property
    def cache(self) -> int | None:
        """See Memory."""
        cache: int | None = self._worker.call("describing its device", tasks.describe)[0]
        return cache

    def available(self) -> int:
        """See Memory."""
        return int(self._worker.call("describing its device", tasks.describe)[1])

    def allocate(self, nbytes: int) -> Buffer:
        """See Memory."""
        buffer = Buffer(self._worker, nbytes)
        self._worker.call("allocating memory", tasks.allocate, buffer.number, nbytes)
        return buffer

    def view(
        self, buffer: Buffer, offset: int, shape: tuple[int, ...], dtype: npt.DTypeLike, strides: tuple[int, ...] | None = None
    ) -> Handle:
        """See Memory."""
        return Handle(buffer, offset, shape, np.dtype(dtype), strides)

    def write(self, array: Buffer | Handle, values: npt.NDArray[Any]) -> None:
        """See Memory."""
        staging = self._staged(values.nbytes)
        staging.bytes[: values.nbytes] = values.reshape(-1).view(np.uint8)
        self._worker.call("copying to its device", _write, _handle(array, values.nbytes), staging, values.nbytes)

    def read(self, array: Buffer | Handle, into: npt.NDArray[Any]) -> None:
        """See Memory."""
        staging = self._staged(into.nbytes)
        self._worker.call("copying from its device", _read, _handle(array, into.nbytes), staging, into.nbytes)
        into.reshape(-1).view(np.uint8)[...] = staging.bytes[: into.nbytes]

    def watch(self) -> Uncounted:
        """See Memory. Counted is where the candidate runs, see validate.memory; nobody counts here."""
        return Uncounted()

    def _staged(self, nbytes: int) -> Block:
        if self._staging.nbytes < nbytes:
            self._staging = Block(nbytes)
        return self._staging


def _write(site: Any, handle: Handle, staging: Block, nbytes: int) -> None:
    tasks.write(site, handle, staging.bytes[:nbytes])


def _read(site: Any, handle: Handle, staging: Block, nbytes: int) -> None:
    tasks.read(site, handle, staging.bytes[:nbytes])


def _handle(array: Buffer | Handle, nbytes: int) -> Handle:
    return Handle(array, 0, (nbytes,), np.dtype(np.uint8)) if isinstance(array, Buffer) else array


def _bytes(array: Buffer | Handle) -> npt.NDArray[np.uint8]:
    if isinstance(array, Buffer):
        assert array.block is not None
        return array.block.bytes
    block = array.buffer.block
    assert block is not None
    return view(block.bytes, array.offset, array.shape, array.dtype, array.strides).reshape(-1).view(np.uint8)


class RemoteLaunch:
    """A Launch in the worker."""

    pointer: int | None = None

    def __init__(self, worker: Isolated, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
        self._worker = worker
        self._number = worker.number()
        self._kept = inputs, outputs
        self._told = Ran("", 0, 0, -1)
        worker.call("binding", tasks.bind, self._number, dict(inputs), dict(outputs), dict(axes), threads)
        self._process = worker.process

    def run(self) -> None:
        """See Launch. Raises CandidateError, WorkerError."""
        self._told = self._worker.call("a run", tasks.run, self._number)

    @property
    def ran(self) -> str:
        """See Launch."""
        return self._told.ran

    @property
    def runs(self) -> int:
        """See Launch."""
        return self._told.runs

    @property
    def threads_used(self) -> int:
        """See Launch."""
        return self._told.threads_used

    @property
    def bad(self) -> int:
        """See Launch; of the last run."""
        return self._told.bad

    @property
    def proof(self) -> Proof | None:
        """What the device's launcher in the worker collected; None where that process is gone."""
        if self._worker.process is not self._process or not self._worker.alive:
            return None
        found: Proof | None = self._worker.call("telling what ran", tasks.proof, self._number)
        return found

    def __del__(self) -> None:
        self._worker.drop_launch(self._number)


def variant(real: Variant, worker: Isolated) -> Variant:
    """The variant, bound and run in the worker."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return RemoteLaunch(worker, inputs, outputs, axes, threads)

    return replace(real, bind=bind)


def device(real: Device, worker: Isolated) -> Device:
    """The device, its memory and proofs those of the worker."""
    if real.memory is None:
        shared = SharedMemory(worker)
        return replace(real, memory=lambda: shared)
    memory = DeviceMemory(worker)

    def proof(launch: Launch) -> Proof | None:
        return launch.proof if isinstance(launch, RemoteLaunch) else None

    return replace(real, memory=lambda: memory, proof=proof)
