"""Access patterns of a kernel in device memory, from the accesses that the simulator traced (specification, 4.4).

An instruction of a warp moves whole sectors of 32 bytes. Coalescing in percent is the fewest sectors that could hold
its bytes, over the sectors that it touches. For shared memory see banks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tritmark.kernels.cuda.simulator.backend import Trace, TracedLaunch

SECTOR = 32
"""Bytes."""
OF_SHARED = 4
"""Added to the kind of a record of shared memory (see runtime.cpp)."""
KINDS = {0: "read", 1: "write", 3: "atomic"}


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
    """The sites in device memory of all launches of a trace, by launch, in code order."""
    return tuple(
        _site(launch, pc, size, KINDS[kind], records)
        for launch in trace.launches
        for pc, size, kind, records in instructions_of(launch)
        if kind < OF_SHARED
    )


def instructions_of(launch: TracedLaunch) -> Iterator[tuple[int, int, int, npt.NDArray[Any]]]:
    """For each load or store instruction of a launch, in code order: its return address, bytes per lane, kind, and
    records."""
    records = launch.records
    # One integer sorts much faster than a structure; an address within a module has fewer than 48 bits.
    keys = records["pc"] << np.uint64(16) | records["size"].astype(np.uint64) << np.uint64(8) | records["kind"]
    for key in np.unique(keys).tolist():
        yield key >> 16, key >> 8 & 0xFF, key & 0xFF, records[keys == key]


@dataclass(frozen=True, slots=True)
class Requests:
    """The accesses of one instruction, sorted by request (an execution by a warp), then by lane."""

    number: npt.NDArray[np.int64]
    """Of each access: the number of its request, from 1."""
    lane: npt.NDArray[np.int64]
    address: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """Number of requests."""
        return int(self.number[-1])

    def distances(self) -> npt.NDArray[np.int64]:
        """Bytes from each lane to the next one of its request."""
        distances: npt.NDArray[np.int64] = np.diff(self.address)[self.number[1:] == self.number[:-1]]
        return distances


def requests_of(records: npt.NDArray[Any]) -> Requests:
    """The requests of the records of one instruction. Lanes of a warp with the same number of earlier executions form
    one request."""
    records = records[np.lexsort((records["thread"], records["block"]))]
    position = np.arange(len(records))
    time = position - np.maximum.accumulate(np.where(begins(records["block"], records["thread"]), position, 0))
    warp = records["thread"] // 32
    order = np.lexsort((records["thread"], time, warp, records["block"]))
    return Requests(
        np.cumsum(begins(records["block"][order], warp[order], time[order])),
        records["thread"][order].astype(np.int64) % 32,
        records["address"][order].astype(np.int64),
    )


def _site(launch: TracedLaunch, pc: int, size: int, kind: str, records: npt.NDArray[Any]) -> AccessSite:
    requests = requests_of(records)
    by_address = np.lexsort((requests.address, requests.number))
    number, address = requests.number[by_address], requests.address[by_address]
    bytes_of_each = np.bincount(number[begins(number, address)]) * size
    return AccessSite(
        kernel=launch.kernel,
        line=launch.line(pc),
        kind=kind,
        size=size,
        pattern=access_pattern(requests.distances() // size),
        instructions=requests.count,
        accesses=len(records),
        sectors=int(begins(number, address // SECTOR).sum()),
        least=int((-(-bytes_of_each // SECTOR)).sum()),
    )


def begins(*keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a new group begins in sorted rows."""
    new = np.ones(len(keys[0]), bool)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return new
