"""How a kernel walks through device memory, from the accesses that the simulator traced (specification, 4.4).

A warp's instruction moves whole sectors of 32 bytes. Coalescing, in percent, is the sectors that its bytes would fill
at the least, over the sectors that they lie in.
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
    """The pattern of accesses that are so far from each other: sequential where each is one further than the one
    before (or there is but one), strided where all distances are the same (0: all at the same place), else random."""
    if not distances.size or (distances == 1).all():
        return SEQUENTIAL
    return AccessPattern("strided", int(distances[0])) if (distances == distances[0]).all() else RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSite:
    """One load or store instruction of a kernel, over all warps and all times that they came to it."""

    kernel: str
    line: str
    """ "file:line", with the places it was inlined into."""
    kind: str
    """read, write or atomic."""
    size: int
    """Bytes that a lane moves."""
    pattern: AccessPattern
    """From lane to lane, in units of `size`."""
    instructions: int
    """Times that a warp came to it."""
    accesses: int
    """Lanes that took part, over all instructions."""
    sectors: int
    """Sectors touched."""
    least: int
    """Sectors that the bytes would fill."""

    @property
    def percent(self) -> float:
        """Coalescing."""
        return 100 * self.least / self.sectors

    def __str__(self) -> str:
        return (
            f"{self.kernel}, {self.line}: {self.kind} of {self.size} bytes a lane, {self.pattern}, "
            f"{self.percent:.0f} % coalesced"
        )


def analyse(trace: Trace) -> tuple[AccessSite, ...]:
    """The sites of all launches of a trace, launch by launch, in the order of the code."""
    return tuple(site for launch in trace.launches for site in _sites(launch))


def _sites(launch: TracedLaunch) -> list[AccessSite]:
    records = launch.records
    found = []
    for pc, size, kind in np.unique(records[["pc", "size", "kind"]]):
        mine = records[(records["pc"] == pc) & (records["size"] == size) & (records["kind"] == kind)]
        found.append(_site(launch, int(pc), int(size), _KINDS[int(kind)], mine))
    return found


def _site(launch: TracedLaunch, pc: int, size: int, kind: str, records: npt.NDArray[Any]) -> AccessSite:
    # Which time of its thread each access is: within (block, thread) they stand in order.
    records = records[np.lexsort((records["thread"], records["block"]))]
    position = np.arange(len(records))
    time = position - np.maximum.accumulate(np.where(_begins(records["block"], records["thread"]), position, 0))
    # The lanes of a warp that are there for the same time make one instruction.
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
    """Where, in sorted rows, something new begins."""
    new = np.ones(len(keys[0]), bool)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return new
