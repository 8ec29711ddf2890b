"""Another engine's logits beside the reference: close ones pass, faults are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_architectures import folder_of  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

from tritmark.harness.errors import UsageError  # noqa: E402
from tritmark.harness.record import Status  # noqa: E402
from tritmark.torch.model.other_logits import judged_logits  # noqa: E402
from tritmark.torch.model.reference.architecture import architecture_of  # noqa: E402
from tritmark.torch.model.reference.forward import Forward  # noqa: E402
from tritmark.torch.model.reference.tensors import tensors_of  # noqa: E402

KINDS = ("bitnet", "online", "falcon", "qwen3", "qwen3_moe")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: folder_of(kind, tmp_path_factory.mktemp(kind), dtype="float32") for kind in KINDS}


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(disable=True), torch.no_grad(), threadpool_limits(1):
        yield
    torch.set_num_threads(before)


def loaded(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager")


def written(model: Any, path: Path) -> Path:
    """The logits of an engine, which transformers plays here."""
    tokens = torch.randint(3, 64, (1, 16), generator=torch.Generator().manual_seed(0))
    np.savez(path, tokens=tokens[0].numpy(), logits=model(tokens).logits[0].float().numpy())
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_of_a_right_engine_pass(folders: dict[str, Path], kind: str, tmp_path: Path) -> None:
    found = judged_logits(folders[kind], written(loaded(folders[kind]), tmp_path / "logits.npz"))
    assert (found.status, found.fault, found.tried) == (Status.PASS, "", ())
    assert found.top1 == 1
    assert found.spread is not None
    assert found.spread < 0.2


def silu(model: Any) -> None:
    for each in model.model.layers:
        each.mlp.act_fn = torch.nn.SiLU()


def gelu(model: Any) -> None:
    for each in model.model.layers:
        each.mlp.act_fn = torch.nn.GELU()


def base(model: Any) -> None:
    rope = model.model.rotary_emb
    size = 2 * len(rope.inv_freq)
    rope.inv_freq.copy_(1e4 ** -(torch.arange(0, size, 2) / size))


def sub_norms(model: Any) -> None:
    for each in model.model.layers:
        each.mlp.ffn_sub_norm = each.self_attn.attn_sub_norm = torch.nn.Identity()


def head(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def head_norms(model: Any) -> None:
    for each in model.model.layers:
        each.self_attn.q_norm = each.self_attn.k_norm = torch.nn.Identity()


def sense(model: Any) -> None:
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.weight_scale = 1 / module.weight_scale


def permuted(model: Any) -> None:
    for block in model.model.layers:
        for name, heads in (("q_proj", 4), ("k_proj", 2)):
            weight = getattr(block.self_attn, name).weight
            rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2)
            weight.copy_(rows.reshape(weight.shape).clone())


def gates(model: Any) -> None:
    for each in model.model.layers:
        each.mlp.gate.norm_topk_prob = False


@pytest.mark.parametrize(
    ("kind", "fault", "told"),
    [
        ("bitnet", silu, "activation silu in place of relu2"),
        ("falcon", gelu, "activation gelu in place of silu"),
        ("falcon", base, "rope base 10000 in place of 1.00004e+06"),
        ("bitnet", sub_norms, "no sub-norms"),
        ("falcon", head, "the embedding as head"),
        ("qwen3", head_norms, "no norms of q and k"),
        ("bitnet", sense, "weight_scale in the other sense"),
        ("falcon", sense, "weight_scale in the other sense"),
        ("qwen3", permuted, "rows of q and k permuted"),
        ("qwen3_moe", gates, "norm_topk_prob False"),
    ],
)
def test_the_fault_of_an_engine_is_named(
    folders: dict[str, Path], kind: str, fault: Any, told: str, tmp_path: Path
) -> None:
    model = loaded(folders[kind])
    fault(model)
    found = judged_logits(folders[kind], written(model, tmp_path / "logits.npz"))
    assert (found.status, found.fault) == (Status.FAIL, told)


def test_rope_of_neighbours_is_named(folders: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    def order(x: Any) -> Any:
        return torch.stack([x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]], -1).reshape(x.shape)

    def apply(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        cos, sin = order(cos).unsqueeze(1), order(sin).unsqueeze(1)
        turned = [torch.stack([-each[..., 1::2], each[..., ::2]], -1).reshape(each.shape) for each in (q, k)]
        return q * cos + turned[0] * sin, k * cos + turned[1] * sin

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", apply)
    found = judged_logits(folders["falcon"], written(loaded(folders["falcon"]), tmp_path / "logits.npz"))
    assert (found.status, found.fault) == (Status.FAIL, "rope of neighbours in place of halves")


def test_a_fault_that_is_not_known_is_no_other(folders: dict[str, Path], tmp_path: Path) -> None:
    model = loaded(folders["falcon"])
    model.model.layers[1].self_attn.is_causal = False
    model.model.layers[0].mlp = torch.nn.Identity()
    found = judged_logits(folders["falcon"], written(model, tmp_path / "logits.npz"))
    assert (found.status, found.fault) == (Status.FAIL, "")
    assert len(found.tried) > 5


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
def test_the_reference_is_transformers_graph_in_float64(folders: dict[str, Path], kind: str) -> None:
    """transformers in float64, in which only norms and angles are float32; layers with quantized activations have no
    float64."""
    graph = architecture_of(folders[kind])
    tokens = torch.randint(3, 64, (1, 16), generator=torch.Generator().manual_seed(1))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folders[kind], dtype=torch.float64, experts_implementation="eager"
    )
    with tensors_of(folders[kind], graph, "float32") as tensors:
        found = Forward(tensors, graph).logits(tokens[0].numpy())[0]
    expected = model(tokens).logits[0].numpy()
    # The angles of 16 tokens in float32 are off by 16 * 2**-23, and each of 30 roundings passes through 2 blocks.
    assert np.abs(found - expected).max() < 30 * 16 * 2.0**-23 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"tokens": np.arange(4)}, "logits"),
        ({"tokens": np.arange(4.0), "logits": np.zeros((4, 64))}, "tokens is float64"),
        ({"tokens": np.arange(4), "logits": np.zeros((3, 64))}, r"logits is float64 of shape \(3, 64\)"),
        ({"tokens": np.arange(4), "logits": np.zeros((4, 32))}, r"legal: \(4, 64\)"),
        ({"tokens": np.arange(4), "logits": np.full((4, 64), np.nan)}, "NaN"),
        ({"tokens": np.arange(62, 66), "logits": np.zeros((4, 64))}, "legal: 0 to 63"),
        ({"tokens": np.arange(0), "logits": np.zeros((0, 64))}, "no tokens"),
    ],
)
def test_other_files_are_refused(folders: dict[str, Path], arrays: Any, told: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "logits.npz", **arrays)
    with pytest.raises(UsageError, match=told):
        judged_logits(folders["falcon"], tmp_path / "logits.npz")


def test_a_file_of_another_kind_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    for text in ("", "no archive"):
        (tmp_path / "logits.npz").write_text(text)
        with pytest.raises(UsageError, match="legal"):
            judged_logits(folders["falcon"], tmp_path / "logits.npz")
    with pytest.raises(UsageError, match="legal"):
        judged_logits(folders["falcon"], tmp_path / "nowhere.npz")


def test_an_engine_of_another_architecture_is_not_judged(folders: dict[str, Path], tmp_path: Path) -> None:
    path = written(loaded(folders["falcon"]), tmp_path / "logits.npz")
    (tmp_path / "config.json").write_text('{"model_type": "gemma"}')
    found = judged_logits(tmp_path, path)
    assert found.status is Status.NOT_RUN
    assert "gemma" in found.why_not
