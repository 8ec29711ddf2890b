"""The rule for choices within noise: all that are not slower than the fastest beyond noise tie with it, and the first
in a fixed order is taken. So a repeated measurement gives the same choice.

Screening finds possible ties. A second measurement, interleaved with the fastest, confirms them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tritmark.harness.record import Ratio
from tritmark.harness.validate.ceiling import LAYOUT_NOISE


def may_tie(screened: Mapping[str, Ratio], order: Sequence[str]) -> tuple[str, list[str]]:
    """The name with the fastest median, and the names before it in `order` whose intervals overlap with its own. All
    ratios have the same denominator. Raises ValueError if `screened` is empty."""
    fastest = min(screened, key=lambda name: (screened[name].median, order.index(name)))
    reach = screened[fastest].high * (1 + LAYOUT_NOISE)
    before = order[: order.index(fastest)]
    return fastest, [name for name in before if name in screened and screened[name].low <= reach]


def tied(again: Ratio) -> bool:
    """Whether a second measurement of a time over the fastest's includes 1, within noise."""
    return again.low <= 1 + LAYOUT_NOISE


def taken(
    screened: Mapping[str, Ratio], order: Sequence[str], race: Callable[[str, str], Ratio | None]
) -> tuple[str, str, Ratio | None]:
    """Returns the name to take, the fastest name, and the ratio of their times if they tie. `race(name, fastest)`
    measures the ratio again; it returns None if one of them broke."""
    fastest, candidates = may_tie(screened, order)
    for name in candidates:
        again = race(name, fastest)
        if again is not None and tied(again):
            return name, fastest, again
    return fastest, fastest, None
