"""BitLinear: Hugging Face's state in and out, on the CPU."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from plain_bitlinear import hf_packed, product  # noqa: E402

from tritmark.harness.errors import InvalidArgumentError  # noqa: E402
from tritmark.torch import BitLinear, derived  # noqa: E402

N, K = 24, 80
GOLDEN = Path(__file__).parents[2] / "golden"


def codes_of(seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, (N, K), dtype=np.int8))


def rows(*lead: int, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(np.random.default_rng(5).normal(size=(*lead, K))).to(dtype)


@pytest.fixture
def layer() -> Any:
    bias = torch.from_numpy(np.random.default_rng(6).normal(size=N)).float()
    return BitLinear.from_packed(hf_packed(codes_of()), torch.tensor([0.5]), bias)


def expected(layer: Any, x: Any, codes: Any) -> Any:
    y = product(x, codes, float(layer.weight_scale))
    return (y if layer.bias is None else y + layer.bias.detach()).to(x.dtype)


@pytest.mark.parametrize("lead", [(), (1,), (4,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_computes_what_plain_torch_does(layer: Any, lead: tuple[int, ...], dtype: Any) -> None:
    x = rows(*lead, dtype=dtype)
    y = layer(x)
    assert (y.shape, y.dtype) == ((*lead, N), dtype)
    assert torch.equal(y, expected(layer, x, codes_of()))


def test_floats_are_quantized_by_the_absmean_rule() -> None:
    linear = torch.nn.Linear(K, N)
    layer = BitLinear.from_float(linear)
    scale = linear.weight.detach().double().abs().mean().float().clamp(min=1e-5)
    codes = (linear.weight.detach() / scale).clamp(-1, 1).round().to(torch.int8)
    assert torch.equal(layer.weight, hf_packed(codes))
    assert layer.weight_scale == scale
    assert torch.equal(layer.bias, linear.bias)
    assert layer.bias.data_ptr() != linear.bias.data_ptr()
    assert torch.equal(layer(rows(3)), expected(layer, rows(3), codes))
    assert BitLinear.from_float(torch.nn.Linear(K, N, bias=False)).bias is None


def test_its_state_is_hugging_faces() -> None:
    layer = BitLinear.from_packed(hf_packed(codes_of()), 0.5)
    state = layer.state_dict()
    assert {name: (tuple(each.shape), each.dtype) for name, each in state.items()} == {
        "weight": ((N // 4, K), torch.uint8),
        "weight_scale": ((1,), torch.float32),
    }
    assert torch.equal(state["weight"], hf_packed(codes_of()))


@pytest.mark.parametrize(("device", "assign"), [("cpu", False), ("cpu", True), ("meta", True)])
def test_a_published_state_is_loaded(device: str, assign: bool) -> None:
    """In transformers scales are bfloat16, and modules are first made without memory."""
    state = {"0.weight": hf_packed(codes_of(3)), "0.weight_scale": torch.tensor([1.5], dtype=torch.bfloat16)}
    model = torch.nn.Sequential(BitLinear(K, N, device=device))
    model.load_state_dict(state, assign=assign)
    assert torch.equal(model(rows(2)), product(rows(2), codes_of(3), 1.5))
    again = torch.nn.Sequential(BitLinear(K, N))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(rows(2)), model(rows(2)))


def test_memory_that_is_made_later_is_loaded_later() -> None:
    layer = BitLinear(K, N, bias=True, device="meta").to_empty(device="cpu")
    with pytest.raises(InvalidArgumentError, match="not loaded"):
        layer(rows(2))
    other = BitLinear.from_packed(hf_packed(codes_of()), 0.5, torch.ones(N))
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer(rows(2)), other(rows(2)))


def test_a_new_one_has_weights_of_zero() -> None:
    assert torch.equal(BitLinear(K, N)(rows(2)), torch.zeros(2, N))


def test_a_scale_that_weights_were_multiplied_by_is_taken_as_such() -> None:
    layer = BitLinear.from_packed(hf_packed(codes_of()), 4.0, weight_scale_rule="divide")
    assert torch.equal(layer(rows(2)), product(rows(2), codes_of(), 0.25))
    assert layer.state_dict()["weight_scale"] == 4


@pytest.mark.parametrize("grad", [False, True])
def test_a_value_that_is_not_finite_is_named_in_the_words_of_the_caller(layer: Any, grad: bool) -> None:
    x = rows(2)
    x[1, 3] = torch.nan
    legal = r"legal: finite values; torch\.nan_to_num\(x\) replaces NaN and infinity$"
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=rf"^BitLinear: x is nan at index \(1, 3\); {legal}"):
            layer(x.requires_grad_(grad))
        layer(rows(2))
    linear = torch.nn.Linear(K, N)
    with torch.no_grad():
        linear.weight[2, 1] = torch.inf
    with pytest.raises(InvalidArgumentError, match=r"^BitLinear\.from_float: weight is inf at index \(2, 1\)"):
        BitLinear.from_float(linear)


@pytest.mark.parametrize("kept", ["torch.save", "safetensors", "dict"])
@pytest.mark.parametrize("rule", ["multiply", "divide"])
def test_a_state_of_the_other_rule_of_the_scale_is_refused(rule: str, kept: str) -> None:
    """Inside a model. A file that drops the metadata has the rule "divide" only."""
    rules = {"multiply": 0.25, "divide": 4.0}
    source = torch.nn.Sequential(BitLinear.from_packed(hf_packed(codes_of()), rules[rule], weight_scale_rule=rule))
    state = source.state_dict()
    assert set(state) == {"0.weight", "0.weight_scale"} | ({"0._extra_state"} if rule == "divide" else set())
    if kept == "torch.save":
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
    elif kept == "safetensors":
        safetensors = pytest.importorskip("safetensors.torch", reason="of the extra weights")
        state = safetensors.load(safetensors.save(dict(state)))
    else:
        state = dict(state)
    for wanted in rules:
        made = torch.nn.Sequential(BitLinear(K, N, weight_scale_rule=wanted))
        if wanted == rule or (rule == "multiply" and kept != "torch.save"):
            made.load_state_dict(state)
            assert torch.equal(made[0].weight, source[0].weight)
            continue
        with pytest.raises(InvalidArgumentError, match=f"'{rule}' in the state and '{wanted}' in the layer"):
            made.load_state_dict(state)
        assert torch.equal(made(rows(2)), torch.zeros(2, N)), "nothing was loaded"


@pytest.mark.parametrize("rule", ["multiply", "divide"])
def test_a_state_without_a_record_of_the_rule_loads_as_before(rule: str) -> None:
    layer = BitLinear(K, N, weight_scale_rule=rule)
    found = layer.load_state_dict({"weight": hf_packed(codes_of()), "weight_scale": torch.tensor([0.25])}, strict=True)
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    again = copy.deepcopy(layer)
    again.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(again(rows(2)), layer(rows(2)))
    with torch.device("meta"):
        empty = BitLinear(K, N, weight_scale_rule=rule)
    empty.load_state_dict(layer.state_dict(), assign=True)
    assert torch.equal(empty(rows(2)), layer(rows(2)))


def test_a_state_that_was_cast_as_a_whole_is_read() -> None:
    state = BitLinear.from_packed(hf_packed(codes_of()), 4.0, weight_scale_rule="divide").state_dict()
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        cast = {name: value.to(dtype) for name, value in state.items()}
        layer = BitLinear(K, N, weight_scale_rule="divide")
        layer.load_state_dict(cast)
        assert torch.equal(layer(rows(2)), product(rows(2), codes_of(), 0.25))
        with pytest.raises(InvalidArgumentError, match="'divide' in the state and 'multiply' in the layer"):
            BitLinear(K, N).load_state_dict(cast)


DIVIDE = list(b"divide")
DAMAGED = {
    "nothing": torch.zeros(0, dtype=torch.uint8),
    "another word": torch.tensor(list(b"times"), dtype=torch.uint8),
    "a number": torch.tensor(7),
    "above a byte": torch.tensor([300]),
    "below a byte": torch.tensor([-1]),
    "a fraction": torch.tensor([*DIVIDE, 1.5]),
    "nan": torch.tensor([*DIVIDE, torch.nan]),
    "infinity": torch.tensor([torch.inf]),
    "not ASCII": torch.tensor([0xE9], dtype=torch.uint8),
    "a string": "divide",
    "None": None,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_rule_is_refused_before_anything_is_loaded(name: str) -> None:
    layer = BitLinear.from_packed(hf_packed(codes_of()), 4.0, weight_scale_rule="divide")
    state = {**BitLinear(K, N, weight_scale_rule="divide").state_dict(), "_extra_state": DAMAGED[name]}
    with pytest.raises(InvalidArgumentError, match=r"legal: 'multiply' or 'divide' in ASCII, as a uint8 tensor$"):
        layer.load_state_dict(state)
    assert torch.equal(layer(rows(2)), product(rows(2), codes_of(), 0.25))


@pytest.mark.parametrize("grad", [False, True])
def test_a_rule_that_is_set_later_holds_from_the_next_call(grad: bool) -> None:
    layer = BitLinear.from_packed(hf_packed(codes_of()), 4.0, weight_scale_rule="divide")
    x = rows(2).requires_grad_(grad)
    layer(x)
    layer.weight_scale_rule = "multiply"
    assert torch.equal(layer(x), product(rows(2), codes_of(), 4.0))
    with pytest.raises(InvalidArgumentError, match="weight_scale_rule is 'times'"):
        layer.weight_scale_rule = "times"
    assert torch.equal(layer(x), product(rows(2), codes_of(), 4.0))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("hf_*.npz")), ids=lambda path: path.stem)
def test_bytes_of_the_original_packer_are_read(path: Path) -> None:
    with np.load(path) as vector:
        packed, weights = torch.from_numpy(vector["packed"]), torch.from_numpy(vector["weights"])
    layer = BitLinear.from_packed(packed, 1.0, out_features=len(weights))
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, weights.shape[1]))).float()
    assert torch.equal(layer(x), product(x, weights.to(torch.int8), 1.0))


def test_vectors_of_the_original_packer_are_there() -> None:
    assert list(GOLDEN.glob("hf_*.npz"))


def copied(layer: Any) -> Any:
    return copy.deepcopy(layer)


def pickled(layer: Any) -> Any:
    return pickle.loads(pickle.dumps(layer))


def saved(layer: Any) -> Any:
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", [copied, pickled, saved])
def test_copies_compute_the_same_and_stand_alone(layer: Any, way: Any) -> None:
    other = way(layer)
    before = layer(rows(3))
    assert torch.equal(other(rows(3)), before)
    with torch.no_grad():
        other.weight.zero_()
    other.repack()
    assert not torch.equal(other(rows(3)), before)
    assert torch.equal(layer(rows(3)), before)


def test_a_pickle_holds_the_weights_once(layer: Any) -> None:
    large = BitLinear(1024, 512)
    assert len(pickle.dumps(large)) < 1.1 * large.weight.numel() + 4096
    large(torch.ones(1, 1024))
    assert len(pickle.dumps(large)) < 1.1 * large.weight.numel() + 4096


def test_what_kernels_read_is_made_once(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = layer.packed
    monkeypatch.setattr(derived, "_made", lambda *args: pytest.fail("made anew"))
    layer(rows(3))
    assert layer.to("cpu").float().half().packed is packed


def replica(layer: Any) -> Any:
    """As torch.nn.DataParallel makes them for each device."""
    made = layer._replicate_for_data_parallel()
    if layer.bias is not None:
        made.bias = layer.bias.detach().clone()
    made._buffers = {name: each.clone() for name, each in layer._buffers.items()}
    return made


def test_a_replica_of_dataparallel_computes_the_same(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica computes from a copy of the layer's packed weights, and lasts for one call."""
    expected = layer(rows(3))
    monkeypatch.setattr(derived, "_made", lambda *args: pytest.fail("made anew"))
    assert torch.equal(replica(layer)(rows(3)), expected)
    layer.weight_scale.mul_(2)
    monkeypatch.undo()
    assert torch.equal(replica(layer)(rows(3)), layer(rows(3)))


def test_what_is_copied_at_each_call_is_not_constant(layer: Any) -> None:
    """A tensor that a module computes is also one; the ops of a state read it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Called(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(function.name())
            return function(*args, **(kwargs or {}))

    x = rows(2)
    each_wanted = (
        (layer, "bit_linear_forward"),
        (copy.deepcopy(layer), "bit_linear_forward"),
        (replica(layer), "linear"),
    )
    with torch.no_grad(), Called() as called:
        for each, wanted in each_wanted:
            called.names.clear()
            each(x)
            assert called.names == [f"tritmark::{wanted}"]


def test_casts_leave_the_scale_as_it_is(layer: Any) -> None:
    layer = BitLinear.from_packed(hf_packed(codes_of()), 0.3, torch.ones(N))
    y = layer(rows(3))
    layer.bfloat16()
    assert layer.bias.dtype == torch.bfloat16
    assert layer.weight_scale.dtype == torch.float32
    assert torch.equal(layer(rows(3)), y)


def test_pytorchs_default_dtype_leaves_the_scale_as_it_is() -> None:
    state = BitLinear.from_packed(hf_packed(codes_of()), 0.3).state_dict()
    torch.set_default_dtype(torch.bfloat16)
    try:
        layer = BitLinear(K, N)
    finally:
        torch.set_default_dtype(torch.float32)
    layer.load_state_dict(state)
    assert layer.weight_scale.dtype == torch.float32
    assert layer.weight_scale == np.float32(0.3)


def test_under_autocast_the_output_is_of_its_dtype(layer: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(rows(3))
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, layer(rows(3)).bfloat16())


def test_gradients_go_through_it_to_inputs_and_bias(layer: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(7, K), layer)
    model(torch.ones(2, 7)).sum().backward()
    upstream = torch.ones(2, N) @ (codes_of().float() * 0.5)
    assert torch.equal(model[0].bias.grad, upstream.sum(0))
    assert torch.equal(layer.bias.grad, torch.full((N,), 2.0))
    assert {name for name, _ in layer.named_parameters()} == {"bias"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_model_of_them_is_one_graph(layer: Any, backend: str) -> None:
    other = BitLinear.from_float(torch.nn.Linear(N, K))
    model = torch.nn.Sequential(layer, torch.nn.ReLU(), other)
    traced = torch.compile(model, fullgraph=True, backend=backend)
    for lead in ((1,), (3,), (2, 3)):
        assert torch.equal(traced(rows(*lead)), model(rows(*lead)))
    with torch.inference_mode():
        assert torch.equal(traced(rows(4)), model(rows(4)))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(traced(rows(4)), model(rows(4)))
    x, y = rows(3).requires_grad_(), rows(3).requires_grad_()
    traced(x).sum().backward()
    model(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    torch._dynamo.reset()


def test_its_text_says_what_it_is(layer: Any) -> None:
    assert repr(layer) == f"BitLinear(in_features={K}, out_features={N}, bias=True)"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: BitLinear(K, N, weight_scale_rule="times"), "weight_scale_rule is 'times'"),
        (lambda: BitLinear(0, N), "features"),
        (lambda: BitLinear.from_packed(torch.zeros(6, 8), 1.0), "weight is torch.float32"),
        (lambda: BitLinear.from_packed(hf_packed(codes_of()), 0.0), r"weight_scale is 0\.0"),
        (lambda: BitLinear.from_packed(hf_packed(codes_of()), torch.ones(2)), "weight_scale is of shape"),
        (lambda: BitLinear.from_packed(hf_packed(codes_of()), float("nan")), "weight_scale is nan"),
        (lambda: BitLinear.from_packed(hf_packed(codes_of()), 1.0, torch.ones(3)), "bias is"),
        (lambda: BitLinear.from_packed(hf_packed(codes_of()), 1.0, out_features=28), "out_features is 28"),
        (lambda: BitLinear.from_packed(torch.full((2, 8), 255, dtype=torch.uint8), 1.0), "field 3"),
        (lambda: BitLinear.from_float(_with_nan()), "nan"),
    ],
)
def test_what_is_wrong_is_said(made: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        made()


def _with_nan() -> Any:
    linear = torch.nn.Linear(4, 4)
    with torch.no_grad():
        linear.weight[1, 1] = torch.nan
    return linear


@pytest.mark.parametrize("shape", [(), (K + 1,), (2, K - 1)])
def test_inputs_of_another_width_are_refused(layer: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="x is of shape"):
        layer(torch.zeros(shape))
