"""ternary_linear on the GPU, or in the simulator: every kernel gives the bits of activation_quantize and of
ternary_matmul after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_products import DTYPES, same

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import Arrays, Axes, Variant
from tritmark.kernels import FORMATS, OPS, PackedWeights, pack_weights, ternary_linear
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.numerics.input_dtypes import FORMATS as X_FORMATS
from tritmark.kernels.ternary_linear import cuda as kernels
from tritmark.kernels.ternary_linear.reference import NAMES
from tritmark.kernels.ternary_matmul import cuda as products
from tritmark.kernels.ternary_matmul.cuda_arguments import SHARED

OF = {op.name: op for op in OPS}
# (M, N, K): tails of every axis, single elements, passes and warps.
SHAPES = ((1, 1, 1), (1, 5, 3), (1, 30, 1101), (1, 67, 320), (2, 9, 1337), (9, 70, 200), (33, 130, 330))


def _id(value: Any) -> str:
    return f"{value.key.op}-{value.key.dtype}-{value.name}" if isinstance(value, Variant) else str(value)


every_variant = pytest.mark.parametrize("variant", kernels.VARIANTS, ids=_id)
FUSED = [variant for variant in kernels.VARIANTS if variant.name == "fused"]


def admits(variant: Variant, axes: Axes) -> bool:
    return all(constraint.refusal(axes) is None for constraint in variant.constraints)


def judged(bound: Callable[..., Any], variant: Variant, M: int, N: int, K: int, family: str, gap: int = 0) -> None:
    """The same bits as the reference, which is the two ops'."""
    axes, op = {"M": M, "N": N, "K": K}, OF[variant.key.op]
    logical = op.generate(axes, family, np.random.default_rng([M, N, K]))
    encoded = op.encode(logical, axes, variant.key.format)
    there = bound(variant, encoded, axes, 0, gap)
    found = there.run(encoded)["out"]
    with np.errstate(over="ignore"):
        wanted = op.reference(logical, axes, variant.key)["out"].astype(np.float32).astype(DTYPES[variant.key.dtype])
    same(found, wanted)
    assert there.launch.bad == -1


@every_variant
def test_every_kernel_has_the_bits_of_both_ops(bound: Callable[..., Any], variant: Variant) -> None:
    for M, N, K in SHAPES:
        if admits(variant, {"M": M, "N": N, "K": K}):
            judged(bound, variant, M, N, K, "normal")


@pytest.mark.parametrize("variant", FUSED, ids=_id)
def test_every_family(bound: Callable[..., Any], variant: Variant) -> None:
    for family in OF[variant.key.op].input_families:
        judged(bound, variant, 1, 19, 700, family)


@pytest.mark.parametrize("variant", [each for each in kernels.VARIANTS if each.key.dtype == "float32"], ids=_id)
def test_rows_of_activations_may_lie_apart(bound: Callable[..., Any], variant: Variant) -> None:
    M = 3 if admits(variant, {"M": 3, "N": 20, "K": 192}) else 1
    for gap in (1, 8, 61):
        judged(bound, variant, M, 20, 192, "uniform", gap)


@pytest.mark.parametrize("warps", [1, 8])
@pytest.mark.parametrize(
    "shape", kernels.HELD, ids=lambda shape: f"seg={shape.seg},steps={shape.steps},loop={shape.loop}"
)
@pytest.mark.parametrize("name", NAMES.values())
def test_every_instance_is_exact(
    bound: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, shape: products.Rows, warps: int
) -> None:
    """Rows that do not fill the last block nor a warp's tile; more of x than a thread keeps; several tiles and passes
    over K, if supported."""
    each = warps * shape.tile + (3 if shape.loop else 0)
    monkeypatch.setattr(kernels, "fused_shape", lambda *asked: (shape, warps, each))
    (variant,) = (variant for variant in FUSED if (variant.key.op, variant.key.dtype) == (name, "float32"))
    for N, K in (
        (2 * each + 1, 64 * shape.chunks(1) - 23),
        (1, 2 * 64 * shape.chunks(1) + 65 if shape.loop else 129),
    ):
        judged(bound, variant, 1, N, K, "heavy")


@pytest.mark.parametrize("variant", FUSED, ids=_id)
def test_a_row_that_is_not_finite_is_nan_and_its_first_is_named(bound: Callable[..., Any], variant: Variant) -> None:
    axes, op = {"M": 1, "N": 40, "K": 1500}, OF[variant.key.op]
    logical = op.generate(axes, "uniform", np.random.default_rng(0))

    def encoded(logical: Arrays) -> Arrays:
        return op.encode(logical, axes, variant.key.format)

    there = bound(variant, encoded(logical), axes)
    cases: tuple[tuple[int, ...], ...] = ((0,), (1499,), (1201, 700, 1100))
    for places in cases:
        for value in (np.nan, -np.inf):
            x = logical["x"].copy()
            x[0, list(places)] = value
            found = there.run(encoded({**logical, "x": x}))["out"]
            assert np.isnan(found.astype(np.float32)).all()
            assert there.launch.bad == min(places)
    there.run(encoded(logical))
    assert there.launch.bad == -1


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("sms", [1, 16, 82, 108, 132])
@pytest.mark.parametrize("N", [1, 640, 2560, 6912, 13824, 55296, 200_001])
def test_the_chosen_instance_takes_every_shape(N: int, sms: int, early: bool) -> None:
    for K in (1, 2560, 2561, 4096, 5120, 6912, 10241, 27648, kernels.MAX_K):
        shape, warps, each = kernels.fused_shape(N, K, sms, early)
        assert shape.takes(K)
        assert 0 < warps <= shape.threads // WARP
        assert shape.loop or warps * shape.tile >= each
        assert shape.shared(warps, K) + kernels.STATIC <= SHARED


def packed(N: int, K: int, format: str = "tile64") -> PackedWeights:
    codes = np.random.default_rng(1).integers(-1, 2, (N, K), dtype=np.int8)
    return pack_weights(codes, 0.25, format=format)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_function_takes_activations_of_every_dtype(cuda: CudaContext, dtype: Any) -> None:
    weights = packed(33, 130)
    x = np.random.default_rng(2).normal(size=(2, 130)).astype(dtype)
    op = OF[NAMES[np.dtype(dtype).name]]
    wide, codes = x.astype(np.float32), weights.unpack()[0]
    for M in (1, 2):
        axes = {"M": M, "N": 33, "K": 130}
        key = next(each.key for each in FUSED if (each.key.op, each.key.dtype) == (op.name, "float32"))
        logical = {"x": wide[:M], "weights": codes, "weight_scale": np.float32(0.25)}
        wanted = op.reference(logical, axes, key)["out"].astype(np.float32)
        assert np.array_equal(ternary_linear(x[:M], weights), wanted)
        out = np.empty((M, 33), ml_dtypes.bfloat16)
        assert ternary_linear(x[:M], weights, dtype="bfloat16", out=out, variant="v1") is out
        same(out, wanted.astype(ml_dtypes.bfloat16))


def test_what_the_function_refuses_is_said(cuda: CudaContext) -> None:
    weights, x = packed(33, 130), np.ones((1, 130), np.float32)
    nan = x.copy()
    nan[0, 7] = np.nan
    cases: tuple[tuple[type[Exception], str, Any, Any], ...] = (
        (InvalidArgumentError, "of dtype float64", (x.astype(np.float64), weights), {}),
        (InvalidArgumentError, "K = 130", (x[:, :64], weights), {}),
        (InvalidArgumentError, r"nan at index \(0, 7\)", (nan, weights), {}),
        (InvalidArgumentError, "'int32'", (x, weights), {"dtype": "int32"}),
        (InvalidArgumentError, "PackedWeights", (x, weights.data), {}),
        (InvalidArgumentError, "one scale", (np.ones((1, 256), np.float32), packed(4, 256, "tq2_0")), {}),
        (NoCompatibleKernelError, "M = 2 is over 1", (np.ones((2, 130), np.float32), weights), {"variant": "fused"}),
    )
    for error, words, arguments, named in cases:
        with pytest.raises(error, match=words):
            ternary_linear(*arguments, **named)


def test_what_is_not_finite_may_count_as_zero(cuda: CudaContext) -> None:
    weights, x = packed(33, 130), np.ones((1, 130), np.float32)
    x[0, 7] = np.nan
    wanted = ternary_linear(np.nan_to_num(x), weights)
    assert np.array_equal(ternary_linear(x, weights, nonfinite="zero"), wanted)


def test_formats_of_activations_are_those_of_the_quantization() -> None:
    assert {"none", *NAMES} - {"float32"} == set(X_FORMATS)
    assert set(FORMATS) >= {kernels.FORMAT}
