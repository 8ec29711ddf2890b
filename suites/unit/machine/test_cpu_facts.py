"""What py-cpuinfo reports, in odd sessions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tritmark.harness.errors import BadEnvironmentError
from tritmark.harness.record.facts import ask


def test_start_up_files_and_the_current_folder_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ask.__wrapped__().result(60)
    assert plain["flags"]
    for name in ("sitecustomize", "json", "platform"):
        (tmp_path / f"{name}.py").write_text("print('welcome')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    odd = ask.__wrapped__().result(60)
    assert {name: odd.get(name) for name in ("flags", "brand_raw", "vendor_id_raw", "stepping")} == {
        name: plain.get(name) for name in ("flags", "brand_raw", "vendor_id_raw", "stepping")
    }


def test_it_is_asked_while_something_else_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    go, run = Event(), subprocess.run

    def held_up(*given: Any, **named: Any) -> Any:
        assert go.wait(60)
        return run(*given, **named)

    monkeypatch.setattr("subprocess.run", held_up)
    found = ask.__wrapped__()
    monkeypatch.setenv("PATH", "/nowhere")  # of what is asked later
    assert not found.done()
    go.set()
    assert found.result(60)["flags"]


@pytest.mark.parametrize("command", ["/bin/false", "/bin/echo"])
def test_a_python_that_does_not_answer_is_the_sessions_fault(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr("sys.executable", command)
    with pytest.raises(BadEnvironmentError, match="py-cpuinfo cannot read this CPU"):
        ask.__wrapped__().result(60)
