"""Runs commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SUITE, Outcome

from tritmark.harness import cli
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
        monkeypatch.setattr(sys, "argv", ["tritmark", *arguments])
        status = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        told = capsys.readouterr()
        return Outcome(status, told.out, told.err)

    return command
