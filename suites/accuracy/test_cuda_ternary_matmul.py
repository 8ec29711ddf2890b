"""ternary_matmul on the GPU, or in the simulator: every kernel gives the integer product's bits, for any shape and
stride."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_products import DTYPES, data_of, expected, product, same
from hypothesis import given, settings
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.cuda.kernel import OVERLAPPING
from tritmark.kernels.cuda.launch.launch import alone, compute
from tritmark.kernels.cuda.tiles.product import WARP
from tritmark.kernels.ternary_matmul import cuda as kernels
from tritmark.kernels.ternary_matmul.cuda_arguments import SHARED
from tritmark.kernels.ternary_matmul.spec import MAX_K

VARIANTS = {(variant.name, variant.key.dtype): variant for variant in kernels.VARIANTS}
NAMES = tuple(dict.fromkeys(name for name, _ in VARIANTS))
# (M, N, K): tails of every axis, single elements, one and several tiles, passes and warps.
SHAPES = (
    (1, 1, 1),
    (1, 5, 3),
    (1, 30, 1100),
    (1, 66, 320),
    (2, 9, 1337),
    (3, 17, 130),
    (8, 24, 321),
    (9, 70, 200),
    (65, 66, 65),
)
TARGETS = (
    (2560, 2560),
    (3840, 2560),
    (13824, 2560),
    (2560, 6912),
    (3200, 3200),
    (4800, 3200),
    (20480, 3200),
    (3200, 10240),
    (4096, 4096),
    (14336, 4096),
    (5120, 27648),
    (55296, 5120),
)


def _admits(variant, M, N, K):
    return all(constraint.refusal({"M": M, "N": N, "K": K}) is None for constraint in variant.constraints)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "shape"), [(name, shape) for name in NAMES for shape in SHAPES if _admits(VARIANTS[name, "int32"], *shape)]
)
def test_every_kernel_gives_the_exact_product(cuda, name, shape, dtype):
    data = data_of(*shape)
    same(product(cuda, VARIANTS[name, dtype], data), expected(data, dtype))


@settings(max_examples=10)
@given(M=st.integers(1, 10), N=st.integers(1, 90), K=st.integers(1, 700), seed=st.integers(0, 2**32))
def test_any_shape_is_exact(room_for_properties, M, N, K, seed):
    data = data_of(M, N, K, seed)
    for name in NAMES:
        if _admits(VARIANTS[name, "int32"], M, N, K):
            same(product(room_for_properties, VARIANTS[name, "int32"], data), expected(data, "int32"))


@pytest.fixture(scope="module")
def room_for_properties():
    """As `cuda`, for tests that hypothesis runs many times."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT, cuda_context

    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


@pytest.mark.parametrize("gap", [1, 16, 61])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "gemv_dp4a"])
def test_rows_of_activations_may_lie_apart(cuda, name, gap):
    M, N, K = 3, 20, 192
    data = data_of(M, N, K)
    apart = np.full((M, K + gap), 99, np.int8)
    apart[:, :K] = data[0]
    there = cuda.upload(apart).view((M, K), strides=(K + gap, 1))
    same(product(cuda, VARIANTS[name, "int32"], data, there), expected(data, "int32"))


def test_activations_at_any_address(cuda):
    data = data_of(2, 9, 77)
    there = cuda.upload(np.concatenate([np.zeros(3, np.int8), data[0].reshape(-1)])).view((2, 77), offset=3)
    same(product(cuda, VARIANTS["tiled", "int32"], data, there), expected(data, "int32"))
    for name in ("dp4a", "gemv"):
        with pytest.raises(InvalidArgumentError, match="activations is at address"):
            product(cuda, VARIANTS[name, "int32"], data, there)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dp4a"])
@pytest.mark.parametrize(("activation", "code"), [(-128, 1), (127, 1), (-128, -1), (-128, 0)])
def test_the_largest_sums_are_exact(cuda, name, activation, code):
    K = 6912
    activations, codes = np.full((1, K), activation, np.int8), np.full((9, K), code, np.int8)
    out = product(cuda, VARIANTS[name, "int32"], (activations, codes, np.float32(1), np.ones(1, np.float32)))
    assert np.array_equal(out, np.full((1, 9), activation * code * K))


@pytest.mark.parametrize("M", [2, 8])
@pytest.mark.parametrize(
    "shape", kernels.SHAPES, ids=lambda shape: f"rows8={shape.rows8},steps={shape.steps},flow={shape.flow}"
)
def test_every_instance_of_the_gemv_is_exact(cuda, monkeypatch, shape, M):
    """Several tiles per block if it loads ahead; several passes over K if supported."""
    monkeypatch.setattr(kernels, "gemv_shape", lambda *asked: shape)
    N, K = 8 * 30 + 3, 1100
    if shape.ahead:
        monkeypatch.setattr(kernels.Call, "params", _at_most(2, kernels.Call.params))  # type: ignore[attr-defined]
    data = data_of(M, N, K)
    assert shape.takes(M, K)
    same(product(cuda, VARIANTS["gemv", "int32"], data), expected(data, "int32"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("warps", [1, 12])
@pytest.mark.parametrize(
    "shape", kernels.ROWS_SHAPES, ids=lambda shape: f"seg={shape.seg},steps={shape.steps},loop={shape.loop}"
)
def test_every_instance_of_the_gemv_for_one_row_is_exact(cuda, monkeypatch, shape, warps, dtype):
    """Rows that do not fill the last block nor a warp's tile; several tiles and passes over K, if supported."""
    warps = min(warps, shape.threads // WARP)
    each = warps * shape.tile + (3 if shape.loop else 0)
    monkeypatch.setattr(kernels, "rows_shape", lambda *asked: (shape, warps, each))
    for N, K in (
        (2 * each + 1, 64 * shape.chunks(1) - 23),
        (each - 1, 16),
        (1, 2 * 64 * shape.chunks(1) + 65 if shape.loop else 129),
    ):
        assert shape.takes(K)
        data = data_of(1, N, K)
        same(product(cuda, VARIANTS["gemv", dtype], data), expected(data, dtype))


@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize("split", [1, 2, 4, 8])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("name", ["gemv", "gemv_dp4a"])
def test_every_configuration_of_the_dp4a_gemv_is_exact(cuda, monkeypatch, name, staged, split, threads):
    """One pass over K with lanes to spare, and several with a tail; rows that do not fill the last block."""
    monkeypatch.setattr(kernels, "rows_shape", lambda *asked: None)
    monkeypatch.setattr(kernels, "dp4a_shape", lambda *asked: (staged, threads, split))
    data = data_of(1, 67, 900 if name == "gemv" else 64 * kernels.LANES * split + 77)
    same(product(cuda, VARIANTS[name, "int32"], data), expected(data, "int32"))


def _at_most(blocks, params):
    """Launch parameters with no more blocks than that."""

    def fewer(call, kernel, asked, *rest, **named):
        return params(call, kernel, min(blocks, asked), *rest, **named)

    return fewer


def test_passes_over_k(cuda, monkeypatch):
    monkeypatch.setattr(kernels, "gemv_shape", lambda *asked: kernels.ANY)
    K = kernels.STEP * kernels.ANY.steps * kernels.ANY.threads // WARP + 300
    assert kernels.ANY.warps(2, K) * kernels.ANY.steps * kernels.STEP < K / 2
    data = data_of(2, 9, K)
    same(product(cuda, VARIANTS["gemv", "int32"], data), expected(data, "int32"))


def test_both_tiles_of_v1(cuda, monkeypatch):
    data = data_of(5, 37, 70)
    for edge in kernels.TILED:
        monkeypatch.setattr(kernels, "tile_search", lambda *_, edge=edge, **__: edge)
        same(product(cuda, VARIANTS["tiled", "int32"], data), expected(data, "int32"))


@given(M=st.integers(2, 8), N=st.integers(1, 1 << 20), K=st.integers(1, MAX_K), sms=st.integers(1, 200))
def test_a_chosen_instance_fits_its_block_and_its_sums(M, N, K, sms):
    shape = kernels.gemv_shape(M, N, K, sms)
    warps = shape.warps(M, K)
    assert shape.takes(M, K)
    assert warps * WARP >= shape.rows * M
    assert warps * kernels.WARP_K >= K
    if shape.one_pass:
        assert warps * shape.steps * kernels.STEP >= K


@given(
    N=st.integers(1, (1 << 31) - 1) | st.integers(1, 60000),
    K=st.integers(1, 50000) | st.integers(1, MAX_K),
    sms=st.integers(1, 200),
    early=st.booleans(),
)
def test_a_chosen_instance_for_one_row_fits_its_block_and_its_sums(N, K, sms, early):
    chosen = kernels.rows_shape(N, K, sms, early)
    if chosen is None:
        assert N > kernels.ROWS_N or K >= 4096
        return
    if isinstance(chosen, kernels.Shape):
        assert K < 4096
        assert chosen.takes(1, K)
        return
    shape, warps, each = chosen
    assert 1 <= warps * WARP <= shape.threads
    assert shape.shared(warps, K) <= SHARED
    assert shape.loop or (warps * shape.tile >= each and shape.chunks(K) == 4 * shape.seg * shape.steps)
    assert N + each + warps * shape.tile < 1 << 31
    assert kernels.WARP_K * shape.seg > K


@given(N=st.integers(1, 1 << 20), K=st.integers(1, MAX_K), sms=st.integers(1, 200))
def test_a_chosen_configuration_of_dp4a_fits_its_block(N, K, sms):
    _, threads, split = kernels.dp4a_shape(N, K, sms)
    assert threads % (kernels.LANES * split) == 0
    assert all(threads <= kernel.threads for kernel in kernels.GEMV_DP4A.values())


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        ((2560, 2560), (kernels.SHORT, 10, 20)),
        ((3840, 2560), (kernels.FOURS[0], 8, 32)),
        ((13824, 2560), (kernels.TALL, 5, 80)),
        ((2560, 6912), (kernels.LONG[0], 10, 20)),
        ((3200, 3200), (kernels.FOURS[0], 8, 32)),
        ((4800, 3200), (kernels.FOURS[0], 10, 40)),
        ((20480, 3200), (kernels.LOOPS[0], 10, 80)),
        ((3200, 10240), (kernels.LONG[1], 10, 20)),
        ((4096, 4096), (kernels.FOURS[0], 8, 32)),
        ((14336, 4096), (kernels.FOURS[1], 8, 64)),
        ((5120, 27648), (kernels.LOOP, 20, 39)),
        ((55296, 5120), (kernels.LOOPS[1], 8, 210)),
    ],
)
def test_one_row_takes_what_was_measured_fastest(target, chosen):
    """On 132 multiprocessors: the instance, warps and rows of a block."""
    N, K = target
    assert kernels.rows_shape(N, K, 132) == chosen
    assert target in TARGETS


@pytest.mark.parametrize(
    ("target", "passes"), [((13824, 5120), 2), ((20480, 5120), 3), ((28672, 4096), 3), ((11008, 8192), 3)]
)
def test_blocks_of_a_loop_take_whole_passes_where_they_are_few(target, passes):
    N, K = target
    chosen = kernels.rows_shape(N, K, 132)
    assert isinstance(chosen, tuple)
    shape, warps, each = chosen
    assert shape.loop
    assert each == passes * warps * shape.tile


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        ((2560, 2560), (kernels.SHORT, 10, 20)),
        ((3840, 2560), (kernels.SHORT, 8, 16)),
        ((13824, 2560), (kernels.TALL, 7, 112)),
        ((27648, 2560), kernels.MANY),
        ((4800, 3200), (kernels.FOURS[0], 10, 40)),
        ((20480, 3200), (kernels.LOOPS[0], 10, 78)),
        ((3200, 10240), (kernels.LONG[1], 13, 26)),
        ((14336, 4096), (True, 128, 4)),
        ((8192, 8192), (kernels.LOOP, 20, 63)),
        ((55296, 5120), (kernels.LOOPS[1], 8, 210)),
    ],
)
def test_one_row_takes_other_blocks_where_weights_wait(target, chosen):
    """Or staging, threads and split of dp4a."""
    N, K = target
    assert (kernels.rows_shape(N, K, 132, early=False) or kernels.dp4a_shape(N, K, 132)) == chosen


def test_what_is_told_of_the_weights_decides(cuda, monkeypatch):
    """Weights that a launch may write are not read early, and none are if launches do not overlap."""
    asked, real = [], kernels.rows_shape

    def noted(N, K, sms, early):
        asked.append(early)
        return real(N, K, sms, early)

    monkeypatch.setattr(kernels, "rows_shape", noted)
    data = data_of(1, 4500, 300)
    for constant in (True, False):
        same(product(cuda, VARIANTS["gemv", "int32"], data, constant=constant), expected(data, "int32"))
    assert asked == [cuda.backend.info.capability >= OVERLAPPING, False]


@pytest.mark.parametrize("M", [1, 2, 8, 9])
@pytest.mark.parametrize(("tensor_cores", "hopper"), [(False, False), (True, False), (True, True)])
def test_one_variant_is_taken(M, tensor_cores, hopper):
    """On a device without int8 tensor cores, with them (8.0), and with Hopper's."""
    offered = {compute((7, 0))} | ({compute((8, 0))} if tensor_cores else set())
    offered |= {compute((9, 0)), alone((9, 0))} if hopper else set()
    fitting = [
        variant
        for variant in kernels.VARIANTS
        if variant.key.dtype == "int32" and variant.features <= offered and _admits(variant, M, 640, 2560)
    ]
    best = max((variant.tier, variant.rank) for variant in fitting)
    tuned = "gemv" if M <= kernels.GEMV_M else "gemm" if hopper else "mma"
    assert [variant.name for variant in fitting if (variant.tier, variant.rank) == best] == [
        tuned if tensor_cores else "gemv_dp4a" if M == 1 else "dp4a"
    ]
