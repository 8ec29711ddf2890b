"""A program that recovers ends with every result correct or refused. TRITMARK_RECOVERIES=10000 makes as many calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import recovering_program
from own_registry import registered

from tritmark.harness.recovery import history
from tritmark.harness.recovery.supervisor import SECONDS
from tritmark.kernels.recovering import client

CALLS = int(os.environ.get("TRITMARK_RECOVERIES", "0")) or 300


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(history, "path", lambda: tmp_path / "history.jsonl")
    monkeypatch.setenv(SECONDS, "2")
    with registered():  # the program's
        yield
    client.close_workers()


@pytest.mark.nightly
@pytest.mark.timing
@pytest.mark.filterwarnings("ignore::tritmark.harness.recovery.RecoveryWarning")
def test_every_result_is_right_or_refused(worker: None) -> None:
    # With few calls, more of them fail, so that every kind of fault is met.
    share = 0.06 if CALLS < 2000 else recovering_program.SHARE
    found = recovering_program.run(CALLS, 7, share)
    assert (found.wrong, found.unreported) == (0, 0), found
    assert found.right + sum(found.refused.values()) == CALLS
    assert found.planted == found.recovered.total() + found.refused.total() > CALLS * share / 2
    assert found.recovered
    assert found.refused
    assert history.path().stat().st_size <= history.MOST_BYTES
