"""convert of the layers of transformers, beside what transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_transformers import bitnet_folder  # noqa: E402
from transformers.integrations import bitnet  # noqa: E402

from tritmark.torch import BitLinear, convert  # noqa: E402

N, K = 64, 256


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute."""
    with torch._dynamo.config.patch(disable=True):
        yield


def codes() -> Any:
    return torch.from_numpy(np.random.default_rng(0).integers(-1, 2, (N, K), dtype=np.int8))


def packed(bias: bool, norm: bool) -> Any:
    """`BitLinear`: the scale is the inverse of the value of code 1."""
    made = bitnet.BitLinear(K, N, bias, dtype=torch.float32, use_rms_norm=norm)
    made.weight = bitnet.pack_weights(codes())
    made.weight_scale = torch.tensor([3.5])
    return made


def offline(bias: bool, norm: bool) -> Any:
    made = bitnet.AutoBitLinear(K, N, bias, use_rms_norm=norm)
    made.weight.data = codes().float()
    made.weight_scale = torch.tensor([0.28])
    return made


def online(bias: bool, norm: bool) -> Any:
    made = bitnet.AutoBitLinear(K, N, bias, use_rms_norm=norm, online_quant=True)
    made.weight.data = torch.from_numpy(np.random.default_rng(1).normal(size=(N, K)).astype(np.float32))
    return made


KINDS = [packed, offline, online]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_function_stays(kind: Any, bias: bool, norm: bool) -> None:
    torch.manual_seed(0)
    layer = kind(bias, norm)
    if bias:
        layer.bias.data = torch.randn(N)
    if norm:
        layer.rms_norm.weight.data = torch.rand(K) + 0.5
    model = torch.nn.Sequential(layer).eval()
    x = torch.randn(3, K)
    expected = model(x)
    (replaced,) = convert(model).replaced
    assert (replaced.was, replaced.changed) == (type(layer).__name__, "")
    found = model(x)
    assert isinstance(model[0], BitLinear)
    # transformers rounds once more: activations times their scale, divided by it, and a float32 sum.
    assert bool((found - expected).abs().max() <= expected.abs().max() * K * 2.0**-23)
    assert model.state_dict().keys() >= {"0.weight", "0.weight_scale"} | ({"0.rms_norm.weight"} if norm else set())


def test_packed_weights_are_shared() -> None:
    model = torch.nn.Sequential(packed(False, False)).eval()
    place = model[0].weight.data_ptr()
    convert(model)
    assert model[0].weight.data_ptr() == place


def test_the_other_sense_of_a_scale_would_be_seen() -> None:
    """The planted fault of the test above."""
    layer = packed(False, False)
    wrong = BitLinear.from_packed(layer.weight, layer.weight_scale)
    x = torch.randn(3, K)
    expected = layer(x)
    assert bool((wrong(x) - expected).abs().max() > expected.abs().max() * K * 2.0**-23)


def test_a_layer_in_training_is_kept() -> None:
    model = torch.nn.Sequential(online(False, False)).train()
    (kept,) = convert(model).kept
    assert "trained" in kept.why


def test_floats_that_are_no_codes_are_kept() -> None:
    model = torch.nn.Sequential(offline(False, False)).eval()
    with torch.no_grad():
        model[0].weight[0, 0] = 0.5
    (kept,) = convert(model).kept
    assert "not ternary" in kept.why


@pytest.mark.parametrize("scale", [[0.0], [-1.0], [float("nan")], [1.0, 2.0]])
def test_a_scale_that_is_none_is_kept(scale: list[float]) -> None:
    model = torch.nn.Sequential(offline(False, False)).eval()
    model[0].weight_scale = torch.tensor(scale)
    (kept,) = convert(model).kept
    assert "weight_scale" in kept.why


EXPERTS, USED, HIDDEN, INNER = 6, 2, 96, 64


@pytest.fixture
def experts() -> Any:
    """A model with experts, all weights of the experts ternary, one scale for each or groups of 32."""
    config = transformers.Qwen3MoeConfig(
        vocab_size=32,
        hidden_size=HIDDEN,
        intermediate_size=64,
        moe_intermediate_size=INNER,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        num_experts=EXPERTS,
        num_experts_per_tok=USED,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = transformers.Qwen3MoeForCausalLM(config).eval()
    layer = model.model.layers[0].mlp.experts
    with torch.no_grad():
        shape = layer.gate_up_proj.shape
        layer.gate_up_proj.copy_(torch.randint(-1, 2, shape) * (torch.rand(EXPERTS, 1, 1) + 0.1))
        shape = layer.down_proj.shape
        scales = (torch.rand(*shape[:2], shape[2] // 32, 1) + 0.1).half().float()
        layer.down_proj.copy_((torch.randint(-1, 2, shape).reshape(*scales.shape[:3], 32) * scales).reshape(shape))
    return model


def quantized(x: Any) -> Any:
    """Activations after their quantization to int8, in float64."""
    scale = 127 / x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x.float() * scale).round().double() / scale.double()


def test_experts_are_converted(experts: Any) -> None:
    before = experts.model.layers[0].mlp.experts
    weights = before.gate_up_proj.detach().double(), before.down_proj.detach().double()
    x, index = torch.randn(7, HIDDEN), torch.randint(0, EXPERTS, (7, USED))
    gates = torch.rand(7, USED)
    expected = torch.zeros(7, HIDDEN, dtype=torch.float64)
    for token in range(7):
        for place, expert in enumerate(index[token]):
            gate, up = (quantized(x[token]) @ weights[0][expert].T).float().chunk(2)
            inner = before.act_fn(gate) * up
            expected[token] += gates[token, place] * (quantized(inner) @ weights[1][expert].T)
    found = convert(experts, activation_bits=8)
    layer = experts.model.layers[0].mlp.experts
    assert {each.name: each.was for each in found.replaced} == {"model.layers.0.mlp.experts": "Qwen3MoeExperts"}
    assert layer.gate_up_proj.group_size is None
    assert layer.down_proj.group_size == 32
    off = (layer(x, index, gates).double() - expected).abs().max()
    # A code that rounds the other way, since silu's float32 differs, moves an output by a 127th of a weight.
    assert off <= expected.abs().max() / 127
    assert experts(torch.randint(3, 32, (1, 5))).logits.isfinite().all()
    found.undo()
    assert experts.model.layers[0].mlp.experts is before


@pytest.mark.parametrize(
    ("name", "value"), [("has_bias", True), ("is_transposed", True), ("is_concatenated", False), ("has_gate", False)]
)
def test_experts_with_another_layout_are_kept(experts: Any, name: str, value: bool) -> None:
    setattr(experts.model.layers[0].mlp.experts, name, value)
    kept = {each.name: each.why for each in convert(experts, activation_bits=8).kept}
    assert f"its {name} is {value}" in kept["model.layers.0.mlp.experts"]


def test_experts_with_float_activations_are_kept_unasked(experts: Any) -> None:
    kept = {each.name: each.why for each in convert(experts).kept}
    assert "activation_bits=8" in kept["model.layers.0.mlp.experts"]


def test_a_folder_of_weights_becomes_tokens(tmp_path: Path) -> None:
    folder = bitnet_folder(tmp_path, dtype="float32")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = torch.randint(3, 64, (1, 8))
    tokens, logits = model.generate(prompt, max_new_tokens=8, do_sample=False), model(prompt).logits
    found = convert(model)
    assert len(found.replaced) == 14
    assert [each.name for each in found.kept] == ["lm_head"]
    drift = (model(prompt).logits - logits).abs().max()
    assert torch.equal(model.generate(prompt, max_new_tokens=8, do_sample=False), tokens)
    # A fault of one layer's scale moves the logits far more than all roundings of converted layers.
    last = model.model.layers[1].mlp.down_proj
    last.weight_scale.mul_(1.01)
    assert (model(prompt).logits - logits).abs().max() > 100 * drift
