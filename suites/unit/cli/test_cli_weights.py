"""A run over real weights."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import RUN, Outcome, only_record
from safetensors.numpy import save_file

from tritmark.harness import providers
from tritmark.harness.providers import Installed
from tritmark.harness.record import Record, Status
from tritmark.kernels import PROVIDER

pytestmark = pytest.mark.long


@pytest.fixture
def weights() -> str:
    """A file with two matrices and a vector, in the folder of the test."""
    rng = np.random.default_rng(0)
    tensors = {
        "a.weight": rng.standard_normal((16, 256), dtype=np.float32),
        "a.bias": np.zeros(16, np.float32),
        "[b]\x1b.weight": rng.standard_normal((5, 30), dtype=np.float32),
    }
    save_file(tensors, "model.safetensors")
    return "model.safetensors"


def test_weights_are_studied_alone(tritmark: Callable[..., Outcome], weights: str) -> None:
    outcome = tritmark("run", "--weights", weights)
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert record.weights_path == weights
    assert record.runs == ()
    assert record.suite == ""
    assert {layer.name: layer.shape for layer in record.layers} == {"a.weight": (16, 256), "[b]\x1b.weight": (5, 30)}
    assert {layer.status for layer in record.layers} == {Status.PASS}
    assert ("cpu", True) in [(lane.device, lane.ran) for lane in record.lanes]
    assert "[b]\\x1b.weight" in outcome.out
    assert "\x1b" not in outcome.out


def test_weights_and_kernels(tritmark: Callable[..., Outcome], weights: str) -> None:
    outcome = tritmark(*RUN, "--op", "i2s*", "--weights", weights, "--json")
    assert outcome.status == 0, outcome.err
    record = Record.model_validate_json(outcome.out)
    assert len(record.layers) == 2
    assert {run.op for run in record.runs} == {"i2s_quantize"}


def test_interrupted_between_layers(
    tritmark: Callable[..., Outcome], weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[str] = []
    evaluate_matrix = PROVIDER.evaluate_matrix
    assert evaluate_matrix is not None

    def once(source: Any, info: Any, **options: Any) -> Any:
        if len(evaluated) == 1:
            raise KeyboardInterrupt
        evaluated.append(info.name)
        return evaluate_matrix(source, info, **options)

    def again(source: Any, info: Any, **options: Any) -> Any:
        evaluated.append(info.name)
        return evaluate_matrix(source, info, **options)

    handler = signal.getsignal(signal.SIGINT)
    for each, expected in ((once, 130), (again, 0)):
        provider = replace(PROVIDER, evaluate_matrix=each)
        monkeypatch.setattr(
            providers, "load", lambda candidates=(), provider=provider: Installed({"builtin": provider})
        )
        assert tritmark("run", "--weights", weights, *(("--resume",) if expected == 0 else ())).status == expected
    signal.signal(signal.SIGINT, handler)
    assert sorted(evaluated) == ["[b]\x1b.weight", "a.weight"]
    assert sorted(layer.name for layer in only_record().layers) == sorted(evaluated)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "0 bytes"), (b"\xff" * 16, "a header of"), (b"\x80\x04." + bytes(20), "model.safetensors")],
)
def test_hostile_weights_are_status_2(tritmark: Callable[..., Outcome], content: bytes, told: str) -> None:
    Path("model.safetensors").write_bytes(content)
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    assert told in outcome.err
    assert not Path("results").exists()


def test_weights_without_a_matrix(tritmark: Callable[..., Outcome]) -> None:
    save_file({"bias": np.zeros(3, np.float32)}, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    assert "no 2-D tensor of floats" in outcome.err
