"""The figures of interleaved samples, with samples that take a given time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent))
timing: Any = import_module("interleaved_timing")

NS = st.floats(1, 1e9)


class Taken:
    """A sample that takes these ns, one after the other, and notes in `order` that it was taken."""

    def __init__(self, name: str, ns: list[float], order: list[str]) -> None:
        self._name, self._ns, self._order = name, iter(ns), order

    def __call__(self) -> float:
        self._order.append(self._name)
        return next(self._ns)


@given(
    each=st.integers(1, 12).flatmap(
        lambda rounds: st.dictionaries(
            st.text(min_size=1, max_size=5),
            st.tuples(st.lists(NS, min_size=rounds + 2, max_size=rounds + 2), st.integers(1, 100)),
            min_size=1,
            max_size=6,
        )
    )
)
def test_a_figure_is_that_of_the_rounds_after_the_warm_up(each: dict[str, tuple[list[float], int]]) -> None:
    rounds = len(next(iter(each.values()))[0]) - timing.WARM_UP
    for figure in (median, min, max):
        order: list[str] = []
        samples = {name: timing.Sample(Taken(name, ns, order), calls) for name, (ns, calls) in each.items()}
        found = timing.interleaved_us(samples, rounds, figure)
        assert list(found) == list(each)
        for name, (ns, calls) in each.items():
            assert found[name] == figure([one / calls / 1e3 for one in ns[2:]])
        turns = [sorted(order[at : at + len(each)]) for at in range(0, len(order), len(each))]
        assert turns == [sorted(each)] * (rounds + timing.WARM_UP)


def test_each_round_has_an_order_of_its_own() -> None:
    """So no contender always follows the same one."""
    order: list[str] = []
    names = "abcdef"
    timing.interleaved_us({name: timing.Sample(Taken(name, [1.0] * 32, order), 1) for name in names}, 30)
    turns = {tuple(order[at : at + len(names)]) for at in range(0, len(order), len(names))}
    assert len(turns) > 20
    before = {(one, other) for one, other in pairwise(order) if one != other}
    assert before == {(one, other) for one in names for other in names if one != other}


def test_what_slows_a_round_slows_all_contenders_alike() -> None:
    """The ratio of two contenders is exact on a machine whose clock changes from round to round."""

    def slowed(ns: float) -> Iterator[float]:
        return (ns * factor for factor in (9.0, 5.0, 1.0, 3.0, 7.0, 1.5, 2.0))

    found = timing.interleaved_us(
        {name: timing.Sample(Taken(name, list(slowed(ns)), []), 1) for name, ns in (("a", 1000.0), ("b", 1500.0))}, 5
    )
    assert found == {"a": 2.0, "b": 3.0}


def test_the_median_is_the_default() -> None:
    sample = timing.Sample(Taken("a", [1e9, 1e9, 1000.0, 9000.0, 2000.0], []), 1)
    assert timing.interleaved_us({"a": sample}, 3) == {"a": 2.0}


@pytest.mark.parametrize(("nbytes", "copies"), [(1, 120 << 20), (60 << 20, 2), (1 << 30, 2), ((40 << 20) + 1, 3)])
def test_copies_exceed_the_caches(nbytes: int, copies: int) -> None:
    assert timing.cold_copies(nbytes) == copies
    assert copies * nbytes >= timing.COLD


@pytest.mark.parametrize(("launches", "calls"), [(1, 24), (24, 24), (70, 70)])
def test_a_graph_has_all_launches(launches: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    class Clock:
        def sample(self, launches: list[Any], first: int, calls: int) -> int:
            asked.append((len(launches), first, calls))
            return 1000 * calls

    monkeypatch.setattr(timing, "GraphClock", Clock)
    sample = timing.graph_sample([object()] * launches)
    assert timing.interleaved_us({"a": sample}, 1) == {"a": 1.0}
    assert asked == [(launches, 0, calls)] * 3
