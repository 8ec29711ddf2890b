"""Bank conflicts of a kernel in shared memory, from the accesses that the simulator traced.

Shared memory has 32 banks of 4 bytes. A pass reads or writes one word of each bank, for lanes that have at most 128
bytes together: 32 lanes of 4 bytes or fewer, 16 of 8, 8 of 16. Different words of one bank take a pass each. Lanes at
the same word share it, also in an atomic operation, which a GPU may serialise instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritmark.kernels.cuda.access.coalescing import (
    KINDS,
    OF_SHARED,
    AccessPattern,
    access_pattern,
    begins,
    instructions_of,
    requests_of,
)

if TYPE_CHECKING:
    from tritmark.kernels.cuda.simulator.backend import Trace, TracedLaunch

BANKS, WORD = 32, 4
"""Number of banks, and bytes of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSite:
    """One load or store instruction of a kernel in shared memory, over the warps and executions of one block."""

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
    passes: int
    """Passes over the banks."""
    least: int
    """Passes without conflicts."""

    def __str__(self) -> str:
        return (
            f"{self.kernel}, {self.line}: {self.kind} of {self.size} bytes a lane in shared memory, {self.pattern}, "
            f"{self.passes / self.least:.2g} passes for one"
        )


def shared_sites(trace: Trace) -> tuple[SharedSite, ...]:
    """The sites in shared memory of all launches of a trace, by launch, in code order."""
    return tuple(
        _site(launch, pc, size, KINDS[kind - OF_SHARED], records)
        for launch in trace.launches
        for pc, size, kind, records in instructions_of(launch)
        if kind >= OF_SHARED
    )


def _site(launch: TracedLaunch, pc: int, size: int, kind: str, records: npt.NDArray[Any]) -> SharedSite:
    requests = requests_of(records)
    passes, least = bank_passes(requests.number, requests.lane, requests.address, size)
    return SharedSite(
        kernel=launch.kernel,
        line=launch.line(pc),
        kind=kind,
        size=size,
        pattern=access_pattern(requests.distances() // size),
        instructions=requests.count,
        passes=passes,
        least=least,
    )


def bank_passes(
    request: npt.NDArray[np.int64], lane: npt.NDArray[np.int64], address: npt.NDArray[np.int64], size: int
) -> tuple[int, int]:
    """The passes that accesses of `size` bytes take, and those that they would take without conflicts. The arrays have
    one entry for each access: number of its request, lane, and byte address."""
    words = max(1, size // WORD)
    group = request * BANKS + lane * words // BANKS
    word = (address[:, None] // WORD + np.arange(words)).ravel()
    group = np.repeat(group, words)
    order = np.lexsort((word, word % BANKS, group))
    group, word = group[order], word[order]
    distinct = begins(group, word)
    group, bank = group[distinct], word[distinct] % BANKS
    starts = np.flatnonzero(begins(group, bank))
    of_bank = np.diff(np.append(starts, len(group)))
    first_bank = np.flatnonzero(begins(group[starts]))
    return int(np.maximum.reduceat(of_bank, first_bank).sum()), len(first_bank)
