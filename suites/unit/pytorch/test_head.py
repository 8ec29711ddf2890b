"""The head of a converted model: floats that stay, and one row by another product of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_transformers import bitnet_folder  # noqa: E402

from tritmark.torch import convert  # noqa: E402
from tritmark.torch.head import Head, faster  # noqa: E402


@pytest.fixture(autouse=True)
def eager() -> Any:
    """transformers compiles its layers, which takes half a minute."""
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        yield


def linear(N: int, K: int, bias: bool, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    made = torch.nn.Linear(K, N, bias, dtype=torch.bfloat16)
    for each in made.parameters():
        each.data = torch.randn(each.shape, generator=generator).bfloat16()
    return made


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200), st.integers(1, 700), st.booleans(), st.integers(0, 2**16))
def test_one_row_is_within_the_bound_of_float32_sums(N: int, K: int, bias: bool, seed: int) -> None:
    of = linear(N, K, bias, seed)
    x = torch.randn(1, 1, K, generator=torch.Generator().manual_seed(seed + 1)).bfloat16()
    found = Head.of(of)(x)
    assert (found.shape, found.dtype) == ((1, 1, N), torch.bfloat16)
    w, v = of.weight.double().numpy(), x.double().numpy().reshape(-1)
    added = of.bias.double().numpy() if bias else np.zeros(N)
    exact, size = w @ v + added, np.abs(w) @ np.abs(v) + np.abs(added)
    # Sums of K + 1 terms in float32; the sum, and what it is before the bias is added, rounded to bfloat16.
    bound = (K + 2) * 2.0**-24 * size + 2.0**-8 * (np.abs(exact) + np.abs(exact - added))
    assert np.all(np.abs(found.double().numpy().reshape(-1) - exact) <= bound)


@pytest.mark.parametrize("shape", [(3, 64), (2, 1, 64), (2, 3, 64), (0, 64)])
def test_other_rows_are_those_of_the_layer(shape: tuple[int, ...]) -> None:
    of, x = linear(32, 64, True), torch.ones(shape, dtype=torch.bfloat16)
    assert torch.equal(Head.of(of)(x), of(x))


def test_autocast_and_other_dtypes_are_left_to_pytorch() -> None:
    of, row = linear(32, 64, False), torch.ones(1, 64, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.float16):
        assert Head.of(of)(row).dtype is of(row).dtype
    with pytest.raises(RuntimeError):
        Head.of(of)(row.float())


def test_only_bfloat16_on_a_cpu_is_replaced() -> None:
    assert isinstance(faster(linear(8, 8, False)), Head)
    assert faster(linear(8, 8, False).float()) is None
    assert faster(linear(8, 8, False).half()) is None
    assert faster(linear(8, 8, False).to("meta")) is None
    assert faster(None) is None


def test_convert_replaces_the_head_and_its_state_stays(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(bitnet_folder(tmp_path)).eval()
    before, original = model.state_dict(), model.lm_head
    conversion = convert(model)
    assert isinstance(model.get_output_embeddings(), Head)
    assert model.lm_head.weight is original.weight
    assert [each.name for each in conversion.kept] == ["lm_head"], "its weights are those of before"
    assert torch.equal(model.state_dict()["lm_head.weight"], before["lm_head.weight"])
    conversion.undo()
    assert model.lm_head is original


def hooked(model: Any) -> dict[str, Any]:
    model.lm_head.register_forward_hook(lambda *given: None)
    return {}


def named(model: Any) -> dict[str, Any]:
    return {"keep": ["lm_head"]}


@pytest.mark.parametrize("change", [hooked, named])
def test_a_head_with_hooks_or_that_is_named_stays(tmp_path: Path, change: Any) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(bitnet_folder(tmp_path)).eval()
    original = model.lm_head
    convert(model, **change(model))
    assert model.lm_head is original
