"""QuantizedLinear with `hadamard`: what it refuses, reports, shares and keeps."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from own_registry import registered

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import Tier
from tritmark.kernels import (
    PROVIDER,
    QuantizedLinear,
    bind_linears,
    gather_weights,
    hadamard_quantize,
    pack_weights,
    receipts,
    ternary_matmul,
    warm_up,
)
from tritmark.kernels.recovering import last_recoveries

RNG = np.random.default_rng(2)
N, K, BLOCK = 24, 512, 256
SIGNS = RNG.choice(np.array([-1, 1], np.int8), K)
WEIGHTS = pack_weights(RNG.integers(-1, 2, (N, K), dtype=np.int8), 0.5)
X = RNG.standard_normal((3, K), dtype=np.float32)
NOTE = "activations rotated in blocks of 256, with signs"


def rotated(signs: Any = SIGNS, block: int = BLOCK, weights: Any = WEIGHTS, **more: Any) -> QuantizedLinear:
    return QuantizedLinear(weights, hadamard=(block, signs), **more)


def two_calls(x: Any = X, signs: Any = SIGNS, block: int = BLOCK) -> Any:
    rows = hadamard_quantize(x, signs, block_size=block)
    return ternary_matmul(rows.q, WEIGHTS, act_scale=rows.scale)


# What is refused


@pytest.mark.parametrize(
    ("hadamard", "found"),
    [
        (256, "256; legal: .block_size, signs. or None"),
        ([256, None], "legal: .block_size, signs. or None"),
        ((256,), "legal: .block_size, signs. or None"),
        ((96, None), "a block of 96; legal: 64, 128, 256, 512 or 1024, a divisor of in_features, 512"),
        ((1024, None), "a block of 1024; legal: .* 512"),
        ((True, None), "a block of True"),
        ((256.0, None), "a block of 256.0"),
        (("256", None), "a block of '256'"),
        ((None, SIGNS), "a block of None"),
        ((BLOCK, SIGNS[:64]), r"signs of shape \(64,\); legal: an array of -1 and 1 .* \(512,\), or None"),
        ((BLOCK, SIGNS[np.newaxis]), r"signs of shape \(1, 512\)"),
        ((BLOCK, SIGNS.tolist()), "signs as list; legal: an array"),
        ((BLOCK, np.where(np.arange(K) == 9, 0, SIGNS)), "the sign 0 at index 9; legal: an array of -1 and 1"),
        ((BLOCK, np.where(np.arange(K) == 3, np.nan, SIGNS)), "the sign nan at index 3"),
    ],
)
def test_a_rotation_that_does_not_fit_is_refused(hadamard: Any, found: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"QuantizedLinear: hadamard is .*{found}") as refused:
        QuantizedLinear(WEIGHTS, hadamard=hadamard)
    assert refused.value.argument == "hadamard"


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64])
def test_signs_of_any_dtype_are_kept_as_a_copy(dtype: Any) -> None:
    signs = SIGNS.astype(dtype)
    layer = rotated(signs)
    signs[:] = 1
    assert layer.hadamard is not None
    block, kept = layer.hadamard
    assert kept is not None
    assert (block, str(kept.dtype), kept.flags.writeable) == (BLOCK, "int8", False)
    assert np.array_equal(layer(X), two_calls())


def test_a_layer_without_a_rotation_has_none() -> None:
    assert QuantizedLinear(WEIGHTS).hadamard is None
    assert rotated(None).hadamard == (BLOCK, None)
    assert not np.array_equal(rotated()(X), QuantizedLinear(WEIGHTS)(X))


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.nan, "x is nan at index 517; legal: finite values; nan_to_num replaces NaN and infinity"),
        (-np.inf, "x is -inf at index 517"),
        (3e38, "x is with sums above float32 in row 1; legal: values below 2..117"),
    ],
)
def test_rows_that_are_not_finite_are_refused_and_nothing_is_written(value: float, found: str, planned: bool) -> None:
    """Also where all inputs are finite, and their sums are not."""
    layer, bad = rotated(), X.copy()
    bad[1, 5 : 5 + (1 if not np.isfinite(value) else 9)] = value
    bad[1] *= SIGNS if np.isfinite(value) else 1
    if planned:
        layer(X)
    with pytest.raises(InvalidArgumentError, match=f"QuantizedLinear: {found}"):
        layer(bad)
    assert np.array_equal(layer(X), two_calls())
    out, rows = np.full((3, N), 7, np.float32), bad.copy()
    bound = layer.bind(rows, out)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=f"QuantizedLinear: {found}"):
            bound.run()
    assert (out == 7).all()
    rows[:] = X
    assert np.array_equal(bound.run(), two_calls())
    assert bound.run() is out


def test_a_dequantized_layer_refuses_them_too() -> None:
    layer = rotated(weights=pack_weights(np.ones((N, K), np.int8), np.full((N, 4), 0.3, np.float32), format="ort_q2"))
    assert not layer.native
    bad = X.copy()
    bad[1, 5] = np.inf
    with pytest.raises(InvalidArgumentError, match="Linear: x is inf at index 517; legal: finite values; nan_to"):
        layer(bad)


# Receipts


def test_receipts_report_the_rotation() -> None:
    layer = rotated()
    for _ in range(2):  # the second call has a plan
        layer(X)
        assert layer.receipt is not None
        assert layer.receipt.note == NOTE
        assert layer.receipt.kernel.startswith("cpu/ternary_matmul/")
    bound = layer.bind(X)
    bound.run()
    assert bound.receipt.note == NOTE
    with receipts() as found:
        layer(X)
        bound.run()
    assert [each.kernel.split("/")[1] for each in found] == ["hadamard_quantize", "ternary_matmul", "ternary_matmul"]
    assert found[-1].note == NOTE
    plain = rotated(None, 64, pack_weights(np.ones((N, K), np.int8), 1.0, format="hf_pack"))
    plain(X)
    assert plain.receipt is not None
    assert plain.receipt.note.endswith(", repacked from hf_pack; activations rotated in blocks of 64")


def test_the_text_of_a_layer_has_its_block() -> None:
    assert repr(rotated(threads=1)).endswith(", hadamard_block=256, threads=1)")


# Calls together, copies, and what makes layers ready


def test_neighbours_with_the_same_rotation_quantize_once() -> None:
    layers = [rotated(), rotated(SIGNS.copy()), rotated(), QuantizedLinear(WEIGHTS)]
    x = X.copy()
    made = bind_linears((each, x) for each in layers)
    assert "2 quantizations" in repr(made)
    for _ in range(2):
        x[:] = RNG.standard_normal(x.shape, np.float32)
        assert all(np.array_equal(out, each(x)) for out, each in zip(made.run(), layers, strict=True))


@pytest.mark.parametrize(
    "others",
    [[{"signs": -SIGNS}], [{"signs": None}], [{"block": 128}], [{"signs": np.ones(K, np.int8)}, {"block": 64}]],
)
def test_other_rotations_of_the_same_rows_are_not_shared(others: Sequence[dict[str, Any]]) -> None:
    layers = [rotated(), *(rotated(**each) for each in others)]
    made = bind_linears((each, X) for each in layers)
    assert f"{len(layers)} quantizations" in repr(made)
    for _ in range(2):
        assert all(np.array_equal(out, each(X)) for out, each in zip(made.run(), layers, strict=True))


def test_the_call_of_several_that_is_not_finite_is_named() -> None:
    x, y = X.copy(), X.copy()
    made = bind_linears([(rotated(), x), (rotated(), y), (rotated(), y)])
    y[2, 0] = np.inf
    with pytest.raises(InvalidArgumentError, match=r"x is inf at index 1024") as refused:
        made.run()
    assert refused.value.__notes__ == ["in call 1 of bind_linears"]
    assert np.array_equal(made.outs[0], two_calls())
    y[2, 0] = 0
    assert np.array_equal(made.run()[2], two_calls(y))


def test_copies_and_moved_layers_keep_the_rotation() -> None:
    layer = rotated(bias=RNG.standard_normal(N, np.float32))
    expected = layer(X)
    layer(X)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        for _ in range(2):
            assert np.array_equal(twin(X), expected)
    gather_weights([layer])
    assert np.array_equal(layer(X), expected)
    (call,) = warm_up([layer], rows=(2,))
    assert call.kernel.startswith("cpu/ternary_matmul/")


def test_float_weights_are_the_rotated_ones() -> None:
    W = RNG.standard_normal((N, K), np.float32)
    plain = QuantizedLinear(W)
    rows = hadamard_quantize(X, SIGNS, block_size=BLOCK)
    expected = ternary_matmul(rows.q, plain.weights, act_scale=rows.scale)
    assert np.array_equal(QuantizedLinear(W, hadamard=(BLOCK, SIGNS))(X), expected)


# Kernels of other packages, and recovery


def theirs(op: str, ran: list[str]) -> Any:
    """A third-party kernel that is preferred to all others."""
    scalar = next(each for each in PROVIDER.variants if each.key.op == op and each.key.device == "cpu")
    scalar = next(
        each
        for each in PROVIDER.variants
        if each.key == replace(scalar.key, format="none", dtype="int8") and each.name == "scalar"
    )

    def bind(*given: Any) -> Any:
        ran.append(op)
        return scalar.bind(*given)

    return replace(scalar, name="mine", tier=Tier.EXTREMELY_OPTIMIZED, rank=1000, bind=bind)


def test_a_rotation_by_another_package_runs_and_refuses_alike() -> None:
    ran: list[str] = []
    bad = X.copy()
    bad[1, 5] = np.nan
    with registered(theirs("hadamard_quantize", ran)):
        layer, expected = rotated(), two_calls()
        ran.clear()
        for _ in range(3):
            assert np.array_equal(layer(X), expected)
        assert len(ran) == 3  # it has no plan
        x = X.copy()
        bound = layer.bind(x)
        assert np.array_equal(bound.run(), expected)
        assert len(ran) == 4
        x[:] = bad
        with pytest.raises(InvalidArgumentError, match="x is nan at index 517; legal: finite values; nan_to_num"):
            bound.run()
        x[:] = X
        assert np.array_equal(bound.run(), expected)


def test_a_layer_recovers() -> None:
    layer = rotated(on_error="recover")
    for _ in range(2):
        assert np.array_equal(layer(X), two_calls())
    assert last_recoveries() == ()
    assert layer.receipt is not None
    assert layer.receipt.note == NOTE
    with receipts() as found:
        layer(X)
    assert [each.kernel.split("/")[1] for each in found] == ["hadamard_quantize", "ternary_matmul"]
    bad = X.copy()
    bad[1, 5] = np.nan
    with pytest.raises(InvalidArgumentError, match="x is nan at index 517"):
        layer(bad)
    with pytest.raises(NoCompatibleKernelError, match="a bound call cannot recover"):
        layer.bind(X)
