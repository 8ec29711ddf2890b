"""What `tritmark model` judges besides linear layers: experts one by one, the graph, another engine's logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_architectures import folder_of  # noqa: E402

from tritmark.harness.errors import UsageError  # noqa: E402
from tritmark.harness.models import JudgedExperts, JudgedGraph, JudgedPart, ModelResult  # noqa: E402
from tritmark.harness.record import Status  # noqa: E402
from tritmark.harness.report.model_judgement import lines, verdict  # noqa: E402
from tritmark.torch.model import loading  # noqa: E402
from tritmark.torch.model.evaluate import evaluate  # noqa: E402
from tritmark.torch.model.judging_experts import judged_experts  # noqa: E402
from tritmark.torch.model.judging_source import judged_source  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("qwen3_moe", tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(disable=True), torch.no_grad(), threadpool_limits(1):
        yield
    torch.set_num_threads(before)


@pytest.fixture
def pair(folder: Path) -> loading.ModelPair:
    return loading.load(str(folder), device="cpu", dtype="auto", activation_bits=8, keep=())


def tokens(length: int = 24) -> Any:
    return torch.randint(3, 64, (1, length), generator=torch.Generator().manual_seed(0))


def test_each_expert_is_judged(pair: loading.ModelPair) -> None:
    found = judged_experts(pair, tokens())
    assert [each.name for each in found] == [
        f"model.layers.{number}.mlp.experts.{product}"
        for number in range(2)
        for product in ("gate_up_proj", "down_proj")
    ]
    assert {(each.status, each.experts, each.unreached) for each in found} == {(Status.PASS, 6, 0)}


def test_experts_that_no_token_reaches_are_counted(pair: loading.ModelPair) -> None:
    found = judged_experts(pair, tokens(1))
    assert {(each.status, each.unreached) for each in found} == {(Status.PASS, 4)}


@pytest.mark.parametrize("product", ["gate_up_proj", "down_proj"])
def test_a_wrong_expert_is_found_by_number(pair: loading.ModelPair, product: str) -> None:
    layer = getattr(pair.after.model.layers[1].mlp.experts, product)
    layer.weight = layer.weight.clone()
    layer.weight[4] = layer.weight[4].roll(1, 0)
    wrong = [each for each in judged_experts(pair, tokens()) if each.status is Status.FAIL]
    assert [(each.name.rpartition(".")[2], each.wrong) for each in wrong] == [(product, (4,))]


def test_a_wrong_scale_of_an_expert_is_found(pair: loading.ModelPair) -> None:
    layer = pair.after.model.layers[0].mlp.experts.down_proj
    layer.weight_scale = layer.weight_scale * torch.tensor([1, 1, 1, 1.001, 1, 1])
    (wrong,) = [each for each in judged_experts(pair, tokens()) if each.status is Status.FAIL]
    assert wrong.wrong == (3,)


@pytest.fixture(scope="module")
def result(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelResult:
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        before = loading.load(str(folder), device="cpu", dtype="auto", activation_bits=8, keep=()).before
        path = tmp_path_factory.mktemp("logits") / "logits.npz"
        np.savez(path, tokens=tokens()[0].numpy(), logits=before(tokens()).logits[0].numpy())
        return evaluate(str(folder), activation_bits=8, prompts=(4,), seconds=0.05, tokens=24, logits=str(path))


@pytest.mark.nightly
def test_the_result_has_all_judgements(result: ModelResult) -> None:
    assert not result.failed
    assert len(result.experts) == 4
    assert result.graph is not None
    assert (result.graph.wrong, result.graph.unseen, result.graph.why_not) == ((), (), "")
    assert result.logits is not None
    assert result.logits.status is Status.PASS
    assert ModelResult.model_validate_json(result.model_dump_json()) == result
    head = verdict(result)
    assert head.startswith("PASS: 8 of 8 layers within the bound of their arithmetic; 10 replaced, 1 kept; ")
    assert "of 24 products of experts within it" in head
    assert f"graph: {len(result.graph.parts)} of {len(result.graph.parts)} parts" in head
    assert head.endswith("logits.npz: PASS")


@pytest.mark.nightly
def test_a_graph_without_a_reference_is_no_pass(result: ModelResult) -> None:
    graph = JudgedGraph(architecture="OtherForCausalLM", tokens=8, parts=(), why_not="model_type 'other' has none")
    head = verdict(result.model_copy(update={"graph": graph}))
    assert head.startswith("PASS (layers; graph not judged): ")
    assert "graph not judged: OtherForCausalLM, model_type 'other' has none" in head


@pytest.mark.nightly
def test_what_is_wrong_is_named(result: ModelResult) -> None:
    assert result.graph is not None
    assert result.logits is not None
    parts = (
        JudgedPart(name="layer 1 rope", status=Status.FAIL, largest=12.5),
        JudgedPart(name="layer 1 attention", status=Status.NOT_RUN, largest=None, why="it is not seen"),
    )
    graph = result.graph.model_copy(update={"parts": (*result.graph.parts, *parts)})
    experts = JudgedExperts(name="experts", status=Status.FAIL, experts=6, unreached=1, largest=3.0, wrong=(2, 5))
    logits = result.logits.model_copy(update={"status": Status.FAIL, "fault": "no sub-norms"})
    failed = result.model_copy(update={"graph": graph, "experts": (experts,), "logits": logits})
    assert failed.failed
    for change in ({"graph": graph}, {"experts": (experts,)}, {"logits": logits}):
        assert result.model_copy(update=change).failed
    assert verdict(failed).startswith("FAIL: ")
    assert "3 of 6 products of experts within it, 1 not judged since no token reached them" in verdict(failed)
    text = "\n".join(lines(failed, 8))
    for told in (
        "FAIL experts, experts 2, 5: 3 times the bound",
        "FAIL layer 1 rope: 12.5 times the bound",
        "not judged layer 1 attention: it is not seen",
        "their likely fault: no sub-norms",
    ):
        assert told in text
    assert "and 1 more parts of the graph" in "\n".join(lines(failed, 1))


def test_a_file_has_no_reference(pair: loading.ModelPair, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    graph, logits = judged_source(pair.after, str(file), tokens(), "")
    assert "this is a file" in graph.why_not
    assert logits is None
    with pytest.raises(UsageError, match="is no folder"):
        judged_source(pair.after, str(file), tokens(), "logits.npz")
