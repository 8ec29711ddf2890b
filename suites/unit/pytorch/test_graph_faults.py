"""The graph of a model, part by part: planted faults are named, honest variants pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_architectures import folder_of  # noqa: E402
from transformers.models.bitnet import modeling_bitnet  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

from tritmark.harness.errors import WeightFileError  # noqa: E402
from tritmark.harness.record import Status  # noqa: E402
from tritmark.torch import convert  # noqa: E402
from tritmark.torch.model.graph import judged_graph  # noqa: E402

KINDS = ("bitnet", "online", "falcon", "qwen3", "qwen3_moe")
Folders = dict[tuple[str, str], Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: Folders = {}

    def folder(kind: str, dtype: str = "float32") -> Path:
        if (kind, dtype) not in made:
            made[kind, dtype] = folder_of(kind, tmp_path_factory.mktemp(kind), dtype=dtype)
        return made[kind, dtype]

    return folder


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute; threads would cost small models more than they
    save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(disable=True), torch.no_grad(), threadpool_limits(1):
        yield
    torch.set_num_threads(before)


def loaded(folder: Path, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **{"dtype": "auto", **options})


def tokens(batch: int = 1, length: int = 24) -> Any:
    return torch.randint(3, 64, (batch, length), generator=torch.Generator().manual_seed(0))


def wrong(model: Any, folder: Path, **options: Any) -> list[str]:
    found = judged_graph(model, folder, options.pop("tokens", tokens()), **options)
    assert found.why_not == ""
    assert found.unseen == ()
    assert len(found.parts) > 25
    return [each.name for each in found.wrong]


def swap(tensor: Any, order: list[int]) -> None:
    tensor.copy_(tensor[order + list(range(len(order), len(tensor)))].clone())


def layer(model: Any) -> Any:
    return model.model.layers[1]


def other_activation(model: Any) -> None:
    layer(model).mlp.act_fn = torch.nn.SiLU()


def gelu(model: Any) -> None:
    layer(model).mlp.act_fn = torch.nn.GELU()


def no_sub_norm(model: Any) -> None:
    layer(model).self_attn.attn_sub_norm = torch.nn.Identity()


def no_inner_sub_norm(model: Any) -> None:
    layer(model).mlp.ffn_sub_norm = torch.nn.Identity()


def sub_norm_left_out(model: Any) -> None:
    mlp = layer(model).mlp
    mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))


def embedding_as_head(model: Any) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def head_of_its_own(model: Any) -> None:
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))


def other_eps(model: Any) -> None:
    layer(model).input_layernorm.variance_epsilon *= 10


def other_eps_of_heads(model: Any) -> None:
    layer(model).self_attn.k_norm.variance_epsilon /= 10


def other_base(model: Any) -> None:
    rope = model.model.rotary_emb
    size = 2 * len(rope.inv_freq)
    rope.inv_freq.copy_(1e4 ** -(torch.arange(0, size, 2) / size))


def base_next_to_it(model: Any) -> None:
    """1e6 in place of 1000042, as in Falcon-E's configuration."""
    rope = model.model.rotary_emb
    size = 2 * len(rope.inv_freq)
    rope.inv_freq.copy_(1e6 ** -(torch.arange(0, size, 2) / size))


def permuted_rows(model: Any) -> None:
    """As llama.cpp's converter does."""
    weight = layer(model).self_attn.k_proj.weight
    heads = weight.reshape(2, 2, weight.shape[0] // 4, -1).swapaxes(1, 2)
    weight.copy_(heads.reshape(weight.shape).clone())


def inverse_scale(model: Any) -> None:
    module = layer(model).mlp.down_proj
    module.weight_scale = 1 / module.weight_scale


def no_head_norm(model: Any) -> None:
    layer(model).self_attn.q_norm = torch.nn.Identity()


def no_final_norm(model: Any) -> None:
    model.model.norm = torch.nn.Identity()


def no_mask(model: Any) -> None:
    layer(model).self_attn.is_causal = False


def other_scaling(model: Any) -> None:
    layer(model).self_attn.scaling *= 1.01


def embedding_scaled(model: Any) -> None:
    model.model.embed_tokens.register_forward_hook(lambda module, given, out: out * 11.3)


def doubled_residual(model: Any) -> None:
    block = layer(model)
    forward = block.forward
    block.forward = lambda x, *given, **named: forward(x, *given, **named) + x


def swapped_experts(model: Any) -> None:
    swap(layer(model).mlp.experts.down_proj, [0, 1, 5, 3, 4, 2])


def gates_not_normed(model: Any) -> None:
    layer(model).mlp.gate.norm_topk_prob = False


def other_router(model: Any) -> None:
    swap(layer(model).mlp.gate.weight, [3, 1, 2, 0])


def fewer_experts(model: Any) -> None:
    layer(model).mlp.gate.top_k = 1


def other_experts_activation(model: Any) -> None:
    layer(model).mlp.experts.act_fn = torch.nn.GELU()


FAULTS = [
    ("bitnet", other_activation, "layer 1 activation"),
    ("falcon", gelu, "layer 1 activation"),
    ("qwen3", gelu, "layer 1 activation"),
    ("bitnet", no_sub_norm, "layer 1 attention sub-norm"),
    ("bitnet", no_inner_sub_norm, "layer 1 feed-forward sub-norm"),
    ("bitnet", sub_norm_left_out, "layer 1 feed-forward sub-norm"),
    ("bitnet", embedding_as_head, "head"),
    ("qwen3", head_of_its_own, "head"),
    ("bitnet", other_eps, "layer 1 input norm"),
    ("qwen3", other_eps_of_heads, "layer 1 k_norm"),
    ("bitnet", other_base, "rope table"),
    ("falcon", base_next_to_it, "rope table"),
    ("qwen3", permuted_rows, "layer 1 k_proj"),
    ("online", permuted_rows, "layer 1 k_proj"),
    ("bitnet", inverse_scale, "layer 1 down_proj"),
    ("falcon", inverse_scale, "layer 1 down_proj"),
    ("qwen3", no_head_norm, "layer 1 q_norm"),
    ("falcon", no_final_norm, "final norm"),
    ("falcon", no_mask, "layer 1 attention"),
    ("qwen3", other_scaling, "layer 1 attention"),
    ("bitnet", embedding_scaled, "embedding"),
    ("qwen3", doubled_residual, "layer 1 feed-forward residual"),
    ("qwen3_moe", swapped_experts, "layer 1 experts"),
    ("qwen3_moe", gates_not_normed, "layer 1 router"),
    ("qwen3_moe", other_router, "layer 1 router"),
    ("qwen3_moe", fewer_experts, "layer 1 router"),
    ("qwen3_moe", other_experts_activation, "layer 1 experts"),
]


@pytest.mark.parametrize(("kind", "fault", "part"), FAULTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_fault_is_named(folders: Any, kind: str, fault: Any, part: str) -> None:
    model = loaded(folders(kind))
    fault(model)
    first, *others = wrong(model, folders(kind))
    assert first == part
    assert len(others) <= 3  # other norms and blocks stay right: each part is judged on its own inputs


@pytest.mark.parametrize(
    ("kind", "fault", "part"),
    [
        ("bitnet", other_eps, "layer 1 input norm"),
        ("bitnet", other_activation, "layer 1 activation"),
        ("falcon", inverse_scale, "layer 1 down_proj"),
        ("qwen3_moe", swapped_experts, "layer 1 experts"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_fault_is_named_in_bfloat16(folders: Any, kind: str, fault: Any, part: str) -> None:
    model = loaded(folders(kind, "bfloat16"))
    fault(model)
    assert wrong(model, folders(kind, "bfloat16"))[0] == part


def interleaved(x: Any) -> Any:
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def ungrouped(x: Any, n: int) -> Any:
    return x.repeat(1, n, 1, 1)


@pytest.mark.parametrize(
    ("kind", "module", "name", "fault", "part"),
    [
        ("falcon", modeling_llama, "rotate_half", interleaved, "layer 0 rope"),
        ("bitnet", modeling_bitnet, "rotate_half", interleaved, "layer 0 rope"),
        ("falcon", modeling_llama, "repeat_kv", ungrouped, "layer 0 attention"),
    ],
)
def test_a_fault_of_a_function_is_named(
    folders: Any, monkeypatch: pytest.MonkeyPatch, kind: str, module: Any, name: str, fault: Any, part: str
) -> None:
    model = loaded(folders(kind), attn_implementation="eager")
    monkeypatch.setattr(module, name, fault)
    assert wrong(model, folders(kind))[0] == part


def test_faults_of_tritmarks_layers_are_named(folders: Any) -> None:
    model = loaded(folders("falcon"))
    convert(model)
    layer(model).self_attn.v_proj.weight_scale_rule = "multiply"
    assert wrong(model, folders("falcon")) == ["layer 1 v_proj"]
    model = loaded(folders("qwen3_moe"))
    convert(model, activation_bits=8)
    experts = layer(model).mlp.experts
    swap(experts.gate_up_proj.weight, [0, 1, 2, 4, 3])
    swap(experts.gate_up_proj.weight_scale, [0, 1, 2, 4, 3])
    (found,) = judged_graph(model, folders("qwen3_moe"), tokens()).wrong
    assert (found.name, found.why) == ("layer 1 experts gate_up_proj", "of experts 3, 4")
    experts.activation.act_fn = torch.nn.GELU()
    assert wrong(model, folders("qwen3_moe")) == ["layer 1 experts gate_up_proj", "layer 1 experts activation"]


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [("hidden_act", "silu", "layer 0 activation"), ("rms_norm_eps", 1e-6, "layer 0 input norm")],
)
def test_a_folder_of_another_configuration_departs(
    folders: Any, tmp_path: Path, name: str, value: Any, part: str
) -> None:
    model, folder = loaded(folders("bitnet")), folders("bitnet")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**config, name: value}))
    assert wrong(model, tmp_path)[0] == part


def test_a_model_of_other_sizes_departs(folders: Any) -> None:
    assert "layer 0 gate_proj" in wrong(narrow(loaded(folders("falcon"))), folders("falcon"))


def narrow(model: Any) -> Any:
    mlp = model.model.layers[0].mlp
    for each in (mlp.gate_proj, mlp.up_proj):
        each.weight = each.weight[:32]
    mlp.down_proj.weight = mlp.down_proj.weight[:, :128]
    return model


def test_a_cache_that_loses_keys_is_named(folders: Any) -> None:
    model = loaded(folders("qwen3"))

    class Losing(transformers.DynamicCache):  # type: ignore[misc]
        def update(self, keys: Any, values: Any, number: int, *more: Any, **options: Any) -> Any:
            keys, values = super().update(keys, values, number, *more, **options)
            return torch.cat([torch.zeros_like(keys[:, :, :1]), keys[:, :, 1:]], 2) if number else keys, values

    assert wrong(model, folders("qwen3"), cache=Losing(config=model.config))[0] == "layer 1 rope"


def padded(model: Any) -> dict[str, Any]:
    mask = torch.ones(3, 24, dtype=torch.long)
    mask[0, :7] = mask[2, :1] = 0
    return {"tokens": tokens(3), "mask": mask}


def static(model: Any) -> dict[str, Any]:
    return {"cache": transformers.StaticCache(config=model.config, max_cache_len=40)}


def dynamic(model: Any) -> dict[str, Any]:
    return {"cache": transformers.DynamicCache(config=model.config), **padded(model)}


def checkpointing(model: Any) -> dict[str, Any]:
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    return {}


def plain(model: Any) -> dict[str, Any]:
    return {}


HONEST = [
    *((kind, "float32", plain, {}) for kind in KINDS),
    *((kind, "bfloat16", dynamic, {}) for kind in KINDS),
    ("bitnet", "float16", plain, {}),
    ("falcon", "float32", plain, {"attn_implementation": "eager"}),
    ("falcon", "bfloat16", padded, {"attn_implementation": "eager"}),
    ("qwen3", "float32", padded, {}),
    ("bitnet", "float32", static, {}),
    ("qwen3", "float32", checkpointing, {}),
    ("falcon", "float32", plain, {"device_map": "cpu"}),
    ("qwen3_moe", "float32", plain, {"experts_implementation": "eager"}),
    ("qwen3", "bfloat16", plain, {"dtype": "float32"}),
    ("online", "float32", plain, {"dtype": "bfloat16"}),
]


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize(("kind", "dtype", "variant", "options"), HONEST)
def test_honest_variants_pass(
    folders: Any, kind: str, dtype: str, variant: Any, options: dict[str, Any], converted: bool
) -> None:
    model = loaded(folders(kind, dtype), **options)
    if converted:
        assert len(convert(model, activation_bits=8).replaced) >= 10
    assert wrong(model, folders(kind, dtype), **variant(model)) == []


def test_a_compiled_model_is_judged_by_its_modules(folders: Any) -> None:
    model = loaded(folders("qwen3"))
    compiled = torch.compile(model, backend="aot_eager")
    assert wrong(compiled, folders("qwen3")) == []
    other_eps(model)
    assert wrong(compiled, folders("qwen3")) == ["layer 1 input norm"]


def test_an_architecture_without_a_reference_is_not_judged(tmp_path: Path) -> None:
    config = transformers.GemmaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, head_dim=16
    )
    model = transformers.GemmaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    found = judged_graph(model, tmp_path, tokens())
    assert (found.parts, found.architecture) == ((), "GemmaForCausalLM")
    assert "model_type 'gemma' has no reference" in found.why_not


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope_parameters 'linear'"),
        ({"num_key_value_heads": 4}, "config.json has 4 heads of 32, and k_proj of layer 0 has 64 rows"),
        ({"use_sliding_window": True}, "sliding windows"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 2}}, "quant_method 'gptq'"),
    ],
)
def test_options_without_a_reference_are_not_judged(
    folders: Any, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    folder = folders("qwen3")
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    config = {**json.loads((folder / "config.json").read_text()), **change}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    found = judged_graph(loaded(folder), tmp_path, tokens())
    assert told in found.why_not
    assert found.parts == ()


def test_attention_that_is_not_transformers_is_listed_as_unseen(folders: Any) -> None:
    model = loaded(folders("qwen3"))
    attention = layer(model).self_attn

    def own(hidden_states: Any, position_embeddings: Any, **options: Any) -> Any:
        for each in (attention.q_norm, attention.k_norm):
            each(torch.zeros(1, 24, 4 if each is attention.q_norm else 2, 32))
        return attention.o_proj(hidden_states.repeat(1, 1, 1)), None

    attention.forward = own
    found = judged_graph(model, folders("qwen3"), tokens())
    assert [each.name for each in found.unseen] == ["layer 1 rope", "layer 1 attention"]
    assert all(each.status is Status.NOT_RUN for each in found.unseen)
    assert "layer 1 q_proj" in [each.name for each in found.wrong]


def test_a_folder_without_weights_is_refused(folders: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folders("qwen3") / "config.json").read_text())
    with pytest.raises(WeightFileError):
        judged_graph(loaded(folders("qwen3")), tmp_path, tokens())
