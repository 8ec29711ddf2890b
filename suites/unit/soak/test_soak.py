"""The soak test finds what it looks for: a harness that crashes, loses Runs, or lets a wrong kernel pass is told."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tritmark.harness.cli import exit_status
from tritmark.harness.cli.soak import soak as command
from tritmark.harness.providers import load
from tritmark.harness.record import Accuracy, Record, Status
from tritmark.harness.soak import soak as room
from tritmark.harness.soak.commands import has_log
from tritmark.harness.soak.soak import SoakResult, soak
from tritmark.harness.store import read

pytestmark = pytest.mark.long

INSTALLED = load()


@pytest.fixture(scope="module")
def items() -> list[Any]:
    return room._items(INSTALLED, "cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, items: list[Any]) -> None:
    """What can be run here is listed once: that takes longer than a batch."""
    monkeypatch.setattr(room, "_items", lambda *_: items)
    monkeypatch.setattr(room, "BATCH", 2)
    monkeypatch.setattr(room, "_ODDS", 0.0)
    monkeypatch.setattr(room, "TIMEOUT_S", 30.0)
    monkeypatch.setattr(room, "FAULTS", (signal.SIGKILL,))


def once(monkeypatch: pytest.MonkeyPatch, change: Callable[[Record], Record] | None = None) -> SoakResult:
    """One batch; `change` is what becomes of its Record on disk."""
    if change is not None:
        monkeypatch.setattr(room, "read", lambda path: change(read(path)))
    return soak(INSTALLED, minutes=1e-6, seed=3, device="cpu")


@pytest.mark.nightly
def test_nothing_is_found_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest soak plants one fault as well, and no more where the odds are 0."""
    found = once(monkeypatch)
    assert found.passed
    assert found.batches == 1
    assert found.runs == sum(found.ops.values()) > 0
    assert (found.faults, found.lost, found.left_over) == (1, 0, 0)
    assert found.attributed <= 1


@pytest.mark.nightly
def test_without_a_fault_nothing_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_workers", list)
    found = once(monkeypatch)
    assert found.calls >= 3 * found.runs // 4 > 0
    assert (found.faults, found.passed, found.failed) == (0, False, False)


def test_a_soak_without_a_fault_has_its_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SoakResult(batches=1, runs=8, calls=8)
    assert (found.faults, found.passed, found.failed) == (0, False, False)
    monkeypatch.setattr(room, "soak", lambda *args, **kwargs: found)
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, ["--minutes", "0.01"])
    assert done.exit_code == exit_status.UNTRIED
    assert "no fault could be planted" in done.stdout


def test_a_lost_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = once(monkeypatch, lambda record: record.model_copy(update={"runs": record.runs[1:]}))
    assert found.lost == 1
    assert not found.passed


@pytest.mark.parametrize(("status", "where"), [(Status.FAIL, "wrong"), (Status.ERROR, "unexplained")])
def test_a_run_that_does_not_pass_is_found(monkeypatch: pytest.MonkeyPatch, status: Status, where: str) -> None:
    def spoil(record: Record) -> Record:
        first, *others = record.runs
        accuracy = first.accuracy.model_copy(update={"status": status, "reason": "q[3] is 1, expected 0"})
        return record.model_copy(update={"runs": (first.model_copy(update={"accuracy": accuracy}), *others)})

    monkeypatch.setattr(room, "_workers", list)  # no fault is planted, which an error could be attributed to
    found = once(monkeypatch, spoil)
    assert len(getattr(found, where)) == 1
    assert "q[3] is 1, expected 0" in getattr(found, where)[0]
    assert not found.passed


@pytest.mark.parametrize(("guard", "attributed"), [("crash", 1), ("hang", 1), ("exit", 0), ("error", 0)])
def test_what_no_shot_brings_about_is_unexplained_whatever_its_words(
    monkeypatch: pytest.MonkeyPatch, guard: str, attributed: int
) -> None:
    def spoil(record: Record) -> Record:
        first, *others = record.runs
        accuracy = Accuracy(status=Status.ERROR, reason="was killed by a signal", caught_by=(guard,))
        return record.model_copy(update={"runs": (first.model_copy(update={"accuracy": accuracy}), *others)})

    def shot(saboteur: Any, what: str) -> None:
        saboteur.sent = 1

    monkeypatch.setattr(room._Saboteur, "started", shot)
    found = once(monkeypatch, spoil)
    assert (found.attributed, len(found.unexplained)) == (attributed, 1 - attributed)


def test_a_crash_of_the_harness_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> tuple[Record, Path]:
        raise RuntimeError("the store is on fire")

    monkeypatch.setattr(room, "execute", broken)
    found = soak(INSTALLED, minutes=1e-6, seed=3, device="cpu")
    assert "the store is on fire" in found.crashes[0]
    assert not found.passed


@pytest.mark.nightly  # by day test_soak_runs.py shows that a killed worker is named
def test_workers_that_are_shot_at_are_told_from_kernels_that_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker is, as soon as it is there."""
    hunters: list[threading.Thread] = []

    def hunt(saboteur: Any, known: set[int]) -> None:
        end = time.monotonic() + 5
        while time.monotonic() < end and not saboteur.sent:
            for pid in {pid for pid in room._workers() if has_log(pid)} - known:
                known.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    saboteur.sent += 1

    def started(self: Any, what: str) -> None:
        for hunter in hunters:
            hunter.join()
        hunters.append(threading.Thread(target=hunt, args=(self, set(room._workers()))))
        hunters[-1].start()

    monkeypatch.setattr(room._Saboteur, "started", started)
    monkeypatch.setattr(room, "BATCH", 1)
    found = once(monkeypatch)
    assert found.passed, found.unexplained
    assert found.faults >= found.attributed > 0
    assert found.lost == 0
