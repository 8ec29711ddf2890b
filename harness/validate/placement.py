"""Where the arrays of one launch lie: how far past an aligned address each begins, and how far apart its rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritmark.harness.validate.guards import layout_offset

ROW_GAP = 3
"""Elements between the rows of an unaligned array whose rows may lie apart: odd, so that rows are aligned to
nothing."""


@dataclass(frozen=True, slots=True)
class Placement:
    """`offsets` and `gaps` are bytes by array, rounded down to what the array's elements and the variant's alignment
    admit.

    An array that is not named begins at a multiple of the alignment, its rows one right after the other.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, int] = field(default_factory=dict)
    flush: bool = False
    """Where an array ends at a page that traps it ends right there, wherever that has it begin."""

    def offset(self, name: str, itemsize: int, alignment: int) -> int:
        """Bytes past a multiple of 64, or of `alignment` if that is more."""
        step = max(itemsize, alignment)
        return self.offsets.get(name, 0) // step * step

    def gap(self, name: str, itemsize: int, alignment: int) -> int:
        """Bytes between two rows. A variant that asks for aligned arrays is given rows that are as aligned as dense
        ones are."""
        step = alignment if alignment > itemsize else itemsize
        return self.gaps.get(name, 0) // step * step


ALIGNED = Placement()


def named(layout: str, itemsizes: Mapping[str, int], apart: frozenset[str]) -> Placement:
    """The placement of a layout: every array aligned, or every array one element past that and rows that may lie apart,
    apart.

    `itemsizes` are the bytes of each array's elements, `apart` the arrays whose rows may lie apart. Raises UsageError
    for an unknown layout.
    """
    offsets = {name: layout_offset(layout, itemsize) for name, itemsize in itemsizes.items()}
    if not any(offsets.values()):
        return ALIGNED
    gaps = {name: ROW_GAP * itemsize for name, itemsize in itemsizes.items() if name in apart}
    return Placement(offsets, gaps, flush=True)
