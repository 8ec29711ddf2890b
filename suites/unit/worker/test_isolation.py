"""Five kernels that misbehave, each in its own way, in one suite beside honest ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import outcome_of

from tritmark.harness.measure import ceilings
from tritmark.harness.record import Run, Status
from tritmark.harness.store import Store, read

pytestmark = pytest.mark.timing

SUITE = """
title = "for tests"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 65 }]
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 4096 }]
measure = true
"""
TOLD = {
    "segfault": "killed by SIGSEGV",
    "endless": "did not return from a run within 1 s",
    "leaky": "leaks 4",
    "thirty_gigabytes": "MemoryError: Unable to allocate 30.0 GiB",
    "zeros": "expected",
}
"""What is said of each."""


@pytest.mark.nightly
def test_five_failures_are_attributed_and_nothing_else_is_concerned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: [])
    Path("suite.toml").write_text(SUITE)
    names = [*TOLD, "honest"]
    text = (Path(__file__).parents[1] / "helpers" / "faulty_candidates.py").read_text()
    Path("five.py").write_text(f"{text}\nVARIANTS = tuple(_variant(work) for work in ({', '.join(names)}))\n")
    assert outcome_of(monkeypatch, capsys, "check", "five.py", "--suite", "suite.toml", "--timeout", "1").status == 1
    record = read(Store(Path("results")).latest())
    assert record.complete
    for name, told in TOLD.items():
        runs = [run for run in record.runs if run.variant == name]
        assert len(runs) == 2
        assert any(told in reason for run in runs for reason in failures(run)), (name, [failures(run) for run in runs])
    others = [run for run in record.runs if run.variant not in TOLD]
    assert len(others) >= 4, "the honest one and a built-in one"
    assert all(run.accuracy.status is Status.PASS and run.passed for run in others), [failures(run) for run in others]


def failures(run: Run) -> list[str]:
    return [verdict.reason for verdict in (run.accuracy, run.performance, run.memory, run.cross) if verdict.failed]
