"""Series that became slower little by little."""

from __future__ import annotations

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
