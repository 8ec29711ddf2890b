"""ternary_quantize against its contract: every path, block, size, alignment and thread count gives the same bits,
packed or not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import FORMATS, ternary_quantize
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_quantize.api import PackedTernary, TernaryQuantized
from tritmark.kernels.ternary_quantize.reference import reference
from tritmark.kernels.ternary_quantize.spec import CODES, OP, PACKED

F32 = np.finfo(np.float32)
# A thread is woken for each 16,384 elements.
SIZES = st.one_of(st.integers(1, 5000), st.integers(32_768, 70_000))
# The fused blocks, their neighbours, and any other.
BLOCKS = st.one_of(st.sampled_from([32, 64, 128, 256, 384, 512]), st.integers(1, 600), st.integers(5000, 80_000))
LAYOUT = {
    "offset": st.integers(0, 15),
    "offset_codes": st.integers(0, 63),
    "stream": st.booleans(),
    "threads": st.integers(1, 4),
}
LENGTHS = range(1, 131)
"""Two steps of the longest, 64, and a part of a third."""
BEHIND = 3
"""NaN in the input behind a row: a kernel that reads too far takes them for the row's own. In the output no codes."""


def _expected(x, block, key=CODES):
    wanted = reference({"x": x}, {"n": x.size, "block": block}, key)
    return wanted["codes"], wanted["scales"]


def _by_the_bits(codes):
    """I2_S x86 from its definition: element j of 128 is in byte j % 32 at shift 6 - 2 * (j / 32)."""
    padded = np.zeros(-(-codes.size // 128) * 128, np.uint8)
    padded[: codes.size] = codes
    fields = np.where(padded == 255, 0, padded + 1).astype(np.uint8)
    packed = np.zeros(padded.size // 4, np.uint8)
    j = np.arange(padded.size)
    np.bitwise_or.at(packed, j // 128 * 32 + j % 32, fields << (6 - 2 * (j % 128 // 32)).astype(np.uint8))
    return packed


def _same(found, wanted):
    return found.dtype == wanted.dtype and np.array_equal(found.view(np.uint8), wanted.view(np.uint8))


@given(
    n=SIZES,
    block=BLOCKS,
    family=st.sampled_from(OP.input_families),
    packed=st.booleans(),
    seed=st.integers(0, 2**32),
    **LAYOUT,
)
@example(n=384, block=32, family="ties", packed=True, seed=1, offset=0, offset_codes=0, stream=True, threads=1)
@example(n=384, block=64, family="ties", packed=True, seed=2, offset=1, offset_codes=16, stream=True, threads=1)
@example(n=384, block=128, family="ties", packed=True, seed=3, offset=0, offset_codes=1, stream=True, threads=1)
@example(n=1024, block=512, family="ties", packed=True, seed=4, offset=0, offset_codes=32, stream=True, threads=1)
@example(n=384, block=32, family="extremes", packed=True, seed=5, offset=0, offset_codes=0, stream=False, threads=1)
@example(n=384, block=48, family="ties", packed=False, seed=6, offset=0, offset_codes=16, stream=True, threads=1)
def test_the_bits_are_the_contracts(
    isa, guarded, at_offset, n, block, family, packed, seed, offset, offset_codes, stream, threads
):
    key = PACKED if packed else CODES
    axes = {"n": n, "block": block}
    values = OP.generate(axes, family, np.random.default_rng(seed))["x"]
    like = OP.outputs_like(axes, key)
    x = at_offset(values, offset)
    codes, scales = (
        guarded(like["codes"][0][0], key.dtype, offset_codes),
        guarded(like["scales"][0][0], np.float32, offset),
    )
    launch = cpu.native("ternary_quantize").TernaryQuantize(
        isa, x, min(block, n), codes.array, scales.array, stream, threads
    )
    launch.run()
    wanted_codes, wanted_scales = _expected(values, block, key)
    assert _same(codes.array, wanted_codes)
    assert _same(scales.array, wanted_scales)
    assert not codes.broken()
    assert not scales.broken()
    assert _same(x, values)
    assert (launch.ran, launch.runs, launch.bad) == (isa, 1, -1)
    assert 1 <= launch.threads_used <= max(1, min(threads, n // 16_384))


@pytest.mark.parametrize("family", OP.input_families)
def test_blocks_of_every_length(isa, family):
    M = 5
    native, rng = cpu.native("ternary_quantize"), np.random.default_rng(7)
    for block in LENGTHS:
        n = M * block - block // 3  # the last one is shorter
        axes = {"n": n, "block": block}
        x = OP.generate(axes, family, rng)["x"]
        wanted = reference({"x": x}, axes, CODES)
        held = np.full(n + BEHIND, np.nan, np.float32)
        held[:n] = x
        codes, scales = np.full(n + BEHIND, 77, np.int8), np.empty(M, np.float32)
        launch = native.TernaryQuantize(isa, held[:n], block, codes[:n], scales, False, 1)
        launch.run()
        assert (launch.ran, launch.bad) == (isa, -1), block
        assert np.array_equal(codes[:n], wanted["codes"]), block
        assert np.array_equal(scales.view(np.uint32), wanted["scales"].view(np.uint32)), block
        assert np.all(codes[n:] == 77), block


@given(
    n=st.integers(1, 300),
    block=st.integers(1, 320),
    family=st.sampled_from(OP.input_families),
    seed=st.integers(0, 2**32),
)
def test_the_reference_is_the_rule_element_by_element(n, block, family, seed):
    x = OP.generate({"n": n, "block": block}, family, np.random.default_rng(seed))["x"]
    codes, scales = _expected(x, block)
    for b, start in enumerate(range(0, n, block)):
        values = [float(v) for v in x[start : start + block]]
        scale = max([abs(v) for v in values] + [float(np.float32(1e-8))])
        assert float(scales[b]) == scale
        assert codes[start : start + block].tolist() == [(v > scale / 2) - (v < -scale / 2) for v in values]
    assert np.array_equal(_expected(x, block, PACKED)[0], _by_the_bits(codes))


@given(n=SIZES, block=BLOCKS, seed=st.integers(0, 2**32))
def test_packed_bytes_hold_the_codes(isa, n, block, seed):
    x = np.random.default_rng(seed).standard_normal(n, dtype=np.float32)
    plain = ternary_quantize(x, block, variant=isa)
    packed = ternary_quantize(x, block, packed=True, variant=isa)
    assert np.array_equal(packed.packed, _by_the_bits(plain.codes))
    assert _same(packed.scales, plain.scales)
    assert np.array_equal(packed.unpack(), plain.codes)
    assert (packed.n, packed.block) == (n, block)


def test_packed_bytes_are_those_of_the_format(isa):
    x = np.random.default_rng(1).standard_normal((6, 256), dtype=np.float32)
    whole = FORMATS["i2_s_x86"].pack(ternary_quantize(x, 64, variant=isa).codes, 1.0)
    assert np.array_equal(ternary_quantize(x, 64, packed=True, variant=isa).packed, whole[:-32])


def test_halves_are_ties_in_every_block(isa):
    """The family does what it is for: elements at exactly half the scale, which are 0, and just past it, which are
    not."""
    for block in (32, 64, 100, 128, 256):
        x = OP.generate({"n": 20 * block, "block": block}, "ties", np.random.default_rng(block))["x"]
        codes, scales = ternary_quantize(x, block, variant=isa)
        size, half = np.abs(x).reshape(20, block), scales[:, np.newaxis] / 2
        at, past = size == half, size == np.nextafter(half, np.float32(np.inf))
        assert at.any(axis=1).all()
        assert past.any()
        assert not codes.reshape(20, block)[at].any()
        assert codes.reshape(20, block)[past].all()


@pytest.mark.parametrize("block", [1, 32, 64, 128, 200, 256])
def test_small_values_have_the_smallest_scale(isa, block):
    least = np.float32(1e-8)
    half = least / 2
    past = np.nextafter(half, least)
    x = np.resize(np.array([half, -half, past, -past, 0.0, F32.smallest_subnormal], np.float32), 600)
    wanted = np.resize(np.array([0, 0, 1, -1, 0, 0], np.int8), 600)
    result = ternary_quantize(x, block, variant=isa)
    assert np.all(result.scales == least)
    assert np.array_equal(result.codes, wanted)
    assert np.array_equal(ternary_quantize(x, block, packed=True, variant=isa).unpack(), wanted)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [32, 64, 128, 100, 1 << 20])
def test_an_output_past_the_caches(isa, packed, block):
    n = (4 if packed else 1) * cpu.l2_bytes() + 4 * 77
    x = np.random.default_rng(5).standard_normal(n, dtype=np.float32)
    result = ternary_quantize(x, block, packed=packed, variant=isa, threads=2)
    codes, scales = _expected(x, block, PACKED if packed else CODES)
    assert _same(result[0], codes)
    assert _same(result[1], scales)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 7)])
def test_the_shape_is_kept_and_out_is_filled(shape):
    x = np.asarray(np.random.default_rng(6).standard_normal(shape), np.float32)
    result = ternary_quantize(x, block=4)
    codes, scales = _expected(x.reshape(-1), 4)
    assert isinstance(result, TernaryQuantized)
    assert result.codes.shape == shape
    assert np.array_equal(result.codes.reshape(-1), codes)
    assert np.array_equal(result.scales, scales)
    out = TernaryQuantized(np.full(shape, 77, np.int8), np.full(scales.shape, 77, np.float32))
    again = ternary_quantize(x, block=4, out=out)
    assert np.shares_memory(again.codes, out.codes)
    assert np.shares_memory(again.scales, out.scales)
    assert np.array_equal(out.codes, result.codes)
    assert np.array_equal(out.scales, result.scales)


def test_a_packed_out_is_filled():
    x = np.random.default_rng(7).standard_normal(300, dtype=np.float32)
    first = ternary_quantize(x, 32, packed=True)
    assert isinstance(first, PackedTernary)
    assert first.packed.shape == (96,)
    again = ternary_quantize(-x, 32, packed=True, out=first)
    assert np.shares_memory(again.packed, first.packed)
    assert np.array_equal(first.unpack(), -ternary_quantize(x, 32).codes)


def test_the_block_is_128_unless_said():
    x = np.random.default_rng(8).standard_normal(300, dtype=np.float32)
    assert ternary_quantize(x).scales.shape == (3,)
    assert np.array_equal(ternary_quantize(x).codes, ternary_quantize(x, np.int64(128)).codes)  # type: ignore[call-overload]


@pytest.mark.parametrize("key", [CODES, PACKED], ids=str)
def test_the_receipt_names_what_ran(isa, key):
    axes = {"n": 100, "block": 32}
    variant = dispatch.registry().select_best(key, axes, isa)
    outputs = dispatch.outputs_for(OP, axes, key, {}, {})
    receipt = dispatch.run(OP, variant, {"x": np.ones(100, np.float32)}, outputs, axes, 1).receipt()
    assert (receipt.kernel, receipt.ran, receipt.runs) == (f"{key}/{isa}", isa, 1)


@given(
    n=SIZES,
    block=BLOCKS,
    packed=st.booleans(),
    wrong=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([np.nan, -np.nan, np.inf, -np.inf])), min_size=1, max_size=4
    ),
)
def test_the_first_nonfinite_value_is_named_and_may_be_taken_as_zero(isa, n, block, packed, wrong):
    x = np.random.default_rng(n).standard_normal(n, dtype=np.float32)
    for where, value in wrong:
        x[int(where * (n - 1))] = value
    first = int(np.flatnonzero(~np.isfinite(x))[0])
    before = x.copy()
    zeroed = np.where(np.isfinite(x), x, np.float32(0))
    out = ternary_quantize(zeroed, block, packed=packed)
    out[0].fill(77)
    out[1].fill(77)
    for given_ in ({}, {"out": out}):
        with pytest.raises(InvalidArgumentError, match=rf"at index {first}; legal: finite") as caught:
            ternary_quantize(x, block, packed=packed, variant=isa, threads=4, **given_)
        assert (caught.value.op, caught.value.argument) == ("ternary_quantize", "x")
    assert np.all(out[0] == 77)
    assert np.all(out[1] == 77)
    result = ternary_quantize(x, block, packed=packed, variant=isa, threads=4, nonfinite="zero")
    codes, scales = _expected(zeroed, block, PACKED if packed else CODES)
    assert np.array_equal(result[0], codes)
    assert np.array_equal(result[1], scales)
    assert _same(x, before)


def test_a_launch_forgets_what_was_wrong_before(isa):
    x, codes, scales = np.zeros(40, np.float32), np.empty(40, np.int8), np.empty(2, np.float32)
    launch = cpu.native("ternary_quantize").TernaryQuantize(isa, x, 32, codes, scales, False, 1)
    x[37] = np.nan
    launch.run()
    assert launch.bad == 37
    x[37] = 0
    launch.run()
    assert (launch.bad, launch.runs) == (-1, 2)


GOOD = np.ones((2, 8), np.float32)


def _out(codes=(2, 8), scales=(4,), kinds=(np.int8, np.float32)):
    return TernaryQuantized(np.full(codes, 77, kinds[0]), np.full(scales, 77, kinds[1]))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"x": [1.0]}, "x"),
        ({"x": GOOD.astype(np.float64)}, "x"),
        ({"x": GOOD.astype(GOOD.dtype.newbyteorder())}, "x"),
        ({"x": GOOD[:0]}, "x"),
        ({"x": GOOD[:, ::2]}, "x"),
        ({"x": GOOD.T}, "x"),
        ({"x": np.frombuffer(bytes(65), np.uint8)[1:].view(np.float32)}, "x"),
        ({"block": 0}, "block"),
        ({"block": -128}, "block"),
        ({"block": 2.5}, "block"),
        ({"block": math.nan}, "block"),
        ({"block": "128"}, "block"),
        ({"nonfinite": "ignore"}, "nonfinite"),
        ({"threads": 0}, "threads"),
        ({"out": _out((8, 2))}, "out"),
        ({"out": _out((16,))}, "out"),
        ({"out": _out(scales=(2,))}, "out"),
        ({"out": _out(kinds=(np.uint8, np.float32))}, "out"),
        ({"out": _out(kinds=(np.int8, np.float64))}, "out"),
        ({"out": (np.full((2, 8), 77, np.int8), np.full(4, 77, np.float32))}, "out"),
        ({"out": np.full((2, 8), 77, np.int8)}, "out"),
        ({"packed": True, "out": _out()}, "out"),
        ({"block": 0, "out": _out()}, "block"),
        ({"threads": 0, "out": _out()}, "threads"),
        ({"nonfinite": "ignore", "out": _out()}, "nonfinite"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(change, argument):
    arguments = {"x": GOOD, "block": 4, **change}
    with pytest.raises(InvalidArgumentError) as caught:
        ternary_quantize(arguments.pop("x"), **arguments)
    assert (caught.value.op, caught.value.argument) == ("ternary_quantize", argument)
    out = arguments.get("out", ())
    assert all(np.all(array == 77) for array in (out if isinstance(out, tuple) else (out,)))


def test_an_output_that_is_read_only_or_the_input_itself_is_refused():
    x = GOOD.copy()
    locked = _out()
    locked.codes.flags.writeable = False
    aliased = TernaryQuantized(np.full((2, 8), 77, np.int8), x.reshape(-1)[:4])
    for wrong in (locked, aliased):
        with pytest.raises(InvalidArgumentError, match="out"):
            ternary_quantize(x, 4, out=wrong)
        assert np.all(wrong.codes == 77)
    assert np.array_equal(x, GOOD)


def test_the_boundary_refuses_arrays_that_do_not_fit():
    native = cpu.native("ternary_quantize").TernaryQuantize
    x, codes, scales = np.ones(200, np.float32), np.empty(200, np.int8), np.empty(4, np.float32)
    native("scalar", x, 64, codes, scales, False, 1)
    native("scalar", x, 64, np.empty(64, np.uint8), scales, False, 1)
    for block, wrong, apart in [
        (64, codes[:199], scales),
        (64, np.empty(63, np.uint8), scales),
        (64, np.empty(200, np.uint8), scales),
        (64, codes, scales[:3]),
        (0, codes, scales),
        (201, codes, scales[:1]),
    ]:
        with pytest.raises(ValueError, match="x has 200 elements"):
            native("scalar", x, block, wrong, apart, False, 1)


def test_an_unknown_variant_lists_every_candidate():
    for packed in (False, True):
        with pytest.raises(NoCompatibleKernelError) as caught:
            ternary_quantize(GOOD, 4, packed=packed, variant="neon")
        ((name, why),) = caught.value.candidates
        assert name == "neon"
        assert why == f"unknown variant; legal: {', '.join(isa.name for isa in cpu.KERNELS['ternary_quantize'])}"
