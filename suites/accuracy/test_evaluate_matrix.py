"""evaluate_matrix: correct matrices pass, incorrect ones are detected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness.record import Layer, Status
from tritmark.harness.weights import open_weights
from tritmark.kernels.provider import evaluate_matrix as matrices
from tritmark.kernels.weights.packed import PackedWeights

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _short_race(monkeypatch):
    """The race against NumPy is run, and not for a figure."""
    monkeypatch.setattr(matrices, "_RACE_S", 0.0)


def _layer(path: Path, weights: np.ndarray) -> Layer:
    save_file({"w": weights}, path / "model.safetensors")
    with open_weights(path / "model.safetensors") as source:
        (info,) = source.matrices()
        return matrices.evaluate_matrix(source, info, threads=2, seed=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (130, 257), (2, 300)])
def test_a_layer_passes_and_its_figures_hold(tmp_path, dtype, shape):
    weights = RNG.standard_normal(shape).astype(dtype)
    layer = _layer(tmp_path, weights)
    assert layer.status is Status.PASS, layer.reason
    absmean, block = layer.schemes
    x = weights.astype(np.float32).astype(np.float64)
    scale = np.float64(np.float32(max(np.mean(np.abs(x)), 1e-5)))
    codes = np.clip(np.rint(x / scale), -1, 1)
    assert absmean.zeros == pytest.approx(np.mean(codes == 0), abs=1e-12)
    noise = np.sum((x - codes * scale) ** 2)
    # The scale may differ in its last bit from one whose mean was summed in another order, and the noise with it.
    expected = 10 * np.log10(np.sum(x**2) / noise) if noise else None
    assert absmean.snr_db == (expected if expected is None else pytest.approx(expected, rel=1e-4))
    assert 0 <= absmean.largest_error <= 1
    assert 0 <= block.largest_error <= 1
    assert absmean.packed_bytes < 64 * 4 * (shape[0] // 64 + 1) * (shape[1] // 4 + 1) + 64
    assert layer.kernel.startswith("cpu/ternary_matmul/tile64/float32/")


@pytest.mark.parametrize("value", [0.0, -0.25])
def test_constant_weights_have_no_noise_to_speak_of(tmp_path, value):
    layer = _layer(tmp_path, np.full((4, 128), value, np.float32))
    assert layer.status is Status.PASS, layer.reason
    assert layer.schemes[0].zeros == (1.0 if value == 0 else 0.0)
    assert layer.schemes[0].snr_db is None


def test_weights_that_are_not_finite_are_an_error_with_the_index(tmp_path):
    weights = RNG.standard_normal((4, 8), dtype=np.float32)
    weights[2, 3] = np.inf
    layer = _layer(tmp_path, weights)
    assert layer.status is Status.ERROR
    assert "inf at index 19" in layer.reason


def _wrong_scale(codes, scale, **_):
    return replace(_pack(codes, scale), scale=np.float32(scale * 1.001))


def _swapped_code(codes, scale, **_):
    changed = codes.copy()
    changed.flat[17] = 1 if changed.flat[17] < 1 else -1
    return _pack(changed, scale)


def _pack(codes, scale) -> PackedWeights:
    from tritmark.kernels.weights.packed import pack_weights

    return pack_weights(codes, scale)


@pytest.mark.parametrize("fault", [_wrong_scale, _swapped_code])
def test_a_wrong_packer_is_caught(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(matrices, "pack_weights", fault)
    layer = _layer(tmp_path, RNG.standard_normal((64, 64), dtype=np.float32))
    assert layer.status is Status.FAIL


def test_a_wrong_product_is_caught(tmp_path, monkeypatch):
    right = matrices.with_receipt  # type: ignore[attr-defined]

    def wrong(*args, **kwargs):
        y, receipt = right(*args, **kwargs)
        y[0, -1] = np.nextafter(np.nextafter(y[0, -1], np.inf, dtype=np.float32), np.inf, dtype=np.float32)
        return y, receipt

    monkeypatch.setattr(matrices, "with_receipt", wrong)
    layer = _layer(tmp_path, RNG.standard_normal((64, 64), dtype=np.float32))
    assert layer.status is Status.FAIL
    assert "row 63" in layer.reason
