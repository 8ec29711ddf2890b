"""Crossings of made-up lines whose crossing is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tritmark.harness.sweep.crossing import crossovers
from tritmark.harness.sweep.points import SweepGrid, SweepLine, SweepPoint

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def line(
    name: str,
    ns: Callable[[int], float],
    *,
    half: float = 0.01,
    noisy: Iterable[int] = (),
    sizes: Iterable[int] = SIZES,
) -> SweepLine:
    """A kernel with these times, each with an interval of half that share on both sides."""
    points = (
        SweepPoint(size, ns(size), ns(size) * (1 - half), ns(size) * (1 + half), 1.0, too_noisy=size in set(noisy))
        for size in sizes
    )
    return SweepLine(name, name, tuple(points))


def grid(*lines: SweepLine) -> SweepGrid:
    return SweepGrid("hot", {}, "M", "bytes/s", lines)


def flat(size: int) -> float:
    return 1000.0


def steep(size: int) -> float:
    """That of `flat` at size 20."""
    return 50.0 * size


def test_a_crossing_is_found_where_it_was_planted() -> None:
    (found,) = crossovers(grid(line("flat", flat), line("steep", steep)))
    assert (found.before, found.after, found.low, found.high) == ("steep", "flat", 16, 32)
    assert found.about == pytest.approx(20, rel=1e-9)  # both are straight on logarithmic scales
    assert (found.certain, found.leading) == (True, True)
    assert "M about 20.0 (16 to 32): steep is faster below, flat above" in found.text("M")


def test_the_order_of_the_lines_does_not_matter() -> None:
    (found,) = crossovers(grid(line("steep", steep), line("flat", flat)))
    assert (found.before, found.after, found.low, found.high) == ("steep", "flat", 16, 32)


def test_overlapping_intervals_beside_it_widen_where_it_is() -> None:
    """At 16 the times differ by 20 % and at 32 by 60 %: intervals of half 15 % overlap at 16 only."""
    (found,) = crossovers(grid(line("flat", flat, half=0.15), line("steep", steep, half=0.15)))
    assert (found.certain, found.low, found.high) == (True, 8, 32)


def test_intervals_that_overlap_on_a_side_leave_it_within_noise() -> None:
    (found,) = crossovers(
        grid(line("flat", flat, half=0.15, sizes=(16, 32)), line("steep", steep, half=0.15, sizes=(16, 32)))
    )
    assert (found.certain, found.low, found.high) == (False, 16, 32)
    assert "cross within noise" in found.text("M")


def test_figures_that_are_too_noisy_decide_nothing() -> None:
    (found,) = crossovers(grid(line("flat", flat, noisy=SIZES[5:]), line("steep", steep)))
    assert not found.certain
    (found,) = crossovers(grid(line("flat", flat, noisy=(16, 32)), line("steep", steep)))
    assert (found.certain, found.low, found.high) == (True, 8, 64)


def test_lines_that_only_shake_cross_within_noise_once() -> None:
    shaking = line("shaking", lambda size: 1000.0 * (1.004 if SIZES.index(size) % 2 else 0.996))
    (found,) = crossovers(grid(line("flat", flat), shaking))
    assert not found.certain


def test_lines_that_do_not_cross_have_none() -> None:
    assert crossovers(grid(line("flat", flat), line("half", lambda size: 500.0))) == []
    assert crossovers(grid(line("flat", flat), line("same", flat))) == []
    assert crossovers(grid(line("flat", flat))) == []
    few = line("few", steep, sizes=(512, 1024))
    assert crossovers(grid(line("flat", flat), few)) == []


def test_there_and_back_are_two() -> None:
    hill = line("hill", lambda size: 2000.0 if 4 < size < 64 else 500.0)
    first, second = crossovers(grid(line("flat", flat), hill))
    assert (first.before, first.low, first.high) == ("hill", 4, 8)
    assert (second.before, second.low, second.high) == ("flat", 32, 64)
    assert first.certain
    assert second.certain


def test_a_crossing_above_the_fastest_kernel_does_not_lead() -> None:
    best = line("best", lambda size: 10.0)
    found = {
        (each.before, each.after): each for each in crossovers(grid(line("flat", flat), line("steep", steep), best))
    }
    assert not found["steep", "flat"].leading
    assert found["steep", "flat"].certain
