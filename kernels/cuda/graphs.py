"""CUDA graphs, through cuda-bindings, for PyCUDA has none: recording what is put into a stream, and reading which
kernels a recording has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tritmark.harness.errors import DeviceFaultError
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.cuda.kernel import Dim


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """A kernel of a recording."""

    function: str
    handle: int
    """The driver's, of the function."""
    grid: Dim
    block: Dim
    shared: int
    """Bytes of dynamic shared memory."""
    resident: int
    """Blocks of it that one multiprocessor holds at a time."""


def checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a driver call gave besides its status. Raises DeviceFaultError for any status but success."""
    status, *values = result
    if status.value:
        raise DeviceFaultError(
            f"the CUDA driver says {status.name}", next_step="run the kernel under compute-sanitizer"
        )
    return tuple(values)


def recorded(stream: Stream, put: Callable[[Stream], None]) -> Any:
    """The driver's graph of what `put` puts into the stream, in which nothing runs meanwhile. Who calls destroys it."""
    from cuda.bindings import driver

    handle = driver.CUstream(stream.handle)
    stream.synchronize()
    # Relaxed, because Python may free device memory at any time.
    checked(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        put(stream)
    except BaseException:
        error, unfinished = driver.cuStreamEndCapture(handle)
        if error == driver.CUresult.CUDA_SUCCESS:
            driver.cuGraphDestroy(unfinished)
        raise
    (graph,) = checked(driver.cuStreamEndCapture(handle))
    return graph


def nodes(graph: Any) -> tuple[list[Any], int]:
    """The nodes that are kernels, and how many others there are."""
    from cuda.bindings import driver

    _, count = checked(driver.cuGraphGetNodes(graph))
    found, _ = checked(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    kind = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    kernels = [node for node in found[:count] if checked(driver.cuGraphNodeGetType(node))[0] == kind]
    return kernels, count - len(kernels)


def read(node: Any) -> RecordedKernel:
    """What a node that is a kernel launches, as the driver tells."""
    from cuda.bindings import driver

    (given,) = checked(driver.cuGraphKernelNodeGetParams(node))
    function = given.func
    if not int(function):  # told as a kernel of no context
        (function,) = checked(driver.cuKernelGetFunction(given.kern))
    (name,) = checked(driver.cuFuncGetName(function))
    block = (int(given.blockDimX), int(given.blockDimY), int(given.blockDimZ))
    shared = int(given.sharedMemBytes)
    (resident,) = checked(
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, block[0] * block[1] * block[2], shared)
    )
    return RecordedKernel(
        function=name.decode(),
        handle=int(function),
        grid=(int(given.gridDimX), int(given.gridDimY), int(given.gridDimZ)),
        block=block,
        shared=shared,
        resident=int(resident),
    )
