"""activation_quantize against its contract: every path, shape, row distance, alignment and thread count gives the
same bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import activation_quantize
from tritmark.kernels.activation_quantize.api import ActivationQuantized
from tritmark.kernels.activation_quantize.reference import reference
from tritmark.kernels.activation_quantize.spec import KEY, MAX_K, OP
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu
from tritmark.kernels.numerics.input_dtypes import FORMATS, narrow

F32 = np.finfo(np.float32)
# A thread is woken for each 32,768 elements, in whole rows.
SHAPES = st.one_of(
    st.tuples(st.integers(1, 8), st.integers(1, 600)),
    st.tuples(st.just(1), st.integers(600, 5000)),
    st.tuples(st.integers(300, 900), st.integers(100, 130)),
)
LENGTHS = range(1, 131)
"""Two steps of the longest, 64, and a part of a third."""
BEHIND = 3
"""NaN in the input behind a row: a kernel that reads too far takes them for the row's own. In the output no codes."""


def _expected(x):
    wanted = reference({"x": x}, {"M": x.shape[0], "K": x.shape[1]}, KEY)
    return ActivationQuantized(wanted["q"], wanted["scale"], wanted["sum"].astype(np.int32))


def _same(found, wanted):
    return all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and np.array_equal(np.atleast_1d(a).view(np.uint8), np.atleast_1d(b).view(np.uint8))
        for a, b in zip(found, wanted, strict=True)
    )


def _rows_apart(values, gap, offset, at_offset):
    """The same values with `gap` NaN between the rows, the first `offset` elements past a cache line."""
    M, K = values.shape
    wide = np.full((M, K + gap), np.nan, values.dtype)
    wide[:, :K] = values
    return at_offset(wide.reshape(-1), offset).reshape(M, K + gap)[:, :K]


def _bits(x):
    """As the boundary takes them."""
    return x if x.dtype == np.float32 else x.view(np.uint16)


@given(
    format=st.sampled_from(FORMATS),
    shape=SHAPES,
    family=st.sampled_from(OP.input_families),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 40),
    offset=st.integers(0, 15),
    offset_q=st.integers(0, 63),
    threads=st.integers(1, 4),
)
@example(format="none", shape=(2, 640), family="ties", seed=1, gap=3, offset=0, offset_q=0, threads=1)
@example(format="none", shape=(2, 640), family="extremes", seed=2, gap=0, offset=1, offset_q=1, threads=1)
@example(format="float16", shape=(2, 640), family="denormals", seed=1, gap=3, offset=0, offset_q=0, threads=1)
@example(format="bfloat16", shape=(3, 641), family="denormals", seed=1, gap=3, offset=1, offset_q=0, threads=1)
def test_the_bits_are_the_contracts(
    isa, guarded, at_offset, format, shape, family, seed, gap, offset, offset_q, threads
):
    M, K = shape
    given_ = narrow(OP.generate({"M": M, "K": K}, family, np.random.default_rng(seed))["x"], format)
    values = given_.astype(np.float32)
    x = _rows_apart(given_, gap, offset, at_offset)
    q, scale, total = guarded(M * K, np.int8, offset_q), guarded(M, np.float32, offset), guarded(M, np.int32, offset)
    launch = cpu.native("activation_quantize").ActivationQuantize(
        isa, format, _bits(x), q.array.reshape(M, K), scale.array, total.array, threads
    )
    launch.run()
    assert _same((q.array.reshape(M, K), scale.array, total.array), _expected(values))
    assert not q.broken()
    assert not scale.broken()
    assert not total.broken()
    assert np.array_equal(x, given_)
    assert (launch.ran, launch.runs, launch.bad) == (isa, 1, -1)
    assert 1 <= launch.threads_used <= max(1, min(threads, M // -(-32_768 // K)))


def _float32(exact):
    """The float32 nearest to a fraction, ties to even, for values far from the ends of the range."""
    near = np.float32(float(exact))
    candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("family", OP.input_families)
def test_rows_of_every_length(isa, format, family):
    M = 5
    native, rng = cpu.native("activation_quantize"), np.random.default_rng(7)
    for K in LENGTHS:
        x = narrow(OP.generate({"M": M, "K": K}, family, rng)["x"], format)
        wanted = reference({"x": x.astype(np.float32)}, {"M": M, "K": K}, KEY)
        wide = np.full((M, K + BEHIND), np.nan, x.dtype)
        wide[:, :K] = x
        given = wide if x.dtype == np.float32 else wide.view(np.uint16)
        codes, scale, total = np.full(M * K + BEHIND, 77, np.int8), np.empty(M, np.float32), np.empty(M, np.int32)
        launch = native.ActivationQuantize(isa, format, given[:, :K], codes[: M * K].reshape(M, K), scale, total, 1)
        launch.run()
        assert (launch.ran, launch.bad) == (isa, -1), K
        assert np.array_equal(codes[: M * K].reshape(M, K), wanted["q"]), K
        assert np.array_equal(scale.view(np.uint32), wanted["scale"].view(np.uint32)), K
        assert np.array_equal(total, wanted["sum"]), K
        assert np.all(codes[M * K :] == 77), K


@given(
    K=st.integers(1, 40),
    family=st.sampled_from(("uniform", "normal", "heavy", "constant", "zero", "ties")),
    seed=st.integers(0, 2**32),
)
def test_the_reference_is_the_rule_in_exact_fractions(K, family, seed):
    x = OP.generate({"M": 1, "K": K}, family, np.random.default_rng(seed))["x"]
    found = _expected(x)
    absmax = max(abs(float(v)) for v in x[0])
    scale = _float32(Fraction(127) / Fraction(max(absmax, float(np.float32(1e-5)))))
    assert found.scale[0] == scale
    # round() takes ties to even.
    codes = [round(Fraction(float(_float32(Fraction(float(v)) * Fraction(float(scale)))))) for v in x[0]]
    assert found.q[0].tolist() == codes
    assert int(found.sum[0]) == sum(codes)


def test_ties_go_to_the_even_code(isa):
    row = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, 0.0, -0.0]
    x = np.array([row * 12], np.float32)
    result = activation_quantize(x, variant=isa)
    assert result.scale.tolist() == [1.0]
    assert result.q[0].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 0] * 12


@pytest.mark.parametrize("K", [1, 15, 16, 17, 63, 64, 65, 2560])
def test_a_row_without_magnitude_has_codes_of_zero(isa, K):
    """#123 of microsoft/BitNet: 127 / 0 if all activations are zero."""
    x = np.zeros((2, K), np.float32)
    x[1] = F32.smallest_subnormal
    result = activation_quantize(x, variant=isa)
    assert not result.q.any()
    assert not result.sum.any()
    assert np.all(result.scale == np.float32(127) / np.float32(1e-5))


def test_the_sum_is_wide_enough(isa):
    """127 in each of 2**18 places: exceeds int16 in any lane of 64, and the exact integers of float32."""
    x = np.full((1, (1 << 18) + 3), 3.0, np.float32)
    result = activation_quantize(x, variant=isa)
    assert int(result.sum[0]) == 127 * x.size
    assert int(activation_quantize(-x, variant=isa).sum[0]) == -127 * x.size


@given(shape=SHAPES, family=st.sampled_from(OP.input_families), seed=st.integers(0, 2**32))
def test_no_code_is_below_minus_127(isa, shape, family, seed):
    x = OP.generate({"M": shape[0], "K": shape[1]}, family, np.random.default_rng(seed))["x"]
    result = activation_quantize(x, variant=isa)
    assert result.q.min() >= -127
    assert np.array_equal(result.q.sum(axis=-1, dtype=np.int32), result.sum)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 7), (2, 1, 3, 4)])
def test_the_shape_is_kept_and_out_is_filled(shape):
    x = np.random.default_rng(6).standard_normal(shape, dtype=np.float32)
    result = activation_quantize(x)
    assert isinstance(result, ActivationQuantized)
    assert (result.q.shape, result.scale.shape, result.sum.shape) == (shape, shape[:-1], shape[:-1])
    rows = _expected(x.reshape(-1, shape[-1]))
    for found, wanted in zip(result, rows, strict=True):
        assert np.array_equal(found.reshape(-1), wanted.reshape(-1))  # type: ignore[attr-defined]
    out = ActivationQuantized(
        np.full(shape, 77, np.int8), np.full(shape[:-1], 77, np.float32), np.full(shape[:-1], 77, np.int32)
    )
    again = activation_quantize(x, out=out)
    assert _same(out, result)
    assert all(np.shares_memory(a, b) for a, b in zip(again, out, strict=True))


def test_rows_that_lie_apart_are_read_where_they_are(isa):
    wide = np.random.default_rng(7).standard_normal((4, 3, 50), dtype=np.float32)
    cases = [wide[0, :, :33], wide[1, ::2], wide[..., 4:37], wide[0, 1], wide[2, :1, 3:9]]
    for x in cases:
        assert _same(activation_quantize(x, variant=isa), activation_quantize(np.ascontiguousarray(x), variant=isa))


def test_rows_at_two_distances_are_refused():
    wide = np.ones((4, 6, 8), np.float32)
    with pytest.raises(InvalidArgumentError, match="one stride") as caught:
        activation_quantize(wide[:, :3])
    assert (caught.value.op, caught.value.argument) == ("activation_quantize", "x")


def test_the_receipt_names_what_ran(isa):
    axes = {"M": 2, "K": 100}
    variant = dispatch.registry().select_best(KEY, axes, isa)
    outputs = dispatch.outputs_for(OP, axes, KEY, {}, {})
    receipt = dispatch.run(OP, variant, {"x": np.ones((2, 100), np.float32)}, outputs, axes, 1).receipt()
    assert (receipt.kernel, receipt.ran, receipt.runs) == (f"{KEY}/{isa}", isa, 1)


@given(
    format=st.sampled_from(FORMATS),
    shape=SHAPES,
    gap=st.integers(0, 5),
    wrong=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([np.nan, -np.nan, np.inf, -np.inf])), min_size=1, max_size=4
    ),
)
def test_the_first_nonfinite_value_is_named_and_may_be_taken_as_zero(isa, at_offset, format, shape, gap, wrong):
    values = narrow(np.random.default_rng(shape[1]).standard_normal(shape, dtype=np.float32), format)
    for where, value in wrong:
        values.flat[int(where * (values.size - 1))] = value
    first = int(np.flatnonzero(~np.isfinite(values))[0])
    x = _rows_apart(values, gap, 0, at_offset)
    zeroed = np.where(np.isfinite(values), values.astype(np.float32), np.float32(0))
    out = activation_quantize(zeroed)
    for array in out:
        array.fill(77)
    for given_ in ({}, {"out": out}):
        with pytest.raises(InvalidArgumentError, match=rf"at index {first}; legal: finite") as caught:
            activation_quantize(x, variant=isa, threads=4, **given_)  # type: ignore[arg-type]
        assert (caught.value.op, caught.value.argument) == ("activation_quantize", "x")
    assert all(np.all(array == 77) for array in out)
    assert _same(activation_quantize(x, variant=isa, threads=4, nonfinite="zero"), _expected(zeroed))
    assert np.array_equal(x.view(np.uint16), values.view(np.uint16))


def test_a_launch_forgets_what_was_wrong_before(isa):
    x, q = np.zeros((2, 20), np.float32), np.empty((2, 20), np.int8)
    launch = cpu.native("activation_quantize").ActivationQuantize(
        isa, "none", x, q, np.empty(2, np.float32), np.empty(2, np.int32), 1
    )
    x[1, 7] = np.inf
    launch.run()
    assert launch.bad == 27
    x[1, 7] = 0
    launch.run()
    assert (launch.bad, launch.runs) == (-1, 2)


GOOD = np.ones((2, 8), np.float32)


def _out(q=(2, 8), scale=(2,), total=(2,), kinds=(np.int8, np.float32, np.int32)):
    return ActivationQuantized(np.full(q, 77, kinds[0]), np.full(scale, 77, kinds[1]), np.full(total, 77, kinds[2]))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"x": [1.0]}, "x"),
        ({"x": np.float32(1)}, "x"),
        ({"x": np.ones((), np.float32)}, "x"),
        ({"x": GOOD.astype(np.float64)}, "x"),
        ({"x": GOOD.astype(GOOD.dtype.newbyteorder())}, "x"),
        ({"x": GOOD[:0]}, "x"),
        ({"x": GOOD[:, :0]}, "x"),
        ({"x": GOOD[:, ::2]}, "x"),
        ({"x": GOOD[:, ::-1]}, "x"),
        ({"x": GOOD[::-1]}, "x"),
        ({"x": GOOD.T}, "x"),
        ({"x": np.broadcast_to(GOOD[0], (3, 8))}, "x"),
        ({"x": np.frombuffer(bytes(65), np.uint8)[1:].view(np.float32)}, "x"),
        ({"nonfinite": "ignore"}, "nonfinite"),
        ({"threads": 0}, "threads"),
        ({"out": _out((8, 2))}, "out"),
        ({"out": _out((16,))}, "out"),
        ({"out": _out(scale=(1,))}, "out"),
        ({"out": _out(total=(2, 1))}, "out"),
        ({"out": _out(kinds=(np.uint8, np.float32, np.int32))}, "out"),
        ({"out": _out(kinds=(np.int8, np.float64, np.int32))}, "out"),
        ({"out": _out(kinds=(np.int8, np.float32, np.int64))}, "out"),
        ({"out": tuple(_out())}, "out"),
        ({"out": np.full((2, 8), 77, np.int8)}, "out"),
        ({"threads": 0, "out": _out()}, "threads"),
        ({"nonfinite": "ignore", "out": _out()}, "nonfinite"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(change, argument):
    arguments = {"x": GOOD, **change}
    with pytest.raises(InvalidArgumentError) as caught:
        activation_quantize(arguments.pop("x"), **arguments)
    assert (caught.value.op, caught.value.argument) == ("activation_quantize", argument)
    out = arguments.get("out", ())
    assert all(np.all(array == 77) for array in (out if isinstance(out, tuple) else (out,)))


def test_an_output_that_is_read_only_or_the_input_itself_is_refused():
    x = GOOD.copy()
    locked = _out()
    locked.sum.flags.writeable = False
    aliased = _out()._replace(scale=x.reshape(-1)[:2])
    for wrong in (locked, aliased):
        with pytest.raises(InvalidArgumentError, match="out"):
            activation_quantize(x, out=wrong)
        assert np.all(wrong.q == 77)
    assert np.array_equal(x, GOOD)


def test_rows_whose_sum_might_not_fit_have_no_kernel():
    """64 MiB of zeros that are never read, so never there."""
    with pytest.raises(NoCompatibleKernelError, match=f"K = {MAX_K + 1} is over {MAX_K}"):
        activation_quantize(np.zeros(MAX_K + 1, np.float32))


def test_the_boundary_refuses_arrays_that_do_not_fit():
    native = cpu.native("activation_quantize").ActivationQuantize
    x, q, scale, total = (
        np.ones((3, 8), np.float32),
        np.empty((3, 8), np.int8),
        np.empty(3, np.float32),
        np.empty(3, np.int32),
    )
    native("scalar", "none", x, q, scale, total, 1)
    with pytest.raises(ValueError, match="format is 'float64'"):
        native("scalar", "float64", x, q, scale, total, 1)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        native("scalar", "bfloat16", x, q, scale, total, 1)
    for wrong in [
        (x[::-1], q, scale, total),
        (np.broadcast_to(x[0], (3, 8)), q, scale, total),
        (x[:, ::2], q[:, :4].copy(), scale, total),
        (x, q[:2], scale, total),
        (x, q[:, :7].copy(), scale, total),
        (x, q, scale[:2], total),
        (x, q, scale, total[:2]),
    ]:
        for format in FORMATS:
            rows = wrong[0] if format == "none" else _as_halves(wrong[0])
            with pytest.raises(ValueError, match="x has shape"):
                native("scalar", format, rows, *wrong[1:], 1)


def _as_halves(x):
    """16 bits for each 32, laid out alike."""
    M, K = x.shape
    apart, between = (stride // 2 for stride in x.strides)
    first = 0 if apart >= 0 else (M - 1) * -apart
    return np.ndarray((M, K), np.uint16, np.zeros(64, np.uint16), first, (apart, between))


def test_an_unknown_variant_lists_every_candidate():
    with pytest.raises(NoCompatibleKernelError) as caught:
        activation_quantize(GOOD, variant="neon")
    ((name, why),) = caught.value.candidates
    assert name == "neon"
    assert why == f"unknown variant; legal: {', '.join(isa.name for isa in cpu.KERNELS['activation_quantize'])}"
