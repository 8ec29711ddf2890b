"""Slow-downs of which no session is SLOWER: little by little, and by another kernel."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random

import pytest
from made_up_sessions import DAY, START, drawn, series, session

from tritmark.harness.monitor.data import SessionData
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.summary import Report, summarize


def reported(folder: Path, sessions: list[SessionData], monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.setattr("tritmark.harness.monitor.database.OLDEST_S", float("inf"))
    database = Database(folder / "x.sqlite")
    for each in sessions:
        database.save(each)
    return summarize(database, since=START - DAY, until=START + 100 * DAY)


def drifts(found: Report) -> list[str]:
    return [each.evidence for each in found.advice if "little by little" in each.what]


@pytest.mark.parametrize("each", [0.02, 0.04])
def test_a_drift_is_named(each: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is SLOWER than the ones before it predict, and the last one takes 1.8 or 3.2 times as long."""
    rng = Random(1)
    medians = [1e5 * exp(each * number + rng.gauss(0, 0.01)) for number in range(30)]
    sessions = [session(number, [series(median, seed=number)]) for number, median in enumerate(medians)]
    found = reported(tmp_path, sessions, monkeypatch)
    assert not found.slower
    assert ["in 30 sessions" in text for text in drifts(found)] == [True]


@pytest.mark.parametrize("seed", range(5))
def test_equal_sessions_have_no_drift(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not drifts(reported(tmp_path, drawn(30, spread=0.1, seed=seed), monkeypatch))


def test_one_slow_session_or_a_faster_kernel_is_no_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = drawn(30)
    sessions[29] = session(29, [series(360_000)])
    assert not drifts(reported(tmp_path, sessions, monkeypatch))
    faster = [session(number, [series(1e5 * 0.96**number, seed=number)]) for number in range(30)]
    (tmp_path / "faster").mkdir()
    assert not drifts(reported(tmp_path / "faster", faster, monkeypatch))


@pytest.mark.parametrize(("median", "expected"), [(4e5, 1), (1e5, 0), (0.5e5, 0)])
def test_a_slower_kernel_in_place_of_another_is_named(
    median: float, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its series is NEW, in each session."""
    scalar = replace(series(1e5).key, kernel="cpu/ternary_matmul/tile64/float32/scalar")
    sessions = drawn(12, median_ns=1e5) + [session(12 + n, [series(median, key=scalar, seed=n)]) for n in range(3)]
    found = reported(tmp_path, sessions, monkeypatch)
    named = [each for each in found.advice if "Another kernel" in each.what]
    assert len(named) == expected
    assert all("avx512" in each.evidence and "scalar" in each.evidence and each.bad for each in named)


def test_two_kernels_that_run_side_by_side_are_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may force one of them."""
    scalar = replace(series(1e5).key, kernel="cpu/ternary_matmul/tile64/float32/scalar")
    sessions = [session(number, [series(1e5), series(4e5, key=scalar)]) for number in range(12)]
    found = reported(tmp_path, sessions, monkeypatch)
    assert not any("Another kernel" in each.what for each in found.advice)
