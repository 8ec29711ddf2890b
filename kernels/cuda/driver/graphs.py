"""CUDA graphs through cuda-bindings, because PyCUDA has none: capture a stream, and read the kernels of a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tritmark.harness.errors import DeviceFaultError
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.cuda.kernel import Dim


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """A kernel of a captured graph."""

    function: str
    handle: int
    """The driver's handle of the function."""
    grid: Dim
    block: Dim
    shared: int
    """Bytes of dynamic shared memory."""
    resident: int
    """Resident blocks per multiprocessor."""


def checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a driver call without its status. Raises DeviceFaultError for any status except success."""
    status, *values = result
    if status.value:
        raise DeviceFaultError(
            f"the CUDA driver reports {status.name}", next_step="run the kernel under compute-sanitizer"
        )
    return tuple(values)


def recorded(stream: Stream, put: Callable[[Stream], None]) -> Any:
    """The driver's graph of the work that `put` puts into the stream. None of it runs. The caller destroys the
    graph."""
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
    """The kernel nodes, and the number of other nodes."""
    from cuda.bindings import driver

    _, count = checked(driver.cuGraphGetNodes(graph))
    found, _ = checked(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    kind = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    kernels = [node for node in found[:count] if checked(driver.cuGraphNodeGetType(node))[0] == kind]
    return kernels, count - len(kernels)


def read(node: Any) -> RecordedKernel:
    """The launch of a kernel node, as the driver reports it."""
    from cuda.bindings import driver

    (given,) = checked(driver.cuGraphKernelNodeGetParams(node))
    function = given.func
    if not int(function):  # reported as a kernel without a context
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
