"""ternary_matmul on the GPU, or in the simulator, straight from the bytes of tq2_0 and iq2_bn: the CPU's bits."""

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

from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.record import Status
from tritmark.harness.spec import KernelKey, Requirement, Variant
from tritmark.harness.validate.drawn import judge_drawn
from tritmark.kernels import FORMATS, OPS, PackedWeights, QuantizedLinear, pack_weights
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch.launch import Call, compute
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.ternary_matmul import cuda_scaled
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.cuda_arguments import SHARED
from tritmark.kernels.ternary_matmul.cuda_scaled import KERNELS, ScaledDp4a, ScaledMma, instances, mma_for
from tritmark.kernels.ternary_matmul.spec import MAX_K

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

OP = next(op for op in OPS if op.name == "ternary_matmul")
VARIANTS = {(each.key.format, each.name, each.key.dtype): each for each in cuda_scaled.VARIANTS}
KINDS = tuple(VARIANTS)
NAMES = tuple(dict.fromkeys((format, name) for format, name, _ in VARIANTS))
# (M, N, groups of 256 columns): one group; rows that are no multiple of 4, 16 or 32; several turns of a block's warps,
# and several tiles, with their tails.
SHAPES = ((1, 1, 1), (1, 37, 5), (2, 16, 2), (4, 35, 9), (5, 50, 3), (9, 33, 17), (17, 40, 1), (40, 70, 2))


def data_of(format: str, M: int, N: int, K: int, seed: int = 0) -> Data:
    """Drawn over all values; the scales of either sign."""
    rng, form = np.random.default_rng(seed), FORMATS[format]
    scales = rng.uniform(-2, 2, form.scale_shape((N, K))).astype(form.scale_dtype).astype(np.float32)
    activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    return activations, codes, scales, rng.uniform(1e-2, 1e3, M).astype(np.float32)


def expected(format: str, data: Data, dtype: str) -> npt.NDArray[Any]:
    """The bits that a kernel has to give: sums of groups times scales, in order, and one product, in float64."""
    activations, codes, scales, act_scale = data
    K = codes.shape[1]
    group = FORMATS[format].group or K
    total = np.zeros((len(activations), len(codes)))
    for g, k in enumerate(range(0, K, group)):
        # float64 holds these sums, and NumPy multiplies it fast.
        part = activations[:, k : k + group].astype(np.float64) @ codes[:, k : k + group].astype(np.float64).T
        if dtype == "int32":
            return part.astype(np.int32)
        term = part * scales.reshape(len(codes), -1)[:, g].astype(np.float64)
        total = total + term if FORMATS[format].group else term  # a single product may be -0
    factors = 1 / act_scale.astype(np.float64)
    return (total * factors[:, np.newaxis]).astype(np.float32).astype(DTYPES[dtype])


def _admits(variant: Variant, M: int, N: int, K: int) -> bool:
    return all(constraint.refusal({"M": M, "N": N, "K": K}) is None for constraint in variant.constraints)


def _kept(format: str, name: str) -> str:
    """The dtype that shows most: float32 is rounded, int32 is not, and only formats with scales of rows have it."""
    return "int32" if (format, name, "int32") in VARIANTS else "float32"


@pytest.fixture(scope="module")
def context() -> Any:
    """As `cuda`, for tests that hypothesis runs many times."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT

    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, (M, N, 256 * groups)) for kind in KINDS for M, N, groups in SHAPES if kind[1] == "dp4a" or M > 1],
    ids=str,
)
def test_every_kernel_gives_the_exact_product(
    context: CudaContext, kind: tuple[str, str, str], shape: tuple[int, int, int]
) -> None:
    data = data_of(kind[0], *shape)
    same(product(context, VARIANTS[kind], data), expected(kind[0], data, kind[2]))


@settings(max_examples=12)
@given(M=st.integers(1, 40), N=st.integers(1, 80), blocks=st.integers(1, 24), seed=st.integers(0, 2**32))
def test_any_shape_is_exact(context: CudaContext, M: int, N: int, blocks: int, seed: int) -> None:
    for format, name in NAMES:
        variant, K = VARIANTS[format, name, "float32"], blocks * cuda_scaled.FORMATS[format]
        if _admits(variant, M, N, K):
            data = data_of(format, M, N, K, seed)
            same(product(context, variant, data), expected(format, data, "float32"))


@pytest.mark.parametrize("share", [1, 3, 16])
@pytest.mark.parametrize("instance", KERNELS, ids=str)
def test_every_instance_is_exact_however_k_is_shared(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: cuda_scaled.Instance, share: int
) -> None:
    """Several passes of each warp and of each block, warps without a group of their own; a block that has several
    shares."""
    kind = type(instance)
    params = Call.params
    monkeypatch.setattr(
        Call, "params", lambda call, kernel, asked, *rest, **named: params(call, kernel, 2, *rest, **named)
    )
    if isinstance(instance, ScaledDp4a):
        monkeypatch.setattr(kind, "sets", lambda *asked: min(share, 8))
        monkeypatch.setattr(kind, "chunk", lambda *asked: 1 + share % 3)
        monkeypatch.setattr(kind, "warps", lambda self, N, sets, chunk, sms: -(-4 * self.rows * sets // 32))
        M, high = instance.rows, 4 * min(share, 8)
    else:
        monkeypatch.setattr(cuda_scaled, "mma_for", lambda *asked: instance)
        if instance.split:
            most = instance.warps(1, 16, 1)
            monkeypatch.setattr(kind, "warps", lambda *asked: min(share, most))
        M, high = instance.tile
    format = "tq2_0" if instance.grouped else "iq2_bn"
    data = data_of(format, 2 * M + (M > 1), 2 * high + 3, 7 * 256)
    name = "dp4a" if isinstance(instance, ScaledDp4a) else "mma"
    same(product(context, VARIANTS[format, name, "float32"], data), expected(format, data, "float32"))


def far_apart(M: int, N: int, groups: int = 3) -> Data:
    """Scales from the least to the largest of float16. The sum of the first output of the first row is its first term,
    which float64 does not hold beside the second, the second, and that with the other sign: so their order shows."""
    activations, codes, _, act_scale = data_of("tq2_0", M, N, 256 * groups)
    rng = np.random.default_rng(3)
    scales = np.ldexp(rng.uniform(1, 2, (N, groups)), rng.integers(-24, 16, (N, groups))).astype(np.float16)
    scales[0, :3] = 2**-24, 65504, -65504
    codes[0], activations[0, 0] = 0, 1
    codes[0, 0] = 1
    codes[0, 256:512] = codes[0, 512:768] = rng.choice([-1, 1], 256)
    activations[0, 256:512] = activations[0, 512:768] = 127 * codes[0, 256:512]
    return activations, codes, scales.astype(np.float32), act_scale


@pytest.mark.parametrize(("name", "M"), [("dp4a", 1), ("dp4a", 3), ("mma", 3), ("mma", 33)])
def test_groups_are_added_in_the_cpus_order(context: CudaContext, name: str, M: int) -> None:
    data = far_apart(M, 35, 41)
    activations, codes, scales, act_scale = data
    wanted = expected("tq2_0", data, "float32")
    turned = expected("tq2_0", (activations[:, ::-1], codes[:, ::-1], scales[:, ::-1], act_scale), "float32")
    assert wanted[0, 0] == 0 < turned[0, 0]
    found = product(context, VARIANTS["tq2_0", name, "float32"], data)
    same(found, wanted)
    packed = pack_weights(codes, scales, format="tq2_0")
    # In tiles, sums of the groups would be float32.
    on_cpu, receipt = with_receipt(activations, packed, act_scale=act_scale, requirement=Requirement.EXACTNESS)
    assert receipt.kernel.startswith("cpu/ternary_matmul/tq2_0/")
    same(found, on_cpu)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("format", "name"), NAMES)
def test_scales_that_are_no_numbers_show(context: CudaContext, format: str, name: str, value: float) -> None:
    activations, codes, scales, act_scale = data_of(format, 2, 5, 512)
    scales[3] = value
    with np.errstate(invalid="ignore"):
        wanted = expected(format, (activations, codes, scales, act_scale), "float32")
    form = FORMATS[format]
    packed = form.pack(codes, np.ones_like(scales))
    stored = np.frombuffer(np.array(value, form.scale_dtype).tobytes(), np.uint8)
    rows = packed.reshape(5, -1)
    if format == "tq2_0":
        rows.reshape(5, 2, 66)[3, :, 64:] = stored
    else:
        rows[3, :4] = stored
    for row in (0, 1, 2, 4):
        rows[row] = form.pack(codes[row : row + 1], scales[row : row + 1]).reshape(-1)
    out = context.array((2, 5), np.float32)
    inputs = {
        "activations": context.upload(activations),
        "weights": context.upload(packed),
        "weight_scale": np.float32(1),
        "act_scale": context.upload(act_scale),
    }
    VARIANTS[format, name, "float32"].bind(inputs, {"out": out}, {"M": 2, "N": 5, "K": 512}, 1).run()
    np.testing.assert_array_equal(out.numpy(), wanted)


@pytest.mark.parametrize("activation", [-128, 127])
@pytest.mark.parametrize("code", [-1, 1])
@pytest.mark.parametrize(("name", "M"), [("dp4a", 1), ("dp4a", 4), ("mma", 3)])
def test_the_largest_sums_are_exact(context: CudaContext, name: str, M: int, activation: int, code: int) -> None:
    K = 65536
    for format in cuda_scaled.FORMATS:
        form = FORMATS[format]
        scales = np.ones(form.scale_shape((5, K)), np.float32)
        data = np.full((M, K), activation, np.int8), np.full((5, K), code, np.int8), scales, np.ones(M, np.float32)
        dtype = _kept(format, name)
        wanted = np.full((M, 5), activation * code * K, DTYPES[dtype])
        same(product(context, VARIANTS[format, name, dtype], data), wanted)


@pytest.mark.parametrize(("format", "name"), NAMES)
def test_every_weight_meets_its_own_activation(context: CudaContext, format: str, name: str) -> None:
    """Weight k of row k alone, and the activations all different."""
    K = 256
    activations = np.stack([np.arange(K) - 128, 127 - np.arange(K)]).astype(np.int8)
    scales = np.ones(FORMATS[format].scale_shape((K, K)), np.float32)
    data = activations, np.eye(K, dtype=np.int8), scales, np.ones(2, np.float32)
    dtype = _kept(format, name)
    same(product(context, VARIANTS[format, name, dtype], data), activations.astype(DTYPES[dtype]))


@pytest.mark.parametrize("gap", [1, 16, 61])
@pytest.mark.parametrize(("format", "name"), NAMES)
def test_rows_of_activations_may_lie_apart(context: CudaContext, format: str, name: str, gap: int) -> None:
    M, N, K = 11, 18, 512
    data = data_of(format, M, N, K)
    apart = np.full((M, K + gap), 99, np.int8)
    apart[:, :K] = data[0]
    there = context.upload(apart).view((M, K), strides=(K + gap, 1))
    same(product(context, VARIANTS[format, name, "float32"], data, there), expected(format, data, "float32"))


@pytest.mark.parametrize(("format", "name"), NAMES)
def test_activations_at_another_address_are_refused(context: CudaContext, format: str, name: str) -> None:
    data = data_of(format, 2, 16, 256)
    there = context.upload(np.concatenate([np.zeros(3, np.int8), data[0].reshape(-1)])).view((2, 256), offset=3)
    with pytest.raises(InvalidArgumentError, match="activations is at address"):
        product(context, VARIANTS[format, name, "float32"], data, there)


@given(
    instance=st.sampled_from(list(KERNELS)),
    N=st.integers(1, 1 << 20),
    groups=st.integers(1, 200) | st.integers(1, MAX_K // 256),
    sms=st.integers(1, 200),
)
def test_a_block_fits(instance: cuda_scaled.Instance, N: int, groups: int, sms: int) -> None:
    if isinstance(instance, ScaledDp4a):
        sets = instance.sets(N, groups, sms)
        chunk = instance.chunk(groups, sets)
        warps = instance.warps(N, sets, chunk, sms)
        assert min(sets, chunk) >= 1
        assert instance.four * sets * (chunk | 1) <= SHARED
        assert 4 * instance.rows * sets <= 32 * warps
    else:
        warps = instance.warps(-(-N // instance.tile[1]), groups, sms)
        assert warps * instance.sums + instance.fixed <= SHARED
    assert 1 <= warps <= min(instance.threads, cuda_scaled.THREADS) // 32


@pytest.mark.parametrize(
    ("M", "N", "at"),
    [(2, 2560, 0), (8, 13824, 0), (9, 2560, 1), (33, 2560, 1), (64, 2560, 2), (128, 2560, 2), (33, 13824, 3)],
)
@pytest.mark.parametrize("format", cuda_scaled.FORMATS)
def test_the_instance_follows_from_the_rows(format: str, M: int, N: int, at: int) -> None:
    """As measured on a GPU of 132 multiprocessors."""
    assert mma_for(format, M, N, 132) == instances(format)[1][at]


@pytest.mark.parametrize("format", cuda_scaled.FORMATS)
@pytest.mark.parametrize("M", [1, 2, 9])
@pytest.mark.parametrize("tensor_cores", [False, True])
def test_which_kernel_is_chosen(format: str, M: int, tensor_cores: bool) -> None:
    offered = {compute((7, 0))} | ({compute((8, 0))} if tensor_cores else set())
    fitting = [
        variant
        for variant in cuda_scaled.VARIANTS
        if (variant.key.format, variant.key.dtype) == (format, "float32")
        and variant.features <= offered
        and _admits(variant, M, 640, 2560)
    ]
    best = max(variant.precedence for variant in fitting)
    (chosen,) = (variant.name for variant in fitting if variant.precedence == best)
    assert chosen == ("mma" if tensor_cores and M > 1 else "dp4a")


@pytest.mark.parametrize(("format", "name"), NAMES)
def test_the_kernels_pass_on_drawn_cases(context: CudaContext, format: str, name: str) -> None:
    variant = VARIANTS[format, name, "float32"]
    device = dispatch.registry().devices["cuda"]
    found = judge_drawn(OP, variant, variant.key, corners=(), count=2, seed=11, cores=2, device=device).accuracy
    assert found.status is Status.PASS, found.reason


((ONE, SEVERAL), (SPLIT, *_, TILES)), ((ROWS_ONE, ROWS_SEVERAL), (ROWS_SPLIT, *_, ROWS_TILES)) = (
    instances(format) for format in ("tq2_0", "iq2_bn")
)
FAULTS: tuple[tuple[cuda_scaled.Instance, str, str, str], ...] = (
    (ONE, "scaled.cuh", "* 66 + 16 * u", "* 64 + 16 * u"),
    (ONE, "scaled.cuh", "g * 66 + 64", "g * 66"),
    (ONE, "scaled.cuh", "128 * (u / 2) + 16 * (u % 2) + 32 * i", "64 * u + 16 * i"),
    (ONE, "scaled.cuh", "& 2 ? 0x5432 : 0x3210", "& 2 ? 0x3210 : 0x3210"),
    (ONE, "scaled.cuh", "if (from + 24 <= end)", "if (true)"),
    (ONE, "scaled.cuh", "__dmul_rn(sum, factor)", "__dmul_rn((double)(float)sum, factor)"),
    (ROWS_ONE, "scaled.cuh", "return 4 + ((long long)g * 4 + u) * 16;", "return ((long long)g * 4 + u) * 16;"),
    (ROWS_ONE, "scaled.cuh", "return GROUPED || ", "return true || "),
    (ROWS_ONE, "scaled.cuh", "const bool up = (unsigned long long)at & 4;", "const bool up = false;"),
    (ONE, "scaled.cu", "FOUR * set + r, N - 1)", "FOUR * set + r, N)"),
    (ONE, "scaled.cu", "for (int g = 0; g < count; g++)", "for (int g = count - 1; g >= 0; g--)"),
    (ONE, "scaled.cu", "total += parts[", "total = parts["),
    (ROWS_ONE, "scaled.cu", "(behind ? back : front)", "(behind ? front : back)"),
    (SEVERAL, "scaled.cu", "acc[m][r] -= act_sum[m];", "acc[m][r] -= act_sum[0];"),
    (SPLIT, "scaled_mma.cu", "16 * s + 8 * h + row, N - 1)", "16 * s + 8 * h + row, N)"),
    (SPLIT, "scaled_mma.cu", "(6 - 2 * i)", "(2 * i)"),
    (SPLIT, "scaled_mma.cu", "Total total = totals[i];", "Total total = 0;"),
    (SPLIT, "scaled_mma.cu", "m < M && n < N", "m < M"),
    (TILES, "scaled_mma.cu", "(double)scale[s][c / 2] / 64", "(double)scale[s][c % 2] / 64"),
    (ROWS_TILES, "scaled_mma.cu", "acc[q][s][c] >> 6", "acc[q][s][c] >> 5"),
    (ROWS_SPLIT, "scaled_mma.cu", "row_scales[i % HIGH]", "row_scales[i / HIGH]"),
)
"""An instance, its source or a file that it includes, the original text, and the fault that replaces it."""
HONEST = tuple((each, "scaled.cuh", "", "") for each in (ONE, ROWS_SEVERAL, SPLIT, TILES, ROWS_TILES))


@pytest.mark.parametrize(("instance", "file", "right", "wrong"), [*HONEST, *FAULTS])
def test_a_fault_in_the_source_is_seen(
    simulator: CudaContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    instance: cuda_scaled.Instance,
    file: str,
    right: str,
    wrong: str,
) -> None:
    """By the bits of the product, or by the simulator, which detects reads past an array."""
    kernel = KERNELS[instance]
    plant(tmp_path, [kernel.file], f"ternary_matmul/{file}", right, wrong)
    there = replace(kernel, file=str(tmp_path / kernel.file))
    monkeypatch.setattr(cuda_scaled, "KERNELS", {instance: there})
    monkeypatch.setattr(cuda_scaled, "mma_for", lambda *asked: instance)
    monkeypatch.setattr(ScaledMma, "warps", lambda *asked: 2)  # less than there are groups, and no divisor of them
    format, name = "tq2_0" if instance.grouped else "iq2_bn", "dp4a" if isinstance(instance, ScaledDp4a) else "mma"
    data = far_apart(1 if instance == ONE else 6, 34) if instance.grouped else data_of(format, 6, 34, 704)
    if instance == ROWS_ONE:
        data = (data[0][:1], *data[1:3], data[3][:1])
    try:
        found = product(simulator, VARIANTS[format, name, "float32"], data)
        seen = "" if np.array_equal(found, expected(format, data, "float32")) else "wrong"
    except DeviceFaultError:
        seen = "past an array"
    assert bool(seen) is bool(right)


@pytest.mark.parametrize(("format", "given"), [("tq2_0", "tq2_0"), ("iq2_bn", "iq2_bn_r4")])
@pytest.mark.parametrize("M", [1, 3])
def test_products_are_computed_from_the_bytes_that_were_given(
    context: CudaContext, M: int, format: str, given: str
) -> None:
    """From another format with the same scales if no kernel reads the weights' own."""
    data = data_of(format, M, 32, 512)
    activations, codes, scales, act_scale = data
    packed = PackedWeights.from_bytes(FORMATS[given].pack(codes, scales), given, (32, 512))
    out, receipt = with_receipt(activations, packed, act_scale=act_scale, device="cuda")
    name = "dp4a" if M == 1 else "mma"
    assert (receipt.kernel, receipt.ran) == (f"cuda/ternary_matmul/{format}/float32/{name}", name)
    assert receipt.note == ("" if format == given else f"computed from {format}, repacked from {given}")
    same(out, expected(format, data, "float32"))
    same(out, with_receipt(activations, packed, act_scale=act_scale)[0])
    layer = QuantizedLinear(packed, device="cuda")
    x = np.random.default_rng(M).normal(size=(M, 512)).astype(np.float32)
    same(layer(x), QuantizedLinear(packed)(x))
    assert layer.receipt is not None
    assert layer.receipt.kernel == receipt.kernel


def test_sums_of_groups_have_no_int32(context: CudaContext) -> None:
    key = KernelKey("cuda", OP.name, "tq2_0", "int32")
    with pytest.raises(NoCompatibleKernelError, match="tq2_0"):
        dispatch.registry().select_best(key, {"M": 1, "N": 4, "K": 256})
    with pytest.raises(InvalidArgumentError, match="a scale for each group"):
        with_receipt(
            np.zeros((1, 256), np.int8),
            pack_weights(np.ones((4, 256), np.int8), np.float32(1), format="tq2_0"),
            dtype="int32",
            device="cuda",
        )
