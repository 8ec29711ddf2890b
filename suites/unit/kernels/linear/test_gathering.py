"""gather_weights: the weights of many layers move into one arena, and nothing else changes."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.measure.buffers import ALIGNMENT
from tritmark.kernels import QuantizedLinear, gather_weights, pack_weights, ternary_matmul
from tritmark.kernels.cuda.context import CudaContext

RNG = np.random.default_rng(7)
K = 512
X = RNG.standard_normal((2, K), dtype=np.float32)
ROWS = RNG.integers(-128, 128, (2, K), dtype=np.int8)


def codes(N: int) -> Any:
    return RNG.integers(-1, 2, (N, K), dtype=np.int8)


def made() -> list[QuantizedLinear]:
    """Of several formats, among them one that is repacked, with a bias, and with weights that two share."""
    grouped = pack_weights(
        codes(96), RNG.uniform(0.1, 1, (96, K // 128)).astype(np.float16).astype(np.float32), format="pq2_0"
    )
    shared = pack_weights(codes(640), 0.5)
    bias = RNG.standard_normal(640, dtype=np.float32)
    formats = ((64, "tile64"), (70, "hf_pack"), (65, "row16"))
    several = [pack_weights(codes(N), 0.25, format=format) for N, format in formats]
    return [QuantizedLinear(each) for each in (*several, grouped, shared)] + [QuantizedLinear(shared, bias)]


def arrays(layers: list[QuantizedLinear]) -> list[Any]:
    return list({id(data): data for each in layers for data in each.weights.on_host()}.values())


def test_weights_lie_back_to_back_in_their_order() -> None:
    layers = made()
    pages = gather_weights(layers)
    found = arrays(layers)
    at = found[0].ctypes.data
    for data in found:
        assert data.ctypes.data == at
        at += -(-data.nbytes // ALIGNMENT) * ALIGNMENT
    assert pages.nbytes == at - found[0].ctypes.data
    assert len(found) == 5


@pytest.mark.parametrize("called", [False, True])
def test_results_have_the_same_bits(called: bool) -> None:
    layers = made()
    copies = copy.deepcopy(layers)
    if called:
        for each in layers:
            each(X), each(X)  # the second makes a plan with the place of the bytes
    expected = [each(X) for each in copies]
    product = ternary_matmul(ROWS, layers[4].weights)
    gather_weights(layers)
    for each, before in zip(layers * 2, expected * 2, strict=True):
        assert np.array_equal(each(X), before)
    for _ in range(2):
        assert np.array_equal(ternary_matmul(ROWS, layers[4].weights), product)
    for each in layers:
        assert np.array_equal(each.weights.unpack()[0], copies[layers.index(each)].weights.unpack()[0])


def test_the_bytes_of_before_are_freed() -> None:
    layer = QuantizedLinear(pack_weights(codes(1024), 0.5))
    layer(X), layer(X)
    before = weakref.ref(layer.weights.data)
    gather_weights([layer])
    gc.collect()
    assert before() is None


def test_packed_weights_that_no_layer_has() -> None:
    weights = pack_weights(codes(640), 0.5)
    expected = ternary_matmul(ROWS, weights)
    ternary_matmul(ROWS, weights)
    before = weakref.ref(weights.data)
    assert gather_weights([weights, weights]).nbytes == weights.data.nbytes
    gc.collect()
    assert before() is None
    assert np.array_equal(ternary_matmul(ROWS, weights), expected)


def test_a_bound_call_keeps_its_bytes() -> None:
    layer = made()[4]
    bound = layer.bind(X)
    expected = bound.run().copy()
    gather_weights([layer])
    gc.collect()
    assert np.array_equal(bound.run(), expected)
    assert np.array_equal(layer.bind(X).run(), expected)


def test_gathering_again_and_copies() -> None:
    layers = made()
    expected = [each(X) for each in layers]
    gather_weights(layers)
    gather_weights(reversed(layers))
    copies = [copy.deepcopy(layers), pickle.loads(pickle.dumps(layers))]
    for found in (layers, *copies):
        assert all(np.array_equal(each(X), before) for each, before in zip(found, expected, strict=True))


def test_the_receipt_of_the_last_call_stays() -> None:
    layer = made()[4]
    layer(X), layer(X)
    receipt = layer.receipt
    gather_weights([layer])
    assert layer.receipt == receipt
    layer(X)
    assert layer.receipt is not None


def test_no_layers() -> None:
    pages = gather_weights([])
    assert (pages.nbytes, pages.huge_nbytes, pages.why) == (0, 0, "")


def test_a_refusal_moves_nothing() -> None:
    layers = made()
    before = [each.ctypes.data for each in arrays(layers)]
    with pytest.raises(InvalidArgumentError, match="a ndarray as number 6"):
        gather_weights([*layers, X])  # type: ignore[list-item]
    assert [each.ctypes.data for each in arrays(layers)] == before
    placed = pack_weights(codes(64), 0.5).placed("first-touch")
    with pytest.raises(InvalidArgumentError, match="NUMA nodes as number 6"):
        gather_weights([*layers, placed])
    assert [each.ctypes.data for each in arrays(layers)] == before


@pytest.mark.cuda
def test_a_layer_on_a_gpu_is_refused(cuda: CudaContext) -> None:
    layer = QuantizedLinear(pack_weights(codes(64), 0.5, format="row16"), device="cuda")
    with pytest.raises(InvalidArgumentError, match="on cuda as number 0"):
        gather_weights([layer])
