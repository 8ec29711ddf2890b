"""The command `tritmark gate`: exit status, where the result is written, and paths of suites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from gate_requests import TASK
from typer.testing import CliRunner

from tritmark.harness.cli.gate import gate
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.measuring import benchmark
from tritmark.harness.gate.result import Benchmark, Build, GateResult, Outcome
from tritmark.harness.gate.run import GateRequest
from tritmark.harness.record.facts import machine_facts
from tritmark.harness.record.versions import environment

Invoke = Callable[..., tuple[int, str, GateRequest]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    facts, around = machine_facts(), environment((), 0)

    def invoked(
        *arguments: str, outcomes: tuple[Outcome, ...], device: str = "*", complete: bool = True
    ) -> tuple[int, str, GateRequest]:
        asked: list[GateRequest] = []

        def run(request: GateRequest, observer: object) -> GateResult:
            asked.append(request)
            found: tuple[Benchmark, ...] = tuple(benchmark(TASK, outcome, "because") for outcome in outcomes)
            side = Build(given="x", packages={}, digest="0")
            return GateResult(
                created="2026-01-01T00:00:00+00:00",
                seconds=1.0,
                complete=complete,
                base=side,
                head=side,
                suite="quick",
                device=device,
                strict=request.strict,
                budget=1.0,
                together=True,
                machine=facts,
                environment=around,
                benchmarks=found,
            )

        monkeypatch.setattr("tritmark.harness.gate.run.run", run)
        app = typer.Typer()
        app.command()(gate)
        done = CliRunner().invoke(app, ["main", "HEAD", *arguments])
        code = 2 if type(done.exception).__name__ == "UsageError" else done.exit_code
        return code, done.stdout + str(done.exception), asked[0]

    return invoked


@pytest.mark.parametrize(
    ("outcomes", "arguments", "status"),
    [
        ((Outcome.SAME, Outcome.FASTER, Outcome.ADDED), (), 0),
        ((Outcome.SAME, Outcome.SLOWER), (), 1),
        ((Outcome.DIFFERS,), (), 1),
        ((Outcome.AMBIGUOUS,), (), 0),
        ((Outcome.AMBIGUOUS, Outcome.SAME), ("--strict",), 4),
        ((Outcome.AMBIGUOUS, Outcome.SLOWER), ("--strict",), 1),
        ((Outcome.NOT_RUN, Outcome.SAME), (), 0),
        ((Outcome.NOT_RUN, Outcome.ADDED), (), 2),
        ((Outcome.ADDED,), (), 0),
    ],
)
def test_the_exit_status_says_what_was_found(
    invoke: Invoke, outcomes: tuple[Outcome, ...], arguments: tuple[str, ...], status: int
) -> None:
    assert invoke(*arguments, outcomes=outcomes)[0] == status


def test_a_missing_device_and_an_interruption_have_their_own(invoke: Invoke) -> None:
    assert invoke(outcomes=(Outcome.NOT_RUN,), device="plain")[0] == 3
    assert invoke(outcomes=(Outcome.SLOWER,), complete=False)[0] == 130


def test_a_file_gets_the_form_and_standard_output_text(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "gate.json"
    status, shown, request = invoke(
        "--format",
        "json",
        "--out",
        str(out),
        "--budget",
        "2.5",
        "--suite",
        "a.toml",
        "--seed",
        "7",
        outcomes=(Outcome.SAME,),
    )
    assert status == 0
    assert GateResult.model_validate_json(out.read_text()).benchmarks[0].outcome is Outcome.SAME
    assert "1 SAME" in shown
    assert not shown.startswith("{")
    assert request.limits.seconds == 2.5
    assert request.wanted == BenchmarkFilter(suite=str(Path("a.toml").resolve()), seed=7)
    status, shown, _ = invoke("--out", str(tmp_path / "no" / "file"), outcomes=(Outcome.SAME,))
    assert status == 2
    assert "cannot be written" in shown


def test_cases_are_others_each_time_unless_a_seed_is_given(invoke: Invoke) -> None:
    seeds = {invoke(outcomes=(Outcome.SAME,))[2].wanted.seed for _ in range(3)}
    assert len(seeds) == 3


def test_how_long_it_took_is_said(invoke: Invoke) -> None:
    _, shown, _ = invoke(outcomes=(Outcome.SAME,))
    assert "The gate passes. It took 1 s." in shown
