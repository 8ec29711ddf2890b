"""ternary_matmul_a16 on the GPU, or in the simulator, with a scale for each group of 32 to 256 weights: every instance
within the bound that is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_sources import plant

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError
from tritmark.harness.machine.gpu import why_not
from tritmark.harness.spec import Axes, Variant
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels import pack_weights, ternary_matmul_a16
from tritmark.kernels.cuda.context import SELECT, cuda_context
from tritmark.kernels.cuda.launch.launch import Call
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.ternary_matmul.scales import weight_scales
from tritmark.kernels.ternary_matmul_a16 import cuda_grouped
from tritmark.kernels.ternary_matmul_a16.api import with_receipt
from tritmark.kernels.ternary_matmul_a16.cuda_grouped import (
    KERNELS,
    MMA,
    VARIANTS,
    WGMMA,
    A16GroupedMma,
    A16GroupedWgmma,
    Instance,
    kernel_of,
)
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, FAMILIES, NAMES, OPS

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext


def _splits(instance: Instance) -> bool:
    """Whether blocks share a tile."""
    return isinstance(instance, A16GroupedWgmma) and instance.split > 1


GROUPS = tuple(cuda_grouped.FORMATS.values())
BY_NAME = {(each.key.op, each.key.format, each.name, each.key.dtype): each for each in VARIANTS}
EVERY: tuple[Instance, ...] = tuple(each for table in (MMA, WGMMA) for part in table.values() for each in part)
# The simulator has no clusters: there instances that differ in `split` alone are two, one block a tile and several.
INSTANCES = (
    EVERY
    if why_not() is None
    else tuple({(type(each), each.group, each.tile, _splits(each)): each for each in EVERY}.values())
)


def _name(instance: Instance) -> str:
    split = f"-{instance.split}" if isinstance(instance, A16GroupedWgmma) else ""
    kind = type(instance).__name__.removeprefix("A16Grouped").lower()
    return f"g{instance.group}-{instance.tile[0]}-{instance.tile[1]}-{kind}{split}"


def _only(patch: pytest.MonkeyPatch, instance: Instance) -> None:
    """Has one instance launched for every shape."""
    patch.setattr(cuda_grouped, "chosen", lambda *asked: [instance])


def _variant(instance: Instance, given: str, dtype: str) -> Variant:
    return BY_NAME[NAMES[given], f"row16_g{instance.group}", "gemm", dtype]


def _compared(
    context: CudaContext,
    given: str,
    variant: Variant,
    axes: Axes,
    inputs: Any,
    apart: int = 0,
    scale: int = 1,
) -> Any:
    """The comparison of a launch with the reference; rows of activations with that many elements between them. `scale`:
    the argument weight_scale, a power of two, by which the outputs are divided again."""
    op = OPS[given]
    (expected,) = expectations(op, axes, variant.key, op.reference(inputs, axes, variant.key))
    activations = inputs["activations"]
    if apart:
        wide = np.full((axes["M"], axes["K"] + apart), np.nan, activations.dtype)
        wide[:, : axes["K"]] = activations
        size = activations.itemsize
        there = context.upload(wide).view(activations.shape, strides=((axes["K"] + apart) * size, size))
    else:
        there = context.upload(activations)
    # initcheck does not see writes of the copy engine.
    out = context.upload(np.full((axes["M"], axes["N"]), np.nan, named_dtype(variant.key.dtype)))
    weights = context.upload(op.encode(inputs, axes, variant.key.format)["weights"])
    given_inputs = {"activations": there, "weights": weights, "weight_scale": np.float32(scale)}
    launch = variant.bind(given_inputs, {"out": out}, axes, 1)
    launch.run()
    found = out.numpy()
    return compare(expected, found / found.dtype.type(scale))


def _drawn(given: str, axes: Axes, family: str, seed: int = 0) -> dict[str, Any]:
    return dict(OPS[given].generate(axes, family, np.random.default_rng(seed)))


@pytest.fixture(scope="module")
def context() -> Any:
    """As `cuda`, for tests that hypothesis runs many times."""
    with pytest.MonkeyPatch.context() as patch:
        if why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("instance", "given"),
    [
        *((each, "bfloat16") for each in INSTANCES),
        *((each, "float16") for group in GROUPS for each in (MMA[group][0], WGMMA[group][0])),
    ],
    ids=lambda each: each if isinstance(each, str) else _name(each),
)
def test_every_instance_is_within_the_bound(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: Instance, given: str
) -> None:
    """One group; several, of which the last fill no step, stage or chunk; tiles cut off in M and N beside whole ones;
    each output dtype; 16-bit outputs whose rows are aligned, and not; activations whose rows are aligned, and not."""
    _only(monkeypatch, instance)
    rows, high = instance.tile
    for M, N, groups, dtype, apart in (
        (1, 1, 1, "float32", 0),
        (rows, high, 2, "bfloat16", 8),
        (rows + 3, high + 4, 9, "float16", 3),
        (max(1, rows - 5), high + 8, 3, "float16", 0),
    ):
        axes = {"M": M, "N": N, "K": groups * instance.group}
        found = _compared(cuda, given, _variant(instance, given, dtype), axes, _drawn(given, axes, "normal"), apart, 2)
        assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("given", NAMES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("group", GROUPS)
def test_every_family_is_within_the_bound(cuda: CudaContext, given: str, family: str, group: int) -> None:
    """NaN, infinities and denormal scales among them."""
    for M, dtype in zip((3, 17, 40), DTYPES, strict=True):
        axes = {"M": M, "N": 21, "K": 3 * group}
        variant = BY_NAME[NAMES[given], f"row16_g{group}", "mma" if M == 3 else "gemm", dtype]
        found = _compared(cuda, given, variant, axes, _drawn(given, axes, family))
        assert found.first is None, found.first


@settings(max_examples=20, deadline=None)
@given(
    given=st.sampled_from(tuple(NAMES)),
    group=st.sampled_from(GROUPS),
    M=st.integers(1, 70),
    N=st.integers(1, 50),
    groups=st.integers(1, 12),
    scale=st.sampled_from([0.0, -1.5, 2.0**-24, 65504.0, 1.0]),
    seed=st.integers(0, 2**32),
)
@pytest.mark.cuda
def test_any_shape_is_within_the_bound(
    context: CudaContext, given: str, group: int, M: int, N: int, groups: int, scale: float, seed: int
) -> None:
    """Some scales 0, negative, denormal or the largest."""
    axes, rng = {"M": M, "N": N, "K": groups * group}, np.random.default_rng(seed)
    inputs = _drawn(given, axes, "normal", seed)
    scales = weight_scales(inputs, axes, f"row16_g{group}").copy()
    scales[rng.random(scales.shape) < 0.3] = scale
    inputs["weight_scale"] = scales
    for name in ("mma", "gemm"):
        variant = BY_NAME[NAMES[given], f"row16_g{group}", name, "float32"]
        if all(constraint.refusal(axes) is None for constraint in variant.constraints):
            found = _compared(context, given, variant, axes, inputs)
            assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("share", [1, 3, 7])
@pytest.mark.parametrize("instance", [each for table in MMA.values() for each in table], ids=_name)
def test_warps_share_k_and_blocks_share_tiles(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: A16GroupedMma, share: int
) -> None:
    params = Call.params
    monkeypatch.setattr(
        Call, "params", lambda call, kernel, asked, *rest, **named: params(call, kernel, 2, *rest, **named)
    )
    _only(monkeypatch, instance)
    monkeypatch.setattr(A16GroupedMma, "warps", lambda *asked: share)
    rows, high = instance.tile
    axes = {"M": rows + 3, "N": 2 * high + 3, "K": 8 * 256 + instance.group}
    found = _compared(
        cuda, "bfloat16", _variant(instance, "bfloat16", "float32"), axes, _drawn("bfloat16", axes, "uniform")
    )
    assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("instance", [WGMMA[32][0], WGMMA[128][-2], WGMMA[256][2]], ids=_name)
def test_rings_go_round(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: A16GroupedWgmma) -> None:
    """More stages than a ring has, more tiles than blocks."""
    _only(monkeypatch, instance)
    rows, high = instance.tile
    stage = 64 * instance.panels
    axes = {"M": rows + 1, "N": 3 * high, "K": stage * (2 * instance.stages + 1)}
    for dtype in ("float32", "bfloat16"):
        variant = _variant(instance, "bfloat16", dtype)
        found = _compared(cuda, "bfloat16", variant, axes, _drawn("bfloat16", axes, "uniform"))
        assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("M", [2, 30])
def test_an_infinity_is_nan_with_weights_of_zero_alone(cuda: CudaContext, group: int, M: int) -> None:
    """And no neighbour's: not of another group, not of padding."""
    rng = np.random.default_rng(group)
    activations = rng.normal(size=(M, 3 * group)).astype(np.float16)
    activations[0, group + 5], activations[1, 0] = np.inf, np.nan
    codes = rng.integers(-1, 2, (40, 3 * group), dtype=np.int8)
    scales = rng.uniform(0.5, 2, (40, 3)).astype(np.float32) * rng.choice([-1, 1], (40, 3)).astype(np.float32)
    out = ternary_matmul_a16(activations, pack_weights(codes, scales, format=f"row16_g{group}"))
    weights = codes[:, group + 5] * scales[:, 1]
    assert np.array_equal(out[0], np.where(weights == 0, np.nan, np.copysign(np.inf, weights)), equal_nan=True)
    assert np.isnan(out[1]).all()
    assert np.isfinite(out[2:]).all()


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("format", "group", "K", "of"),
    [
        *((f"row16_g{group}", group, 256, f"row16_g{group}") for group in GROUPS),
        ("ptq1_0", 128, 256, "row16_g128"),
        ("pq2_0", 128, 256, "row16_g128"),
        ("q2_0", 64, 256, "row16_g64"),
        ("tq2_0", 256, 512, "row16_g256"),
        ("tq1_0", 256, 256, "row16_g256"),
        ("bitnet_rs_32", 32, 256, "row16_g32"),
    ],
)
def test_the_function_takes_what_pack_weights_makes(
    cuda: CudaContext, format: str, group: int, K: int, of: str
) -> None:
    rng = np.random.default_rng(0)
    activations = rng.normal(size=(5, K)).astype(named_dtype("bfloat16"))
    codes = rng.integers(-1, 2, (24, K), dtype=np.int8)
    scales = rng.integers(1, 9, (24, K // group)).astype(np.float32)
    weights = pack_weights(codes, scales, format=format)
    out, receipt = with_receipt(activations, weights, dtype="float16")
    exact = activations.astype(np.float64) @ (codes * np.repeat(scales, group, axis=1)).T
    assert np.allclose(out, exact, rtol=1e-2, atol=0.1)
    assert receipt.kernel.startswith(f"cuda/ternary_matmul_bf16/{of}/float16/")
    assert ("repacked" in receipt.note) == (format != of)
    one = np.empty(24, np.float32)
    assert ternary_matmul_a16(activations[0], weights, out=one) is one
    assert np.allclose(one, out[0], rtol=1e-2, atol=0.1)


def _weights(format: str, K: int) -> Any:
    form = FORMATS[format]
    codes = np.full((4, K), max(form.codes), np.int8)
    return pack_weights(codes, np.ones(form.scale_shape((4, K)), np.float32), format=format)


@pytest.mark.parametrize("format", ["iq2_bn", "q2_0", "pq2_0"])
def test_weights_that_no_kernel_can_hold_are_refused(simulator: CudaContext, format: str) -> None:
    """A scale for each row, and codes of 2."""
    with pytest.raises(InvalidArgumentError, match=format) as caught:
        ternary_matmul_a16(np.ones((2, 256), np.float16), _weights(format, 256))
    assert caught.value.argument == "weights"


@pytest.mark.parametrize("given", NAMES)
@pytest.mark.parametrize("group", GROUPS)
def test_the_bound_catches_one_product_that_is_missing(given: str, group: int) -> None:
    op, axes = OPS[given], {"M": 4, "N": 5, "K": 2 * group}
    inputs, variant = _drawn(given, axes, "constant"), BY_NAME[NAMES[given], f"row16_g{group}", "gemm", "float32"]
    (expected,) = expectations(op, axes, variant.key, op.reference(inputs, axes, variant.key))
    out = expected.values.copy()
    assert compare(expected, out).wrong.size == 0
    scale = weight_scales(inputs, axes, variant.key.format)[3, 1]
    out[2, 3] -= np.float32(inputs["activations"][2, -1]) * inputs["weights"][3, -1] * scale
    assert compare(expected, out).wrong.tolist() == [2 * 5 + 3]


@pytest.mark.parametrize("group", GROUPS)
def test_sums_in_any_order_are_within_the_bound(group: int) -> None:
    """Of groups in float32, forward and backward, added pairwise, and with a group that two blocks share."""
    op, K = OPS["float16"], 40 * group
    axes = {"M": 3, "N": 6, "K": K}
    inputs = _drawn("float16", axes, "normal")
    variant = BY_NAME[op.name, f"row16_g{group}", "gemm", "float32"]
    (expected,) = expectations(op, axes, variant.key, op.reference(inputs, axes, variant.key))
    scales = weight_scales(inputs, axes, variant.key.format)
    a, w = inputs["activations"].astype(np.float32), inputs["weights"].astype(np.float32)
    products = a[:, np.newaxis, :] * w  # exact
    parts = [products[..., g : g + group] for g in range(0, K, group)]
    sums: list[npt.NDArray[np.float32]] = []
    for order in (1, -1):
        for g, part in enumerate(parts):
            total = np.zeros(part.shape[:2], np.float32)
            for k in range(group)[::order]:
                total = total + part[..., k]
            sums.append(total * scales[:, g])
        ordered = sums[::order]
        out = ordered[0]
        for each in ordered[1:]:
            out = out + each
        assert compare(expected, out).first is None
        sums.clear()


@given(M=st.integers(1, 1 << 16), N=st.integers(1, 1 << 18), blocks=st.integers(1, 1 << 12), sms=st.integers(1, 200))
def test_the_chosen_instances_fit_a_multiprocessor(M: int, N: int, blocks: int, sms: int) -> None:
    for group in GROUPS:
        K = blocks * group
        for name in ("mma", "gemm"):
            found = cuda_grouped.ordered(name, group, M, N, K, sms)
            assert found
            kernel = KERNELS[found[0], "bfloat16"]
            assert found[0].shared(M, K) <= kernel.shared
            assert found[0].block(K) <= kernel.threads
            assert kernel.threads * kernel.registers <= REGISTERS_PER_BLOCK
    for each in (part for table in WGMMA.values() for part in table):
        assert each.shared_bytes <= WGMMA_SHARED


@pytest.mark.cuda
@pytest.mark.parametrize("M", [3, 40])
def test_autotune_may_choose_every_instance_that_takes_the_product(cuda: CudaContext, M: int) -> None:
    axes = {"M": M, "N": 40, "K": 256}
    made = BY_NAME[NAMES["bfloat16"], "row16_g64", "gemm" if M > 8 else "mma", "bfloat16"]
    assert made.instances is not None
    each = made.instances(axes).each
    assert len(each) > 3
    for name, instance in each.items():
        found = _compared(cuda, "bfloat16", instance, axes, _drawn("bfloat16", axes, "normal"))
        assert found.first is None, (name, found.first)


FAULTS = [
    ("ternary_matmul_a16/grouped_mma.cu", "", ""),
    ("ternary_matmul_a16/grouped_wgmma.cu", "", ""),
    ("ternary_matmul_a16/grouped_mma.cu", "end / GROUP - 1", "end / GROUP - 1 + (end < 256)"),
    ("ternary_matmul_a16/grouped_mma.cu", "if (chunk * CHUNK % GROUP == 0)", "if (chunk == 0)"),
    ("ternary_matmul_a16/grouped_mma.cu", "+ 2 * p + h) * 8]", "+ 2 * p) * 8]"),
    ("ternary_matmul_a16/grouped_mma.cu", "32 * (j % 2) + 8 * t", "8 * t"),
    ("ternary_matmul_a16/grouped_mma.cu", "16 * t + 8 * (j % 2)", "16 * t"),
    ("ternary_matmul_a16/grouped_mma.cu", "m0 + 8 * c + g < M", "8 * c + g < M"),
    ("ternary_matmul_a16/grouped_mma.cu", "(const char *)a + (m0 + 8 * c + g) * lda", "a + (m0 + 8 * c + g) * K"),
    ("ternary_matmul_a16/grouped_mma.cu", "n0 + row < N && chunk < chunks", "chunk < chunks"),
    ("ternary_matmul_a16/grouped_mma.cu", "group < groups && n < N", "n < N"),
    ("ternary_matmul_a16/grouped_mma.cu", "group * apart + n", "group * N + n"),
    ("ternary_matmul_a16/grouped_mma.cu", "ahead_step += warps", "ahead_step += 1"),
    ("ternary_matmul_a16/grouped_mma.cu", "sum * weight_scale", "sum"),
    ("ternary_matmul_a16/grouped_mma.cu", "WORDS * half + i + 1", "i + 1"),
    ("cuda/tiles/grouped.cuh", "(chunk ^ (row >> 1 & 3))", "(chunk & row)"),
    ("cuda/tiles/grouped.cuh", "(N + 7ll) / 8 * 8", "N"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "const int group = end / GROUP - 1", "const int group = 0"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "scales[group * ROWS + 8 * high]", "scales[group * ROWS]"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "k % GROUP != 0", "k != 0"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "k % 64 * 2", "k % 32 * 2"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "acts + k / 64 * COLUMNS * DEPTH", "acts"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "weights_at(row + 8 * high, unit * UNIT / CHUNK)", "weights_at(row, 0)"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "if ((unit + 1) * UNIT % GROUP == 0) {", "if (unit + 1 == UNITS) {"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "scale[unit % 2][i / 2 % 2]", "scale[unit % 2][0]"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "m + 2 * t < job.M - m0 && ", ""),
    ("ternary_matmul_a16/grouped_wgmma.cu", "m0 + m < job.M && n0 + n < job.N", "m0 + m < job.M"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "total[0][i] * weight_scale", "total[0][i]"),
    ("ternary_matmul_a16/grouped_wgmma.cu", "of[2 * i + 1] * weight_scale", "of[2 * i]"),
    ("cuda/tiles/wgmma_tiles.cuh", "n0 + row < N ? *scales_at(group, n0 + row)", "true ? *scales_at(group, n0)"),
]
"""Source, original text, and the fault that replaces it; none in the first two."""
_SOURCES = ("ternary_matmul_a16/grouped_mma.cu", "ternary_matmul_a16/grouped_wgmma.cu")


@pytest.mark.cuda
@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_a_fault_in_the_source_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """By the bound of the product, or by the simulator, which sees what is read past an array."""
    monkeypatch.setenv(SELECT, "simulator")
    context = cuda_context()
    plant(tmp_path, _SOURCES, file, right, wrong)
    few = (replace(MMA[group][1], threads=64) for group in (32, 64))
    every: tuple[Instance, ...] = (*few, WGMMA[32][0], WGMMA[64][-4])
    seen = set()
    for instance in every:
        kernel = kernel_of(instance, "bfloat16")
        if file.startswith("ternary_matmul_a16") and kernel.file != file:
            continue
        kernel = replace(kernel, file=str(tmp_path / kernel.file))
        monkeypatch.setattr(cuda_grouped, "KERNELS", {(instance, "bfloat16"): kernel})
        _only(monkeypatch, instance)
        for dtype, more, gap in (("float32", 9, 3), ("bfloat16", 8, 0)):
            axes = {"M": instance.tile[0] + 5, "N": instance.tile[1] + more, "K": 17 * instance.group}
            inputs = _drawn("bfloat16", axes, "normal")
            try:
                first = _compared(
                    context, "bfloat16", _variant(instance, "bfloat16", dtype), axes, inputs, gap, 2
                ).first
                seen.add("" if first is None else "wrong")
            except DeviceFaultError:
                seen.add("past an array")
    assert (seen == {""}) is not bool(right), seen
