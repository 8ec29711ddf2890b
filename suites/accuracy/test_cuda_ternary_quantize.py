"""The CUDA kernels of ternary_quantize against the contract, on the GPU if there is one, else in the
simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import KernelKey, Variant
from tritmark.kernels import ternary_quantize
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.launch import launch
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.numerics.input_dtypes import NARROW
from tritmark.kernels.ternary_quantize import cuda as kernels
from tritmark.kernels.ternary_quantize.reference import GROUPS, LEAST, pack, unpack
from tritmark.kernels.ternary_quantize.spec import CODES, OP, TQ2_0

SPLIT = tuple(variant for variant in kernels.VARIANTS if variant.name == "split")
"""For blocks that are too large for the tests of the others."""


def _each(variants: tuple[Variant, ...]) -> Any:
    return pytest.mark.parametrize("variant", variants, ids=lambda v: f"{v.key.format}-{v.name}")


every_variant = _each(tuple(variant for variant in kernels.VARIANTS if variant not in SPLIT))


def _encoded(variant: Variant, x: np.ndarray) -> dict[str, Any]:
    return OP.encode({"x": x}, {}, variant.key.format)


def _blocks(variant: Variant, some: tuple[int, ...]) -> list[int]:
    """Those of `some` that the variant takes."""
    taken = [
        block for block in some if not any(limit.refusal({"n": 1, "block": block}) for limit in variant.constraints)
    ]
    assert taken
    return taken


@pytest.mark.parametrize("n", [1, 33, 255, 511, 512, 513, 1029, 4100, 6145])
@every_variant
def test_every_size_and_block(judge: Callable[..., None], variant: Variant, n: int):
    for block in _blocks(variant, (1, 7, 32, 64, 100, 128, 256, 300, 1500, 20_000)):
        judge(variant, {"n": n, "block": block}, "normal", seed=block)


@every_variant
def test_every_alignment(judge: Callable[..., None], variant: Variant):
    for block in _blocks(variant, (7, 32, 256, 1500)):
        for offset in (16, 32) if variant.alignment > 1 else (1, 2, 3, 5):
            judge(variant, {"n": 1700, "block": block}, "normal", offset)


@pytest.mark.parametrize("family", OP.input_families)
@every_variant
def test_every_family(judge: Callable[..., None], variant: Variant, family: str):
    for block in _blocks(variant, (5, 32, 64, 128, 256)):
        judge(variant, {"n": 3333, "block": block}, family)


@every_variant
def test_a_grid_smaller_than_the_work_goes_round(
    judge: Callable[..., None], variant: Variant, monkeypatch: pytest.MonkeyPatch
):
    whole = launch.launch_params  # type: ignore[attr-defined]
    monkeypatch.setattr(launch, "launch_params", lambda *a, **k: replace(whole(*a, **k), grid=(2, 1, 1)))
    for block in _blocks(variant, (7, 32, 64, 128, 256, 1100)):
        judge(variant, {"n": 30_001, "block": block}, "ties")


@every_variant
def test_the_first_that_is_not_finite_is_named_and_then_forgotten(bound: Callable[..., Any], variant: Variant):
    n = 5003
    good = np.random.default_rng(3).standard_normal(n, dtype=np.float32)
    for block in _blocks(variant, (7, 32, 64, 128, 256, 2000)):
        # A lane's 16 elements are 4 of each 32 in 128; a warp's step is 512.
        there = bound(variant, _encoded(variant, good), {"n": n, "block": block})
        for places in ((0,), (n - 1,), (511,), (37, 36), (4100, 4099, 4999, 4227), (4607, 4608), (5002, 4990)):
            for value in (-np.nan, np.inf) if places[0] % 2 else (np.nan, -np.inf):
                x = good.copy()
                x[list(places)] = value
                there.run(_encoded(variant, x))
                assert there.launch.bad == min(places), (block, places, value)
        there.run(_encoded(variant, good))
        assert there.launch.bad == -1


@pytest.mark.parametrize(
    ("n", "block"),
    [
        (8193, 8193),
        (8193, 1 << 40),
        (16_384, 16_384),
        (20_000, 8200),
        (16_385, 16_384),
        (30_001, 20_000),
        (33_000, 8192 + 128),
    ],
)
@_each(SPLIT)
def test_large_blocks(judge: Callable[..., None], variant: Variant, n: int, block: int):
    judge(variant, {"n": n, "block": block}, "normal")
    assert dispatch.select(variant.key, {"n": n, "block": block}, None) is variant


@_each(SPLIT)
def test_large_blocks_of_every_family_at_every_alignment_in_a_smaller_grid(
    judge: Callable[..., None], variant: Variant, monkeypatch: pytest.MonkeyPatch
):
    for family in OP.input_families:
        judge(variant, {"n": 9500, "block": 9000}, family)
    for offset in (1, 2, 3, 5):
        judge(variant, {"n": 9500, "block": 9000}, "normal", offset)
    whole = launch.launch_params  # type: ignore[attr-defined]
    monkeypatch.setattr(launch, "launch_params", lambda *a, **k: replace(whole(*a, **k), grid=(2, 1, 1)))
    judge(variant, {"n": 42_001, "block": 9000}, "ties")


@_each(SPLIT)
def test_the_first_of_a_large_block_that_is_not_finite_is_named(bound: Callable[..., Any], variant: Variant):
    n = 20_000
    good = np.random.default_rng(3).standard_normal(n, dtype=np.float32)
    there = bound(variant, {"x": good}, {"n": n, "block": 9000})
    for places in ((0,), (n - 1, 8191), (8192, 18_001), (8999, 9000), (17_192, 17_191), (18_000, 17_999)):
        x = good.copy()
        x[list(places)] = np.nan if places[0] % 2 else -np.inf
        there.run({"x": x})
        assert there.launch.bad == min(places), places
    there.run({"x": good})
    assert there.launch.bad == -1


@pytest.mark.parametrize(
    "axes", [{"n": 8192, "block": 8193}, {"n": 1 << 30, "block": 8192}, {"n": 1, "block": 1 << 40}]
)
def test_blocks_of_one_piece_are_not_split(axes: dict[str, int]):
    for variant in SPLIT:
        (why,) = (limit.refusal(axes) for limit in variant.constraints)
        assert why == f"a block is {min(axes.values())} values, at most 8192: one thread block takes it"


@pytest.mark.parametrize("variant", [v for v in kernels.VARIANTS if v.alignment > 1], ids=lambda v: v.key.format)
def test_an_address_that_is_not_aligned_is_refused(bound: Callable[..., Any], variant: Variant):
    with pytest.raises(InvalidArgumentError, match="a multiple of 16 bytes"):
        bound(variant, _encoded(variant, np.zeros(1000, np.float32)), {"n": 1000, "block": 256}, offset=1)


@_each(tuple(variant for variant in kernels.VARIANTS if variant not in SPLIT and variant.key.format not in NARROW))
def test_small_values_have_the_smallest_scale(bound: Callable[..., Any], variant: Variant):
    half = LEAST / 2
    past = np.nextafter(half, LEAST)
    x = np.resize(np.array([half, -half, past, -past, 0.0, np.finfo(np.float32).smallest_subnormal], np.float32), 780)
    for block in _blocks(variant, (6, 32, 64, 128, 256)):
        found = bound(variant, {"x": x}, {"n": 780, "block": block}).run({"x": x})
        assert np.all(found["scales"] == LEAST)
        codes = found["codes"] if variant.key.format == "none" else unpack(found["codes"], 780, variant.key.format)
        assert np.array_equal(codes, np.resize(np.array([0, 0, 1, -1, 0, 0], np.int8), 780))


@pytest.mark.parametrize("format", GROUPS)
@pytest.mark.parametrize("n", [1, 63, 64, 128, 200, 256, 1000])
def test_streams_are_unpacked_and_filled_up_with_code_0(format: str, n: int):
    group, size = GROUPS[format]
    whole = -(-n // group)
    codes = np.random.default_rng(n).integers(-1, 2, n, np.int8)
    packed = pack(codes, format, np.ones(whole, np.float32))
    assert packed.shape == (whole * size,)
    filled = np.zeros(whole * group, np.int8)
    filled[:n] = codes
    assert np.array_equal(unpack(packed, whole * group, format), filled)
    assert np.array_equal(unpack(packed, n, format), codes)


@pytest.mark.parametrize("format", GROUPS)
def test_streams_are_those_of_the_formats(format: str):
    codes = np.random.default_rng(1).integers(-1, 2, 1024, np.int8)
    scales = np.array([[0.5, 3.0, 1 / 3, 6e-5]], np.float32)
    whole = FORMATS[format].pack(codes.reshape(1, -1), scales if format == "tq2_0" else 0.5)
    stream = pack(codes, format, scales.reshape(-1))
    assert np.array_equal(stream, whole.reshape(-1)[: stream.size])
    assert np.array_equal(FORMATS[format].unpack(whole, (1, 1024))[0].reshape(-1), unpack(stream, 1024, format))


@pytest.mark.parametrize("variant", [v for v in kernels.VARIANTS if v.key == TQ2_0], ids=lambda v: v.name)
def test_tq2_0_scales_overflow_and_underflow_as_float16_does(bound: Callable[..., Any], variant: Variant):
    x = np.zeros(5 * 256, np.float32)
    x[::256] = (65519.996, 65520.0, 3e38, 2.0**-25, 3e-8)
    found = bound(variant, {"x": x}, {"n": x.size, "block": 256}).run({"x": x})
    assert np.array_equal(found["scales"], np.maximum(x[::256], LEAST))
    d = found["codes"].reshape(-1, 66)[:, 64:].copy().view("<u2").reshape(-1)
    assert [hex(bits) for bits in d] == ["0x7bff", "0x7c00", "0x7c00", "0x0", "0x1"]


@pytest.mark.parametrize("block", [1, 128, 255, 257])
def test_tq2_0_has_blocks_of_256_only(block: int):
    with pytest.raises(InvalidArgumentError, match="256, the block of tq2_0"):
        OP.outputs_like({"n": 1000, "block": block}, TQ2_0)
    refusals = [
        limit.refusal({"n": 1000, "block": block})
        for v in kernels.VARIANTS
        if v.key == TQ2_0
        for limit in v.constraints
    ]
    assert refusals == [f"block = {block} is not 256"] * 3


def test_every_key_has_the_same_variants_in_rising_tiers():
    by_key: dict[KernelKey, list[Variant]] = {}
    for variant in kernels.VARIANTS:
        by_key.setdefault(variant.key, []).append(variant)
    assert tuple(by_key) == (*kernels.KEYS, *kernels.NARROW_KEYS)
    assert by_key[replace(CODES, device="cuda")][0].key.format == "none"
    assert all([variant.name for variant in by_key[key]] == ["tuned"] for key in kernels.NARROW_KEYS)
    for variants in map(by_key.get, kernels.KEYS):
        assert variants
        large = ["split"] if variants[0].key != TQ2_0 else []
        assert [variant.name for variant in variants] == ["v1", "v1_warp", "tuned", *large]
        assert [variant.tier for variant in variants[:3]] == sorted({variant.tier for variant in variants})


@pytest.mark.parametrize("key", kernels.KEYS, ids=lambda key: key.format)
def test_there_is_one_best_variant_for_every_block(cuda: CudaContext, key: KernelKey):
    for block in (256,) if key == TQ2_0 else (1, 31, 32, 100, 256, 8192, 8193, 1 << 20, 1 << 40):
        for n in (1, 8192, 8193, 1 << 30):
            chosen = dispatch.select(key, {"n": n, "block": block}, None).name
            assert chosen == ("tuned" if block in kernels.BLOCKS else "split" if min(n, block) > 8192 else "v1_warp")


# The public function

FORMAT_BLOCKS = [("i2_s_x86", 32), ("i2_s_x86", 1000), ("row16", 128), ("row16", 77), ("row16", 9000), ("tq2_0", 256)]


@pytest.mark.parametrize(("format", "block"), FORMAT_BLOCKS)
@pytest.mark.parametrize("shape", [(1,), (3, 341), (40, 256)])
def test_packed_results_hold_the_cpus_codes(cuda: CudaContext, shape: tuple[int, ...], format: str, block: int):
    x = np.random.default_rng(block).standard_normal(shape, np.float32)
    codes, scales = ternary_quantize(x, block)
    found = ternary_quantize(x, block, packed=True, format=format, device="cuda")
    assert found[2:] == (x.size, block, format)
    assert np.array_equal(found.scales, scales)
    assert np.array_equal(found.unpack(), codes.reshape(-1))
    assert np.array_equal(found.packed, pack(codes.reshape(-1), format, scales))
    if x.size % 256 == 0:
        whole = FORMATS[format].pack(codes.reshape(1, -1), scales.reshape(1, -1) if format == "tq2_0" else 1.0)
        assert np.array_equal(found.packed, whole.reshape(-1)[: found.packed.size])
    again = ternary_quantize(-x, block, packed=True, format=format, device="cuda", out=found)
    assert np.shares_memory(again.packed, found.packed)
    assert np.array_equal(found.unpack(), -codes.reshape(-1))


@pytest.mark.parametrize(
    ("asked", "argument", "words"),
    [
        ({"packed": True, "format": "tile64"}, "format", "i2_s_x86, row16, tq2_0"),
        ({"format": "none"}, "format", "i2_s_x86, row16, tq2_0"),
        ({"format": "row16"}, "format", "packed=True"),
        ({"packed": True, "format": "tq2_0", "block": 128}, "block", "256, the block of tq2_0"),
        ({"block": 0}, "block", "at least 1, or None"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_formats_and_blocks_that_there_are_not(
    cuda: CudaContext, device: str, asked: dict[str, Any], argument: str, words: str
):
    with pytest.raises(InvalidArgumentError) as caught:
        ternary_quantize(np.ones(300, np.float32), device=device, **asked)
    assert caught.value.argument == argument
    assert words in caught.value.legal


def test_an_output_of_another_format_is_refused(cuda: CudaContext):
    x = np.ones(512, np.float32)
    out = ternary_quantize(x, packed=True, device="cuda")
    with pytest.raises(InvalidArgumentError, match="packed as i2_s_x86"):
        ternary_quantize(x, packed=True, format="row16", device="cuda", out=out)


@pytest.mark.parametrize(("format", "block"), [("row16", 128), ("tq2_0", 256), ("tq2_0", None)])
def test_the_cpu_has_no_kernels_for_the_gpus_formats(format: str, block: int | None):
    with pytest.raises(NoCompatibleKernelError, match=format):
        ternary_quantize(np.ones(300, np.float32), block, packed=True, format=format)


def test_the_device_chooses_the_block(cuda: CudaContext):
    x = np.random.default_rng(0).standard_normal(2000, np.float32)
    chosen = kernels.block_for(cuda.backend.info.capability, x.size)
    assert ternary_quantize(x, None, packed=True, device="cuda").block == chosen
    assert np.array_equal(ternary_quantize(x, None, device="cuda").scales, ternary_quantize(x, chosen).scales)
    assert ternary_quantize(x[:20], None, packed=True, device="cuda").block == 20
    assert ternary_quantize(x, None, packed=True, format="tq2_0", device="cuda").block == 256
    assert ternary_quantize(x, None, packed=True).block == 128


def test_without_a_gpu_that_is_what_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITMARK_CUDA", "driver")
    monkeypatch.setenv("TRITMARK_GPU_FAKE", "none")
    for device in ("cuda", "tpu"):
        with pytest.raises(NoCompatibleKernelError):
            ternary_quantize(np.ones(3, np.float32), None, device=device)


@pytest.mark.parametrize(
    ("capability", "n", "block"),
    [
        ((8, 6), 1 << 20, 256),
        ((8, 9), 1024, 256),
        ((8, 0), 1 << 20, 128),
        ((8, 7), 1 << 20, 128),
        ((7, 5), 1 << 20, 64),
        ((7, 0), 1 << 20, 64),
        ((8, 6), 1023, 256),
        ((8, 6), 100, 100),
        ((7, 2), 20, 20),
        ((7, 2), 1 << 20, 32),
    ],
)
def test_the_specified_block(capability: tuple[int, int], n: int, block: int):
    assert kernels.block_for(capability, n) == block
