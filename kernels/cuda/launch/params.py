"""Launch parameters, computed from the limits of the device."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.errors import LaunchError
from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.kernels.cuda.backend import DeviceFunction
from tritmark.kernels.cuda.kernel import Dim

MOST_BLOCKS = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchParams:
    """Grid, block and dynamic shared memory of a launch, with its occupancy."""

    grid: Dim
    block: Dim
    shared: int = 0
    occupancy: float = 0.0
    """Resident threads over the maximum of a multiprocessor."""
    waves: float = 0.0
    """Blocks over the blocks that the device holds at a time."""


def launch_params(
    function: DeviceFunction, info: DeviceInfo, blocks: int, threads: int, *, shared: int = 0, waves: int | None = None
) -> LaunchParams:
    """Parameters for `blocks` blocks of `threads` threads; with `waves`, at most so many times the blocks that the
    device holds at a time.

    Raises LaunchError if a block needs more threads or shared memory than the device has.
    """
    if not 1 <= threads <= min(function.most_threads, info.threads_per_block):
        most = min(function.most_threads, info.threads_per_block)
        step = f"use 1 to {most}, as its registers and {info.name} allow"
        raise LaunchError(f"{function.name}: {threads} threads a block", next_step=step)
    if function.shared + shared > info.shared_per_block_optin:
        raise LaunchError(
            f"{function.name}: {function.shared + shared} bytes of shared memory a block",
            next_step=f"use at most {info.shared_per_block_optin}, the limit of {info.name}",
        )
    resident = function.blocks_per_sm(threads, shared)
    if resident < 1:
        found = f"{function.name}: a block of {threads} threads does not fit a multiprocessor"
        raise LaunchError(found, next_step="use fewer threads or less shared memory")
    held = resident * info.sms
    count = max(1, min(blocks, MOST_BLOCKS, held * waves if waves else blocks))
    return LaunchParams(
        grid=(count, 1, 1),
        block=(threads, 1, 1),
        shared=shared,
        occupancy=min(1.0, resident * threads / info.threads_per_sm),
        waves=count / held,
    )


def tile_search(info: DeviceInfo, itemsize: int, least: int = 16, most: int = 32) -> int:
    """Edge of the largest square tile, doubled from `least` up to `most`, for which a block has one thread per element
    and holds two tiles in shared memory (specification, 4.1)."""
    edge = least
    while (
        edge < most
        and (2 * edge) ** 2 <= info.threads_per_block
        and 2 * (2 * edge) ** 2 * itemsize <= info.shared_per_block
    ):
        edge *= 2
    return edge
