"""Ceilings that contradict each other: what counts as one, that they are measured again, and that they are marked."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import small_record

from tritmark.harness.cli import tables
from tritmark.harness.measure import survey as survey_module
from tritmark.harness.measure.ceilings import measure_ceilings
from tritmark.harness.record import CeilingFacts, Record, contradicted, contradictions
from tritmark.harness.record.contradictions import FARTHER, WRITES
from tritmark.harness.report.page import render
from tritmark.harness.report.roofline import roofs
from tritmark.harness.store import read
from tritmark.harness.text.table import fit
from tritmark.kernels.native.cpu import DEVICE

BASELINES = Path(__file__).parents[3] / "results" / "baselines"
LEVELS = ("L1", "L2", "L3", "memory")


def ceiling(name: str, level: str, rate: float, threads: int = 2) -> CeilingFacts:
    return CeilingFacts(
        device="cpu", name=name, level=level, threads=threads, nbytes=1 << 20, rate=rate, unit="bytes/s"
    )


def with_ceilings(record: Record, *ceilings: CeilingFacts) -> Record:
    return record.model_copy(update={"machine": record.machine.model_copy(update={"ceilings": ceilings})})


@given(rates=st.lists(st.floats(1e6, 1e12), min_size=8, max_size=8))
def test_a_contradiction_is_a_pair_beyond_its_limit(rates: list[float]) -> None:
    """Both rules, counted anew."""
    reads = dict(zip(LEVELS, rates[:4], strict=True))
    writes = dict(zip(LEVELS, rates[4:], strict=True))
    given_ = [
        ceiling(name, level, rate) for name, of in (("read", reads), ("write", writes)) for level, rate in of.items()
    ]
    expected = sum(of[far] > FARTHER * of[near] for of in (reads, writes) for near, far in combinations(LEVELS[1:], 2))
    expected += sum(writes[level] > WRITES * reads[level] for level in LEVELS[1:])
    found = contradictions(given_)
    assert len(found) == expected
    assert [each.ratio for each in found] == sorted((each.ratio for each in found), reverse=True)
    assert all(each.fast.rate > each.slow.rate for each in found)
    assert bool(contradicted(given_)) is bool(expected)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        # Of a busy machine.
        ((("read", "L2", 98e9), ("read", "L3", 187e9)), "cpu's read ceiling of L3 is 1.9x that of L2 (2 threads)"),
        ((("read", "memory", 31e9), ("write", "memory", 51e9)), "cpu's write ceiling of memory is 1.6x that of read"),
        ((("copy", "L3", 20e9), ("copy", "memory", 30e9)), "cpu's copy ceiling of memory is 1.5x that of L3"),
        # Of quiet ones.
        ((("read", "L2", 90e9), ("read", "L3", 100e9), ("read", "memory", 42e9)), ""),
        ((("read", "memory", 31e9), ("write", "memory", 44e9)), ""),
        ((("read", "L1", 50e9), ("read", "L2", 290e9)), ""),
        ((("write", "L2", 90e9), ("read", "L3", 40e9)), ""),
    ],
)
def test_examples(given_: tuple[tuple[str, str, float], ...], words: str) -> None:
    found = contradictions(ceiling(*each) for each in given_)
    assert [each.description.startswith(words) for each in found] == ([True] if words else [])


def test_quiet_machines_do_not_contradict_themselves() -> None:
    """CPUs with 2 and 16 cores, H100 and H200: what a limit would accuse wrongly."""
    paths = sorted(path for path in BASELINES.rglob("*.json") if path.parent.name not in {"criteria", "models"})
    if not paths:
        pytest.skip("the checkout's baselines are not here")
    assert [path.name for path in paths if contradictions(read(path).machine.ceilings)] == []


def test_other_threads_devices_and_units_are_not_compared() -> None:
    slow, fast = ceiling("read", "L2", 1e9, threads=1), ceiling("read", "L3", 9e9, threads=2)
    assert contradictions([slow, fast]) == []
    assert contradictions([slow.model_copy(update={"device": "cuda"}), fast.model_copy(update={"threads": 1})]) == []
    launches = [each.model_copy(update={"unit": "launches/s", "threads": 1}) for each in (slow, fast)]
    assert contradictions(launches) == []


class Probe:
    """A probe of which a made-up survey knows the rates."""

    level = ""
    unit = "bytes/s"


class MadeUpSurvey:
    """Rates by name and level: those of a first look, and of a second one."""

    def __init__(self, first: dict[tuple[str, int], float], second: dict[tuple[str, int], float]) -> None:
        self.first, self.second = first, second
        self.looked: list[tuple[str, int]] = []
        self.memory = DEVICE.memory

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.first))

    def probes(self, name: str) -> list[Any]:
        return [Probe()]

    def roof(self, name: str, field: Any, nbytes: int, *, threads: int, cold: bool) -> Any:
        return self._roof(self.first, name, threads, cold)

    def again(self, name: str, field: Any, nbytes: int, *, threads: int, cold: bool) -> Any:
        self.looked.append((name, threads))
        return self._roof(self.second, name, threads, cold)

    def _roof(self, rates: dict[tuple[str, int], float], name: str, threads: int, cold: bool) -> Any:
        class Found:
            rate = rates[name, threads]

        return Found


@pytest.mark.parametrize("persists", [True, False])
def test_they_are_measured_again_once(persists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = DEVICE.cores()
    first = {(name, threads): 10e9 for name in ("read", "write") for threads in (1, cores)}
    first["write", 1] = 10e9 * WRITES * 1.1
    second = first if persists else dict.fromkeys(first, 11e9)
    made = MadeUpSurvey(first, second)
    monkeypatch.setattr(survey_module, "survey", lambda device: made)
    monkeypatch.setattr(survey_module, "Field", lambda *args, **kwargs: None)
    found = measure_ceilings(DEVICE)
    again = [each for each in found if each.repeats]
    assert {(each.name, each.threads) for each in again} == {("read", 1), ("write", 1)} == set(made.looked)
    assert len(made.looked) == len(again)  # once each
    assert all(each.rate == second[each.name, each.threads] for each in again)
    assert bool(contradicted(found)) is persists
    assert {each.level for each in again} <= set(LEVELS) - {"L1"}


def test_they_are_marked_and_no_roof() -> None:
    sound = [ceiling("read", level, rate) for level, rate in zip(LEVELS, (90e9, 80e9, 60e9, 40e9), strict=True)]
    wrong = [*sound[:2], ceiling("read", "L3", 187e9).model_copy(update={"repeats": 1}), sound[3]]
    record = small_record()
    assert len(roofs(with_ceilings(record, *sound), "cpu")) == 4
    assert [each.level for each in roofs(with_ceilings(record, *wrong), "cpu")] == ["L1", "memory"]
    page = render(with_ceilings(record, *wrong))
    assert page.count("DOUBTED") == 2
    assert "read ceiling of L3 is 2.3x that of L2 (2 threads)" in page.replace("&#39;", "'")
    assert "DOUBTED" not in render(with_ceilings(record, *sound))
    shown = tables.ceilings(with_ceilings(record, *wrong).machine)
    assert [str(cell).endswith(", doubted") for cell in shown.columns[-1].cells] == [False, True, True, False]
    assert fit(shown, 80) > 0
