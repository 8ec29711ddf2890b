"""Where the time of a step of a model goes."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from whole_models import tiny, write_folder  # noqa: E402

from tritmark.harness.engines.engine import DECODED  # noqa: E402
from tritmark.harness.models import Frame, Rates, TimeSplit  # noqa: E402
from tritmark.torch.model.loading import load  # noqa: E402
from tritmark.torch.model.profiling import split  # noqa: E402
from tritmark.torch.model.timing import decode_steps, prompt_step  # noqa: E402

LIMITS = Rates(read=1e9, compute=1e9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "m", tiny("bitnet-b1.58"))


@pytest.fixture
def model(folder: Path) -> Any:
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        yield load(str(folder), device="cpu", dtype="auto", activation_bits=None, keep=()).after


def divided(model: Any, work: str = "decode", batch: int = 1, length: int = 8) -> TimeSplit:
    prompt = torch.arange(batch * length).reshape(batch, length)
    call, steps = (prompt_step(model, prompt), 1) if work == "prompt" else (decode_steps(model, prompt), DECODED)
    return split(model, call, work=work, steps=steps, batch=batch, prompt=length, limits=LIMITS)


def all_frames(frames: tuple[Frame, ...]) -> list[Frame]:
    return [each for frame in frames for each in (frame, *all_frames(frame.inner))]


def test_frames_and_parts_add_up_to_the_step(model: Any) -> None:
    found = divided(model)
    assert sum(each.ms for each in found.frames) == pytest.approx(found.ms, rel=0.01)
    assert sum(each.ms for each in found.parts) == pytest.approx(found.ms, rel=0.01)
    names = [each.name for each in found.frames]
    assert names[:4] == ["embed_tokens", "block 0", "block 1", "norm"]
    assert {"q, k, v", "o", "gate, up", "down", "attention", "norms", "head", "embedding", "Python"} <= {
        each.name for each in found.parts
    }
    for each in all_frames(found.frames):
        inside = sum(inner.ms for inner in each.inner)
        assert each.ms == pytest.approx(inside + each.own_ms + each.python_ms)


def test_bytes_and_operations_are_those_of_the_layers(model: Any) -> None:
    for work, batch, rows in (("decode", 1, 1), ("decode", 3, 3), ("prompt", 2, 16)):
        found = {each.name: each for each in divided(model, work, batch).parts}
        down = [block.mlp.down_proj for block in model.model.layers]
        assert found["down"].nbytes == sum(each.packed.nbytes for each in down)
        assert found["down"].operations == 2 * 2 * rows * 512 * 256
        assert found["down"].least_ms == max(found["down"].nbytes, found["down"].operations) / 1e6
        tokens = 8 if work == "prompt" else 9
        assert found["attention"].nbytes == 2 * 2 * batch * tokens * 2 * 64 * 2
        assert found["Python"].least_ms is None


def test_slow_python_counts_as_python(model: Any) -> None:
    act = model.model.layers[1].mlp.act_fn
    was = act.forward

    def slow(x: Any) -> Any:
        sleep(0.4)
        return was(x)

    act.forward = slow
    found = divided(model, "prompt")
    assert found.parts[0].name == "Python"
    slowest = max(all_frames(found.frames), key=lambda each: each.python_ms)
    assert (slowest.name, slowest.part) == ("mlp", "activation")
    assert slowest in next(each for each in found.frames if each.name == "block 1").inner


def test_a_slow_operation_counts_to_its_part(model: Any) -> None:
    norm = model.model.norm
    was = norm.forward
    square = torch.randn(2000, 2000)
    norm.forward = lambda x: (square @ square @ square, was(x))[1]
    found = {each.name: each for each in divided(model, "prompt").parts}
    assert max(found.values(), key=lambda each: each.ms).name == "norms"
