"""Public functions that report how this process uses a device, and whether the device's memory is in order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.harness.numbered import numbered
from tritmark.harness.spec import DeviceStats
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.dispatch import dispatch

if TYPE_CHECKING:
    from tritmark.kernels.cuda.memory.memory import MemoryHealth


def performance_stats(device: str = "cuda") -> DeviceStats:
    """Counts of this process's work on a GPU, and the contents of its memory pool there.

    `device` is "cuda" or "cuda:1" and so on. Counts begin with the first work on that GPU; before it they are 0, and
    this call does not start the GPU. For a part of the work, use `since`: `performance_stats().since(earlier)`. With
    `TRITMARK_CUDA=simulator` the counts are the simulator's, and `simulated` is true.

    Raises InvalidArgumentError for a device without a memory of its own ("cpu"), NoCompatibleKernelError for an unknown
    device, and DeviceUnavailableError if there is no such GPU.
    """
    from tritmark.kernels.cuda.device import stats

    with _on("performance_stats", device):
        return stats()


def check_memory_health(device: str = "cuda", *, older_than_s: float | None = None) -> MemoryHealth:
    """Check the memory of a GPU and this process's pool there, in under 5 ms once the GPU is in use.

    `healthy` is false, with `reasons`, if the device does not respond, if it reports less memory in use than the pool
    holds, if the peak use could not be allocated again, or, with `older_than_s`, if an allocation is older than that.
    `figures` has fragmentation and high-water marks, and `oldest` the allocation that may leak.

    `device` is "cuda" or "cuda:1" and so on. The first call starts the GPU, if this process has not used it. With
    `TRITMARK_CUDA=simulator` the memory is the simulator's, and `simulated` is true.

    Raises InvalidArgumentError for a device without a memory of its own ("cpu"), NoCompatibleKernelError for an unknown
    device, and DeviceUnavailableError if there is no such GPU.
    """
    from tritmark.kernels.cuda.context import cuda_context

    with _on("check_memory_health", device):
        found = cuda_context().pool.check_memory_health(older_than_s)
    _, index = numbered(device) or (device, 0)
    return replace(found, device=f"{DEVICE}:{index}")


def _on(asks: str, device: str) -> AbstractContextManager[None]:
    """A context in which the GPU of that name is the current one."""
    from tritmark.kernels.cuda.context import on_gpu

    dispatch.check_device(asks, device)
    kind, index = numbered(device) or (device, 0)
    known = dispatch.registry().device(device, f"{asks} on {device!r}")
    if kind != DEVICE:
        raise InvalidArgumentError(
            op=asks, argument="device", found=repr(device), legal="cuda, or cuda:0 and so on: a GPU with its own memory"
        )
    missing = known.missing()
    if missing is not None:
        found, _, step = missing.partition("; next: ")
        raise DeviceUnavailableError(f"{device}: {found}", next_step=step or "see tritmark doctor")
    return on_gpu(index)
