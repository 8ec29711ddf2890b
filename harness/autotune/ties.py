"""One rule for choices within noise: what is not surely slower than the fastest ties with it, and of those that tie
the first in a fixed order is taken, so that the same measurement made twice keeps the same.

Screening shows which may tie; a second measurement, interleaved with the fastest, verifies that they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tritmark.harness.record import Ratio
from tritmark.harness.validate.performance import LAYOUT_NOISE


def may_tie(screened: Mapping[str, Ratio], order: Sequence[str]) -> tuple[str, list[str]]:
    """The fastest by its median, and those before it in `order` whose interval reaches its own: in the order in which
    they are to be taken. All were timed against the same. Raises ValueError where nothing was screened."""
    fastest = min(screened, key=lambda name: (screened[name].median, order.index(name)))
    reach = screened[fastest].high * (1 + LAYOUT_NOISE)
    before = order[: order.index(fastest)]
    return fastest, [name for name in before if name in screened and screened[name].low <= reach]


def tied(again: Ratio) -> bool:
    """Whether a time over the fastest's, measured once more, is not surely more."""
    return again.low <= 1 + LAYOUT_NOISE


def taken(
    screened: Mapping[str, Ratio], order: Sequence[str], race: Callable[[str, str], Ratio | None]
) -> tuple[str, str, Ratio | None]:
    """The one to take of those that were screened, the fastest, and the time of the one over the other's where they
    tie. `race(name, fastest)` measures once more, None where that broke."""
    fastest, candidates = may_tie(screened, order)
    for name in candidates:
        again = race(name, fastest)
        if again is not None and tied(again):
            return name, fastest, again
    return fastest, fastest, None
