"""matmul in mixed precision, on the GPU or in the simulator: within the bound that is known beforehand, and in the
mode it says."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceError, InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import KernelKey, MultipleOf
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.matmul import api
from tritmark.kernels.matmul.benchmark import benchmark_precision_modes
from tritmark.kernels.matmul.cuda import EDGES, VARIANTS, WGMMA_TILES
from tritmark.kernels.matmul.precision import (
    PrecisionMode,
    detect_best_precision,
    effective_precision,
    supported_precisions,
)
from tritmark.kernels.matmul.reference import NARROW, gamma, narrowing_bound, product_bound
from tritmark.kernels.matmul.spec import FAMILIES, NAMES, OPS

SHAPES = ((1, 1, 1), (3, 5, 7), (65, 70, 33), (16, 16, 100), (70, 3, 40))


def _op(variant):
    return next(op for op in OPS.values() if op.name == variant.key.op)


def _axes(variant, shape):
    """The least that the variant takes of at least that size."""
    factors = {limit.axis: limit.factor for limit in variant.constraints if isinstance(limit, MultipleOf)}
    return {
        axis: -(-size // factors.get(axis, 1)) * factors.get(axis, 1) for axis, size in zip("MNK", shape, strict=True)
    }


def _compared(context, variant, shape, family):
    op, axes = _op(variant), _axes(variant, shape)
    inputs = op.generate(axes, family, np.random.default_rng(5))
    c = context.array((axes["M"], axes["N"]), np.float32)
    launch = variant.bind({name: context.upload(values) for name, values in inputs.items()}, {"c": c}, axes, 1)
    launch.run()
    (expected,) = expectations(op, axes, variant.key, op.reference(inputs, axes, variant.key))
    return compare(expected, c.numpy()), launch


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.key.op}-{variant.name}")
def test_products_are_within_their_bound(cuda, variant, shape):
    assert _compared(cuda, variant, shape, "normal")[0].first is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.key.op}-{variant.name}")
def test_every_family_is_within_its_bound(cuda, variant, family):
    assert _compared(cuda, variant, (17, 18, 35), family)[0].first is None


@pytest.mark.parametrize("shape", [(136, 72, 136), (130, 140, 72), (140, 134, 75), (16, 264, 24)], ids=str)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_both_tiles_of_wmma_take_rows_of_any_length(cuda, monkeypatch, dtype, edge, shape):
    """Whole and split fragments, one step and several, rows of A or B or both that 16-byte loads cannot take."""
    sms = 1 if edge == max(EDGES) else 1000
    monkeypatch.setattr(cuda.backend, "info", replace(cuda.backend.info, sms=sms))
    variant = next(v for v in VARIANTS if v.key.op == NAMES[dtype] and v.name == "wmma")
    result, launch = _compared(cuda, variant, shape, "normal")
    assert result.first is None
    assert launch.proof.functions == (f"wmma_{'fp16' if dtype == 'float16' else 'bf16'}_{edge}",)


@pytest.mark.parametrize("shape", [(130, 72, 72), (5, 264, 136)], ids=str)
@pytest.mark.parametrize("tile", WGMMA_TILES, ids=lambda tile: str(tile.columns))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_tile_of_wgmma(cuda, monkeypatch, dtype, tile, shape):
    """Several tiles down and across, a last one in part, several stages of k, the last of them in part."""
    monkeypatch.setattr(type(tile), "predicted_us", lambda each, axes, sms: float(each is not tile))
    monkeypatch.setattr(cuda.backend, "info", replace(cuda.backend.info, sms=1))
    variant = next(v for v in VARIANTS if v.key.op == NAMES[dtype] and v.name == "wgmma")
    result, launch = _compared(cuda, variant, shape, "normal")
    assert result.first is None
    assert launch.proof.functions == (f"gemm_wgmma_{'fp16' if dtype == 'float16' else 'bf16'}_{tile.columns}",)


@pytest.mark.parametrize("shape", [(136, 264, 24), (130, 135, 35)], ids=str)
def test_large_tiles_of_float32_take_rows_of_any_length_and_have_the_bits_of_small_ones(cuda, monkeypatch, shape):
    monkeypatch.setattr(cuda.backend, "info", replace(cuda.backend.info, sms=1))
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal(shape[::2], np.float32), rng.standard_normal(shape[:0:-1], np.float32)
    c, receipt = api.with_receipt(a, b, mode="fp32", variant="ffma")
    assert receipt.functions == ("gemm_ffma",)
    assert np.array_equal(c, api.matmul(a, b, mode="fp32", variant="tiled"))


def test_the_tile_that_is_launched_is_that_of_the_least_time():
    """At shapes whose three tiles were measured on an H200, by which of them was fastest."""
    for shape, columns in (
        ((4096, 4096, 4096), 256),
        ((512, 13824, 2560), 256),
        ((2048, 2560, 2560), 128),
        ((512, 2560, 2560), 128),
        ((64, 6912, 2560), 64),
    ):
        axes = dict(zip("MNK", shape, strict=True))
        assert min(WGMMA_TILES, key=lambda tile: tile.predicted_us(axes, 132)).columns == columns


@pytest.mark.parametrize("dtype", OPS)
def test_the_bound_catches_one_product_that_is_missing(dtype):
    op, axes = OPS[dtype], {"M": 4, "N": 5, "K": 64}
    key = KernelKey("cuda", op.name, "none", "float32")
    inputs = op.generate(axes, "constant", np.random.default_rng(0))
    (expected,) = expectations(op, axes, key, op.reference(inputs, axes, key))
    c = expected.values.copy()
    assert compare(expected, c).wrong.size == 0
    c[2, 3] -= np.float32(inputs["a"][2, 63]) * np.float32(inputs["b"][63, 3])
    assert compare(expected, c).wrong.tolist() == [2 * 5 + 3]


def test_the_bound_of_rounding_holds_and_is_met():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((40, 30), np.float32), rng.standard_normal((30, 50), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for dtype in NARROW:
        kind = named_dtype(dtype)
        error = np.abs(a.astype(kind).astype(np.float64) @ b.astype(kind).astype(np.float64) - exact)
        share = error / narrowing_bound(a, b, dtype)
        assert 0.05 < share.max() <= 1
    assert not narrowing_bound(a, b, "float32").any()


def test_more_roundings_than_a_bound_can_hold_are_refused():
    assert gamma(1, 0.25) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="no bound"):
        gamma(1 << 24, 2.0**-24)


@pytest.mark.parametrize(
    ("capability", "modes"),
    [
        ((6, 0), ["fp32"]),
        ((6, 1), ["fp32", "fp16"]),
        ((7, 5), ["fp32", "fp16"]),
        ((8, 0), ["fp32", "fp16", "bf16"]),
        ((9, 0), ["fp32", "fp16", "bf16"]),
    ],
)
def test_modes_follow_the_compute_capability(simulator, capability, modes):
    info = replace(simulator.backend.info, capability=capability)
    assert list(supported_precisions(info)) == modes
    assert detect_best_precision(info) == modes[-1]
    assert effective_precision("auto", info) == (modes[-1], "")


def _factors():
    rng = np.random.default_rng(1)
    return rng.standard_normal((20, 37), np.float32), rng.standard_normal((37, 30), np.float32)


@pytest.mark.parametrize(
    ("mode", "function"),
    [("fp32", "gemm_fp32"), ("fp16", "wmma_fp16_64"), ("bf16", "wmma_bf16_64"), ("auto", "wmma_bf16_64")],
)
def test_a_mode_runs_its_kernels_and_the_receipt_says_so(cuda, mode, function):
    a, b = _factors()
    c, receipt = api.with_receipt(a, b, mode=mode)
    dtype = PrecisionMode("bf16" if mode == "auto" else mode).dtype
    kind = named_dtype(dtype)
    bound = product_bound(a.astype(kind), b.astype(kind)) + narrowing_bound(a, b, dtype)
    assert (np.abs(c - a.astype(np.float64) @ b.astype(np.float64)) <= bound).all()
    assert function in receipt.functions
    converts = [name for name in receipt.functions if name.startswith("convert_gpu_")]
    assert bool(converts) == (dtype != "float32")
    assert receipt.launches == (1 if dtype == "float32" else 3)
    assert receipt.simulated == cuda.backend.simulated
    assert "took its place" not in receipt.note


@pytest.mark.parametrize(("mode", "capability"), [("bf16", (7, 5)), ("fp16", (6, 0))])
def test_a_mode_that_the_device_lacks_becomes_fp32_and_is_recorded(cuda, monkeypatch, caplog, mode, capability):
    if not cuda.backend.simulated:
        pytest.skip("the simulator alone can pretend to be a device that lacks it: a GPU refuses code for another")
    monkeypatch.setattr(cuda.backend, "info", replace(cuda.backend.info, capability=capability))
    a, b = _factors()

    def tiled(key, axes, name):
        return next(v for v in VARIANTS if v.key == key and v.name == "tiled")

    monkeypatch.setattr(api.dispatch, "select", tiled)  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        c, receipt = api.with_receipt(a, b, mode=mode)
    assert receipt.functions == ("gemm_fp32",)
    assert receipt.kernel == f"cuda/{NAMES['float32']}/none/float32/tiled"
    assert f"{mode} was asked for" in receipt.note
    assert "fp32 took its place" in caplog.text
    assert (np.abs(c - a.astype(np.float64) @ b.astype(np.float64)) <= product_bound(a, b)).all()


def test_nan_goes_through(cuda):
    a, b = _factors()
    a[3, 4] = np.nan
    for mode in ("fp32", "fp16", "bf16"):
        c = api.matmul(a, b, mode=mode)
        assert np.isnan(c[3]).all()
        assert np.isfinite(np.delete(c, 3, axis=0)).all()


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"mode": "fp8"}, "mode"),
        ({"a": np.ones((2, 3))}, "a"),
        ({"a": np.ones((2, 4), np.float32)}, "b"),
        ({"a": np.ones((0, 3), np.float32)}, "a"),
        ({"b": np.ones((4, 3), np.float32).T}, "b"),
    ],
)
def test_bad_arguments_are_named(cuda, change, argument):
    good = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 4), np.float32)}
    with pytest.raises(InvalidArgumentError) as caught:
        api.matmul(**{**good, **change})
    assert caught.value.argument == argument


def test_a_variant_that_is_not_there_is_refused(cuda):
    with pytest.raises(NoCompatibleKernelError):
        api.matmul(*_factors(), mode="fp32", variant="wmma")


def test_a_batch_gives_the_products_of_its_pairs(cuda):
    rng = np.random.default_rng(3)
    pairs = [(rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)) for M, N, K in SHAPES]
    for mode in PrecisionMode:
        for (a, b), c in zip(pairs, api.matmul_batch(iter(pairs), mode=mode), strict=True):
            np.testing.assert_array_equal(c, api.matmul(a, b, mode=mode))


def test_a_batch_of_nothing_asks_for_no_device():
    assert api.matmul_batch([]) == []


def test_a_batch_refuses_a_pair_before_anything_runs(cuda):
    a, b = _factors()
    with pytest.raises(InvalidArgumentError):
        api.matmul_batch([(a, b), (a, b.astype(np.float64))])


def test_every_mode_is_timed_and_compared_on_each_shape(simulator, monkeypatch):
    class Ticks:
        """A clock for a device that has no speed: every call takes as long."""

        def sample(self, launches, first, calls):
            launches[first % len(launches)].run()
            return 1000 * calls

    devices = dispatch.registry().devices
    monkeypatch.setitem(devices, "cuda", replace(devices["cuda"], clock=Ticks))  # type: ignore[arg-type]
    monkeypatch.setattr(type(simulator.backend), "simulated", False)
    shapes = [(8, 8, 8), (17, 5, 33)]
    found = benchmark_precision_modes(shapes)
    modes = supported_precisions(simulator.backend.info)
    assert [(each.shape, each.mode) for each in found] == [(shape, mode) for shape in shapes for mode in modes]
    assert all(0 < each.share_of_bound <= 1 and each.product_ns == 1000 for each in found)


def test_no_speed_in_the_simulator(simulator):
    with pytest.raises(DeviceError, match="no speed"):
        benchmark_precision_modes([(8, 8, 8)])
