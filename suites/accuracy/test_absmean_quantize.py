"""absmean_quantize against its contract: every path, size, alignment and thread count gives the same bits, the
scale's included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import absmean_quantize
from tritmark.kernels.absmean_quantize.api import KEY
from tritmark.kernels.absmean_quantize.reference import mean_magnitude, reference
from tritmark.kernels.absmean_quantize.spec import OP
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu

F32 = np.finfo(np.float32)
# A thread is woken for each four chunks of 4096 elements.
SIZES = st.one_of(st.integers(1, 5000), st.integers(32_768, 70_000))
LAYOUT = {
    "offset": st.integers(0, 15),
    "offset_q": st.integers(0, 63),
    "stream": st.booleans(),
    "threads": st.integers(1, 4),
}


def _expected(x):
    expected = reference({"x": x}, {"n": x.size}, KEY)
    return expected["codes"], expected["scale"]


def _same(result, x):
    codes, scale = _expected(x.reshape(-1))
    return np.array_equal(result.codes.reshape(-1), codes) and result.scale.view(np.uint32) == scale.view(np.uint32)


@given(n=SIZES, family=st.sampled_from(OP.input_families), seed=st.integers(0, 2**32), **LAYOUT)
def test_the_bits_are_the_contracts(isa, guarded, at_offset, n, family, seed, offset, offset_q, stream, threads):
    values = OP.generate({"n": n}, family, np.random.default_rng(seed))["x"]
    x, q, scale = at_offset(values, offset), guarded(n, np.int8, offset_q), guarded(1, np.float32, offset)
    launch = cpu.native("absmean_quantize").AbsmeanQuantize(isa, x, q.array, scale.array, stream, threads)
    launch.run()
    codes, expected = _expected(values)
    assert scale.array.view(np.uint32)[0] == expected.view(np.uint32)
    assert np.array_equal(q.array, codes)
    assert not q.broken()
    assert not scale.broken()
    assert np.array_equal(x.view(np.uint32), values.view(np.uint32))
    assert (launch.ran, launch.runs, launch.bad) == (isa, 1, -1)
    assert 1 <= launch.threads_used <= max(1, min(threads, -(-n // 4096) // 4))


@pytest.mark.parametrize("n", [1 << 22, (1 << 22) + 1, (1 << 22) + 4097])
def test_chunks_grow_with_the_tensor(isa, n):
    """Past 2**22 elements the 1024 chunks get longer; the codes are also past most L2 caches here."""
    x = np.random.default_rng(n).standard_normal(n, dtype=np.float32)
    for threads in (1, 3):
        assert _same(absmean_quantize(x, variant=isa, threads=threads), x)


def test_the_order_of_the_sum_is_the_stated_one(isa):
    """One large element in lane 0 and many that vanish beside it, but not beside each other: any other order gives
    another scale."""
    x = np.full(4096, 2.0**-30, np.float32)
    x[0] = 2.0**24
    small = 4096 // 16
    lanes = [float(2.0**24)] + [small * 2.0**-30] * 15
    while len(lanes) > 1:
        lanes = [a + b for a, b in zip(lanes[: len(lanes) // 2], lanes[len(lanes) // 2 :], strict=True)]
    assert lanes[0] != math.fsum(np.abs(x).astype(np.float64))
    assert mean_magnitude(x) == lanes[0] / 4096
    assert _same(absmean_quantize(x, variant=isa), x)


def test_the_order_of_the_chunks_is_the_stated_one(isa):
    """Chunk 0 is halfway between two float32. A 1 vanishes beside it, a 2 does not: the scale shows which of them
    were added first."""
    x = np.zeros(4 * 4096, np.float32)
    x[[0, 1, 4096, 2 * 4096, 3 * 4096]] = 2.0**53, 2.0**29, 1, 1, 1
    assert mean_magnitude(x) == (2.0**53 + 2.0**29 + 2) / x.size
    assert absmean_quantize(x, variant=isa).scale == (2.0**53 + 2.0**30) / x.size


@given(n=SIZES, family=st.sampled_from(OP.input_families), seed=st.integers(0, 2**32))
def test_the_reference_is_the_mean(n, family, seed):
    """A float64 sum in any order is within n * 2**-53 of the exact one, relatively; fsum rounds once, the quotient
    once."""
    x = OP.generate({"n": n}, family, np.random.default_rng(seed))["x"]
    exact = math.fsum(np.abs(x).astype(np.float64)) / n
    assert abs(mean_magnitude(x) - exact) <= (n + 3) * 2.0**-53 * exact


@given(exponent=st.integers(-149, 126), n=st.integers(1, 400), seed=st.integers(0, 2**32))
@example(exponent=-149, n=1, seed=0)
@example(exponent=126, n=17, seed=0)
def test_magnitudes_of_every_size(isa, exponent, n, seed):
    """Scales from the floor 1e-5 to the top of float32, and the floats around half and one and a half of the scale."""
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.uniform(-2, 2, n).astype(np.float32), exponent)
    scale = _expected(x)[1]
    x[rng.random(n) < 0.5] = np.float32(rng.choice([-1.5, -0.5, 0.5, 1.5])) * min(scale, F32.max / 2)
    assert _same(absmean_quantize(x, variant=isa), x)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-6, float(F32.smallest_subnormal)])
def test_the_scale_has_a_floor(isa, value):
    result = absmean_quantize(np.full((3, 7), value, np.float32), variant=isa)
    assert result.scale == np.float32(1e-5)
    assert not result.codes.any()


def test_ties_go_to_the_even_code(isa):
    x = np.array([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0], np.float32)
    x = np.append(x, np.float32(9 - np.abs(x).sum()))
    result = absmean_quantize(x, variant=isa)
    assert result.scale == 1
    assert result.codes.tolist() == [-1, -1, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 7)])
def test_the_shape_is_kept_and_out_is_filled(shape):
    x = np.asarray(np.random.default_rng(6).standard_normal(shape), np.float32)
    result = absmean_quantize(x)
    assert result.codes.shape == shape
    assert isinstance(result.scale, np.float32)
    assert _same(result, x)
    out = np.full(shape, 77, np.int8)
    again = absmean_quantize(x, out=out)
    assert again.codes is out
    assert np.array_equal(out, result.codes)
    assert again.scale == result.scale


def test_the_receipt_names_what_ran(isa):
    x, outputs = np.ones(100, np.float32), {"codes": np.empty(100, np.int8), "scale": np.empty((), np.float32)}
    variant = dispatch.registry().select_best(KEY, {"n": 100}, isa)
    receipt = dispatch.run(OP, variant, {"x": x}, outputs, {"n": 100}, 1).receipt()
    assert (receipt.kernel, receipt.ran, receipt.runs) == (f"cpu/absmean_quantize/none/int8/{isa}", isa, 1)


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
            absmean_quantize(x, variant=isa, threads=4, **given_)  # type: ignore[arg-type]
        assert (caught.value.op, caught.value.argument) == ("absmean_quantize", "x")
    assert np.all(out == 77)
    assert _same(
        absmean_quantize(x, variant=isa, threads=4, nonfinite="zero"), np.where(np.isfinite(x), x, np.float32(0))
    )
    assert np.array_equal(x.view(np.uint32), before.view(np.uint32))


def test_a_launch_writes_nothing_for_a_wrong_value_and_forgets_it(isa, guarded):
    x, q, scale = np.ones(40, np.float32), guarded(40, np.int8, 0), guarded(1, np.float32, 0)
    launch = cpu.native("absmean_quantize").AbsmeanQuantize(isa, x, q.array, scale.array, False, 1)
    x[7] = np.inf
    launch.run()
    assert launch.bad == 7
    assert q.unwritten().all()
    assert not q.broken()
    assert scale.unwritten().all()
    assert not scale.broken()
    x[7] = 1
    launch.run()
    assert (launch.bad, launch.runs) == (-1, 2)
    assert np.all(q.array == 1)


GOOD = np.ones((2, 8), np.float32)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"x": [1.0]}, "x"),
        ({"x": GOOD.astype(np.float16)}, "x"),
        ({"x": GOOD[:0]}, "x"),
        ({"x": GOOD[:, ::2]}, "x"),
        ({"x": np.frombuffer(bytes(65), np.uint8)[1:].view(np.float32)}, "x"),
        ({"nonfinite": ""}, "nonfinite"),
        ({"threads": 0, "out": np.full((2, 8), 77, np.int8)}, "threads"),
        ({"out": np.full((2, 8), 77, np.int16)}, "out"),
        ({"out": np.full((8, 2), 77, np.int8)}, "out"),
        ({"out": np.full((2, 16), 77, np.int8)[:, ::2]}, "out"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(change, argument):
    arguments = {"x": GOOD, **change}
    with pytest.raises(InvalidArgumentError) as caught:
        absmean_quantize(arguments.pop("x"), **arguments)
    assert (caught.value.op, caught.value.argument) == ("absmean_quantize", argument)
    assert np.all(np.asarray(arguments.get("out", 77)) == 77)


def test_an_unknown_variant_lists_every_candidate():
    with pytest.raises(NoCompatibleKernelError) as caught:
        absmean_quantize(GOOD, variant="neon")
    ((name, why),) = caught.value.candidates
    assert name == "neon"
    assert why == f"unknown variant; legal: {', '.join(isa.name for isa in cpu.KERNELS['absmean_quantize'])}"
