"""hadamard_quantize against its contract: the original's vectors, exact sums, and the same bits on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.compare import compare, expectations
from tritmark.harness.weights.hadamard import transformed
from tritmark.kernels import activation_quantize, hadamard_quantize
from tritmark.kernels.activation_quantize.api import ActivationQuantized
from tritmark.kernels.hadamard_quantize.cpu import KEYS, VARIANTS
from tritmark.kernels.hadamard_quantize.reference import factor, rotated
from tritmark.kernels.hadamard_quantize.spec import BLOCKS, OPS, QUANTIZE, TRANSFORM
from tritmark.kernels.native import cpu
from tritmark.kernels.numerics.input_dtypes import FORMATS, narrow

VECTORS = Path(__file__).parents[1] / "unit" / "weights" / "vectors"
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from(BLOCKS))
FAMILIES = OPS["int8"].input_families


def same(a: ActivationQuantized, b: ActivationQuantized) -> bool:
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True))


def _axes(M: int, count: int, block: int) -> dict[str, int]:
    return {"M": M, "K": count * block, "block": block}


@pytest.mark.parametrize("stem", sorted(path.stem for path in VECTORS.glob("hadamard_*.npz")))
def test_the_results_are_the_originals(isa: str, stem: str) -> None:
    with np.load(VECTORS / f"{stem}.npz") as vector:
        x, signs, expected, size = vector["x"], vector.get("signs"), vector["y_c"], int(vector["block_size"])
        inverse, exact = bool(vector["inverse"]), not vector["max_err_vs_float64"]
        if "perm_hd_nk_rep" in vector:
            dim, groups, repeats = map(int, vector["perm_hd_nk_rep"])
            x = x.reshape(-1, repeats, groups, dim).swapaxes(1, 2).reshape(x.shape)
    taken = None if signs is None else signs.astype(np.int8)
    found = hadamard_quantize(x, taken, block_size=size, dtype="float32", inverse=inverse, variant=isa)
    bound = 0 if exact else 1e-6 * np.abs(x).max() * np.sqrt(size)
    assert np.abs(found - expected).max() <= bound


@given(shape=SHAPES, format=st.sampled_from(FORMATS), seed=st.integers(0, 2**32))
def test_exact_sums_have_exact_results(isa: str, shape: tuple[int, int, int], format: str, seed: int) -> None:
    """Multiples of 1/16 up to 8, which bfloat16 holds too."""
    M, count, block = shape
    rng = np.random.default_rng(seed)
    x = (rng.integers(-128, 129, (M, count * block)) / 16).astype(np.float32)
    signs = rng.choice(np.array([-1, 1], np.int8), count * block)
    found = hadamard_quantize(narrow(x, format), signs, block_size=block, dtype="float32", variant=isa)
    exact = transformed(x, block, signs) * np.sqrt(block)
    wanted = (np.rint(exact * 16) / 16 * np.float64(factor(block))).astype(np.float32)
    assert np.array_equal(found, wanted)
    codes = hadamard_quantize(narrow(x, format), signs, block_size=block, variant=isa)
    assert same(codes, activation_quantize(wanted))


@given(
    shape=SHAPES,
    key=st.sampled_from(KEYS),
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 2**32),
    gap=st.integers(0, 5),
    offset=st.integers(0, 15),
)
def test_every_path_gives_the_same_bits_within_the_bound(
    at_offset: Any, shape: tuple[int, int, int], key: KernelKey, family: str, seed: int, gap: int, offset: int
) -> None:
    axes = _axes(*shape)
    M, K = axes["M"], axes["K"]
    op = OPS["int8" if key.op == QUANTIZE.op else "float"]
    logical = op.generate(axes, family, np.random.default_rng(seed))
    inputs = op.encode(logical, axes, key.format)
    wide = np.full((M, K + gap), np.nan, inputs["x"].dtype)
    wide[:, :K] = inputs["x"]
    inputs["x"] = at_offset(wide.reshape(-1), offset).reshape(M, K + gap)[:, :K]
    expected = expectations(op, axes, key, op.reference(logical, axes, key))
    first: dict[str, Any] = {}
    for variant in VARIANTS:
        if variant.key != key or not variant.features <= cpu.features():
            continue
        outputs = {each.name: np.zeros(each.values.shape, each.values.dtype) for each in expected}
        variant.bind(inputs, outputs, axes, 2).run()
        for each in expected:
            assert not compare(each, outputs[each.name]).wrong.size, (variant.id, each.name)
        # The sign of a NaN is free.
        first = first or outputs
        for name, array in outputs.items():
            assert np.array_equal(array, first[name], equal_nan=array.dtype.kind not in "iu"), (variant.id, name)


@given(shape=SHAPES, format=st.sampled_from(FORMATS), seed=st.integers(0, 2**32))
def test_codes_are_those_of_the_rotated_row(isa: str, shape: tuple[int, int, int], format: str, seed: int) -> None:
    M, count, block = shape
    rng = np.random.default_rng(seed)
    x, signs = rng.standard_normal((M, count * block)), rng.choice(np.array([-1, 1], np.int8), count * block)
    given_ = narrow(x.astype(np.float32), format)
    y = hadamard_quantize(given_, signs, block_size=block, dtype="float32", variant=isa)
    found = hadamard_quantize(given_, signs, block_size=block, variant=isa)
    assert same(found, activation_quantize(y))


@pytest.mark.parametrize("K", [11264, 12288, 13312, 17408, 24576])
def test_rows_longer_than_the_buffer(isa: str, K: int) -> None:
    x = np.random.default_rng(K).standard_normal((2, K), dtype=np.float32)
    y = hadamard_quantize(x, block_size=1024, dtype="float32", variant=isa)
    assert same(hadamard_quantize(x, block_size=1024, variant=isa), activation_quantize(y))


def _in_order(x: Any, order: list[int]) -> Any:
    """float32 sums with the stages in that order."""
    for h in order:
        a, b = (x.reshape(-1, 2, h)[:, half] for half in (0, 1))
        x = np.stack([a + b, a - b], axis=1).reshape(-1)
    return x


@given(block=st.sampled_from(BLOCKS), family=st.sampled_from(FAMILIES[:-1]), seed=st.integers(0, 2**32), data=st.data())
def test_every_order_of_the_stages_is_admitted(block: int, family: str, seed: int, data: st.DataObject) -> None:
    """And no code that is two off, nor a scale outside its interval."""
    axes = _axes(1, 1, block)
    op = OPS["int8"]
    logical = op.generate(axes, family, np.random.default_rng(seed))
    order = data.draw(st.permutations([1 << bit for bit in range(block.bit_length() - 1)]))
    y = _in_order((logical["x"] * logical["signs"]).reshape(-1), order) * factor(block)
    exact, bound = rotated(logical, axes, TRANSFORM)
    assert (np.abs(y - exact[0]) <= bound[0]).all()
    found: dict[str, Any] = activation_quantize(y[np.newaxis])._asdict()
    q, scale, total = found["q"], found["scale"], found["sum"]
    wrong = {
        "q": np.where(q < 0, q + 2, q - 2).astype(np.int8),
        "scale": scale * np.float32(1.002),
        "sum": total + np.int32(2 * block),
    }
    for each in expectations(op, axes, QUANTIZE, op.reference(logical, axes, QUANTIZE)):
        assert not compare(each, found[each.name]).wrong.size
        assert compare(each, wrong[each.name]).wrong.size == wrong[each.name].size


def test_the_inverse_undoes_the_transform() -> None:
    rng = np.random.default_rng(4)
    x = (rng.integers(-64, 65, (3, 2048)) / 16).astype(np.float32)
    signs = rng.choice(np.array([-1, 1], np.float32), 2048)
    y = hadamard_quantize(x, signs, block_size=1024, dtype="float32")
    assert np.array_equal(hadamard_quantize(y, signs, block_size=1024, dtype="float32", inverse=True), x)


def test_the_shape_is_kept_and_out_is_filled(isa: str) -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 128), dtype=np.float32)
    found = hadamard_quantize(x, block_size=64, variant=isa)
    assert isinstance(found, ActivationQuantized)
    assert (found.q.shape, found.scale.shape, found.sum.shape) == ((2, 3, 128), (2, 3), (2, 3))
    out = ActivationQuantized(
        np.full((2, 3, 128), 77, np.int8), np.full((2, 3), 77, np.float32), np.full((2, 3), 77, np.int32)
    )
    again = hadamard_quantize(x, block_size=64, variant=isa, out=out)
    assert same(found, out)
    assert all(np.shares_memory(np.asarray(a), np.asarray(b)) for a, b in zip(out, again, strict=True))
    y = np.empty((2, 3, 128), np.float16)
    assert np.shares_memory(hadamard_quantize(x, block_size=64, dtype="float16", variant=isa, out=y), y)
    assert np.array_equal(y, hadamard_quantize(x, block_size=64, dtype="float32", variant=isa).astype(np.float16))


GOOD = np.ones((2, 128), np.float32)


@pytest.mark.parametrize(
    ("change", "argument", "told"),
    [
        ({"x": [1.0]}, "x", "NumPy array"),
        ({"x": GOOD.astype(np.float64)}, "x", "float32"),
        ({"x": GOOD[:, ::2]}, "x", "contiguous"),
        ({"block_size": 32}, "block_size", "64, 128, 256, 512 or 1024"),
        ({"block_size": True}, "block_size", "True"),
        ({"block_size": 256}, "block_size", "256 for 128 columns"),
        ({"signs": np.ones(64, np.int8)}, "signs", r"shape \(128,\)"),
        ({"signs": np.zeros(128, np.int8)}, "signs", "0 at index 0"),
        ({"signs": np.full(128, 3, np.int8)}, "signs", "3 at index 0"),
        ({"signs": np.full(128, 0.5, np.float32)}, "signs", "0.5 at index 0"),
        ({"signs": np.ones(128)}, "signs", "float64"),
        ({"dtype": "int4"}, "dtype", "int8, float32, float16, bfloat16"),
        ({"inverse": True}, "inverse", "True for int8"),
        ({"out": np.ones(3)}, "out", "ActivationQuantized"),
        ({"dtype": "float32", "out": np.ones((2, 64), np.float32)}, "out", r"shape \(2, 128\)"),
        ({"nonfinite": "ignore"}, "nonfinite", "zero"),
        ({"threads": 0}, "threads", "at least 1"),
        ({"x": np.full((2, 128), 3e38, np.float32)}, "x", "sums above float32 in row 0"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], argument: str, told: str) -> None:
    arguments: dict[str, Any] = {"x": GOOD, "block_size": 64} | change
    with pytest.raises(InvalidArgumentError, match=told) as caught:
        hadamard_quantize(arguments.pop("x"), **arguments)
    assert (caught.value.op, caught.value.argument) == ("hadamard_quantize", argument)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_nonfinite_value_is_named_or_taken_as_zero(isa: str, dtype: Any) -> None:
    x = np.random.default_rng(6).standard_normal((3, 128), dtype=np.float32)
    x[1, 5] = np.nan
    x[2, 0] = np.inf
    with pytest.raises(InvalidArgumentError, match="nan at index 133; legal: finite"):
        hadamard_quantize(x, block_size=64, dtype=dtype, variant=isa)
    zeroed = np.where(np.isfinite(x), x, np.float32(0))
    found = hadamard_quantize(x, block_size=64, dtype=dtype, nonfinite="zero", variant=isa)
    wanted = hadamard_quantize(zeroed, block_size=64, dtype=dtype, variant=isa)
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_the_boundary_refuses_arrays_that_do_not_fit() -> None:
    native = cpu.native("hadamard_quantize").HadamardQuantize
    x, signs, q = np.ones((3, 128), np.float32), np.ones(128, np.int8), np.empty((3, 128), np.int8)
    scale, total = np.empty(3, np.float32), np.empty(3, np.int32)
    native("scalar", "none", "int8", x, signs, q, scale, total, 64, 1)
    for wrong, told in (
        (("none", "int8", x[::-1], signs, q, scale, total, 64), "x has shape"),
        (("none", "int8", x, signs, q, scale, total, 256), "x has shape"),
        (("none", "int8", x, signs, q, scale, total, 32), "block is 32"),
        (("none", "int8", x, signs[:64], q, scale, total, 64), "signs has 64"),
        (("none", "int8", x, signs, q[:2], scale, total, 64), "out has shape"),
        (("none", "int8", x, signs, q, scale[:2], total, 64), "scale and sum have"),
        (("none", "float32", x, signs, np.empty((3, 128), np.float32), scale, total, 64), "legal: None"),
        (("none", "int4", x, signs, q, scale, total, 64), "dtype is"),
        (("float64", "int8", x, signs, q, scale, total, 64), "format is"),
    ):
        with pytest.raises(ValueError, match=told):
            native("scalar", *wrong, 1)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(NoCompatibleKernelError):
        hadamard_quantize(GOOD, block_size=64, variant="avx51")
