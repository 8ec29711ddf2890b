"""The script that converts and compares a large model, with a small one."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

sys.path.append(str(Path(__file__).parents[2] / "large"))
large = import_module("large_weights")


@pytest.mark.nightly
def test_a_small_model_goes_through_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert large.main([str(tmp_path), "--model", "small", "--kills", "2"]) == 0
    assert "all checks pass" in capsys.readouterr().out
