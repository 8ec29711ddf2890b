"""Products of other projects as peers of ternary_matmul_experts: ggml's on the CPU; those on a GPU, of which the
arithmetic is within their bounds, and there so are their outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.record import PeerComparison, Status
from tritmark.harness.spec import Arrays, Axes, Peer, Tier, Variant
from tritmark.kernels import PROVIDER
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.device import missing as gpu_missing
from tritmark.kernels.formats.row16_grouped import FORMATS as GROUPED
from tritmark.kernels.peers import PEERS, humming
from tritmark.kernels.peers.products import packed
from tritmark.kernels.peers.products_experts_cuda import VARIANTS, pack_each
from tritmark.kernels.ternary_matmul.scales import weight_scales
from tritmark.kernels.ternary_matmul_experts.offsets import parts
from tritmark.kernels.ternary_matmul_experts.spec import OP

BFLOAT16, F32 = ml_dtypes.bfloat16, np.float32
SHAPES = ({"M": 3, "E": 5, "N": 128, "K": 256}, {"M": 40, "E": 4, "N": 128, "K": 512})


@pytest.mark.parametrize("format", [each.name for each in GROUPED])
def test_weights_of_all_experts_are_packed_for_humming_as_those_of_each(format: str) -> None:
    axes = SHAPES[0]
    logical = OP.generate(axes, "uniform", np.random.default_rng(5))
    encoded = OP.encode(logical, axes, format)
    words = packed(format, "test", pack_each, encoded, axes)
    assert np.array_equal(words, np.stack([humming.pack(each) for each in logical["weights"]]))


def wide(inputs: Arrays, axes: Axes, expert: int, format: str) -> Any:
    """The weights of an expert with their scales, float64 (N, K)."""
    one = {"weights": inputs["weights"][expert], "weight_scale": inputs["weight_scale"][expert]}
    scales = np.asarray(weight_scales(one, axes, format), np.float64)
    if scales.ndim:
        scales = np.repeat(scales, axes["K"] // scales.shape[1], axis=1)
    return one["weights"] * scales


def exact(inputs: Arrays, axes: Axes, format: str) -> Any:
    """In float64."""
    out = np.zeros((axes["M"], axes["N"]))
    for expert, rows in parts(inputs["offsets"], axes["M"]):
        sums = inputs["activations"][rows].astype(np.float64) @ wide(inputs, axes, expert, format).T
        out[rows] = sums / inputs["act_scale"][rows].astype(np.float64)[:, np.newaxis]
    return out


def torch_arithmetic(inputs: Arrays, axes: Axes, format: str) -> Any:
    """The arithmetic of dense bfloat16 weights in NumPy, with the scales of groups in the weights."""
    out = np.zeros((axes["M"], axes["N"]), BFLOAT16)
    for expert, rows in parts(inputs["offsets"], axes["M"]):
        inverse = (1 / inputs["act_scale"][rows].astype(np.float64)).astype(F32)
        weights = wide(inputs, axes, expert, format).astype(F32)
        if format == "row16":
            inverse, weights = inverse * inputs["weight_scale"][expert], inputs["weights"][expert].astype(F32)
        left = (inputs["activations"][rows].astype(F32) * inverse[:, np.newaxis]).astype(BFLOAT16).astype(F32)
        out[rows] = (left @ weights.astype(BFLOAT16).astype(F32).T).astype(BFLOAT16)
    return out


@pytest.mark.parametrize("peer", [each for each in PEERS if each.op == OP.name], ids=lambda each: min(each.formats))
def test_ggml_s_product_of_experts_agrees(
    peer: Peer, there: Callable[[Peer], None], compare: Callable[..., PeerComparison]
) -> None:
    there(peer)
    (format,) = peer.formats
    variant = next(
        each
        for each in PROVIDER.variants
        if each.name == "scalar" and (each.key.op, each.key.format, each.key.dtype) == (OP.name, format, "float32")
    )
    for family in ("uniform", "normal", "constant", "zero", "corners"):
        for axes in ({"M": 1, "E": 3, "N": 33, "K": 256}, *SHAPES):
            found = compare(variant, peer, axes, family, seed=3)
            assert (found.status, found.match, found.peer_wrong) == (Status.PASS, True, False), (family, axes, found)
            assert found.elements == axes["M"] * axes["N"]
    assert "no multiple of" in str(peer.refusal({"M": 1, "E": 3, "N": 33, "K": 100}))


def test_they_are_peers_where_ours_stand() -> None:
    assert {each.tier for each in VARIANTS} == {Tier.PEER}
    assert {each.key.op for each in VARIANTS} == {OP.name}
    assert {each.key.format for each in VARIANTS} == {"row16", *(form.name for form in GROUPED)}
    assert {each.name for each in VARIANTS} == {"humming-w2a8", "humming-w2a16", "torch-bfloat16"}


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each.name == "torch-bfloat16"], ids=str)
def test_the_arithmetic_of_dense_weights_is_within_its_bound(variant: Variant) -> None:
    taken = 0
    assert variant.error_bound is not None
    for family in ("uniform", "normal", "constant", "corners"):
        for axes in SHAPES:
            inputs = OP.generate(axes, family, np.random.default_rng(3))
            try:
                bound = np.asarray(variant.error_bound(inputs, axes)["out"])
            except InvalidArgumentError:
                continue
            format = variant.key.format
            off = np.abs(torch_arithmetic(inputs, axes, format).astype(np.float64) - exact(inputs, axes, format))
            assert (off <= bound).all(), (family, axes)
            taken += 1
    assert taken >= 4


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.key.format}-{each.name}")
def test_the_weights_of_another_expert_are_outside_the_bound(variant: Variant) -> None:
    axes = SHAPES[1]
    inputs = OP.generate(axes, "uniform", np.random.default_rng(0))
    shifted = {**inputs, "weights": np.roll(inputs["weights"], 1, axis=0)}
    assert variant.error_bound is not None
    bound = np.asarray(variant.error_bound(inputs, axes)["out"])
    off = np.abs(exact(shifted, axes, variant.key.format) - exact(inputs, axes, variant.key.format))
    assert (off > bound).any(axis=1).all()


@pytest.mark.skipif(gpu_missing() is not None, reason="no GPU here")
@pytest.mark.parametrize("axes", SHAPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.key.format}-{each.name}")
def test_on_a_gpu_they_are_within_their_bound(variant: Variant, axes: Axes) -> None:
    why = variant.missing()
    if why is not None:
        pytest.skip(why)
    variant.load()
    context = cuda_context()
    inputs = OP.generate(axes, "normal", np.random.default_rng(1))
    encoded = OP.encode(inputs, axes, variant.key.format)
    there = {name: context.upload(each) for name, each in encoded.items()}
    out = context.array((axes["M"], axes["N"]), BFLOAT16)
    variant.bind(there, {"out": out}, axes, 1).run()
    assert variant.error_bound is not None
    off = np.abs(out.numpy().astype(np.float64) - exact(inputs, axes, variant.key.format))
    assert (off <= variant.error_bound(inputs, axes)["out"]).all()
