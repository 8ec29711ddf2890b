"""tritmark model: a whole model of transformers, judged and timed."""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_transformers import bitnet_folder  # noqa: E402

from tritmark.harness import models  # noqa: E402
from tritmark.harness.cli import app  # noqa: E402
from tritmark.harness.cli.exit_status import FAILED, USAGE  # noqa: E402
from tritmark.harness.errors import UsageError  # noqa: E402
from tritmark.harness.models import OURS, ModelResult  # noqa: E402
from tritmark.harness.record import Status  # noqa: E402
from tritmark.torch.model import judging, loading  # noqa: E402
from tritmark.torch.model.evaluate import BASE, evaluate  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bitnet_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute."""
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        yield


@pytest.fixture
def pair(folder: Path) -> loading.ModelPair:
    return loading.load(str(folder), device="cpu", dtype="auto", activation_bits=None, keep=())


@pytest.fixture
def tokens() -> Any:
    return torch.randint(64, (1, 16), generator=torch.Generator().manual_seed(1))


def test_an_honest_model_passes(pair: loading.ModelPair, tokens: Any) -> None:
    layers = judging.judged_layers(pair, tokens)
    assert len(layers) == 14
    assert {each.status for each in layers} == {Status.PASS}
    found = judging.agreement(pair, tokens)
    assert [each.name for each in found.drift] == ["embedding", "block 0", "block 1", "logits"]
    assert found.drift[0].relative == 0


def scaled(layer: Any) -> None:
    layer.weight_scale.mul_(1.02)


def inverted(layer: Any) -> None:
    layer.weight_scale_rule = "divide"


def other_code(layer: Any) -> None:
    layer.weight = layer.weight.clone()
    layer.weight[0, 0] ^= 1


def test_a_layer_that_no_token_reaches_is_not_run(pair: loading.ModelPair, tokens: Any) -> None:
    lonely = replace(pair.conversion.replaced[0], name="lonely", layer=copy.deepcopy(pair.conversion.replaced[0].layer))
    conversion = copy.copy(pair.conversion)
    conversion.replaced = (*conversion.replaced, lonely)
    found = judging.judged_layers(replace(pair, conversion=conversion), tokens)
    assert [each.name for each in found if each.status is Status.NOT_RUN] == ["lonely"]


@pytest.mark.parametrize("fault", [scaled, inverted, other_code])
def test_a_wrong_layer_is_found_by_name(pair: loading.ModelPair, tokens: Any, fault: Any) -> None:
    name = "model.layers.1.mlp.up_proj"
    fault(dict(pair.after.named_modules())[name])
    assert [each.name for each in judging.judged_layers(pair, tokens) if each.status is Status.FAIL] == [name]


def test_a_wrong_part_outside_of_the_layers_shows_in_the_drift(tmp_path: Path, tokens: Any) -> None:
    folder = bitnet_folder(tmp_path, dtype="float32")
    pair = loading.load(str(folder), device="cpu", dtype="auto", activation_bits=None, keep=())
    pair.after.model.layers[1].mlp.act_fn = torch.nn.SiLU()  # in place of the squared ReLU
    drift = {each.name: each.relative for each in judging.agreement(pair, tokens).drift}
    assert drift["block 1"] > 10 * drift["block 0"]


def test_slabs_of_a_layer_have_the_result_of_the_whole(
    pair: loading.ModelPair, tokens: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = dict(pair.after.named_modules())["model.layers.1.mlp.up_proj"]
    layer.weight = layer.weight.clone()
    layer.weight[-1, -1] ^= 1  # of the last row
    whole = judging.judged_layers(pair, tokens)
    monkeypatch.setattr(judging, "_SLAB", 1)
    in_slabs = judging.judged_layers(pair, tokens)
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(torch.get_num_threads).result() == torch.get_num_threads(), "as before"
    assert [each.status for each in in_slabs] == [each.status for each in whole]
    assert [each.largest for each in in_slabs] == pytest.approx([each.largest for each in whole], rel=1e-6)


def test_the_judge_leaves_weights_in_float64_alone() -> None:
    weights, x = torch.randn(8, 16, dtype=torch.float64), torch.randn(3, 16)
    before = weights.clone()
    found = (x.double() @ weights.T * 0.5).float()
    worst = judging.worst_of(x, weights, 0.5, found, bits=16, exact_sums=False)
    assert worst <= 1
    assert torch.equal(weights, before)
    wrong = judging.worst_of(x, weights, 0.5, found * torch.nan, bits=16, exact_sums=False)
    assert math.isnan(wrong)


@pytest.mark.parametrize("scale", [1.0, 1.05, -1.0])
def test_the_greedy_continuation_ends_where_the_models_part(tmp_path: Path, tokens: Any, scale: float) -> None:
    """As many tokens as the continuations of both, each by itself, have in common."""
    pair = loading.load(
        str(bitnet_folder(tmp_path, dtype="float32")), device="cpu", dtype="auto", activation_bits=None, keep=()
    )
    norm = copy.deepcopy(pair.after.model.norm)
    norm.weight.data = torch.where(torch.arange(len(norm.weight)) % 3 == 0, scale, 1.0) * norm.weight
    pair.after.model.norm = norm
    ways = []
    for model in (pair.before, pair.after):
        own = tokens[:, :8]
        for _ in range(32):
            own = torch.cat((own, model(own).logits[:, -1:].argmax(-1)), 1)
        ways.append(own[0, 8:].tolist())
    common = next((at for at, (a, b) in enumerate(zip(*ways, strict=True)) if a != b), 32)
    assert judging.agreement(pair, tokens).greedy == common


def test_both_models_share_what_stays(pair: loading.ModelPair) -> None:
    assert pair.before.model.embed_tokens.weight is pair.after.model.embed_tokens.weight
    assert pair.before.model.layers[0].mlp.up_proj is not pair.after.model.layers[0].mlp.up_proj


def test_the_result(folder: Path) -> None:
    told: list[str] = []
    found = evaluate(str(folder), prompts=(8,), batches=(2,), seconds=0.05, tokens=8, report=told.append)
    assert not found.failed
    assert {"replacing layers", "judging layer 1 of 14", "judging layer 14 of 14", "judging the graph"} <= set(told)
    assert found.graph is not None
    assert (found.graph.wrong, found.graph.unseen, found.graph.why_not) == ((), (), "")
    assert (found.replaced, len(found.kept), found.dtype) == (14, 1, "bfloat16")
    assert [(each.engine, each.work, each.batch) for each in found.rates] == [
        (engine, work, 2) for work in ("prompt", "decode") for engine in (OURS, BASE)
    ]
    assert all(each.tokens_per_s > 0 for each in found.rates)
    assert found.nbytes < found.nbytes_before
    assert found.token_nbytes == found.nbytes - 64 * 128 * 2  # without the embedding, of which it reads a row
    assert [(each.work, each.batch, each.prompt) for each in found.splits] == [("prompt", 2, 8), ("decode", 2, 8)]
    assert all(each.least_ms for each in found.splits)
    assert [each.name for each in found.engines] == [OURS, BASE]
    assert found.peak_nbytes > found.nbytes_before
    assert ModelResult.model_validate_json(found.model_dump_json()) == found


def test_the_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["model", str(folder), "--prompt", "8", "--seconds", "0.1", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "PASS: 14 of 14 layers within the bound of their arithmetic; 14 replaced, 1 kept" in done.output
    assert "; graph: 36 of 36 parts" in done.output
    assert "A decoded token" in done.output
    (path,) = (tmp_path / "models").glob("*.json")
    assert "</html>" in path.with_suffix(".html").read_text()
    found = ModelResult.model_validate_json(path.read_text())
    first, *others = found.layers
    wrong = first.model_copy(update={"status": Status.FAIL, "largest": 3.0})
    failed = found.model_copy(update={"layers": (wrong, *others)})
    monkeypatch.setattr(models, "evaluator", lambda: lambda *given, **asked: failed)
    done = CliRunner().invoke(app, given)
    assert done.exit_code == FAILED
    assert f"FAIL {first.name} (AutoBitLinear): 3 times its bound" in done.output


def test_an_engine_that_fails_is_listed_and_others_are_timed(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text("#!/bin/sh\necho 'error: unknown model architecture' >&2\nexit 1\n")
    program.chmod(0o755)
    name = f"llama-bench={program}"
    found = evaluate(str(folder), prompts=(8,), seconds=0.05, tokens=8, engines=[name], gguf="m.gguf")
    assert found.engines[-1].name == name
    assert "unknown model architecture" in found.engines[-1].failed
    assert {each.engine for each in found.rates} == {OURS, BASE}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"engines": ["fast"]}, "unknown; legal: transformers"),
        ({"layout": "g64"}, "for GGUF files"),
        ({"source": "./nowhere"}, "no folder"),
        ({"dtype": "int8"}, "legal"),
        ({"keep": ["*"]}, "no layer was replaced"),
        ({"text": "hello"}, "no tokenizer"),
    ],
)
def test_what_cannot_be_run_is_refused(folder: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        evaluate(given.pop("source", str(folder)), **given)


def test_the_command_refuses(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["model", str(tmp_path / "nowhere")])
    assert isinstance(done.exception, UsageError) or done.exit_code == USAGE
