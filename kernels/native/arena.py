"""One mapping of huge pages for all packed weights of a model, and what the system gave it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tritmark.harness.machine import memory
from tritmark.harness.machine.files import SYS
from tritmark.kernels.native.huge_pages import HugePages, aligned

_SMAPS = Path("/proc/self/smaps")
_GET_THP_DISABLE = 42
"""PR_GET_THP_DISABLE of prctl."""


@dataclass(frozen=True, slots=True)
class ArenaPages:
    """Packed weights in one arena."""

    nbytes: int
    """Bytes of the weights, each aligned to a cache line."""
    huge_nbytes: int
    """Bytes of them that lay in huge pages when the arena was filled."""
    why: str = ""
    """Why not all of them do, and what helps; "" if they do."""

    def __str__(self) -> str:
        from tritmark.harness.text import units  # late, since it imports the Record

        share = units.percent(self.huge_nbytes / self.nbytes if self.nbytes else 1.0)
        what = f"{units.size(self.nbytes)} of packed weights in one arena, {share} of it in huge pages"
        return f"{what}: {self.why}" if self.why else what


class WeightArena:
    """Memory for arrays, one behind another. It is freed with the last of them."""

    def __init__(self, sizes: Iterable[int]) -> None:
        """Room for arrays of these sizes in bytes. Raises OSError if this process may not reserve it."""
        self.nbytes = sum(map(aligned, sizes))
        self._pages = HugePages()
        self._slab = self._pages.reserve(max(1, self.nbytes))

    def copied(self, values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """A copy of `values` behind the arrays before it."""
        return self._pages.copied(values, least=1)

    def pages(self) -> ArenaPages:
        """What the arrays lie in. Has the system collapse small pages first, if there are any: Linux then does so even
        if the setting of transparent huge pages is `never`."""
        if self._huge() < self.nbytes:
            self._slab.collapse()
        huge = self._huge()
        return ArenaPages(self.nbytes, huge, "" if huge == self.nbytes else why_small())

    def _huge(self) -> int:
        return min(self.nbytes, huge_bytes(self._slab.address))


def huge_bytes(address: int, smaps: Path = _SMAPS) -> int:
    """Bytes in huge pages of the mapping at an address, as Linux reports them; 0 if it does not."""
    inside = False
    try:
        with smaps.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                    inside = int(span[1], 16) <= address < int(span[2], 16)
                elif inside and line.startswith("AnonHugePages:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        return 0
    return 0


def why_small(sys: Path = SYS) -> str:
    """Why memory that was advised to be of huge pages is not, and the next step."""
    mode = memory.huge_pages(sys)
    if mode is None:
        return "this Linux kernel has no transparent huge pages"
    if mode == "never":
        return f"transparent huge pages are off; next: echo madvise | sudo tee /sys/{memory.THP}"
    if _disabled():
        return "transparent huge pages are off for this process (prctl PR_SET_THP_DISABLE)"
    return "the system had no more free ones; next: echo 1 | sudo tee /proc/sys/vm/compact_memory, and pack again"


def _disabled() -> bool:
    try:
        return int(ctypes.CDLL(None).prctl(_GET_THP_DISABLE, 0, 0, 0, 0)) > 0
    except (OSError, AttributeError):
        return False
