"""convert: which layers it replaces, that their function stays, and that everything else stays as it is."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.torch import BitLinear, convert  # noqa: E402
from tritmark.torch.ternary_floats import GROUPS, ternary_of  # noqa: E402

nn = torch.nn
N, K = 24, 512


def codes(n: int = N, k: int = K, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (n, k), dtype=np.int8)).float()


def linear(weights: Any, bias: bool = False, dtype: Any = None) -> Any:
    made = nn.Linear(weights.shape[1], weights.shape[0], bias=bias, dtype=dtype)
    made.weight.data = weights.to(made.weight.dtype)
    return made.eval()


def rows(m: int = 5, k: int = K, dtype: Any = None) -> Any:
    x = np.random.default_rng(1).normal(size=(m, k)).astype(np.float32)
    return torch.from_numpy(x).to(dtype or torch.float32)


def quantized(x: Any) -> Any:
    """Activations after their quantization to int8, in float64."""
    scale = 127 / x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return ((x.float() * scale).round().clamp(-128, 127)).double() / scale.double()


def close(found: Any, exact: Any, dtype: Any = None) -> bool:
    """Equal up to roundings of the output and of K float32 additions."""
    unit = torch.finfo(dtype or torch.float32).eps
    return bool((found.double() - exact).abs().max() <= exact.abs().max() * (unit + K * 2.0**-24))


class Model(nn.Module):  # type: ignore[misc, name-defined]
    """A model with a layer of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N, K)
        self.plain = linear(codes() * 0.25, bias=True)
        self.floats = linear(torch.randn(N, K, generator=torch.Generator().manual_seed(0)))
        self.blocks = nn.ModuleList([nn.Sequential(linear(codes(seed=7)), nn.ReLU())])
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(K, N, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.plain(x) + self.floats(x) + self.blocks[0](x) + self.head(x)


def made() -> Any:
    return Model().eval()


def test_a_model_with_every_kind_of_layer() -> None:
    model = made()
    found = convert(model, activation_bits=8)
    assert {each.name: each.was for each in found.replaced} == {"plain": "Linear", "blocks.0.0": "Linear"}
    why = {each.name: each.why for each in found.kept}
    assert set(why) == {"floats", "head", "attention.out_proj"}
    assert "not ternary" in why["floats"]
    assert "embedding.weight" in why["head"]
    assert "subclass" in why["attention.out_proj"]
    assert str(found).splitlines()[0] == "2 replaced, 3 kept"
    x = rows()
    exact = quantized(x) @ (codes().double() * 0.25).T + model.plain.bias.double()
    assert close(model.plain(x), exact)
    model.attention(*[torch.zeros(1, 1, 8)] * 3)
    assert all(each.changed == "activations quantized to int8" for each in found.replaced)


def test_undo_restores_the_layers_of_before() -> None:
    model = made()
    before, x = dict(model.named_modules()), rows()
    expected = model(x)
    found = convert(model, activation_bits=8, quantize=True)
    assert len(found.replaced) == 3
    assert not torch.equal(model(x), expected)
    found.undo()
    assert dict(model.named_modules()) == before
    assert torch.equal(model(x), expected)
    found.undo()  # nothing is left to undo


def test_undo_after_another_change_changes_nothing() -> None:
    model = made()
    found = convert(model, activation_bits=8)
    other = model.plain = nn.Identity()
    with pytest.raises(InvalidArgumentError, match="plain"):
        found.undo()
    assert model.plain is other
    assert isinstance(model.blocks[0][0], BitLinear)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([0, *GROUPS]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_ternary_floats_come_back_exactly(group: int, dtype: Any, n: int, groups: int, seed: int) -> None:
    k = group * groups or 96
    rng = np.random.default_rng(seed)
    signs = codes(n, k, seed)
    scales = torch.from_numpy(rng.uniform(0.01, 2, (n, groups) if group else (1, 1))).to(dtype).half().to(dtype)
    weights = (signs.to(dtype).reshape(n, -1, group or k) * scales.reshape(*scales.shape, 1)).reshape(n, k)
    found = ternary_of(weights)
    assert not isinstance(found, str), found
    layer = BitLinear.from_packed(found.packed, found.scale, out_features=n)
    x = rows(3, k)
    exact = quantized(x) @ weights.double().T
    assert bool((layer(x).double() - exact).abs().max() <= (exact.abs().max() + 1) * k * 2.0**-22)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, N - 1), st.integers(0, K - 1), st.sampled_from([2.0, 0.25, 0.5 + 2.0**-20, float("nan"), 3e-45]))
def test_one_other_value_is_no_ternary_matrix(row: int, column: int, value: float) -> None:
    weights = codes() * 0.5
    weights[row] = 0.5  # the value must not be the only one of a group
    weights[row, column] = value
    assert isinstance(ternary_of(weights), str)


def test_scales_that_kernels_do_not_read_are_refused() -> None:
    weights = codes().abs().reshape(N, -1, 32) * (1 + torch.arange(N * K // 32).reshape(N, -1, 1) * 2.0**-20)
    found = ternary_of(weights.reshape(N, K))
    assert isinstance(found, str)
    assert "float16" in found


def hooked(layer: Any) -> None:
    layer.register_forward_hook(lambda *given: None)


def parametrized(layer: Any) -> None:
    torch.nn.utils.parametrizations.weight_norm(layer)


def training(layer: Any) -> None:
    layer.train()


def patched(layer: Any) -> None:
    layer.forward = lambda x: x


@pytest.mark.parametrize(
    ("change", "why"),
    [(hooked, "hooks"), (parametrized, "parametrized"), (training, "trained"), (patched, "forward was replaced")],
)
def test_a_layer_that_does_more_is_kept(change: Callable[[Any], None], why: str) -> None:
    model = nn.Sequential(linear(codes()))
    change(model[0])
    before = model[0]
    (kept,) = convert(model, activation_bits=8).kept
    assert why in kept.why
    assert model[0] is before


def test_layers_elsewhere_are_kept() -> None:
    model = nn.Sequential(nn.Linear(K, N, device="meta")).eval()
    (kept,) = convert(model, activation_bits=8).kept
    assert "offloaded, or not loaded" in kept.why


def test_on_the_cpu_float_activations_are_not_quantized_unasked() -> None:
    model = nn.Sequential(linear(codes(), dtype=torch.bfloat16))
    (kept,) = convert(model).kept
    assert "activation_bits=8" in kept.why
    (replaced,) = convert(model, activation_bits=16).replaced
    assert replaced.changed == ""
    x = rows(dtype=torch.bfloat16)
    assert close(model(x), x.double() @ codes().double().T, torch.bfloat16)


def test_names_that_stay() -> None:
    model = made()
    found = convert(model, activation_bits=8, keep=["blocks.*"])
    assert {each.name: each.why for each in found.kept}["blocks.0.0"] == "`keep` names it"
    assert not isinstance(model.blocks[0][0], BitLinear)


def test_a_shared_layer_stays_shared() -> None:
    layer = linear(codes())
    model = nn.Sequential(layer, nn.Identity(), layer)
    found = convert(model, activation_bits=8)
    assert [each.name for each in found.replaced] == ["0", "2"]
    assert model[0] is model[2]


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"model": 3}, "model"),
        ({"model": linear(codes())}, "model"),
        ({"activation_bits": 4}, "activation_bits"),
        ({"keep": "head"}, "keep"),
    ],
)
def test_arguments_outside_the_contract(given: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        convert(given.pop("model", None) or made(), **given)
    assert refused.value.argument == argument


def test_a_converted_model_can_be_copied_pickled_and_saved() -> None:
    model, x = made(), rows()
    convert(model, activation_bits=8)
    expected = model(x)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = made()
    convert(other, activation_bits=8)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), expected)


def test_a_converted_model_compiles_whole() -> None:
    model, x = made(), rows()
    convert(model, activation_bits=8)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), model(x))
