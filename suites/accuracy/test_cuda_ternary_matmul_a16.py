"""ternary_matmul_a16 on the GPU or in the simulator: every instance of its kernels within the bound that is known
beforehand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_sources import plant, source_of

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError
from tritmark.harness.machine.gpu import why_not
from tritmark.harness.spec import Axes, KernelKey, Variant
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels import pack_weights, ternary_matmul_a16
from tritmark.kernels.cuda.context import SELECT, cuda_context
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.launch.tuning import instance_name
from tritmark.kernels.cuda.tiles.product import tiles_of
from tritmark.kernels.cuda.tiles.wgmma_tiles import WGMMA_SHARED
from tritmark.kernels.ternary_matmul_a16 import cuda
from tritmark.kernels.ternary_matmul_a16.api import with_receipt
from tritmark.kernels.ternary_matmul_a16.cuda import (
    GEMV,
    KERNELS,
    MIXED,
    MMA,
    SAME,
    SPLIT,
    VARIANTS,
    WGMMA,
    A16Gemv,
    A16Wgmma,
    Instance,
)
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, FAMILIES, NAMES, OPS

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext


def _kind(instance: Instance) -> tuple[int, bool]:
    """Columns of the last tiles, and whether blocks share a tile."""
    return (instance.tail, instance.split > 1) if isinstance(instance, A16Wgmma) else (0, False)


EVERY: tuple[Instance, ...] = (*GEMV, *MMA, *WGMMA)
# The simulator has no clusters: there instances that differ in `split` alone are two, one block a tile and several.
INSTANCES = (
    EVERY if why_not() is None else tuple({(type(each), each.tile, *_kind(each)): each for each in EVERY}.values())
)
BY_NAME = {(variant.key.op, variant.name, variant.key.dtype): variant for variant in VARIANTS}


def _name(instance: Instance) -> str:
    tail, _ = _kind(instance)
    split = f"-{instance.split}" if isinstance(instance, A16Wgmma) else ""
    return (
        "-".join(map(str, (*instance.tile, *([tail] if tail else []))))
        + f"-{type(instance).__name__[3:].lower()}{split}"
    )


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has one instance launched for every shape."""

    def launched(instance: Instance) -> None:
        monkeypatch.setattr(cuda, "fastest", lambda *asked: instance)
        monkeypatch.setattr(cuda, "KERNELS", {(instance, given): cuda._kernel(instance, given) for given in NAMES})

    return launched


def _small(instance: Instance) -> Instance:
    """The same with blocks of two warps, which go over short rows several times."""
    return instance if isinstance(instance, A16Wgmma) else replace(instance, threads=64)


def _compared(
    context: CudaContext,
    given: str,
    dtype: str,
    axes: Axes,
    family: str,
    apart: int = 0,
    variant: str | Variant = "gemm",
) -> Any:
    op = OPS[given]
    chosen = BY_NAME[NAMES[given], variant, dtype] if isinstance(variant, str) else variant
    inputs = op.generate(axes, family, np.random.default_rng(axes["K"]))
    (expected,) = expectations(op, axes, chosen.key, op.reference(inputs, axes, chosen.key))
    activations = inputs["activations"]
    if apart:
        wide = np.full((axes["M"], axes["K"] + apart), np.nan, activations.dtype)
        wide[:, : axes["K"]] = activations
        size = activations.itemsize
        there = context.upload(wide).view(activations.shape, strides=((axes["K"] + apart) * size, size))
    else:
        there = context.upload(activations)
    # initcheck does not see writes of the copy engine.
    out = context.upload(np.full((axes["M"], axes["N"]), np.nan, named_dtype(dtype)))
    encoded = op.encode(inputs, axes, "row16")
    launch = chosen.bind(
        {"activations": there, "weights": context.upload(encoded["weights"]), "weight_scale": inputs["weight_scale"]},
        {"out": out},
        axes,
        1,
    )
    launch.run()
    return compare(expected, out.numpy())


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("instance", "given"),
    [*((each, "bfloat16") for each in INSTANCES), *((each, "float16") for each in (GEMV[0], MMA[0], WGMMA[0]))],
    ids=lambda each: each if isinstance(each, str) else _name(each),
)
def test_every_instance_is_within_the_bound(cuda: CudaContext, only: Any, instance: Instance, given: str) -> None:
    """A whole tile, and one that is cut off in M, N and K beside three that are not; each output dtype; 16-bit outputs
    whose rows are aligned, and not."""
    only(instance)
    rows, high = instance.tile
    more = 0 if isinstance(instance, A16Gemv) else 3
    for M, N, K, dtype in (
        (rows, high, 128, "bfloat16"),
        (max(1, rows - 5) + more, high + 4, 395, "float16"),
        (max(1, rows - 5) + more, high + 8, 328, "float16"),
        (1, 1, 17, "float32"),
    ):
        found = _compared(cuda, given, dtype, {"M": M, "N": N, "K": K}, "normal")
        assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("given", NAMES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_within_the_bound(cuda: CudaContext, given: str, family: str) -> None:
    for M, dtype in zip((3, 17, 40), DTYPES, strict=True):
        variant = "mma" if M == 3 else "gemm"
        found = _compared(cuda, given, dtype, {"M": M, "N": 21, "K": 70}, family, variant=variant)
        assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("instance", [_small(GEMV[0]), _small(MMA[0]), WGMMA[0], SPLIT[0], MIXED], ids=_name)
def test_rings_and_blocks_go_round(cuda: CudaContext, only: Any, instance: Instance) -> None:
    """More stages than a ring has, more tiles than blocks, more passes than warps."""
    only(instance)
    rows, high = instance.tile
    M = rows if isinstance(instance, A16Gemv) else rows + 1
    K = 130 * instance.stages * instance.panels if isinstance(instance, A16Wgmma) else 1300
    for dtype in ("float32", "bfloat16"):
        found = _compared(cuda, "bfloat16", dtype, {"M": M, "N": 3 * high, "K": K}, "uniform")
        assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("M", "strips"),
    [(200, (3, 0)), (200, (3, 1)), (200, (1, 1)), (90, (2, 0)), (330, (1, 2)), (330, (2, 0)), (5, (1, 0))],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_strips_that_end_in_smaller_tiles_are_within_the_bound(
    cuda: CudaContext, only: Any, monkeypatch: pytest.MonkeyPatch, M: int, strips: tuple[int, int], dtype: str
) -> None:
    """Any number of strips, with any number of whole tiles: three strips, the last partial."""
    only(MIXED)
    monkeypatch.setattr(A16Wgmma, "strips", lambda *asked: strips)
    found = _compared(cuda, "bfloat16", dtype, {"M": M, "N": 2 * MIXED.tile[1] + 8, "K": 152}, "normal")
    assert found.first is None, found.first


@given(M=st.integers(1, 3000), N=st.integers(1, 30000), K=st.integers(1, 20000), sms=st.integers(1, 200))
def test_smaller_tiles_at_the_end_are_never_predicted_to_take_longer(M: int, N: int, K: int, sms: int) -> None:
    alike = replace(MIXED, last=None)
    waves, panels = -(-tiles_of(alike.tile, M, N) // sms), -(-K // 64)
    launch, tile, panel, busy = alike.costs
    most = launch + waves * (tile + panels * (panel + busy))
    assert MIXED.predicted_us(M, N, K, sms) <= most + 1e-6
    blocks, mixed, whole = MIXED.launched(M, N, K, sms)
    rows, high = MIXED.tile
    assert (mixed, whole) == MIXED.strips(M, N, K, sms)
    tiles = (-(-N // high) - mixed) * -(-M // rows) + mixed * (whole + tiles_of((MIXED.tail, 1), M - whole * rows, 1))
    assert blocks == min(tiles, sms)


@pytest.mark.cuda
@pytest.mark.parametrize("gap", [1, 8])
@pytest.mark.parametrize("instance", [GEMV[0], MMA[0], WGMMA[0], MIXED, SPLIT[0]], ids=_name)
def test_rows_of_activations_may_lie_apart(cuda: CudaContext, only: Any, instance: Instance, gap: int) -> None:
    only(instance)
    found = _compared(cuda, "float16", "bfloat16", {"M": 7, "N": 40, "K": 200}, "normal", gap)
    assert found.first is None, found.first


def _of(M: int, N: int, K: int, dtype: str = "bfloat16") -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    return rng.standard_normal((M, K)).astype(named_dtype(dtype)), codes


@pytest.mark.cuda
@pytest.mark.parametrize("M", [3, 20])
def test_nan_and_infinities_go_through(cuda: CudaContext, M: int) -> None:
    activations, codes = _of(M, 24, 100, "float16")
    activations[1, 4], activations[2, 5] = np.nan, np.inf
    out = ternary_matmul_a16(activations, pack_weights(codes, 0.5))
    assert np.isnan(out[1]).all()
    weights = codes[:, 5]
    assert np.array_equal(out[2], np.where(weights == 0, np.nan, np.copysign(np.inf, weights)), equal_nan=True)
    assert np.isfinite(np.delete(out, (1, 2), axis=0)).all()


@pytest.mark.cuda
def test_the_function_takes_what_pack_weights_makes(cuda: CudaContext) -> None:
    activations, codes = _of(5, 24, 128)
    for format in ("row16", "tile64", "i2_s_x86"):
        weights = pack_weights(codes, 0.5, format=format)
        out, receipt = with_receipt(activations, weights, dtype="float16")
        assert np.allclose(out, 0.5 * activations.astype(np.float64) @ codes.T, rtol=1e-2, atol=1e-2)
        assert receipt.kernel.startswith("cuda/ternary_matmul_bf16/row16/float16/")
        assert ("repacked" in receipt.note) == (format != "row16")
        one = np.empty(24, np.float32)
        assert ternary_matmul_a16(activations[0], weights, out=one) is one
        assert np.allclose(one, out[0], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"activations": np.ones((2, 64), np.float32)}, "activations"),
        ({"activations": [1.0]}, "activations"),
        ({"activations": np.ones((2, 63), np.float16)}, "activations"),
        ({"activations": np.ones((0, 64), np.float16)}, "activations"),
        ({"dtype": "int32"}, "dtype"),
        ({"weights": np.ones((3, 64), np.int8)}, "weights"),
        ({"weights": pack_weights(np.ones((4, 64), np.int8), np.ones(4, np.float32), format="iq2_bn")}, "weights"),
        ({"out": np.empty((2, 4), np.float32)}, "out"),
    ],
)
def test_bad_arguments_are_named(simulator: CudaContext, change: dict[str, Any], argument: str) -> None:
    good = {"activations": np.ones((2, 64), np.float16), "weights": pack_weights(np.ones((3, 64), np.int8), 1.0)}
    with pytest.raises(InvalidArgumentError) as caught:
        ternary_matmul_a16(**{**good, **change})
    assert caught.value.argument == argument


@pytest.mark.parametrize("given", NAMES)
def test_the_bound_catches_one_product_that_is_missing(given: str) -> None:
    op, axes = OPS[given], {"M": 4, "N": 5, "K": 64}
    inputs = op.generate(axes, "constant", np.random.default_rng(0))
    key = KernelKey("cuda", op.name, "row16", "float32")
    (expected,) = expectations(op, axes, key, op.reference(inputs, axes, key))
    out = expected.values.copy()
    assert compare(expected, out).wrong.size == 0
    out[2, 3] -= np.float32(inputs["activations"][2, 63]) * inputs["weights"][3, 63] * inputs["weight_scale"]
    assert compare(expected, out).wrong.tolist() == [2 * 5 + 3]


@given(M=st.integers(1, 1 << 16), N=st.integers(1, 1 << 18), K=st.integers(1, 1 << 20), sms=st.integers(1, 200))
def test_the_chosen_instance_fits_a_multiprocessor(M: int, N: int, K: int, sms: int) -> None:
    for _, _, _, instances, constraints in cuda.MAKERS:
        if any(each.refusal({"M": M, "N": N, "K": K}) for each in constraints):
            continue
        chosen = cuda.fastest(instances, M, N, K, sms)
        kernel = KERNELS[chosen, "bfloat16"]
        assert chosen.shared(M, K) <= kernel.shared
        assert chosen.block(K) <= kernel.threads
        assert kernel.threads * kernel.registers <= REGISTERS_PER_BLOCK


@given(
    M=st.integers(1, 3000),
    N=st.integers(1, 30000),
    K=st.integers(1, 40000),
    sms=st.integers(1, 200),
    optin=st.sampled_from([99 << 10, 227 << 10]),
)
def test_the_first_of_the_instances_is_what_is_launched(M: int, N: int, K: int, sms: int, optin: int) -> None:
    info, axes = SimpleNamespace(sms=sms, shared_per_block_optin=optin), {"M": M, "N": N, "K": K}
    for _, _, _, instances, constraints in cuda.MAKERS:
        if any(constraint.refusal(axes) for constraint in constraints):
            continue
        found = cuda.by_name(instances, "bfloat16", 2, axes, info)  # type: ignore[arg-type]
        fit = tuple(each for each in instances if each.shared(M, K) <= optin)
        first = instance_name(cuda.KERNELS[cuda.fastest(fit, M, N, K, sms), "bfloat16"])
        assert next(iter(found)) == first
        assert len(found) == sum(each.predicted_us(M, N, K, sms) < inf for each in fit)


@pytest.mark.nightly
@pytest.mark.cuda
@pytest.mark.parametrize("M", [3, 40])
def test_autotune_may_choose_every_instance_that_takes_the_product(cuda: CudaContext, M: int) -> None:
    axes = {"M": M, "N": 40, "K": 136}
    made = BY_NAME[NAMES["bfloat16"], "gemm" if M > 8 else "mma", "bfloat16"]
    assert made.instances is not None
    each = made.instances(axes).each
    assert len(each) > 3
    for name, instance in each.items():
        found = _compared(cuda, "bfloat16", "bfloat16", axes, "normal", variant=instance)
        assert found.first is None, (name, found.first)


def test_rings_of_tiles_of_their_own_have_as_many_stages_as_fit() -> None:
    """Memory beyond their outputs; outputs of few rows are long enough."""
    for instance in WGMMA:
        assert instance.shared_bytes <= WGMMA_SHARED
        one_more = replace(instance, stages=instance.stages + 1).shared_bytes
        assert instance.split > 1 or instance.stages >= 16 or one_more > WGMMA_SHARED or instance.last


FAULTS = [
    ("gemv.cu", "", ""),
    ("gemm_mma.cu", "", ""),
    ("gemm_wgmma.cu", "", ""),
    ("a16.cuh", "0x4140), high", "0x4041), high"),
    ("a16.cuh", "0xc300u - (unsigned)(i) * 0x100u", "0xc300u - (unsigned)(i) * 0x200u"),
    ("gemv.cu", "row < N && chunk < chunks);", "chunk < chunks);"),
    ("gemv.cu", "min(16, max(0, 2 * (K - k)))", "16"),
    ("gemv.cu", "last ? 0 : pass + 1", "0"),
    ("gemv.cu", "placed(8 * c + g, t, 2 * j + 1)", "placed(8 * c + g, t, 2 * j)"),
    ("gemv.cu", "acc[c][r / 2][0][e] + acc[c][r / 2][1][e]", "acc[c][r / 2][0][e]"),
    ("gemm_mma.cu", "m0 + 8 * c + g < M", "8 * c + g < M"),
    ("gemm_mma.cu", "row < N && chunk < chunks", "chunk < chunks"),
    ("gemm_mma.cu", "from += 4 * STEPS * warps", "from += 4 * STEPS * warps + 1"),
    ("gemm_wgmma.cu", "twice(BACK(t / 2 + 2))", "twice(BACK(t / 2))"),
    ("gemm_wgmma.cu", "m < job.M - m0 && row + n < job.N - n0", "m < job.M - m0"),
    ("gemm_wgmma.cu", "acts + part * SLICES / 4 * COLUMNS * DEPTH", "acts"),
    ("gemm_wgmma.cu", "m0 + m < job.M && n0 + n < job.N", "m0 + m < job.M"),
    (
        "gemm_wgmma.cu",
        "(m0 + m) * (long long)job.N + n0 + n, sum * weight_scale",
        "(m0 + m) * (long long)job.N + n, sum",
    ),
    ("gemm_wgmma.cu", "weights_at(row + 64 * block + 8 * i, panel)", "weights_at(row + 64 * block + 8 * i, 0)"),
    ("gemm_wgmma.cu", "sums[2 * i + 1] * scale", "sums[2 * i + 1]"),
    ("gemm_wgmma.cu", "byte / 2, K", "byte, K"),
    ("gemm_wgmma.cu", "row * lda", "row * 2 * K"),
    ("wgmma_tiles.cuh", "m0 + row < M ? activations(", "true ? activations("),
    ("wgmma_tiles.cuh", "n0 + row < N && from < chunks", "from < chunks"),
    ("wgmma_tiles.cuh", "row * (16 * CHUNKS)", "row * (8 * CHUNKS)"),
    ("wgmma_tiles.cuh", "m0 + m < M && at < N", "at < N"),
    ("wgmma_tiles.cuh", "m0 + m < M && at < N", "m0 + m < M"),
    ("wgmma_tiles.cuh", "lane / 16 * 8 + lane % 8", "lane % 8"),
    ("wgmma_tiles.cuh", "2 * warp + lane / 8 % 2", "2 * warp"),
    ("wgmma_tiles.cuh", "N % 8 == 0 && ", ""),
]
"""Source, original text, and the fault that replaces it; none in the first three."""


@pytest.mark.cuda
@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_a_fault_in_the_source_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """By the bound of the product, or by the simulator, which sees what is read past an array."""
    monkeypatch.setenv(SELECT, "simulator")
    context = cuda_context()
    plant(tmp_path, _SOURCES, source_of("ternary_matmul_a16", file), right, wrong)
    every = (_small(GEMV[0]), _small(MMA[0]), SAME[0], SPLIT[0])
    seen = set()
    for instance in every:
        reads = [_file(instance), *(["wgmma_tiles.cuh"] if isinstance(instance, A16Wgmma) else [])]
        if file not in reads and (file != "a16.cuh" or instance != every[0]):
            continue
        _from(tmp_path, monkeypatch, instance)
        # Rows that are aligned and rows that are not; of outputs too.
        for K, more, dtype in (
            ((403, 9, "float32"), (416, 9, "bfloat16"), (416, 8, "bfloat16"))
            if isinstance(instance, A16Wgmma)
            else ((1203, 9, "float32"), (1208, 9, "float32"))
        ):
            axes = {"M": 5 if isinstance(instance, A16Gemv) else 21, "N": instance.tile[1] + more, "K": K}
            try:
                # Strided rows if the fault is in the stride.
                gap = 3 if "lda" in right else 0
                first = _compared(context, "bfloat16", dtype, axes, "normal", gap).first
                seen.add("" if first is None else "wrong")
            except DeviceFaultError:
                seen.add("past an array")
    assert (seen == {""}) is not bool(right), seen


def _from(folder: Path, patch: pytest.MonkeyPatch, instance: Instance) -> None:
    """That instance alone, of the sources there, is launched for bfloat16 activations."""
    kernel = replace(cuda._kernel(instance, "bfloat16"), file=str(folder / "ternary_matmul_a16" / _file(instance)))
    patch.setattr(cuda, "KERNELS", {(instance, "bfloat16"): kernel})
    patch.setattr(cuda, "fastest", lambda *asked: instance)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("wgmma_tiles.cuh", "", ""),
        ("wgmma_tiles.cuh", "mixed_wide * COLUMNS + tile % mixed_tail * TAIL", "tile % mixed_tail * TAIL"),
        ("wgmma_tiles.cuh", "(plain + tile / mixed_tail) * ROWS", "tile / mixed_tail * ROWS"),
        ("wgmma_tiles.cuh", "(M - mixed_wide * COLUMNS + TAIL - 1)", "(M - mixed_wide * COLUMNS)"),
        ("wgmma_tiles.cuh", "return block * WIDTH * DEPTH", "return block * DEPTH"),
        ("gemm_wgmma.cu", "here.tile<TAIL>(tiles.at(tile).x,", "here.tile<TAIL>(0,"),
        ("gemm_wgmma.cu", "sixteen < WIDTH / 16", "sixteen < 6"),
        ("gemm_wgmma.cu", "const float *const sums = acc[block] + 8 * sixteen", "const float *const sums = acc[block]"),
        ("gemm_wgmma.cu", "to + output_at<WIDTH>(block, 16 * sixteen, 0)", "to"),
    ],
)
def test_a_fault_in_smaller_tiles_is_seen(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    plant(tmp_path, _SOURCES, source_of("ternary_matmul_a16", file), right, wrong)
    _from(tmp_path, monkeypatch, MIXED)
    monkeypatch.setattr(A16Wgmma, "strips", lambda *asked: (1, 1))
    try:
        axes = {"M": 290, "N": 2 * MIXED.tile[1], "K": 64}
        seen = _compared(cuda, "bfloat16", "bfloat16", axes, "normal").first is not None
    except DeviceFaultError:  # the simulator detects reads of unwritten memory
        seen = True
    assert seen == bool(right)


OF_THE_ENGINE = [
    (SAME[0], "", ""),
    (SAME[0], "row * (CHUNKS / 2) / 4 % CHUNKS", "0"),
    (SAME[0], "(first + step) * 16 * CHUNKS, n0, full", "(first + step) * 16, n0, full"),
    (SAME[0], "(first + step) * STAGE_DEPTH + DEPTH * panel, m0 + row", "(first + step) * STAGE_DEPTH, m0 + row"),
    (SAME[0], "to_a + (COLUMNS * panel + row) * DEPTH, map_a", "to_a + row * DEPTH, map_a"),
    (MIXED, "m0 + row, full + turn.stage", "m0, full + turn.stage"),
    (MIXED, "2 * (n + 64 * block), m0 + m, from", "2 * n, m0 + m, from"),
    (MIXED, "2 * (n + 64 * block), m0 + m, from", "2 * (n + 64 * block), m0, from"),
    (MIXED, "m0 + m, from + output_at<WIDTH>(block, m, 0)", "m0 + m, from + output_at<WIDTH>(block, 0, 0)"),
    (MIXED, "m0 + m, from + output_at<WIDTH>(block, m, 0)", "m0 + m, from + output_at<WIDTH>(0, m, 0)"),
    (SPLIT[0], "all_steps * (rank + 1) / SHARES", "all_steps / SHARES * (rank + 1)"),
    (SPLIT[0], "map_w, (first + step) * 16 * CHUNKS, n0, full", "map_w, step * 16 * CHUNKS, n0, full"),
    (SPLIT[0], "const int byte = (first + step) * STAGE_DEPTH", "const int byte = step * STAGE_DEPTH"),
]
"""Faults in the copy engine's part and in clusters, which the simulator does not have."""


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("instance", "right", "wrong"), OF_THE_ENGINE, ids=lambda each: each if isinstance(each, str) else _name(each)
)
def test_a_fault_in_what_the_engine_copies_is_seen(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, instance: A16Wgmma, right: str, wrong: str
) -> None:
    """With rows that it copies, and rows that it does not."""
    if cuda.backend.simulated and right:
        pytest.skip("needs a GPU of NVIDIA's: the simulator has no copy engine and no clusters (pytest -m cuda there)")
    plant(tmp_path, _SOURCES, "cuda/tiles/wgmma_tiles.cuh", right, wrong)
    _from(tmp_path, monkeypatch, instance)
    monkeypatch.setattr(A16Wgmma, "strips", lambda *asked: (1, 1))
    rows, high = instance.tile
    seen = set()
    for K in (1224, 1229):
        axes = {"M": 2 * rows + 34, "N": 2 * high + 72, "K": K}
        seen.add(_compared(cuda, "bfloat16", "bfloat16", axes, "normal").first is None)
    assert (seen == {True}) == (not right)


_SOURCES = tuple(f"ternary_matmul_a16/{name}.cu" for name in ("gemv", "gemm_mma", "gemm_wgmma"))


def _file(instance: Instance) -> str:
    return Path(cuda._kernel(instance, "bfloat16").file).name
