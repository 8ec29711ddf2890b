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
from tritmark.harness.record import NotJudgedKind, Record, Status
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
    (left_out,) = (each for each in record.not_judged if each.kind is NotJudgedKind.TENSORS)
    assert left_out.about == ("a.bias",)
    assert left_out.share == 16 / (16 * 256 + 16 + 5 * 30)
    assert "Not judged: 1 tensor (0.4 % of the bytes)" in " ".join(outcome.out.split())
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


LINEAR = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["masters", "ternary floats", "another matrix", "a scale"])
def test_what_is_no_number_is_an_error_of_the_file(tritmark: Callable[..., Outcome], what: str, value: float) -> None:
    floats = np.random.default_rng(0).standard_normal((16, 256), np.float32)
    if what in {"ternary floats", "a scale"}:
        floats = np.sign(floats)
    tensors = {"embedding" if what == "another matrix" else LINEAR: floats}
    if what == "a scale":
        tensors[f"{LINEAR}_scale"] = np.ones(16, np.float32)
        tensors[f"{LINEAR}_scale"][3] = value
    else:
        floats[3, 7] = value
    save_file(tensors, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    (name,) = [name for name, values in tensors.items() if not np.isfinite(values).all()]
    assert f"tensor '{name}': {value} at [3{'' if what == 'a scale' else ', 7'}]" in outcome.err.replace("\n", " ")
    assert not Path("results").exists()


@pytest.mark.nightly
def test_ternary_floats_are_judged_with_their_own_scales(tritmark: Callable[..., Outcome]) -> None:
    codes = np.random.default_rng(0).integers(-1, 2, (16, 256)).astype(np.float32)
    save_file({LINEAR: codes * np.arange(1, 17, dtype=np.float32)[:, None]}, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 0, outcome.err
    (layer,) = only_record().layers
    assert (layer.status, layer.format) == (Status.PASS, "float32, a scale a row")
    assert [scheme.snr_db for scheme in layer.schemes] == [None]


def test_what_quantizing_loses_is_said(tritmark: Callable[..., Outcome], weights: str) -> None:
    outcome = tritmark("run", "--weights", weights)
    (text,) = [line for line in outcome.out.splitlines() if "quantized with absmean" in line]
    schemes = [layer.schemes[0] for layer in only_record().layers]
    figures = [scheme.snr_db for scheme in schemes if scheme.snr_db is not None]
    assert f"2 layers of floats, quantized with absmean: SNR {min(figures):.1f} dB" in text
    assert all(scheme.near_ties is not None for scheme in schemes)


def test_weights_without_a_matrix(tritmark: Callable[..., Outcome]) -> None:
    save_file({"bias": np.zeros(3, np.float32)}, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    assert "no 2-D tensor of floats" in outcome.err


def test_a_weight_that_is_not_finite_is_an_error_of_the_file(tritmark: Callable[..., Outcome]) -> None:
    values = np.ones((16, 256), np.float32)
    values[3, 5] = np.nan
    save_file({"a.weight": np.ones((16, 256), np.float32), "b.weight": values}, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    assert "tensor 'b.weight': nan at [3, 5]; legal: finite numbers" in outcome.err
    assert not list(Path("results").glob("runs/*.json"))


@pytest.mark.nightly
def test_an_embedding_is_no_layer(tritmark: Callable[..., Outcome]) -> None:
    tensors = {
        "model.embed_tokens.weight": np.ones((16, 256), np.float32),
        "model.layers.0.mlp.up_proj.weight": np.random.default_rng(0).standard_normal((16, 256), dtype=np.float32),
        "model.norm.weight": np.ones(256, np.float32),
    }
    save_file(tensors, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors", "--device", "cpu")
    record = only_record()
    assert [layer.name for layer in record.layers] == ["model.layers.0.mlp.up_proj.weight"]
    left_out = [each for each in record.not_judged if each.kind is NotJudgedKind.TENSORS]
    assert {each.about for each in left_out} == {("model.embed_tokens.weight",), ("model.norm.weight",)}
    assert sum(each.share or 0 for each in left_out) == pytest.approx(1 - 16384 / (2 * 16384 + 1024))
    assert "Not judged: 2 tensors" in outcome.out
