"""Placement of the arrays of one launch: offset past an aligned address, and gap between rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritmark.harness.validate.guards import layout_offset

ROW_GAP = 3
"""Elements between the rows of an unaligned array with admitted row gaps. The number is odd, so no row is aligned."""


@dataclass(frozen=True, slots=True)
class Placement:
    """`offsets` and `gaps` are bytes by array name, rounded down to steps that the elements and the variant's alignment
    admit.

    An array without an entry begins at a multiple of the alignment, with dense rows.
    """

    offsets: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, int] = field(default_factory=dict)
    flush: bool = False
    """If an array ends at a guard page, it ends exactly there, and its start follows."""

    def offset(self, name: str, itemsize: int, alignment: int) -> int:
        """Bytes past a multiple of 64, or of `alignment` if that is larger."""
        step = max(itemsize, alignment)
        return self.offsets.get(name, 0) // step * step

    def gap(self, name: str, itemsize: int, alignment: int) -> int:
        """Bytes between two rows. A variant with an alignment gets rows that are as aligned as dense ones."""
        step = alignment if alignment > itemsize else itemsize
        return self.gaps.get(name, 0) // step * step


ALIGNED = Placement()


def named(layout: str, itemsizes: Mapping[str, int], apart: frozenset[str]) -> Placement:
    """The placement of a layout: every array aligned, or every array one element past alignment and with row gaps if
    admitted.

    `itemsizes`: bytes of each array's elements. `apart`: arrays with admitted row gaps. Raises UsageError for an
    unknown layout.
    """
    offsets = {name: layout_offset(layout, itemsize) for name, itemsize in itemsizes.items()}
    if not any(offsets.values()):
        return ALIGNED
    gaps = {name: ROW_GAP * itemsize for name, itemsize in itemsizes.items() if name in apart}
    return Placement(offsets, gaps, flush=True)
