"""ternary_matmul on the GPU, or in the simulator, with a scale for each group of 32 to 256 weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from cuda_products import DTYPES, Data, product, same
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_sources import plant

from tritmark.harness.errors import DeviceFaultError, NoCompatibleKernelError
from tritmark.harness.spec import KernelKey, Variant
from tritmark.kernels import FORMATS, OPS, PackedWeights
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch.launch import Call
from tritmark.kernels.ternary_matmul import cuda_grouped
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.cuda_grouped import (
    KERNELS,
    MMA,
    ROWS,
    WGMMA,
    GroupedMma,
    GroupedRows,
    GroupedWgmma,
    Instance,
)
from tritmark.kernels.ternary_matmul.reference import reference

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

OP = next(op for op in OPS if op.name == "ternary_matmul")
VARIANTS = {(each.key.format, each.name, each.key.dtype): each for each in cuda_grouped.VARIANTS}
GROUPS = tuple(cuda_grouped.FORMATS.values())


def data_of(group: int, M: int, N: int, K: int, seed: int = 0) -> Data:
    """Drawn over all values; sums over groups that float32 holds, so that every order of them has the same bits."""
    rng = np.random.default_rng(seed)
    activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scales = (rng.integers(-15, 16, (N, K // group)) / 16).astype(np.float32)
    # Powers of two: factors, which grouped_wgmma.cu has in float32, round nothing.
    return activations, codes, scales, np.ldexp(1, rng.integers(-6, 10, M)).astype(np.float32)


def sums_of(data: Data) -> npt.NDArray[np.float64]:
    """The sums over groups of scale times part."""
    activations, codes, scales, _ = data
    wide = codes.astype(np.float64) * np.repeat(scales.astype(np.float64), codes.shape[1] // scales.shape[1], axis=1)
    sums: npt.NDArray[np.float64] = activations.astype(np.float64) @ wide.T
    return sums


def expected(data: Data, dtype: str) -> npt.NDArray[Any]:
    """The bits that a kernel must return for data of data_of."""
    magnitudes = sums_of((np.abs(data[0].astype(np.int16)), np.abs(data[1]), np.abs(data[2]), data[3]))
    assert magnitudes.max() * 16 < 1 << 24
    with np.errstate(over="ignore"):
        return (
            (sums_of(data) * (1 / data[3].astype(np.float64))[:, np.newaxis]).astype(np.float32).astype(DTYPES[dtype])
        )


def within(found: npt.NDArray[Any], data: Data, format: str, dtype: str) -> None:
    """Within the bound of the contract."""
    activations, codes, scales, act_scale = data
    (M, K), N = activations.shape, len(codes)
    inputs = {"activations": activations, "weights": codes, "weight_scale": scales, "act_scale": act_scale}
    wanted = reference(inputs, {"M": M, "N": N, "K": K}, KernelKey("cuda", OP.name, format, dtype))
    assert (np.abs(found.astype(np.float64) - wanted["out"]) <= wanted["out.bound"]).all()


def launch_instance(patch: pytest.MonkeyPatch, instance: Instance) -> None:
    patch.setattr(cuda_grouped, "chosen", lambda *asked: instance)


def variant_of(instance: Instance, dtype: str = "float32") -> Variant:
    names = {GroupedRows: "gemv", GroupedMma: "mma", GroupedWgmma: "gemm"}
    name = names[type(instance)]
    return VARIANTS[f"row16_g{instance.group}", name, dtype]


def rows_of(instance: Instance) -> int:
    """Rows of activations for which it makes more than one tile, if it may."""
    return 1 if isinstance(instance, GroupedRows) else instance.tile[0] + 3


@pytest.fixture(scope="module")
def context() -> Any:
    """As `cuda`, for tests that hypothesis runs many times."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT

    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


@pytest.mark.parametrize("instance", KERNELS, ids=str)
@pytest.mark.parametrize("groups", [1, 9])
def test_every_instance_is_exact(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: Instance, groups: int
) -> None:
    """With one group, with groups that end inside of a step, and with rows that fill no tile."""
    launch_instance(monkeypatch, instance)
    wide = isinstance(instance, GroupedWgmma)
    data = data_of(instance.group, rows_of(instance), 144 if wide else 37, groups * instance.group)
    for dtype in ("float32", "bfloat16", "float16") if groups == 1 else ("float32",):
        same(product(context, variant_of(instance, dtype), data), expected(data, dtype))


@settings(max_examples=20)
@given(
    group=st.sampled_from(GROUPS),
    M=st.integers(1, 20),
    N=st.integers(1, 50),
    blocks=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_any_shape_is_exact(context: CudaContext, group: int, M: int, N: int, blocks: int, seed: int) -> None:
    data = data_of(group, M, N, blocks * group, seed)
    for (format, _, dtype), variant in VARIANTS.items():
        axes = {"M": M, "N": N, "K": blocks * group}
        admits = all(constraint.refusal(axes) is None for constraint in variant.constraints)
        if format == f"row16_g{group}" and dtype == "float32" and admits:
            same(product(context, variant, data), expected(data, dtype))


@pytest.mark.parametrize("share", [1, 3, 7])
@pytest.mark.parametrize("instance", [each for table in MMA.values() for each in table], ids=str)
def test_warps_share_k_and_blocks_share_tiles(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: GroupedMma, share: int
) -> None:
    params = Call.params
    monkeypatch.setattr(
        Call, "params", lambda call, kernel, asked, *rest, **named: params(call, kernel, 2, *rest, **named)
    )
    launch_instance(monkeypatch, instance)
    monkeypatch.setattr(GroupedMma, "warps", lambda *asked: share)
    data = data_of(instance.group, rows_of(instance), 8 * instance.rows8 * 2 + 3, 8 * 256 + instance.group)
    same(product(context, variant_of(instance), data), expected(data, "float32"))


@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind[2] == "float32"], ids=str)
@pytest.mark.parametrize("family", ["far apart", "denormal", "largest sums"])
def test_sums_of_any_scales_are_within_the_bound(context: CudaContext, kind: tuple[str, str, str], family: str) -> None:
    """Scales from the least to the largest of float16 with terms that cancel; denormal ones and zeros; sums of the
    largest magnitude."""
    group = cuda_grouped.FORMATS[kind[0]]
    M, N, K, rng = {"gemv": 1, "mma": 9, "gemm": 17}[kind[1]], 35, 13 * group, np.random.default_rng(5)
    activations, codes, scales, act_scale = data_of(group, M, N, K)
    if family == "far apart":
        scales = np.ldexp(rng.uniform(-2, 2, scales.shape), rng.integers(-24, 15, scales.shape))
        scales[:, 6] = -scales[:, 5]
        codes[:, 6 * group : 7 * group] = codes[:, 5 * group : 6 * group]
        activations[:, 6 * group : 7 * group] = activations[:, 5 * group : 6 * group]
    elif family == "denormal":
        scales = np.ldexp(rng.integers(-9, 10, scales.shape), -24)
    else:
        activations[:], codes[:] = -128, rng.choice([-1, 1], (N, 1))
        scales = np.full(scales.shape, 65504)
    data = activations, codes, scales.astype(np.float16).astype(np.float32), act_scale
    within(product(context, VARIANTS[kind], data), data, kind[0], kind[2])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind[2] == "float32"], ids=str)
def test_scales_that_are_no_numbers_show_in_their_row_alone(
    context: CudaContext, kind: tuple[str, str, str], value: float
) -> None:
    group = cuda_grouped.FORMATS[kind[0]]
    M, N = {"gemv": 1, "mma": 2, "gemm": 9}[kind[1]], 21
    data = data_of(group, M, N, 3 * group)
    data[2][4, 1] = value
    with np.errstate(invalid="ignore"):
        parts = sums_of((data[0][:, group : 2 * group], data[1][:, group : 2 * group], np.ones((N, 1)), data[3]))
        wanted = expected((data[0], data[1], np.nan_to_num(data[2], posinf=0, neginf=0), data[3]), "float32")
        wanted[:, 4] = parts[:, 4] * value
    np.testing.assert_array_equal(product(context, VARIANTS[kind], data), wanted)


@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind[2] == "float32" and kind[1] != "gemv"], ids=str)
@pytest.mark.parametrize("gap", [1, 16])
def test_rows_of_activations_may_lie_apart(context: CudaContext, kind: tuple[str, str, str], gap: int) -> None:
    group, M, N = cuda_grouped.FORMATS[kind[0]], 11, 18
    data = data_of(group, M, N, 3 * group)
    apart = np.full((M, 3 * group + gap), 99, np.int8)
    apart[:, : 3 * group] = data[0]
    there = context.upload(apart).view(data[0].shape, strides=(3 * group + gap, 1))
    same(product(context, VARIANTS[kind], data, there), expected(data, "float32"))


@given(instance=st.sampled_from(list(KERNELS)), K=st.integers(1, 1 << 15), N=st.integers(1, 1 << 20))
def test_a_block_fits(instance: Instance, K: int, N: int) -> None:
    K *= instance.group
    if isinstance(instance, GroupedRows):
        assert not instance.takes(K) or 32 * instance.tiles(K) * instance.split(K) <= instance.threads
    elif isinstance(instance, GroupedMma):
        assert 1 <= instance.warps(K) <= instance.threads // 32
        assert instance.warps(K) * 32 >= 8 * instance.groups or instance.warps(K) == -(-K // 256)
        assert instance.shared(K) <= KERNELS[instance].shared
    else:
        assert instance.shared_bytes <= KERNELS[instance].shared


PLANTED: dict[str, Instance] = {
    "rows": ROWS[64][-1],
    "mma": MMA[128][1],
    "wgmma": next(each for each in WGMMA[64] if each.columns == 32),
}
FAULTS = (
    ("rows", "grouped_rows.cu", "+ (from_part + e) * (256 / PARTS)) / GROUP", "+ from_part * (256 / PARTS)) / GROUP"),
    ("rows", "grouped_rows.cu", "group * apart + n", "group * apart + n + 1"),
    ("rows", "grouped_rows.cu", "&& group < groups", "&& group + 1 < groups"),
    ("rows", "grouped_rows.cu", "t * PARTS / 4 == g % PARTS", "true"),
    ("rows", "grouped_rows.cu", "p < split", "p < 1"),
    ("mma", "grouped_mma.cu", "(group * ROWS8 + 2 * p + h) * 8", "(group * ROWS8 + 2 * p) * 8"),
    ("mma", "grouped_mma.cu", "end / GROUP - 1", "0"),
    ("mma", "grouped_mma.cu", "group < groups && n < N", "group + 1 < groups && n < N"),
    ("mma", "grouped_mma.cu", "sum += sums[", "sum = sums["),
    ("mma", "grouped_mma.cu", "acc[c][p][e] = MAGIC;", "acc[c][p][e] = MAGIC + 1;"),
    ("wgmma", "grouped_wgmma.cu", "scales[group * ROWS + 8 * h]", "scales[group * ROWS]"),
    ("wgmma", "grouped_wgmma.cu", "by[unit][i / 2 % 2]", "by[unit][0]"),
    ("wgmma", "grouped_wgmma.cu", "i || k % GROUP", "1"),
    ("wgmma", "grouped_wgmma.cu", "(load * LOAD + i * UNIT) / GROUP", "0"),
)
"""An instance, its source, the original text, and the fault that replaces it."""
HONEST = tuple((name, "grouped.cuh", "", "") for name in PLANTED)


@pytest.mark.parametrize(("which", "file", "right", "wrong"), [*HONEST, *FAULTS])
def test_a_fault_in_the_source_is_seen(
    simulator: CudaContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    which: str,
    file: str,
    right: str,
    wrong: str,
) -> None:
    """By the bits of the product, or by the simulator, which detects reads past an array."""
    instance = PLANTED[which]
    kernel = KERNELS[instance]
    plant(tmp_path, [kernel.file], f"ternary_matmul/{file}", right, wrong)
    monkeypatch.setattr(cuda_grouped, "KERNELS", {instance: replace(kernel, file=str(tmp_path / kernel.file))})
    launch_instance(monkeypatch, instance)
    data = data_of(instance.group, 1 if which == "rows" else 9, 34, 9 * instance.group)
    try:
        found = product(simulator, variant_of(instance), data)
        seen = "" if np.array_equal(found, expected(data, "float32")) else "wrong"
    except DeviceFaultError:
        seen = "past an array"
    assert bool(seen) is bool(right)


@pytest.mark.parametrize(
    ("given", "format"),
    [
        ("q2_0", "row16_g64"),
        ("pq2_0", "row16_g128"),
        ("ptq1_0", "row16_g128"),
        ("tq1_0", "row16_g256"),
        ("row16_g32", "row16_g32"),
    ],
)
@pytest.mark.parametrize("M", [1, 3])
def test_weights_of_files_are_repacked_once(context: CudaContext, M: int, given: str, format: str) -> None:
    """Into the coarsest groups that hold their scales; the receipt reports it."""
    group = FORMATS[given].group
    data = data_of(group, M, 32, 512)
    packed = PackedWeights.from_bytes(FORMATS[given].pack(data[1], data[2]), given, (32, 512))
    out, receipt = with_receipt(data[0], packed, act_scale=data[3], device="cuda")
    assert receipt.kernel == f"cuda/ternary_matmul/{format}/float32/gemv"
    assert receipt.note == ("" if format == given else f"computed from {format}, repacked from {given}")
    same(out, expected(data, "float32"))
    assert packed.packed_as(format, "cuda") is packed.packed_as(format, "cuda")


def test_weights_with_another_code_are_not_repacked(context: CudaContext) -> None:
    codes = np.zeros((8, 64), np.int8)
    codes[3, 5] = 2
    packed = PackedWeights.from_bytes(FORMATS["q2_0"].pack(codes, 1.0), "q2_0", (8, 64))
    with pytest.raises(NoCompatibleKernelError, match="the weights have code 2, which row16_g64 cannot store"):
        with_receipt(np.ones((1, 64), np.int8), packed, act_scale=np.ones(1, np.float32), device="cuda")
