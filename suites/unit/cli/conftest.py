"""Runs commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SUITE, Outcome, outcome_of

from tritmark.harness.measure import ceilings
from tritmark.kernels.native.cpu import FORCE


@pytest.fixture
def tritmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs a command in a folder that has suite.toml, without measuring ceilings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FORCE, raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # tests side by side are given one
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: [])
    Path("suite.toml").write_text(SUITE)

    def command(*arguments: str) -> Outcome:
        return outcome_of(monkeypatch, capsys, *arguments)

    return command
