"""ternary_matmul on the GPU, or in the simulator, straight from the bytes of gpu_int2: the integer product's bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_products import DTYPES, data_of, expected, product, same
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_sources import plant

from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError
from tritmark.harness.record import Status
from tritmark.harness.spec import Variant
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.kernels import FORMATS, OPS, PackedWeights, QuantizedLinear, pack_weights
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch.launch import Call, compute
from tritmark.kernels.ternary_matmul import cuda_gpu_int2
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.cuda_arguments import SHARED
from tritmark.kernels.ternary_matmul.cuda_gpu_int2 import KERNELS, MMA, MMA_K, ONE, mma_for, warps_of
from tritmark.kernels.ternary_matmul.spec import MAX_K

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

OP = next(op for op in OPS if op.name == "ternary_matmul")
VARIANTS = {(variant.name, variant.key.dtype): variant for variant in cuda_gpu_int2.VARIANTS}
NAMES = tuple(dict.fromkeys(name for name, _ in VARIANTS))
# (M, N, K): one tile, an odd number of strips, of tiles in a warp's load; several passes, turns over M and their tails.
SHAPES = (
    (1, 16, 32),
    (1, 48, 1184),
    (2, 16, 64),
    (4, 32, 2080),
    (5, 80, 96),
    (8, 16, 128),
    (9, 48, 160),
    (17, 32, 320),
    (40, 48, 352),
)


def _admits(variant: Variant, M: int, N: int, K: int) -> bool:
    return all(constraint.refusal({"M": M, "N": N, "K": K}) is None for constraint in variant.constraints)


@pytest.fixture(scope="module")
def context() -> Any:
    """As `cuda`, for tests that hypothesis runs many times."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT

    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "shape"), [(name, shape) for name in NAMES for shape in SHAPES if _admits(VARIANTS[name, "int32"], *shape)]
)
def test_every_kernel_gives_the_exact_product(
    context: CudaContext, name: str, shape: tuple[int, int, int], dtype: str
) -> None:
    data = data_of(*shape)
    same(product(context, VARIANTS[name, dtype], data), expected(data, dtype))


@settings(max_examples=12)
@given(M=st.integers(1, 40), strips=st.integers(1, 5), tiles=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_any_shape_is_exact(context: CudaContext, M: int, strips: int, tiles: int, seed: int) -> None:
    data = data_of(M, 16 * strips, 32 * tiles, seed)
    for name in NAMES:
        if _admits(VARIANTS[name, "int32"], M, 16 * strips, 32 * tiles):
            same(product(context, VARIANTS[name, "int32"], data), expected(data, "int32"))


@pytest.mark.parametrize("warps", [2, 3, 16])
@pytest.mark.parametrize("instance", KERNELS, ids=str)
def test_every_instance_is_exact_however_k_is_shared(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: cuda_gpu_int2.Instance, warps: int
) -> None:
    """Several passes of each warp, warps without a column of their own; a block that has several shares."""
    warps = min(warps, (SHARED - cuda_gpu_int2.FACTORS) // instance.sums)
    monkeypatch.setattr(cuda_gpu_int2, "warps_of", lambda *asked: warps)
    params = Call.params
    monkeypatch.setattr(
        Call,
        "params",
        lambda call, kernel, asked, *rest, **named: params(call, kernel, 2, *rest, **named),
    )
    rows, high = instance.tile
    data = data_of(2 * rows + (rows > 1), 2 * high + 16, 864)
    monkeypatch.setattr(cuda_gpu_int2, "SEVERAL" if instance != ONE else "ONE", instance)
    monkeypatch.setattr(cuda_gpu_int2, "mma_for", lambda M: instance)
    if instance == ONE:
        monkeypatch.setattr(cuda_gpu_int2, "SEVERAL", ONE)
    name = "mma" if instance in MMA else "dp4a"
    same(product(context, VARIANTS[name, "int32"], data), expected(data, "int32"))


@pytest.mark.parametrize("activation", [-128, 127])
@pytest.mark.parametrize("code", [-1, 0, 1])
@pytest.mark.parametrize(("name", "M"), [("dp4a", 1), ("dp4a", 4), ("mma", 3)])
def test_the_largest_sums_are_exact(context: CudaContext, name: str, M: int, activation: int, code: int) -> None:
    K = 65536
    data = np.full((M, K), activation, np.int8), np.full((16, K), code, np.int8), np.float32(1), np.ones(M, np.float32)
    same(product(context, VARIANTS[name, "int32"], data), np.full((M, 16), activation * code * K, np.int32))


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_meets_its_own_activation(context: CudaContext, name: str) -> None:
    """Weight k of row k alone, and the activations all different."""
    K = 160
    activations = np.stack([np.arange(K) - 128, 127 - np.arange(K)]).astype(np.int8)
    data = activations, np.eye(K, dtype=np.int8), np.float32(1), np.ones(2, np.float32)
    same(product(context, VARIANTS[name, "int32"], data), activations.astype(np.int32))


@pytest.mark.parametrize("gap", [1, 16, 61])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_activations_may_lie_apart(context: CudaContext, name: str, gap: int) -> None:
    M, N, K = 11, 48, 192
    data = data_of(M, N, K)
    apart = np.full((M, K + gap), 99, np.int8)
    apart[:, :K] = data[0]
    there = context.upload(apart).view((M, K), strides=(K + gap, 1))
    same(product(context, VARIANTS[name, "int32"], data, there), expected(data, "int32"))


@pytest.mark.parametrize("name", NAMES)
def test_activations_at_another_address_are_refused(context: CudaContext, name: str) -> None:
    data = data_of(2, 16, 64)
    there = context.upload(np.concatenate([np.zeros(3, np.int8), data[0].reshape(-1)])).view((2, 64), offset=3)
    with pytest.raises(InvalidArgumentError, match="activations is at address"):
        product(context, VARIANTS[name, "int32"], data, there)


@given(
    instance=st.sampled_from(list(KERNELS)),
    M=st.integers(1, 5000),
    strips=st.integers(1, 1 << 16),
    K=st.integers(1, MMA_K // 32) | st.integers(1, MAX_K // 32),
    sms=st.integers(1, 200),
)
def test_a_block_fits_and_its_sums_do(instance: cuda_gpu_int2.Instance, M: int, strips: int, K: int, sms: int) -> None:
    K = 32 * min(K, MMA_K // 32) if instance in MMA else 32 * K
    warps = warps_of(instance, M, 16 * strips, K, sms)
    assert instance.least_threads <= 32 * warps <= cuda_gpu_int2.THREADS
    assert warps * instance.sums + 8 * 8 * getattr(instance, "groups", 0) <= SHARED
    passes = -(-K // (cuda_gpu_int2.LOAD * instance.steps * warps))
    columns = passes * cuda_gpu_int2.LOAD * instance.steps
    # Sums of a lane: 64 * 128 for a column of its warp; 192 * 128 for the columns of field 3, 1 of 32.
    assert columns * (64 * 128 if instance in MMA else 192 * 128 // 32) < 1 << 31


@pytest.mark.parametrize(("M", "groups"), [(2, 1), (8, 1), (9, 2), (16, 2), (17, 2), (32, 2), (33, 4), (512, 4)])
def test_few_rows_of_activations_take_a_small_instance(M: int, groups: int) -> None:
    assert mma_for(M).groups == groups


@pytest.mark.parametrize("M", [1, 2, 9])
@pytest.mark.parametrize("tensor_cores", [False, True])
def test_which_kernel_is_chosen(M: int, tensor_cores: bool) -> None:
    offered = {compute((7, 0))} | ({compute((8, 0))} if tensor_cores else set())
    fitting = [
        variant
        for variant in cuda_gpu_int2.VARIANTS
        if variant.key.dtype == "int32" and variant.features <= offered and _admits(variant, M, 640, 2560)
    ]
    best = max(variant.precedence for variant in fitting)
    (chosen,) = (variant.name for variant in fitting if variant.precedence == best)
    assert chosen == ("mma" if tensor_cores and M > 1 else "dp4a")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernels_pass_on_drawn_cases(context: CudaContext, name: str, dtype: str) -> None:
    from tritmark.kernels.dispatch import dispatch

    variant = VARIANTS[name, dtype]
    device = dispatch.registry().devices["cuda"]
    found = judge_drawn(OP, variant, variant.key, corners=(), count=4, seed=11, cores=2, device=device).accuracy
    assert found.status is Status.PASS, found.reason


FAULTS = (
    ("gpu_int2.cu", "", ""),
    ("gpu_int2_mma.cu", "", ""),
    ("gpu_int2.cu", "of[i] -= 2 * act_sum[m];", "of[i] -= act_sum[m];"),
    ("gpu_int2.cu", "dp4a_unsigned(words[i] & 0xc0c0c0c0u", "__dp4a((int)(words[i] & 0xc0c0c0c0u)"),
    ("gpu_int2.cu", "16 * (lane / 2 % 2)", "16 * (lane / 4 % 2)"),
    ("gpu_int2.cu", "first + tile < tiles", "first < tiles"),
    ("gpu_int2.cu", "m0 + m < M && k < K", "k < K"),
    ("gpu_int2.cu", "sum += sums[(i * ROWS + m_done) * HIGH + row_done];", "sum = sums[m_done * HIGH + row_done];"),
    ("gpu_int2_mma.cu", "word << (6 - 2 * i) ^ 0x80808080u", "word << (6 - 2 * i) ^ 0xc0c0c0c0u"),
    ("gpu_int2_mma.cu", "4 * (g / 2 % 2) + 2 * (t % 2)", "4 * (t % 2) + 2 * (g / 2 % 2)"),
    ("gpu_int2_mma.cu", "first + t / 2 < tiles", "first < tiles"),
    ("gpu_int2_mma.cu", "8 * q + 2 * t + j) * PITCH", "8 * q + t + 4 * j) * PITCH"),
    ("gpu_int2_mma.cu", "m0 + m < M && n < N", "m0 + m < M"),
)
"""Source, original text, and the fault that replaces it; none in the first two."""


@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_a_fault_in_the_source_is_seen(
    simulator: CudaContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """By the bits of the product, or by the simulator, which detects reads past an array."""
    source = f"ternary_matmul/{file}"
    plant(tmp_path, [source], source, right, wrong)
    there = {each: replace(kernel, file=str(tmp_path / source)) for each, kernel in KERNELS.items()}
    monkeypatch.setattr(cuda_gpu_int2, "KERNELS", there)
    seen = set()
    for M in (1, 6) if file == "gpu_int2.cu" else (6,):
        data = data_of(M, 48, 416)
        variant = VARIANTS["dp4a" if file == "gpu_int2.cu" else "mma", "int32"]
        try:
            seen.add("" if np.array_equal(product(simulator, variant, data), expected(data, "int32")) else "wrong")
        except DeviceFaultError:
            seen.add("past an array")
    assert (seen == {""}) is not bool(right), seen


@pytest.mark.parametrize("M", [1, 3])
def test_products_are_computed_from_the_bytes_that_were_given(context: CudaContext, M: int) -> None:
    data = data_of(M, 32, 96)
    activations, codes, weight_scale, act_scale = data
    packed = PackedWeights.from_bytes(FORMATS["gpu_int2"].pack(codes, weight_scale), "gpu_int2", (32, 96), weight_scale)
    out, receipt = with_receipt(activations, packed, act_scale=act_scale, device="cuda")
    name = "dp4a" if M == 1 else "mma"
    assert (receipt.kernel, receipt.ran) == (f"cuda/ternary_matmul/gpu_int2/float32/{name}", name)
    assert "repacked" not in receipt.note
    same(out, expected(data, "float32"))
    layer = QuantizedLinear(packed, device="cuda")
    layer(np.ones((M, 96), np.float32))
    assert layer.receipt is not None
    assert layer.receipt.kernel == receipt.kernel


@pytest.mark.parametrize("format", ["hf_pack", "i2_s_x86", "tl1"])
def test_formats_without_a_kernel_are_repacked_into_row16(context: CudaContext, format: str) -> None:
    data = data_of(9, 128, 128)
    activations, codes, weight_scale, act_scale = data
    packed = pack_weights(codes, weight_scale, format=format)
    for M in (1, 9):
        out, receipt = with_receipt(activations[:M], packed, act_scale=act_scale[:M], device="cuda")
        assert receipt.kernel.split("/")[2] == "row16"
        assert receipt.note == f"computed from row16, repacked from {format}"
        same(out, expected((activations[:M], codes, weight_scale, act_scale[:M]), "float32"))
