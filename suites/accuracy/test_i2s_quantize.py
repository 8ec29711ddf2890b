"""i2s_quantize against the float32 division: every path, size, alignment and thread count gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import i2s_quantize
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.i2s_quantize.api import KEY
from tritmark.kernels.i2s_quantize.reference import reference
from tritmark.kernels.i2s_quantize.spec import OP
from tritmark.kernels.native import cpu

F32 = np.finfo(np.float32)
# A thread is woken for each 16,384 elements.
SIZES = st.one_of(st.integers(1, 5000), st.integers(32_768, 70_000))
LAYOUT = {
    "offset": st.integers(0, 15),
    "offset_q": st.integers(0, 63),
    "stream": st.booleans(),
    "threads": st.integers(1, 4),
}


def _expected(x, scale):
    return reference({"x": x, "scale": scale}, {"n": x.size}, KEY)["q"]


@given(n=SIZES, family=st.sampled_from(OP.input_families), seed=st.integers(0, 2**32), **LAYOUT)
def test_the_bits_are_the_divisions(isa, guarded, at_offset, n, family, seed, offset, offset_q, stream, threads):
    inputs = OP.generate({"n": n}, family, np.random.default_rng(seed))
    x, q = at_offset(inputs["x"], offset), guarded(n, np.int8, offset_q)
    launch = cpu.native("i2s_quantize").I2SQuantize(isa, x, inputs["scale"], q.array, stream, threads)
    launch.run()
    assert np.array_equal(q.array, _expected(inputs["x"], inputs["scale"]))
    assert not q.broken()
    assert np.array_equal(x.view(np.uint32), inputs["x"].view(np.uint32))
    assert (launch.ran, launch.runs, launch.bad) == (isa, 1, -1)
    assert 1 <= launch.threads_used <= max(1, min(threads, n // 16_384))


@given(scale=st.floats(F32.smallest_subnormal, F32.max, width=32), seed=st.integers(0, 2**32))  # type: ignore[arg-type]
@example(scale=float(F32.smallest_subnormal), seed=0)
@example(scale=3 * float(F32.smallest_subnormal), seed=0)
@example(scale=float(F32.tiny), seed=0)
@example(scale=float(np.nextafter(F32.tiny, np.float32(0))), seed=0)
@example(scale=float(F32.max), seed=0)
@example(scale=float(F32.max) / 1.5, seed=0)
@example(scale=1.0, seed=0)
def test_every_scale_has_its_steps_where_the_division_has_them(isa, scale, seed):
    """The floats around the multiples of scale / 2, to 8 steps either side, any float at all, and the ends of the
    range."""
    multiples = np.clip(np.arange(-5, 6) * 0.5 * scale, -float(F32.max), float(F32.max)).astype(np.float32)
    steps = np.arange(-8, 9, dtype=np.int32)[:, np.newaxis]
    # Of one sign: a step across zero would come out among the NaNs.
    near = np.abs(multiples).view(np.int32) + steps
    near = np.clip(near, 0, np.float32(F32.max).view(np.int32)).astype(np.int32).view(np.float32).reshape(-1)
    anything = np.random.default_rng(seed).integers(0, 1 << 32, 200, dtype=np.uint32).view(np.float32)
    ends = np.array([0.0, F32.smallest_subnormal, F32.tiny, F32.max], np.float32)
    x = np.concatenate([near, anything[np.isfinite(anything)], ends])
    x = np.concatenate([x, -x])
    assert np.array_equal(i2s_quantize(x, scale, variant=isa), _expected(x, np.float32(scale)))


def test_ties_go_to_the_even_code(isa):
    x = np.array([-9.0, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 9.0], np.float32)
    assert i2s_quantize(x, 1.0, variant=isa).tolist() == [-2, -2, -2, -1, 0, 0, 0, 0, 1, 1, 1]


def test_an_output_past_the_caches(isa):
    n = cpu.l2_bytes() + 77
    x = np.random.default_rng(5).standard_normal(n, dtype=np.float32)
    assert np.array_equal(i2s_quantize(x, 0.7, variant=isa), _expected(x, np.float32(0.7)))


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 7)])
def test_the_shape_is_kept_and_out_is_filled(shape):
    x = np.asarray(np.random.default_rng(6).standard_normal(shape), np.float32)
    q = i2s_quantize(x, 0.7)
    assert q.shape == shape
    assert np.array_equal(q.reshape(-1), _expected(x.reshape(-1), np.float32(0.7)))
    out = np.full(shape, 77, np.int8)
    assert i2s_quantize(x, 0.7, out=out) is out
    assert np.array_equal(out, q)


def test_the_receipt_names_what_ran(isa):
    x, q = np.ones(100, np.float32), np.empty(100, np.int8)
    variant = dispatch.registry().select_best(KEY, {"n": 100}, isa)
    receipt = dispatch.run(OP, variant, {"x": x, "scale": 1.0}, {"q": q}, {"n": 100}, 1).receipt()
    assert (receipt.kernel, receipt.ran, receipt.runs) == (f"cpu/i2s_quantize/none/int8/{isa}", isa, 1)


@given(
    n=SIZES,
    wrong=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([np.nan, -np.nan, np.inf, -np.inf])), min_size=1, max_size=4
    ),
)
def test_the_first_nonfinite_value_is_named_and_may_be_taken_as_zero(isa, n, wrong):
    x = np.random.default_rng(n).standard_normal(n, dtype=np.float32)
    for where, value in wrong:
        x[int(where * (n - 1))] = value
    first = int(np.flatnonzero(~np.isfinite(x))[0])
    before = x.copy()
    out = np.full(n, 77, np.int8)
    for given_ in ({}, {"out": out}):
        with pytest.raises(InvalidArgumentError, match=rf"at index {first}; legal: finite") as caught:
            i2s_quantize(x, 0.7, variant=isa, threads=4, **given_)  # type: ignore[arg-type]
        assert (caught.value.op, caught.value.argument) == ("i2s_quantize", "x")
    assert np.all(out == 77)
    q = i2s_quantize(x, 0.7, variant=isa, threads=4, nonfinite="zero")
    assert np.array_equal(q, _expected(np.where(np.isfinite(x), x, np.float32(0)), np.float32(0.7)))
    assert np.array_equal(x.view(np.uint32), before.view(np.uint32))


def test_a_launch_forgets_what_was_wrong_before(isa):
    x, q = np.zeros(40, np.float32), np.empty(40, np.int8)
    launch = cpu.native("i2s_quantize").I2SQuantize(isa, x, 1.0, q, False, 1)
    x[7] = np.nan
    launch.run()
    assert launch.bad == 7
    x[7] = 0
    launch.run()
    assert (launch.bad, launch.runs) == (-1, 2)


GOOD = np.ones((2, 8), np.float32)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"x": [1.0]}, "x"),
        ({"x": GOOD.astype(np.float64)}, "x"),
        ({"x": GOOD.astype(GOOD.dtype.newbyteorder())}, "x"),
        ({"x": np.array(["a"], object)}, "x"),
        ({"x": GOOD[:0]}, "x"),
        ({"x": GOOD[:, ::2]}, "x"),
        ({"x": GOOD.T}, "x"),
        ({"x": np.frombuffer(bytes(65), np.uint8)[1:].view(np.float32)}, "x"),
        ({"scale": 0.0}, "scale"),
        ({"scale": -1.0}, "scale"),
        ({"scale": np.nan}, "scale"),
        ({"scale": np.inf}, "scale"),
        ({"scale": 1e39}, "scale"),
        ({"scale": 1e-46}, "scale"),
        ({"scale": 10**400}, "scale"),
        ({"scale": "wide"}, "scale"),
        ({"scale": None}, "scale"),
        ({"nonfinite": "ignore"}, "nonfinite"),
        ({"threads": 0}, "threads"),
        ({"out": np.full((2, 8), 77, np.uint8)}, "out"),
        ({"out": np.full((8, 2), 77, np.int8)}, "out"),
        ({"out": np.full(16, 77, np.int8)}, "out"),
        ({"out": np.full((8, 2), 77, np.int8).T}, "out"),
        ({"out": [77]}, "out"),
        ({"x": GOOD.copy(), "scale": 0.0, "out": np.full((2, 8), 77, np.int8)}, "scale"),
        ({"threads": 0, "out": np.full((2, 8), 77, np.int8)}, "threads"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(change, argument):
    arguments = {"x": GOOD, "scale": 1.0, **change}
    with pytest.raises(InvalidArgumentError) as caught:
        i2s_quantize(arguments.pop("x"), arguments.pop("scale"), **arguments)
    assert (caught.value.op, caught.value.argument) == ("i2s_quantize", argument)
    assert np.all(np.asarray(arguments.get("out", 77)) == 77)


def test_an_output_that_is_read_only_or_the_input_itself_is_refused():
    x = GOOD.copy()
    out = np.full((2, 8), 77, np.int8)
    out.flags.writeable = False
    for wrong in (out, x.view(np.int8)[:, :8], x.reshape(-1).view(np.int8)[:16].reshape(2, 8)):
        with pytest.raises(InvalidArgumentError, match="out"):
            i2s_quantize(x, 1.0, out=wrong)
    assert np.array_equal(x, GOOD)


def test_an_unknown_variant_lists_every_candidate():
    with pytest.raises(NoCompatibleKernelError) as caught:
        i2s_quantize(GOOD, 1.0, variant="neon")
    ((name, why),) = caught.value.candidates
    assert name == "neon"
    assert why == f"unknown variant; legal: {', '.join(isa.name for isa in cpu.KERNELS['i2s_quantize'])}"
