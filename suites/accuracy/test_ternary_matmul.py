"""ternary_matmul against the integer product: every path, shape, alignment and thread count gives the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness import providers
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import FORMATS, PROVIDER, PackedWeights, QuantizedLinear, pack_weights, register, ternary_matmul
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.formats import one_scale

GOLDEN = Path(__file__).parents[1] / "golden"
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 200), st.integers(1, 600))


def _data(shape: tuple[int, int, int], seed: int, gap: int = 0, offset: int = 0):
    M, N, K = shape
    rng = np.random.default_rng(seed)
    block = rng.integers(-128, 128, M * (K + gap) + offset, dtype=np.int8)[offset:]
    activations = np.lib.stride_tricks.as_strided(block, (M, K), (K + gap, 1))
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    return activations, codes, np.float32(rng.uniform(1e-3, 10)), rng.uniform(1e-2, 1e3, M).astype(np.float32)


def _float_rule(acc, weight_scale, act_scale):
    return (acc.astype(np.float64) * (np.float64(weight_scale) / act_scale.astype(np.float64))[:, np.newaxis]).astype(
        np.float32
    )


@given(
    shape=SHAPES,
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 70),
    offset=st.integers(0, 63),
    threads=st.integers(1, 4),
)
def test_all_outputs_are_the_same_bits_everywhere(isa, shape, seed, gap, offset, threads):
    activations, codes, weight_scale, act_scale = _data(shape, seed, gap, offset)
    weights = pack_weights(codes, weight_scale)
    exact = activations.astype(np.int64) @ codes.astype(np.int64).T
    expected = _float_rule(exact, weight_scale, act_scale)
    given_ = {"act_scale": act_scale, "variant": isa, "threads": threads}
    acc, receipt = with_receipt(activations, weights, dtype="int32", **given_)
    assert receipt.ran == isa
    assert np.array_equal(acc, exact)
    assert np.array_equal(ternary_matmul(activations, weights, **given_).view(np.uint32), expected.view(np.uint32))
    half = ternary_matmul(activations, weights, dtype="bfloat16", **given_)
    assert np.array_equal(half.view(np.uint16), expected.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("M", [6, 9, 16, 17, 31, 32, 47, 255, 257, 600])
@pytest.mark.parametrize(("N", "K"), [(1, 64), (65, 1023), (130, 1088)])
def test_blocks_of_activations_are_exact(isa, M, N, K):
    activations, codes, weight_scale, act_scale = _data((M, N, K), M)
    weights = pack_weights(codes, weight_scale)
    exact = (activations.astype(np.float64) @ codes.T.astype(np.float64)).astype(np.int64)
    acc, receipt = with_receipt(activations, weights, dtype="int32", variant=isa, threads=2)
    assert receipt.ran == isa
    assert np.array_equal(acc, exact)
    out = ternary_matmul(activations, weights, act_scale=act_scale, variant=isa, threads=2)
    assert np.array_equal(out.view(np.uint32), _float_rule(exact, weight_scale, act_scale).view(np.uint32))


def test_blocks_of_activations_are_exact_past_the_chunk(isa):
    activations = np.full((33, 131072 + 69), -128, np.int8)
    codes = np.ones((3, 131072 + 69), np.int8)
    acc = ternary_matmul(activations, pack_weights(codes, 1.0), dtype="int32", variant=isa, threads=2)
    assert np.all(acc == -128 * (131072 + 69))


@pytest.mark.parametrize("K", [2176, 4096, 27648, 32771])
@pytest.mark.parametrize("activation", [127, -128])
def test_sums_that_overflow_int16_are_exact(isa, K, activation):
    codes = np.ones((65, K), np.int8)
    codes[1] = -1
    activations = np.full((5, K), activation, np.int8)
    acc = ternary_matmul(activations, pack_weights(codes, 1.0), dtype="int32", variant=isa)
    assert np.all(acc[:, 0] == activation * K)
    assert np.all(acc[:, 1] == -activation * K)


def test_sums_past_the_chunk_are_exact(isa):
    K = 4 * 8192 * 3 + 5
    activations, codes, _, _ = _data((2, 3, K), 7)
    acc = ternary_matmul(activations, pack_weights(codes, 1.0), dtype="int32", variant=isa)
    assert np.array_equal(acc, activations.astype(np.int64) @ codes.astype(np.int64).T)


@pytest.mark.parametrize("format", [name for name, format in FORMATS.items() if one_scale(format)])
def test_every_format_with_one_scale_is_taken(format):
    activations, codes, weight_scale, act_scale = _data((3, 64, 256), 3)
    out = ternary_matmul(activations, pack_weights(codes, weight_scale, format=format), act_scale=act_scale)
    assert np.array_equal(
        out, _float_rule(activations.astype(np.int64) @ codes.T.astype(np.int64), weight_scale, act_scale)
    )


@pytest.mark.parametrize(
    ("format", "code", "why"),
    [
        ("qk256", 2, "qk256 has codes that"),
        ("qk256", 1, "qk256 has codes that"),
        ("qk256_i2_s", 2, "the weights have code 2, which"),
    ],
)
def test_products_of_formats_with_other_codes_are_refused_and_say_so(format, code, why):
    weights = pack_weights(np.full((64, 256), code, np.int8), 1.0, format=format)
    with pytest.raises(NoCompatibleKernelError, match=f"{why} tile64 cannot store"):
        ternary_matmul(np.ones((1, 256), np.int8), weights)


def test_products_of_formats_with_another_code_are_computed_if_no_weight_has_it():
    activations, codes, weight_scale, act_scale = _data((3, 64, 256), 3)
    weights = pack_weights(codes, weight_scale, format="qk256_i2_s")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale)
    assert receipt.note == "computed from tile64, repacked from qk256_i2_s"
    assert np.array_equal(
        out, _float_rule(activations.astype(np.int64) @ codes.T.astype(np.int64), weight_scale, act_scale)
    )


def test_weights_are_repacked_where_no_kernel_reads_their_format_and_the_receipt_says_so():
    activations, codes, weight_scale, act_scale = _data((3, 64, 256), 3)
    weights = pack_weights(codes, weight_scale, format="i2_s_arm")
    _, receipt = with_receipt(activations, weights, act_scale=act_scale)
    assert receipt.kernel.startswith("cpu/ternary_matmul/tile64/float32/")
    assert receipt.note == "computed from tile64, repacked from i2_s_arm"
    assert weights.packed_as("tile64") is weights.packed_as("tile64")
    assert np.array_equal(weights.packed_as("tile64"), pack_weights(codes, weight_scale, format="tile64").data)
    assert with_receipt(activations, pack_weights(codes, weight_scale), act_scale=act_scale)[1].note == ""


@pytest.mark.parametrize(("code", "activation"), [(1, -128), (-1, -128), (1, 127), (-1, 127)])
@pytest.mark.parametrize("K", [64, 1152, 65536])
def test_products_of_i2_s_arm_are_exact_where_its_original_overflows(isa, K, code, activation):
    """Without dot-product instructions its sums are int16 for 2048 values, and incorrect for K of 1088 or more."""
    codes, activations = np.full((5, K), code, np.int8), np.full((2, K), activation, np.int8)
    weights = pack_weights(codes, 0.5, format="i2_s_arm")
    acc, receipt = with_receipt(activations, weights, dtype="int32", variant=isa)
    assert np.array_equal(acc, np.full((2, 5), code * activation * K))
    assert receipt.note == "computed from tile64, repacked from i2_s_arm"
    assert np.array_equal(with_receipt(activations, weights, variant=isa)[0], acc.astype(np.float32) / 2)


def test_a_kernel_that_reads_the_weights_format_is_taken_before_any_other(monkeypatch):
    """Also if it is of a lower tier; a forced variant is looked for in each format that holds the same."""
    monkeypatch.setattr(providers, "_LOADED", [])
    monkeypatch.delenv(cpu.FORCE, raising=False)
    activations, codes, weight_scale, act_scale = _data((3, 64, 256), 3)
    expected = ternary_matmul(activations, pack_weights(codes, weight_scale), act_scale=act_scale)

    def bind(inputs, outputs, axes, threads):
        codes, scale = FORMATS["i2_s_arm"].unpack(inputs["weights"], (axes["N"], axes["K"]))
        tiles = FORMATS["tile64"].pack(codes, scale)
        return scalar.bind({**inputs, "weights": tiles}, outputs, axes, threads)

    scalar = next(each for each in PROVIDER.variants if each.id == "cpu/ternary_matmul/tile64/float32/scalar")
    register(replace(scalar, key=replace(scalar.key, format="i2_s_arm"), name="mine", bind=bind))
    weights = pack_weights(codes, weight_scale, format="i2_s_arm")
    out, receipt = with_receipt(activations, weights, act_scale=act_scale)
    assert np.array_equal(out, expected)
    assert (receipt.kernel, receipt.note) == ("cpu/ternary_matmul/i2_s_arm/float32/mine", "")
    assert (
        with_receipt(activations, weights, act_scale=act_scale, variant="scalar")[1].note
        == "computed from tile64, repacked from i2_s_arm"
    )
    layer = QuantizedLinear(weights)
    layer(np.ones(256, np.float32))
    assert (layer.receipt.kernel, layer.receipt.note) == ("cpu/ternary_matmul/i2_s_arm/float32/mine", "")  # type: ignore[union-attr]
    with pytest.raises(NoCompatibleKernelError) as caught:
        with_receipt(activations, weights, act_scale=act_scale, variant="neon")
    assert {name.partition("/")[0] for name, _ in caught.value.candidates} == {
        "i2_s_arm",
        "tile64",
        "i2_s_x86",
        "tq2_0",
        "iq2_bn_r4",
        "tl1",
        "tl2",
        "q2_0",
        "tq1_0",
        "tile80",
        *(f"tile64_g{group}" for group in (32, 64, 128, 256)),
    }
    assert pack_weights(codes, weight_scale).format == "tile64"


def test_a_format_that_cannot_hold_the_weights_is_refused():
    weights = pack_weights(np.ones((2, 6), np.int8), 1.0)
    with pytest.raises(InvalidArgumentError, match="i2_s_x86_r4 cannot hold weights of shape"):
        weights.packed_as("i2_s_x86_r4")
    with pytest.raises(InvalidArgumentError, match="tile64 has one scale, tq2_0 a scale for each group of 256"):
        weights.packed_as("tq2_0")


def test_one_row_may_come_flat_and_out_is_filled():
    activations, codes, weight_scale, _ = _data((1, 70, 130), 4)
    weights = pack_weights(codes, weight_scale)
    out = np.full(70, np.nan, np.float32)
    assert ternary_matmul(activations[0], weights, act_scale=2.0, out=out) is out
    assert np.array_equal(out, ternary_matmul(activations, weights, act_scale=2.0)[0])


def test_weights_may_carry_the_variant(isa):
    weights = pack_weights(np.ones((2, 8), np.int8), 1.0, variant=isa)
    assert with_receipt(np.ones((1, 8), np.int8), weights)[1].ran == isa
    assert with_receipt(np.ones((1, 8), np.int8), weights, variant="scalar")[1].ran == "scalar"


@pytest.mark.parametrize(("format", "variant"), [("tile64", "neon"), ("tq2_0", "sse41")])
def test_weights_refuse_a_variant_that_cannot_take_them(format, variant):
    with pytest.raises(NoCompatibleKernelError):
        pack_weights(np.ones((2, 256), np.int8), 1.0, format=format, variant=variant)


def test_an_unknown_variant_lists_every_candidate():
    weights = pack_weights(np.ones((2, 8), np.int8), 1.0)
    with pytest.raises(NoCompatibleKernelError) as caught:
        ternary_matmul(np.ones((1, 8), np.int8), weights, variant="neon")
    why = dict(caught.value.candidates)["tile64/neon"]
    assert why.startswith(f"unknown variant; legal: {', '.join(isa.name for isa in cpu.KERNELS['ternary_matmul'])}, ")


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"activations": np.ones((1, 9), np.int8)}, "activations"),
        ({"activations": np.ones((1, 8), np.uint8)}, "activations"),
        ({"activations": np.ones((0, 8), np.int8)}, "activations"),
        ({"activations": np.ones((1, 1, 8), np.int8)}, "activations"),
        ({"activations": np.ones((8, 2), np.int8).T}, "activations"),
        ({"activations": [[1] * 8]}, "activations"),
        ({"weights": np.ones((2, 8), np.int8)}, "weights"),
        ({"act_scale": 0.0}, "act_scale"),
        ({"act_scale": np.array([np.nan], np.float32)}, "act_scale"),
        ({"act_scale": np.ones(3, np.float32)}, "act_scale"),
        ({"dtype": "float64"}, "dtype"),
        ({"threads": 0}, "threads"),
        ({"out": np.zeros((1, 3), np.float32)}, "out"),
        ({"out": np.zeros((1, 2), np.int32)}, "out"),
    ],
)
def test_bad_arguments_are_named(change, argument):
    good: dict[str, Any] = {
        "activations": np.ones((1, 8), np.int8),
        "weights": pack_weights(np.ones((2, 8), np.int8), 1.0),
        "act_scale": 1.0,
    }
    arguments = {**good, **change}
    out = arguments.get("out")
    before = out if out is None else out.copy()
    with pytest.raises(InvalidArgumentError) as caught:
        ternary_matmul(arguments.pop("activations"), arguments.pop("weights"), **arguments)
    assert caught.value.argument == argument
    if out is not None:
        assert np.array_equal(out, before)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("mm_i2s_*.npz")), ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("key", "format"), [("packed", "i2_s_x86"), ("packed_r4", "i2_s_x86_r4"), ("packed_arm", "i2_s_arm")]
)
def test_the_original_packers_bytes_give_the_exact_product(isa, path, key, format):
    vector = np.load(path)
    weights = PackedWeights.from_bytes(vector[key], format, vector["weights"].shape)
    acc = ternary_matmul(vector["acts"], weights, dtype="int32", variant=isa)
    assert np.array_equal(acc, vector["ternary_exact"])
    if vector["x86_overflow"] and key == "packed":
        assert not np.array_equal(acc, vector["out_1x1"] - vector["act_sum"][:, np.newaxis]), (
            "the original's int16 sums overflow here"
        )
