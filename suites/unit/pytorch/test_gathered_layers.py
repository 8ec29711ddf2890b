"""The packed weights of a converted model lie in one arena, and its layers do all that they did."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed; tox -e torch has it")

from tritmark.harness.measure.buffers import ALIGNMENT  # noqa: E402
from tritmark.kernels.native import arena  # noqa: E402
from tritmark.torch import BitExperts, BitLinear, convert  # noqa: E402
from tritmark.torch.gathering import gather  # noqa: E402

SIZES = ((128, 512), (70, 128), (640, 70), (33, 640))
X = torch.randn(3, 512, generator=torch.Generator().manual_seed(1))


def ternary(N: int, K: int, group: int | None = None) -> Any:
    generator = torch.Generator().manual_seed(N)
    codes = torch.randint(-1, 2, (N, K), generator=generator).float()
    if group is None:
        return codes * 0.375
    scales = torch.randint(1, 9, (N, K // group), generator=generator) / 16
    return codes * scales.repeat_interleave(group, dim=1)


def model() -> Any:
    torch.manual_seed(0)  # the bias
    layers = [torch.nn.Linear(K, N, bias=N == 70) for N, K in SIZES]
    for layer, (N, K) in zip(layers, SIZES, strict=True):
        layer.weight.data = ternary(N, K, 64 if K == 640 else None)
    return torch.nn.Sequential(*layers).eval()


def packed(of: Any) -> list[Any]:
    return [each.packed for each in of.modules() if isinstance(each, BitLinear)]


def test_weights_lie_back_to_back_in_the_order_of_the_layers() -> None:
    made = model()
    found = convert(made, activation_bits=8)
    assert len(found.replaced) == 4
    at = packed(made)[0].data_ptr()
    for each in packed(made):
        assert each.data_ptr() == at
        at += -(-each.nbytes // ALIGNMENT) * ALIGNMENT
    assert found.pages is not None
    assert found.pages.nbytes == at - packed(made)[0].data_ptr()
    assert str(found.pages) in str(found)


def alone() -> Any:
    """The same layers, made one by one."""
    made = model()
    for nth, layer in enumerate(made):
        one = torch.nn.Sequential(layer)
        convert(one, activation_bits=8)
        made[nth] = one[0]
    return made


def test_outputs_have_the_same_bits() -> None:
    made, expected = model(), alone()
    convert(made, activation_bits=8)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(made(X), expected(X))
    assert torch.equal(torch.compile(made, backend="eager")(X), expected(X))


def test_state_copies_and_pickles() -> None:
    made, expected = model(), alone()
    convert(made, activation_bits=8)
    for (name, value), (other, same) in zip(made.state_dict().items(), expected.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(value, same)
    buffer = io.BytesIO()
    torch.save(made, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(made), torch.load(buffer, weights_only=False)]
    fresh = alone()
    fresh.load_state_dict(made.state_dict())
    for each in (*copies, fresh):
        assert torch.equal(each(X), expected(X))


def test_written_weights_get_memory_of_their_own() -> None:
    made, expected = model(), alone()
    convert(made, activation_bits=8)
    inside = packed(made)[1].data_ptr()
    for each in (made, expected):
        each[1].weight.copy_(each[1].weight.flip(1))
    assert torch.equal(made(X), expected(X))
    assert packed(made)[1].data_ptr() != inside
    for each in (made, expected):
        each[2].repack()
    assert torch.equal(made(X), expected(X))


def test_undo_lets_go_of_the_arena() -> None:
    made, before = model(), model()
    found = convert(made, activation_bits=8)
    kept = weakref.ref(packed(made)[0].untyped_storage())
    found.undo()
    del found
    gc.collect()
    assert kept() is None
    assert torch.equal(made(X), before(X))


def test_the_memory_of_before_is_freed() -> None:
    made = alone()
    with torch.no_grad():
        made(X), made(X)
    before = [weakref.ref(each.untyped_storage()) for each in packed(made)]
    assert all(each() is not None for each in before)
    gather(made)
    gc.collect()
    assert not any(each() for each in before)
    assert torch.equal(made(X), alone()(X))


def test_a_layer_in_two_places_is_moved_once() -> None:
    layer = torch.nn.Linear(512, 512, bias=False)
    layer.weight.data = ternary(512, 512)
    made = torch.nn.Sequential(layer, layer).eval()
    found = convert(made, activation_bits=8)
    assert made[0] is made[1]
    assert found.pages is not None
    assert found.pages.nbytes == made[0].packed.nbytes


def test_experts() -> None:
    generator = torch.Generator().manual_seed(4)
    layer = BitExperts.from_float(torch.randn(3, 64, 128, generator=generator))
    x, chosen = torch.randn(5, 128, generator=generator), torch.tensor([[0, 1], [2, 1], [0, 2], [1, 0], [2, 0]])
    expected, before = layer(x, chosen), layer.packed.packed
    pages = gather([layer])
    assert pages is not None
    assert pages.nbytes == layer.packed.packed.nbytes
    assert layer.packed.packed.data_ptr() != before.data_ptr()
    assert torch.equal(layer(x, chosen), expected)


def test_without_layers_there_is_no_arena() -> None:
    assert gather([]) is None
    assert convert(torch.nn.Sequential(torch.nn.Linear(64, 64))).pages is None


def test_memory_that_the_process_may_not_reserve_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(sizes: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("tritmark.torch.gathering.WeightArena", refused)
    made, expected = model(), alone()
    found = convert(made, activation_bits=8)
    assert found.pages is not None
    assert found.pages.huge_nbytes == 0
    assert "Cannot allocate memory" in str(found)
    assert torch.equal(made(X), expected(X))


def test_small_pages_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "huge_bytes", lambda address: 0)
    monkeypatch.setattr(arena, "why_small", lambda: "they are off")
    assert "0.0 % of it in huge pages: they are off" in str(convert(model(), activation_bits=8))
