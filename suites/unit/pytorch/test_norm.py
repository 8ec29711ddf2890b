"""RMS norms as one native call: the roundings of transformers' norms, and its own operations for everything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed; tox -e torch has it")

from made_up_transformers import bitnet_folder  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaRMSNorm  # noqa: E402

from tritmark.kernels.native import cpu  # noqa: E402
from tritmark.torch import convert  # noqa: E402
from tritmark.torch.norm import RmsNorm, native_norm  # noqa: E402

EPS = 1e-5


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    with torch._dynamo.config.patch(disable=True), torch.no_grad():
        yield


def theirs(K: int, seed: int = 0) -> Any:
    made = LlamaRMSNorm(K, EPS).to(torch.bfloat16).eval()
    made.weight.data = (torch.randn(K, generator=torch.Generator().manual_seed(seed)) / 4 + 1).bfloat16()
    return made


def ours(norm: Any) -> RmsNorm:
    made = native_norm(norm)
    assert made is not None
    return made


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 200),
    st.lists(st.integers(1, 4), max_size=2),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e15]),
    st.integers(0, 2**16),
)
def test_it_is_the_norm_within_its_roundings(K: int, lead: list[int], size: float, seed: int) -> None:
    norm = theirs(K, seed)
    x = (size * torch.randn(*lead, K, generator=torch.Generator().manual_seed(seed))).bfloat16()
    found = ours(norm)(x)
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    v, w = x.double().numpy(), norm.weight.double().numpy()
    inverse = 1 / np.sqrt((v**2).mean(-1, keepdims=True) + np.float64(np.float32(EPS)))
    # Two roundings to bfloat16, and those of float32: of K terms of the sum, and of a few operations.
    relative = (1 + 2.0**-8) ** 2 * (1 + (K + 8) * 2.0**-24) - 1
    assert np.all(np.abs(found.double().numpy() - w * v * inverse) <= relative * np.abs(w * v * inverse) + 2.0**-133)


def test_an_output_is_at_most_one_rounding_from_that_of_transformers() -> None:
    norm, x = theirs(2560), torch.randn(7, 2560, generator=torch.Generator().manual_seed(1)).bfloat16()
    apart = ours(norm)(x).view(torch.int16).int() - norm(x).view(torch.int16).int()
    assert int(apart.abs().max()) <= 2, "the sum's last bit may turn each of two roundings"
    assert float((apart != 0).float().mean()) < 0.01


def test_the_bits_depend_on_neither_the_instruction_set_nor_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, x = ours(theirs(2570)), torch.randn(64, 2570, generator=torch.Generator().manual_seed(2)).bfloat16()
    expected, count = norm(x), torch.get_num_threads()
    for isa in (each.name for each in cpu.ISAS.values() if each.features <= cpu.features()):
        monkeypatch.setenv(cpu.FORCE, isa)
        assert torch.equal(norm(x), expected), isa
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert torch.equal(norm(x), expected)
    finally:
        torch.set_num_threads(count)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_is_as_in_transformers(value: float) -> None:
    norm, x = theirs(64), torch.ones(2, 64, dtype=torch.bfloat16)
    x[1, 3] = value
    found, expected = ours(norm)(x), norm(x)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1].isnan(), expected[1].isnan())
    assert torch.equal(found[1].nan_to_num(), expected[1].nan_to_num())


@pytest.mark.parametrize("change", ["strided", "empty", "float32 rows", "gradient", "float32 weight", "profiled"])
def test_other_calls_have_the_values_of_transformers(change: str) -> None:
    norm, x = theirs(64), torch.randn(3, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    made = ours(norm)
    if change == "strided":
        x = torch.randn(64, 3, generator=torch.Generator().manual_seed(3)).bfloat16().T
    elif change == "empty":
        x = x[:0]
    elif change == "float32 rows":
        x = x.float()
    elif change == "float32 weight":
        norm.weight.data = norm.weight.data.float()
    elif change == "gradient":
        with torch.enable_grad():
            rows = [x.clone().requires_grad_() for _ in range(2)]
            for each, of in zip(rows, (norm, made), strict=True):
                of(each).sum().backward()
        assert torch.equal(rows[0].grad, rows[1].grad)
        return
    elif change == "profiled":
        with torch.profiler.profile() as seen:
            made(x)
        assert "tritmark::rms_norm" in {each.name for each in seen.events()}
    assert torch.allclose(made(x), norm(x), rtol=2.0**-6, atol=0)
    if change in {"float32 rows", "float32 weight"}:
        assert torch.equal(made(x), norm(x)), "by transformers' operations"


def test_a_row_of_another_width_is_refused_as_by_transformers() -> None:
    with pytest.raises(RuntimeError):
        ours(theirs(64))(torch.ones(2, 32, dtype=torch.bfloat16))


def test_a_compiled_norm_is_that_of_transformers() -> None:
    norm, x = theirs(64), torch.randn(3, 64).bfloat16()
    with torch._dynamo.config.patch(disable=False):
        compiled = torch.compile(ours(norm), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), norm(x))


def test_convert_replaces_norms_and_undo_brings_them_back(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(bitnet_folder(tmp_path)).eval()
    before, names = model.model.norm, list(model.state_dict())
    conversion = convert(model)
    norms = [name for name, each in model.named_modules() if isinstance(each, RmsNorm)]
    assert len(norms) == 4 * len(model.model.layers) + 1
    assert {each.name for each in conversion.also} == {*norms, "lm_head"}
    assert "model.norm: BitNetRMSNorm -> RmsNorm" in str(conversion)
    assert list(model.state_dict()) == [each for each in names if not each.endswith("_extra_state")]
    assert model.model.norm.weight is before.weight
    conversion.undo()
    assert model.model.norm is before
    assert not [each for each in model.modules() if isinstance(each, RmsNorm)]


def test_norms_that_keep_names_stay(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(bitnet_folder(tmp_path)).eval()
    conversion = convert(model, keep=["model.norm"])
    assert not isinstance(model.model.norm, RmsNorm)
    assert "model.norm" not in [each.name for each in conversion.also]


def test_norms_with_hooks_or_of_other_dtypes_stay(tmp_path: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(bitnet_folder(tmp_path)).eval()
    model.model.norm.register_forward_hook(lambda *given: None)
    convert(model)
    assert not isinstance(model.model.norm, RmsNorm)
    assert isinstance(model.model.layers[1].input_layernorm, RmsNorm)
    assert native_norm(theirs(8).float()) is None
    assert native_norm(torch.nn.RMSNorm(8, dtype=torch.bfloat16)) is None
