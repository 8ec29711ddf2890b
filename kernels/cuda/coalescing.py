"""Access patterns of a kernel in device memory, from the accesses that the simulator traced (specification, 4.4).

An instruction of a warp moves whole sectors of 32 bytes. Coalescing in percent is the fewest sectors that could hold
its bytes, over the sectors that it touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tritmark.kernels.cuda.simulator.backend import Trace, TracedLaunch

SECTOR = 32
"""Bytes."""
_KINDS = {0: "read", 1: "write", 3: "atomic"}


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """`name`: sequential, strided or random. `stride` is 1, the constant distance, or 0 for random."""

    name: str
    stride: int

    def __str__(self) -> str:
        return f"strided by {self.stride}" if self.name == "strided" else self.name


SEQUENTIAL = AccessPattern("sequential", 1)
RANDOM = AccessPattern("random", 0)


def access_pattern(distances: npt.NDArray[np.int64]) -> AccessPattern:
    """The pattern of these distances between consecutive accesses: sequential if all are 1 (or there is only one
    access), strided if all are equal (0: the same place), otherwise random."""
    if not distances.size or (distances == 1).all():
        return SEQUENTIAL
    return AccessPattern("strided", int(distances[0])) if (distances == distances[0]).all() else RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSite:
    """One load or store instruction of a kernel, over all warps and executions."""

    kernel: str
    line: str
    """ "file:line", with the places it was inlined into."""
    kind: str
    """read, write or atomic."""
    size: int
    """Bytes per lane."""
    pattern: AccessPattern
    """From lane to lane, in units of `size`."""
    instructions: int
    """Executions by warps."""
    accesses: int
    """Active lanes over all executions."""
    sectors: int
    """Sectors touched."""
    least: int
    """The fewest sectors that could hold the bytes."""

    @property
    def percent(self) -> float:
        """Coalescing in percent."""
        return 100 * self.least / self.sectors

    def __str__(self) -> str:
        return (
            f"{self.kernel}, {self.line}: {self.kind} of {self.size} bytes a lane, {self.pattern}, "
            f"{self.percent:.0f} % coalesced"
        )


def analyse(trace: Trace) -> tuple[AccessSite, ...]:
    """The sites of all launches of a trace, by launch, in code order."""
    return tuple(site for launch in trace.launches for site in _sites(launch))


def _sites(launch: TracedLaunch) -> list[AccessSite]:
    records = launch.records
    found = []
    for pc, size, kind in np.unique(records[["pc", "size", "kind"]]):
        mine = records[(records["pc"] == pc) & (records["size"] == size) & (records["kind"] == kind)]
        found.append(_site(launch, int(pc), int(size), _KINDS[int(kind)], mine))
    return found


def _site(launch: TracedLaunch, pc: int, size: int, kind: str, records: npt.NDArray[Any]) -> AccessSite:
    # Number of each access within its thread: the records of a (block, thread) are in order.
    records = records[np.lexsort((records["thread"], records["block"]))]
    position = np.arange(len(records))
    time = position - np.maximum.accumulate(np.where(_begins(records["block"], records["thread"]), position, 0))
    # Lanes of a warp with the same access number form one instruction.
    warp = records["thread"] // 32
    order = np.lexsort((records["thread"], time, warp, records["block"]))
    address = records["address"][order].astype(np.int64)
    begins = _begins(records["block"][order], warp[order], time[order])
    instruction = np.cumsum(begins)
    distances = (address[1:] - address[:-1])[~begins[1:]]
    by_address = np.lexsort((address, instruction))
    instruction, address = instruction[by_address], address[by_address]
    bytes_of_each = np.bincount(instruction[_begins(instruction, address)]) * size
    return AccessSite(
        kernel=launch.kernel,
        line=launch.line(pc),
        kind=kind,
        size=size,
        pattern=access_pattern(distances // size),
        instructions=int(begins.sum()),
        accesses=len(records),
        sectors=int(_begins(instruction, address // SECTOR).sum()),
        least=int((-(-bytes_of_each // SECTOR)).sum()),
    )


def _begins(*keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a new group begins in sorted rows."""
    new = np.ones(len(keys[0]), bool)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return new
