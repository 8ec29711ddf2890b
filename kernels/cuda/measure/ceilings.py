"""Ceilings of a GPU: probes that are bound and timed like kernels, and the cost of launches and transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tritmark.harness.spec import Ceiling, Launch
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.context import CudaContext, cuda_context
from tritmark.kernels.cuda.kernel import NONE_BAD, Kernel, Step
from tritmark.kernels.cuda.launch.launch import Call, CudaLaunch

THREADS = 256
DEFINES = (("THREADS", str(THREADS)),)
MOST_BLOCKS = 1 << 16
"""Larger sizes use a grid-stride loop."""

HALF = 256
"""Copied halves are multiples of half of this, in bytes."""

DOT_ROUNDS, DOT_OPERATIONS = 1024, 32 * 8
"""Rounds per byte of the buffer; operations per round: 32 dp4a of 8."""

MATRIX_ROUNDS, MATRIX_OPERATIONS = 32, 8 * 2 * 16 * 8 * 32
"""The same for 8 products of 16 x 32 by 32 x 8."""

WGMMA_ROUNDS, WGMMA_OPERATIONS = 1, 8 * 2 * 64 * 128 * 32
"""The same for 8 products of 64 x 32 by 32 x 128."""

WORD = 0x5A5A5A5A
"""The word that write probes store."""


def _kernel(name: str, registers: int, **more: Any) -> Kernel:
    return Kernel(
        file="cuda/ceilings.cu",
        name=f"probe_gpu_{name}",
        threads=THREADS,
        registers=registers,
        defines=DEFINES,
        **more,
    )


_overlapping = partial(_kernel, overlaps=True)
"""A probe that may begin while the previous launch still runs, as kernels may."""

READ = {
    1: _overlapping("read_1", 32, shared=128),
    4: _overlapping("read_4", 40, shared=128),
    8: _overlapping("read_8", 56, shared=128),
    -4: _overlapping("read_stream_4", 40, shared=128),
}
WRITE = {1: _overlapping("write_1", 32), 4: _overlapping("write_4", 40), -4: _overlapping("write_stream_4", 40)}
COPY = {1: _overlapping("copy_1", 24), 4: _overlapping("copy_4", 40), -4: _overlapping("copy_stream_4", 40)}
"""By accesses per thread; negative for streaming accesses."""

DOT = _overlapping("dot", 40, shared=128)
MATRIX = _overlapping("matrix", 64, shared=128, capability=(8, 0), simulated=False)
WGMMA = Kernel(
    file="cuda/ceilings_wgmma.cu",
    name="probe_gpu_wgmma",
    threads=THREADS,
    registers=128,
    shared=(16 << 10) + 16,
    capability=(9, 0),
    specific=True,
    defines=DEFINES,
    simulated=False,
)
NOTHING = _kernel("nothing", 16)
WAIT = _kernel("wait", 16)

PROBES = (*READ.values(), *WRITE.values(), *COPY.values(), DOT, MATRIX, WGMMA, NOTHING, WAIT)
"""All probes, for the static checks."""


class Sink:
    """Output of the probes of a context; shared, so that it costs a cold probe nothing."""

    def __init__(self, here: CudaContext) -> None:
        self.sums = here.array((MOST_BLOCKS,), np.uint32)
        self.bad = here.array((1,), np.uint64)
        self.bad.write(np.full(1, NONE_BAD))


_sinks: WeakValueDictionary[CudaContext, Sink] = WeakValueDictionary()


class Probe(CudaLaunch):
    """A launch of a probe. It keeps `buffer` and the sink alive."""

    def __init__(self, kernel: Kernel, blocks: int, args: tuple[Any, ...], buffer: DeviceArray, sink: Sink) -> None:
        here = cuda_context()
        self.sink = sink
        call = Call(
            inputs={"buffer": buffer},
            outputs={},
            axes={},
            info=here.backend.info,
            bad=sink.bad,
            workspace=None,
            function=here.function,
        )
        step = Step(kernel=kernel, grid=(blocks, 1, 1), block=(kernel.threads, 1, 1), args=args)
        super().__init__(f"cuda/probe/none/uint8/{kernel.name}", call, (step,))

    @property
    def checksum(self) -> int:
        """Sum modulo 2**32 of the values that the blocks of the last run read or computed."""
        sums = self.sink.sums.numpy()[: self.steps[0].grid[0]]
        return int(sums.sum(dtype=np.uint64)) % (1 << 32)


class OneByOne:
    """A launch through Python only: `run` costs the time of handing it to the driver."""

    pointer = None
    bad = -1

    def __init__(self, launch: CudaLaunch) -> None:
        self._launch = launch
        self._stream = cuda_context().backend.stream

    def run(self) -> None:
        """Put it into the stream without waiting."""
        self._launch.enqueue(self._stream)

    @property
    def ran(self) -> str:
        return self._launch.ran

    @property
    def runs(self) -> int:
        return self._launch.runs

    threads_used = 1


class CopyProbe:
    """A copy between pinned host memory and the device."""

    pointer = None
    bad = -1
    threads_used = 1

    def __init__(self, buffer: DeviceArray, up: bool) -> None:
        backend = cuda_context().backend
        self._buffer = buffer
        self._pinned = backend.pinned(buffer.nbytes)
        self._copy = backend.write if up else backend.read
        self._name = "upload" if up else "download"
        self.ran = ""
        self.runs = 0

    def run(self) -> None:
        """Copy the buffer, and wait."""
        self._copy(self._buffer.pointer, self._pinned)
        self.ran = self._name
        self.runs += 1


def _sink() -> Sink:
    here = cuda_context()
    found = _sinks.get(here)
    if found is None:
        found = _sinks[here] = Sink(here)
    return found


def _resident(kernel: Kernel) -> int:
    """Number of blocks that the device holds at a time."""
    here = cuda_context()
    return max(1, min(MOST_BLOCKS, here.function(kernel).blocks_per_sm(kernel.threads) * here.backend.info.sms))


def _cover(kernel: Kernel, nbytes: int, unroll: int, resident: bool) -> int:
    """Number of blocks to cover the bytes once, limited to resident blocks with `resident`."""
    whole = max(1, -(-nbytes // (16 * THREADS * abs(unroll))))
    return min(whole, _resident(kernel) if resident else MOST_BLOCKS)


def _read(unroll: int, resident: bool, buffer: DeviceArray, threads: int) -> Launch:
    kernel, sink = READ[unroll], _sink()
    return Probe(
        kernel,
        _cover(kernel, buffer.nbytes, unroll, resident),
        (buffer, np.uint64(buffer.nbytes), sink.sums),
        buffer,
        sink,
    )


def _write(unroll: int, resident: bool, buffer: DeviceArray, threads: int) -> Launch:
    kernel, args = WRITE[unroll], (buffer, np.uint64(buffer.nbytes), np.uint32(WORD))
    return Probe(kernel, _cover(kernel, buffer.nbytes, unroll, resident), args, buffer, _sink())


def _copy(unroll: int, resident: bool, buffer: DeviceArray, threads: int) -> Launch:
    kernel, half = COPY[unroll], _copied(buffer.nbytes) // 2
    second = buffer.view((half,), np.uint8, half)
    return Probe(kernel, _cover(kernel, half, unroll, resident), (buffer, second, np.uint64(half)), buffer, _sink())


def _compute(kernel: Kernel, rounds: int, buffer: DeviceArray, threads: int) -> Launch:
    sink = _sink()
    return Probe(kernel, _resident(kernel), (np.uint64(buffer.nbytes * rounds), sink.sums), buffer, sink)


def _nothing(one_by_one: bool, buffer: DeviceArray, threads: int) -> Launch:
    probe = Probe(NOTHING, 1, (), buffer, _sink())
    return OneByOne(probe) if one_by_one else probe


def _transfer(up: bool, buffer: DeviceArray, threads: int) -> Launch:
    return CopyProbe(buffer, up)


def _copied(nbytes: int) -> int:
    return nbytes // HALF * HALF


def _one(nbytes: int) -> int:
    return 1


def _dots(nbytes: int) -> int:
    return nbytes * DOT_ROUNDS * DOT_OPERATIONS


def _products(nbytes: int) -> int:
    return nbytes * MATRIX_ROUNDS * MATRIX_OPERATIONS


def _wgmma_products(nbytes: int) -> int:
    return nbytes * WGMMA_ROUNDS * WGMMA_OPERATIONS


def _moving(
    name: str, kernels: Mapping[int, Kernel], bind: Callable[..., Launch], work: Callable[[int], int] = int
) -> dict[str, Ceiling]:
    found = {}
    for unroll in kernels:
        for resident in (False, True):
            streaming, blocks = (
                ", streaming" if unroll < 0 else "",
                "resident blocks" if resident else "a block for each part",
            )
            how = f"{abs(unroll)} accesses a thread{streaming}, {blocks}"
            found[f"{name}: {how}"] = Ceiling(
                name=name, unit="bytes/s", summary=how, bind=partial(bind, unroll, resident), work=work
            )
    return found


def ceilings() -> Mapping[str, Ceiling]:
    """Probes by description, those that this device can run."""
    backend = cuda_context().backend
    return _ceilings(backend.info.capability, backend.simulated)


@cache
def _ceilings(capability: tuple[int, int], simulated: bool) -> Mapping[str, Ceiling]:
    dot = partial(_compute, DOT, DOT_ROUNDS)
    matrix = partial(_compute, MATRIX, MATRIX_ROUNDS)
    found = {
        **_moving("read", READ, _read),
        **_moving("write", WRITE, _write),
        **_moving("copy", COPY, _copy, _copied),
        "compute: dp4a": Ceiling(
            name="compute", unit="operations/s", summary="int8 dot products (dp4a)", bind=dot, work=_dots
        ),
        "dot": Ceiling(name="dot", unit="operations/s", summary="int8 dot products (dp4a)", bind=dot, work=_dots),
        "launch": Ceiling(
            name="launch",
            unit="launches/s",
            summary="an empty kernel, replayed",
            bind=partial(_nothing, False),
            work=_one,
            level="CUDA graph",
        ),
        "Python launch": Ceiling(
            name="Python launch",
            unit="launches/s",
            summary="an empty kernel, launched one by one",
            bind=partial(_nothing, True),
            work=_one,
            level="stream",
        ),
        "upload": Ceiling(
            name="upload",
            unit="bytes/s",
            summary="host to device",
            bind=partial(_transfer, True),
            work=int,
            level="pinned memory",
        ),
        "download": Ceiling(
            name="download",
            unit="bytes/s",
            summary="device to host",
            bind=partial(_transfer, False),
            work=int,
            level="pinned memory",
        ),
    }
    if capability >= MATRIX.capability and not simulated:
        found["compute: mma"] = Ceiling(
            name="compute",
            unit="operations/s",
            summary="int8 products on the tensor cores (mma)",
            bind=matrix,
            work=_products,
        )
    if WGMMA.runs_on(capability) and not simulated:
        found["compute: wgmma"] = Ceiling(
            name="compute",
            unit="operations/s",
            summary="int8 products on the tensor cores (wgmma)",
            bind=partial(_compute, WGMMA, WGMMA_ROUNDS),
            work=_wgmma_products,
        )
    return found
