"""The script that measures the gate: it runs, it resumes, and its table and noise are as its README states."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timing, pytest.mark.nightly]

SHORT = ("--seconds", "0.05", "--block", "0.02")


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the script with arguments. Returns its output."""
    for needed in ("asv", "pytest_benchmark"):
        pytest.importorskip(needed)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "gate")
    import power as script

    def called(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["power.py", *arguments])
        script.main()
        return capsys.readouterr().out

    return called


def test_trials_are_made_resumed_and_shown(power: Callable[..., str], tmp_path: Path) -> None:
    out = tmp_path / "power.json"
    power("--out", str(out), "--trials", "1", *SHORT)
    printed = power("--out", str(out), "--trials", "2", "--resume", *SHORT)
    found = json.loads(out.read_text())
    assert [trial["extra"] for trial in found["trials"][:3]] == [0.0, 0.02, 0.05]
    cells = {(trial["load"], trial["extra"]) for trial in found["trials"]}
    assert len(cells) == len(found["trials"]) == 6
    assert [len(load["aa"]) for load in found["noise"].values()] == [1, 1, 0, 0]
    assert all(
        len(logs) >= 10 and isinstance(logs[0], float) for load in found["noise"].values() for logs in load["aa"]
    )
    for said in (
        "pytest-benchmark mean:5%, two blocks",
        "asv compare, factor 1.1, interleaved",
        "in 0.5 s: ",
        "edge of the dead band",
    ):
        assert said in printed


def test_one_launch_says_one_verdict(power: Callable[..., str]) -> None:
    assert power("--launch", "quantize", "3200", "--seconds", "1") == "SLOWER\n"  # twice the work
    assert power("--launch", "long numpy", "1280000", "--seconds", "0.5") == "SLOWER\n"


def test_old_results_are_not_overwritten_nor_mixed_with_others(
    power: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "power.json"
    out.write_text(json.dumps({"seconds": 1.0, "block": 0.4}))
    for arguments, said in (((), "--resume continues it"), (("--resume", *SHORT), "continue it with the same value")):
        with pytest.raises(SystemExit, match="2"):
            power("--out", str(out), *arguments)
        assert said in capsys.readouterr().err


def test_made_up_noise_is_tabled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "gate")
    import simulated

    monkeypatch.setattr(sys, "argv", ["simulated.py", "--trials", "3"])
    simulated.main()
    heading, *rows = (re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines())
    assert heading[:3] == ["noise", "SLOWER at 0.0%", "SLOWER at 0.4%"]
    assert [row[0] for row in rows] == list(simulated.NOISES)
    for row in rows[:4]:
        assert row[1:3] == ["0.0%", "0.0%"]
        assert all(found.startswith("100.0%") for found in row[4:])


def test_bindings_of_one_kernel_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "gate")
    import placed

    monkeypatch.setattr(sys, "argv", ["placed.py", "--bindings", "3"])
    placed.main()
    rows = capsys.readouterr().out.splitlines()[1:]
    assert len(rows) == len(placed.PLACED)
    assert all(len(re.findall(r"[+-]\d+\.\d\d%", row)) == 2 for row in rows)
