"""The script that counts the rare changes that the gate detects."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tritmark.harness.providers import load

pytestmark = pytest.mark.long


@pytest.mark.nightly
def test_drawn_mutants_are_found_and_the_right_kernel_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "gate")
    import rare as script

    found = script.of_op(load(), "i2s_quantize", count=4, seed=0, cases=300)
    assert found.alarms == []
    assert found.count == 4
    assert found.caught >= 3, found.missed
    monkeypatch.setattr(sys, "argv", ["rare.py", "--op", "i2s_quantize", "--count", "1", "--cases", "50"])
    script.main()
    assert "i2s_quantize" in capsys.readouterr().out
