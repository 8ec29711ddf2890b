"""i2s_dequantize against the exact product: every path, size, alignment and thread count gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.kernels import i2s_dequantize, i2s_quantize
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.i2s_dequantize.api import KEY
from tritmark.kernels.i2s_dequantize.reference import reference
from tritmark.kernels.i2s_dequantize.spec import OP
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


def _expected(q, scale):
    return reference({"q": q, "scale": scale}, {"n": q.size}, KEY)["x"]


def _same(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@given(n=SIZES, family=st.sampled_from(OP.input_families), seed=st.integers(0, 2**32), **LAYOUT)
def test_the_bits_are_the_products(isa, guarded, at_offset, n, family, seed, offset, offset_q, stream, threads):
    inputs = OP.generate({"n": n}, family, np.random.default_rng(seed))
    q, x = at_offset(inputs["q"], offset_q), guarded(n, np.float32, offset)
    launch = cpu.native("i2s_dequantize").I2SDequantize(isa, q, inputs["scale"], x.array, stream, threads)
    launch.run()
    assert _same(x.array, _expected(inputs["q"], inputs["scale"]))
    assert not x.broken()
    assert np.array_equal(q, inputs["q"])
    assert (launch.ran, launch.runs, launch.bad) == (isa, 1, -1)
    assert 1 <= launch.threads_used <= max(1, min(threads, n // 16_384))


@given(scale=st.floats(F32.smallest_subnormal, F32.max, width=32))  # type: ignore[arg-type]
def test_every_int8_times_every_scale(isa, scale):
    q = np.arange(-128, 128).astype(np.int8)
    assert _same(i2s_dequantize(q, scale, variant=isa), _expected(q, np.float32(scale)))


def test_codes_come_back(isa):
    q = np.array([-2, -1, 0, 1], np.int8)
    assert np.array_equal(i2s_quantize(i2s_dequantize(q, 0.3, variant=isa), 0.3), q)


def test_an_output_past_the_caches(isa):
    q = np.random.default_rng(5).integers(-2, 2, cpu.l2_bytes() // 4 + 77, dtype=np.int8)
    assert _same(i2s_dequantize(q, 0.7, variant=isa), _expected(q, np.float32(0.7)))


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 7)])
def test_the_shape_is_kept_and_out_is_filled(shape):
    q = np.asarray(np.random.default_rng(6).integers(-2, 2, shape), np.int8)
    x = i2s_dequantize(q, 0.7)
    assert x.shape == shape
    assert _same(x.reshape(-1), _expected(q.reshape(-1), np.float32(0.7)))
    out = np.full(shape, np.nan, np.float32)
    assert i2s_dequantize(q, 0.7, out=out) is out
    assert np.array_equal(out, x)


def test_the_receipt_names_what_ran(isa):
    q, x = np.ones(100, np.int8), np.empty(100, np.float32)
    variant = dispatch.registry().select_best(KEY, {"n": 100}, isa)
    receipt = dispatch.run(OP, variant, {"q": q, "scale": 1.0}, {"x": x}, {"n": 100}, 1).receipt()
    assert (receipt.kernel, receipt.ran, receipt.runs) == (f"cpu/i2s_dequantize/none/float32/{isa}", isa, 1)


GOOD = np.ones((2, 8), np.int8)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"q": [1]}, "q"),
        ({"q": GOOD.astype(np.uint8)}, "q"),
        ({"q": GOOD[:0]}, "q"),
        ({"q": GOOD[:, ::2]}, "q"),
        ({"scale": 0.0}, "scale"),
        ({"scale": -1.0}, "scale"),
        ({"scale": np.nan}, "scale"),
        ({"scale": np.inf}, "scale"),
        ({"scale": 1e39}, "scale"),
        ({"scale": "wide"}, "scale"),
        ({"threads": 0, "out": np.full((2, 8), 77, np.float32)}, "threads"),
        ({"out": np.full((2, 8), 77, np.float64)}, "out"),
        ({"out": np.full((8, 2), 77, np.float32)}, "out"),
        ({"out": np.full(16, 77, np.float32)}, "out"),
        ({"out": np.full((2, 16), 77, np.float32)[:, ::2]}, "out"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(change, argument):
    arguments = {"q": GOOD, "scale": 1.0, **change}
    with pytest.raises(InvalidArgumentError) as caught:
        i2s_dequantize(arguments.pop("q"), arguments.pop("scale"), **arguments)
    assert (caught.value.op, caught.value.argument) == ("i2s_dequantize", argument)
    assert np.all(np.asarray(arguments.get("out", 77)) == 77)


def test_an_unknown_variant_lists_every_candidate():
    with pytest.raises(NoCompatibleKernelError) as caught:
        i2s_dequantize(GOOD, 1.0, variant="neon")
    ((name, why),) = caught.value.candidates
    assert name == "neon"
    assert why == f"unknown variant; legal: {', '.join(isa.name for isa in cpu.KERNELS['i2s_dequantize'])}"
