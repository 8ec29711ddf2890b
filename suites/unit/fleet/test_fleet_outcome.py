"""The summary and the exit status of `tritmark fleet run`, by what became of its jobs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from made_up_sets import OP, begun, jobs, record, runs
from rich.console import Console

from tritmark.harness.cli import fleet_run
from tritmark.harness.cli.progress import ProgressLine
from tritmark.harness.fleet.model import FleetJob
from tritmark.harness.record import Performance, Record, Status, with_digest


def wrong(made: Record) -> Record:
    """The same with an incorrect kernel."""
    first = made.runs[0]
    changed = first.model_copy(
        update={
            "accuracy": first.accuracy.model_copy(update={"status": Status.FAIL, "reason": "wrong at [3]"}),
            "performance": Performance(status=Status.NOT_RUN, reason="only a correct kernel is measured"),
        }
    )
    return made.model_copy(update={"runs": (changed, *made.runs[1:])})


@pytest.mark.parametrize(
    ("ended", "failing", "status", "verdict"),
    [
        (("cpu/a", "cpu/b"), False, 0, "PASS: 2 of 2 jobs done on 2 kinds of machines, 4 Runs"),
        (("cpu/a", "cpu/b"), True, 1, "FAIL: 2 of 2 jobs done"),
        (("cpu/a",), False, 6, "INCOMPLETE: 1 of 2 jobs done"),
        (("cpu/a",), True, 1, "FAIL: 1 of 2 jobs done"),
        ((), False, 6, "INCOMPLETE: 0 of 2 jobs done"),
    ],
)
def test_the_verdict_and_the_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: tuple[str, ...],
    failing: bool,
    status: int,
    verdict: str,
) -> None:
    folder = begun(tmp_path, 9, jobs("cpu/a", "cpu/b"))
    with ProgressLine(Console(file=io.StringIO())) as line:
        following = fleet_run._Following(line)
        for number, job in enumerate(folder.found.jobs, start=1):
            if job.kind not in ended:
                folder.lose(job, "no worker was left")
                following.lost(job, "no worker was left")
                continue
            made = record(number, job.kind, runs({"avx2": 0.5}, monkeypatch))
            made = wrong(made) if failing else made
            kept = folder.add(job, "alice", with_digest(made).encode())
            assert kept is not None
            following.finished(job, kept)
    found = folder.end("now")
    assert fleet_run._status(found, following, strict=False) == status
    lines = fleet_run._summary(found, following, ["cuda/h200"], interrupted=False)
    assert lines[0].startswith(verdict)
    lost = [f"{OP[0]} on {kind}" for kind in ("cpu/a", "cpu/b") if kind not in ended]
    assert (f"Not run: {', '.join(lost)}: no worker was left" in lines) == bool(lost)
    assert "Not run: cuda/h200: no kernel of the request is for that device" in lines
    assert bool(following.failures) == failing


def test_strict_counts_what_no_one_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = begun(tmp_path, 9, (FleetJob(kind="cpu/a", op=OP[0]),))
    with ProgressLine(Console(file=io.StringIO())) as line:
        following = fleet_run._Following(line)
        kept = folder.add(
            folder.found.jobs[0], "alice", with_digest(record(1, "a", runs({"avx2": 0.5}, monkeypatch))).encode()
        )
        assert kept is not None
        following.finished(folder.found.jobs[0], kept)
    found = folder.end("now")
    assert fleet_run._status(found, following, strict=False) == 0
    assert fleet_run._status(found, following, strict=True) == 5, "memory was not judged"
