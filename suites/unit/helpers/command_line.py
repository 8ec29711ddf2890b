"""What tests of the command line share: a suite, how a command ended, and providers in place of what is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tritmark.harness import cli, providers
from tritmark.harness.judge import runner
from tritmark.harness.judge.judges import Limits
from tritmark.harness.providers import Installed
from tritmark.harness.record import Record
from tritmark.harness.spec import Provider, Variant
from tritmark.harness.worker import Workers
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import KERNELS
from tritmark.kernels.ternary_matmul.cpu import FORMATS

SUITE = """
title = "for tests"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 65 }, { n = 3 }]
[[workloads]]
op = "ternary_matmul"
axes = { M = 2, N = 32, K = 256 }
formats = ["tile64"]
dtypes = ["float32"]
"""


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def status_of(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Run `tritmark ARGUMENTS` in this process, and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["tritmark", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def outcome_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Outcome:
    """Run `tritmark ARGUMENTS` in this process."""
    status = status_of(monkeypatch, *arguments)
    return Outcome(status, *capsys.readouterr())


RUN = ("run", "--suite", "suite.toml")
COUNT = 2 * len(KERNELS["i2s_quantize"]) + len(KERNELS[FORMATS["tile64"][0]])
"""Its Runs."""
SETS = ", ".join(isa.name for isa in KERNELS["i2s_quantize"])


def only_record(folder: Path = Path("results")) -> Record:
    (path,) = (folder / "runs").iterdir()
    return Record.model_validate_json(path.read_text())


def with_variants(monkeypatch: pytest.MonkeyPatch, change: Callable[[Variant], Variant]) -> None:
    """Put something in the place of the variants that are installed."""
    provider: Provider = replace(PROVIDER, variants=tuple(change(variant) for variant in PROVIDER.variants))
    only_here(monkeypatch, provider)


def only_here(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> None:
    """Have that provider in place of what is installed. No other process knows it, so kernels run in this one."""
    monkeypatch.setattr(providers, "load", lambda candidates=(): Installed({"builtin": provider}))
    monkeypatch.setattr(
        runner, "Workers", lambda *arguments, **options: Workers(*arguments, **{**options, "isolated": False})
    )
    monkeypatch.setattr(runner, "Limits", lambda candidates, isolated, *rest: Limits(candidates, False, *rest))
