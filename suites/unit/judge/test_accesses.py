"""Access patterns in the Record: which kernels are traced, in which process, and what a process may reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.testing import CliRunner

from tritmark.harness.cli import app
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.judge import accesses as judge_accesses
from tritmark.harness.judge.accesses import accesses, traced
from tritmark.harness.providers import installed
from tritmark.harness.record import Cause, Performance, Record, Run, Status
from tritmark.harness.spec import DEVICE_MEMORY, SHARED_MEMORY, AccessTracing, KernelAccesses, TracedAccess, Variant
from tritmark.harness.store import read

GOOD: dict[str, Any] = {
    "function": "f",
    "line": "f.cu:3",
    "memory": DEVICE_MEMORY,
    "kind": "read",
    "size": 4,
    "pattern": "sequential",
    "requests": 10,
    "transactions": 40,
    "least": 40,
}


def cuda(name: str) -> Variant:
    return next(each for each in installed().registry.variants if each.id == f"cuda/{name}")


def tracing_of(variant: Variant) -> AccessTracing:
    found = installed().registry.devices["cuda"].tracing
    assert found is not None
    assert installed().registry.devices["cpu"].tracing is None
    return found


@pytest.mark.cuda
def test_a_kernel_is_traced_in_its_own_process() -> None:
    """This process has no simulator, and gets none."""
    variant = cuda("ternary_quantize/row16/uint8/v1_warp")
    found = traced(variant, tracing_of(variant))
    assert (found.kernel, found.note) == (variant.id, "")
    assert "simulator" in found.simulator
    assert found.axes["n"] == 8192
    requests, sectors, least = found.totals(DEVICE_MEMORY)
    assert 0 < requests < least < sectors
    assert found.totals(DEVICE_MEMORY, frozenset({"none"})) == (0, 0, 0)
    assert found.totals(SHARED_MEMORY) == (0, 0, 0)
    assert TypeAdapter(KernelAccesses).validate_json(TypeAdapter(KernelAccesses).dump_json(found)) == found


@pytest.mark.cuda
def test_a_kernel_that_cannot_be_traced_has_a_note() -> None:
    variant = cuda("ternary_quantize/row16/uint8/v1_warp")
    gone = replace(variant, name="gone")
    assert "gone" in traced(gone, tracing_of(variant)).note
    without = replace(tracing_of(variant), missing=lambda: "no g++; next: install it")
    assert traced(variant, without) == KernelAccesses(kernel=variant.id, note="no g++; next: install it")


class Replying:
    """A process that replies as told."""

    reply: Any = None

    def __init__(self, *given: Any, **more: Any) -> None:
        pass

    def call(self, *given: Any) -> Any:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def close(self) -> None:
        pass


def reply(fields: dict[str, Any]) -> str:
    return json.dumps({"kernel": "another", "accesses": [fields]})


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        7,
        reply({**GOOD, "transactions": 39}),
        reply({**GOOD, "requests": 0}),
        reply({**GOOD, "memory": "<b>"}),
        reply({**GOOD, "size": "large"}),
        DeviceUnavailableError("it raised", next_step="none"),
    ],
)
def test_a_process_may_reply_anything(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_accesses, "WorkerProcess", Replying)
    monkeypatch.setattr(Replying, "reply", said)
    variant = cuda("ternary_quantize/row16/uint8/v1_warp")
    tracing = replace(tracing_of(variant), missing=lambda: None, environment=dict)
    found = traced(variant, tracing)
    assert (found.kernel, found.accesses) == (variant.id, ())
    assert found.note


def test_an_honest_reply_is_taken_under_the_kernels_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_accesses, "WorkerProcess", Replying)
    monkeypatch.setattr(Replying, "reply", reply(GOOD))
    variant = cuda("ternary_quantize/row16/uint8/v1_warp")
    found = traced(variant, replace(tracing_of(variant), missing=lambda: None, environment=dict))
    assert found == KernelAccesses(kernel=variant.id, accesses=(TracedAccess(**GOOD),))


@pytest.mark.parametrize("wrong", [{"least": 41}, {"least": 9}, {"kind": "rea"}, {"memory": "texture"}])
def test_a_record_holds_no_contradiction(wrong: dict[str, Any], gpu_record: Record) -> None:
    held = json.loads(gpu_record.model_dump_json())
    held["accesses"] = [{"kernel": "k", "accesses": [GOOD]}]
    assert Record.model_validate(held).accesses[0].accesses[0].share == 1
    held["accesses"] = [{"kernel": "k", "accesses": [{**GOOD, **wrong}]}]
    with pytest.raises(ValidationError, match="legal: "):
        Record.model_validate(held)


def unmeasured(run: Run, cause: Cause | None, status: Status = Status.NOT_RUN) -> Run:
    return run.model_copy(update={"performance": Performance(status=status, reason="why", cause=cause)})


def test_what_is_traced(gpu_record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each correct kernel with a time once, and one that the simulator kept from having one; no other."""
    variant = cuda("ternary_quantize/none/int8/v1")
    on_cuda = next(run for run in gpu_record.runs if run.device == "cuda" and run.passed and run.performance.hot)
    run = on_cuda.model_copy(update={"kernel": variant.id})
    host = next(each for each in installed().registry.variants if each.key.device == "cpu")
    asked: list[str] = []

    def note(variant: Variant, *given: Any) -> KernelAccesses:
        asked.append(variant.id)
        return KernelAccesses(kernel=variant.id, note="asked")

    monkeypatch.setattr(judge_accesses, "traced", note)
    request: Any = SimpleNamespace(isolated=True, candidates=(), timeout_s=9.0, dimensions={"performance"})
    observer: Any = SimpleNamespace(started=lambda what: None)
    ask: Callable[..., list[KernelAccesses]] = lambda *runs: list(accesses(installed(), request, runs, observer))  # noqa: E731
    assert len(ask(run, run, run.model_copy(update={"id": "elsewhere"}))) == 1
    assert len(ask(unmeasured(run, Cause.SIMULATOR))) == 1
    asked.clear()
    assert ask(unmeasured(run, Cause.SUITE)) == []
    assert ask(unmeasured(run, None, Status.ERROR)) == []
    assert ask(run.model_copy(update={"kernel": host.id})) == []
    assert ask(run.model_copy(update={"accuracy": run.accuracy.model_copy(update={"status": Status.FAIL})})) == []
    failed = run.model_copy(update={"accuracy": run.accuracy.model_copy(update={"status": Status.FAIL, "reason": "w"})})
    assert ask(run, failed) == [], "incorrect elsewhere"
    request.isolated = False
    assert ask(run) == []
    request.isolated, request.dimensions = True, {"accuracy"}
    assert ask(run) == []
    assert asked == []


SUITE = """
title = "one small workload"

[[workloads]]
op = "ternary_quantize"
shapes = [{ n = 2048 }]
axes = { block = 64 }
families = ["uniform"]
formats = ["row16"]
measure = true
"""


@pytest.mark.cuda
def test_a_run_has_them_in_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    (tmp_path / "one.toml").write_text(SUITE, encoding="utf-8")
    variant = "cuda/ternary_quantize/row16/uint8/v1_warp"
    arguments = ["run", "--device", "cuda", "--suite", str(tmp_path / "one.toml"), "--variant", variant]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "runs").glob("*.json")
    record = read(path)
    (found,) = record.accesses
    assert found.kernel == variant == record.runs[0].kernel
    assert found.totals(DEVICE_MEMORY)[0] > 0
    page = next((tmp_path / "html").glob("*.html")).read_text(encoding="utf-8")
    assert "Nothing in this section was measured" in page


@pytest.mark.cuda
def test_a_user_s_kernel_that_a_simulator_checked_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    examples = Path(__file__).parents[2] / "examples"
    for name in ("quantize_cuda.cu", "quantize_cuda.toml"):
        (tmp_path / name).write_text((examples / name).read_text(encoding="utf-8"), encoding="utf-8")
    command = ["check", str(tmp_path / "quantize_cuda.cu"), "--suite", "smoke", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "runs").glob("*.json")
    (found,) = read(path).accesses
    assert found.kernel.endswith("quantize_cuda.quantize_elements")
    assert {each.share for each in found.accesses} == {1.0}
