"""Every instance of the CUDA products for more rows of activations (gemm_mma.cu, gemm_wgmma.cu), on the GPU or in the
simulator: the integer product's bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from cuda_products import DTYPES, data_of, expected, product, same
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_sources import plant, source_of

from tritmark.harness.errors import DeviceFaultError
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.tiles.product import tiles_of
from tritmark.kernels.ternary_matmul import cuda, cuda_gemm
from tritmark.kernels.ternary_matmul.cuda_gemm import KERNELS, MAX_K, MIXED, MMA, SPLIT, WGMMA, GemmMma, Instance

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

VARIANTS = {(variant.name, variant.key.dtype): variant for variant in cuda.VARIANTS}
INSTANCES: tuple[Instance, ...] = (*MMA, *WGMMA)


def _name(instance: Instance) -> str:
    if isinstance(instance, GemmMma):
        return "-".join(map(str, (*instance.tile, "mma")))
    told = [instance.tail] if instance.last else [f"by{instance.split}"] if instance.split > 1 else []
    return "-".join(map(str, (*instance.tile, *told, "wgmma")))


every_instance = pytest.mark.parametrize("instance", INSTANCES, ids=_name)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forces one instance for every shape."""

    def launched(instance: Instance) -> None:
        monkeypatch.setattr(cuda_gemm, "fastest", lambda *asked: instance)

    return launched


@pytest.mark.cuda
@every_instance
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instance_is_exact(cuda: CudaContext, only: Any, instance: Instance, dtype: str) -> None:
    """A whole tile and three that are cut off, in M, N and K; a lone output, a K shorter than one load; tiles that are
    cut off and whose rows of 16-bit outputs are copied by 16 bytes."""
    only(instance)
    rows, high = instance.tile
    for shape in ((rows + 3, high + 4, 400), (1, 1, 17), (rows, high, 128), (rows + 5, high + 8, 272)):
        data = data_of(*shape)
        same(product(cuda, VARIANTS["gemm", dtype], data), expected(data, dtype))


@pytest.mark.cuda
@pytest.mark.parametrize("instance", [MMA[0], WGMMA[0], WGMMA[11], MIXED], ids=_name)
def test_rings_and_blocks_go_round(cuda: CudaContext, only: Any, instance: Instance) -> None:
    """More stages than a ring has, more tiles than blocks, more passes than warps."""
    only(instance)
    rows, high = instance.tile
    K = 6000 if isinstance(instance, GemmMma) else 300 * instance.stages * instance.panels
    data = data_of(rows + 1, 5 * high, K)
    same(product(cuda, VARIANTS["gemm", "int32"], data), expected(data, "int32"))


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("M", "strips"),
    [
        (200, (3, 0)),
        (200, (3, 1)),
        (200, (1, 1)),
        (200, (2, 0)),
        (90, (2, 0)),
        (330, (1, 2)),
        (330, (2, 0)),
        (5, (1, 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_strips_that_end_in_smaller_tiles_are_exact(
    cuda: CudaContext, only: Any, monkeypatch: pytest.MonkeyPatch, M: int, strips: tuple[int, int], dtype: str
) -> None:
    """Any number of strips, with any number of whole tiles: three strips, the last partial."""
    only(MIXED)
    monkeypatch.setattr(cuda_gemm.GemmWgmma, "strips", lambda *asked: strips)
    data = data_of(M, 2 * MIXED.tile[1] + 8, 150)
    same(product(cuda, VARIANTS["gemm", dtype], data), expected(data, dtype))


@given(M=st.integers(1, 3000), N=st.integers(1, 30000), K=st.integers(1, 20000), sms=st.integers(1, 200))
def test_smaller_tiles_at_the_end_are_never_predicted_to_take_longer(M: int, N: int, K: int, sms: int) -> None:
    mixed, whole = MIXED.strips(M, N, K, sms)
    assert 0 <= mixed <= -(-N // MIXED.tile[1])
    assert 0 <= whole < -(-M // MIXED.columns)
    alike = WGMMA[11]
    waves = -(-tiles_of(alike.tile, M, N) // sms)
    busy = sum(cost * waves * each for cost, each in zip(MIXED.costs[1:], (1, *2 * (-(-K // 128),)), strict=True))
    assert MIXED.predicted_us(M, N, K, sms) <= alike.costs[0] + busy + 1e-6


@pytest.mark.cuda
@pytest.mark.parametrize("instance", [MMA[0], WGMMA[0], SPLIT[-1], WGMMA[12]], ids=_name)
@pytest.mark.parametrize(("activation", "code"), [(-128, 1), (127, 1), (-128, -1), (127, -1), (-128, 0)])
def test_the_largest_sums_are_exact(
    cuda: CudaContext, only: Any, instance: Instance, activation: int, code: int
) -> None:
    only(instance)
    K = MAX_K if cuda.backend.simulated is False else 12000
    activations, codes = np.full((9, K), activation, np.int8), np.full((5, K), code, np.int8)
    data = activations, codes, np.float32(1), np.ones(9, np.float32)
    assert np.array_equal(product(cuda, VARIANTS["gemm", "int32"], data), np.full((9, 5), activation * code * K))
    same(product(cuda, VARIANTS["gemm", "bfloat16"], data), expected(data, "bfloat16"))


def test_the_bound_of_k_is_that_of_the_accumulators() -> None:
    assert 64 * 128 * MAX_K < 1 << 31 <= 64 * 128 * (MAX_K + 1)
    assert all(
        any(
            constraint.refusal({"M": 16, "N": 16, "K": MAX_K + 1}) for constraint in VARIANTS[name, "int32"].constraints
        )
        for name in ("mma", "gemm")
    )


@pytest.mark.cuda
@pytest.mark.parametrize(("weight_scale", "act_scale"), [(1, 1), (3, 64), (1e-38, 500), (3e38, 1e-4), (1e-45, 3e38)])
@pytest.mark.parametrize("instance", [WGMMA[0], WGMMA[7], SPLIT[0]], ids=_name)
def test_bfloat16_is_rounded_from_the_float32(
    cuda: CudaContext, only: Any, instance: Instance, weight_scale: float, act_scale: float
) -> None:
    """Sums exactly between two bfloat16 values; outputs that are subnormal, infinite, or zero."""
    only(instance)
    activations, codes, _, _ = data_of(*instance.tile, 40)
    data = activations, codes, np.float32(weight_scale), np.full(len(activations), act_scale, np.float32)
    sums = np.abs(expected(data, "int32"))
    assert np.count_nonzero((sums > 256) & (sums < 512) & (sums % 2 == 1)) > 100
    with np.errstate(over="ignore"):
        wanted = expected(data, "bfloat16")
    same(product(cuda, VARIANTS["gemm", "bfloat16"], data), wanted)


@pytest.mark.cuda
@pytest.mark.parametrize("gap", [1, 16, 61])
@pytest.mark.parametrize("instance", [MMA[1], WGMMA[1], WGMMA[12], MIXED, SPLIT[1]], ids=_name)
def test_rows_of_activations_may_lie_apart(cuda: CudaContext, only: Any, instance: Instance, gap: int) -> None:
    only(instance)
    data = data_of(19, 140, 320)
    apart = np.full((19, 320 + gap), 99, np.int8)
    apart[:, :320] = data[0]
    there = cuda.upload(apart).view((19, 320), strides=(320 + gap, 1))
    same(product(cuda, VARIANTS["gemm", "bfloat16"], data, there), expected(data, "bfloat16"))


@pytest.fixture(scope="module")
def room_for_properties() -> Any:
    """As `cuda`, for tests that hypothesis runs many times."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT

    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


@pytest.mark.cuda
@settings(max_examples=12)
@given(
    M=st.integers(2, 80),
    N=st.integers(1, 300),
    K=st.integers(1, 900),
    seed=st.integers(0, 2**32),
    instance=st.sampled_from(INSTANCES),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_any_shape_is_exact(
    room_for_properties: CudaContext, M: int, N: int, K: int, seed: int, instance: Instance, dtype: str
) -> None:
    data = data_of(M, N, K, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_gemm, "fastest", lambda *asked: instance)
        same(product(room_for_properties, VARIANTS["gemm", dtype], data), expected(data, dtype))


@given(M=st.integers(2, 1 << 16), N=st.integers(1, 1 << 18), K=st.integers(1, MAX_K), sms=st.integers(1, 200))
def test_the_chosen_instance_fits_a_multiprocessor(M: int, N: int, K: int, sms: int) -> None:
    for instances in (MMA, INSTANCES):
        chosen = cuda_gemm.fastest(instances, M, N, K, sms)
        kernel = KERNELS[chosen]
        if isinstance(chosen, GemmMma):
            assert 1 <= chosen.warps(K) <= chosen.threads // 32
            assert chosen.shared(K) <= kernel.shared
            assert chosen.registers <= kernel.registers
        else:
            assert chosen.shared_bytes <= kernel.shared
        assert kernel.threads * kernel.registers <= REGISTERS_PER_BLOCK


@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((16, 2560, 2560), MMA[1]),
        ((16, 2560, 6912), MMA[1]),
        ((32, 2560, 6912), SPLIT[3]),
        ((64, 2560, 6912), SPLIT[9]),
        ((64, 4096, 14336), SPLIT[8]),
        ((128, 2560, 6912), SPLIT[14]),
        ((192, 2560, 6912), SPLIT[7]),
        ((16, 13824, 2560), WGMMA[0]),
        ((64, 14336, 4096), WGMMA[3]),
        ((128, 13824, 2560), WGMMA[6]),
        ((512, 14336, 4096), WGMMA[13]),
        ((512, 13824, 2560), WGMMA[13]),
        ((2048, 2560, 6912), WGMMA[12]),
        ((2048, 14336, 4096), WGMMA[11]),
    ],
)
def test_what_was_measured_fast_is_taken(shape: tuple[int, int, int], chosen: Instance) -> None:
    """On the 132 multiprocessors of the H200: the fastest that was measured, or within 8 % of it."""
    assert cuda_gemm.fastest(INSTANCES, *shape, 132) == chosen


@pytest.mark.parametrize(("N", "K"), [(2560, 2560), (13824, 2560), (2560, 6912), (14336, 4096), (640, 2560)])
def test_more_rows_are_not_predicted_to_take_less_time(N: int, K: int) -> None:
    """No cliff: when one more tile begins, another instance is chosen."""
    times = [min(instance.predicted_us(M, N, K, 132) for instance in INSTANCES) for M in range(9, 1025)]
    assert all(now <= 1.1 * later for now, later in pairwise(times))


FAULTS = [
    ("gemm_mma.cu", "", ""),
    ("gemm_wgmma.cu", "", ""),
    ("common.cuh", "0xc0c0c0c0u) & 0xc0c0c0c0u", "0xc0c0c0c0u) & 0xc0c0c080u"),
    ("common.cuh", "word * up + 0xc0c0c0c0u", "word * up + 0x80c0c0c0u"),
    ("gemm_mma.cu", "acc[c][r / 2][r % 2 * 2 + j] >> 6", "acc[c][r / 2][r % 2 * 2 + j] >> 5"),
    ("mma_chunks.cuh", "m + 8 * c < M ? from[i] : make_int4(0, 0, 0, 0)", "from[i]"),
    ("mma_chunks.cuh", "CHUNK * (chunk + 1) <= K", "CHUNK * chunk <= K"),
    ("mma_chunks.cuh", "row < M ? bytes4", "row <= M ? bytes4"),
    ("mma_chunks.cuh", "const unsigned up = 1u << (6 - 2 * i)", "const unsigned up = 1u << (4 - 2 * i)"),
    ("gemm_mma.cu", "row < N && chunk < chunks", "chunk < chunks"),
    ("gemm_mma.cu", "from += 4 * STEPS * warps", "from += 4 * STEPS * warps + 1"),
    ("wgmma_tiles.cuh", "m0 + row < M ? activations(", "true ? activations("),
    ("wgmma_tiles.cuh", "n0 + row < N && from < chunks", "from < chunks"),
    ("wgmma_tiles.cuh", "m0 + m < M && at < N", "at < N"),
    ("wgmma_tiles.cuh", "m0 + m < M && at < N", "m0 + m < M"),
    ("wgmma_tiles.cuh", "lane / 16 * 8 + lane % 8", "lane % 8"),
    ("wgmma_tiles.cuh", "2 * warp + lane / 8 % 2", "2 * warp"),
    ("wgmma_tiles.cuh", "N % 8 == 0 && ", ""),
    ("gemm_wgmma.cu", "1u << (6 - 2 * (job.p % 4))", "1u << (2 * (job.p % 4))"),
    ("gemm_wgmma.cu", "m < job.M - m0 && row + n < job.N - n0", "m < job.M - m0"),
    ("gemm_wgmma.cu", "job.kind ? sum : sum >> 6", "sum"),
    ("gemm_wgmma.cu", "k64 % 2 * 64 + 32 * i", "32 * i"),
    ("gemm_align.cu", "a + m * lda", "a + m * K"),
    ("gemm_align.cu", "K - 16 * i", "K"),
    ("gemm_align.cu", "m < M", "m <= M"),
]
"""Source, original text, and the fault that replaces it; none in the first two."""


SOURCES = tuple(f"ternary_matmul/{name}.cu" for name in ("gemm_align", "gemm_mma", "gemm_wgmma"))


def _from(folder: Path, patch: pytest.MonkeyPatch, instance: Instance) -> None:
    """That instance alone, of the sources there, is launched."""
    kernel = replace(KERNELS[instance], file=str(folder / Path(KERNELS[instance].file).name))
    patch.setattr(cuda_gemm, "KERNELS", {instance: kernel})
    patch.setattr(cuda_gemm, "ALIGN", replace(cuda_gemm.ALIGN, file=str(folder / "gemm_align.cu")))
    patch.setattr(cuda_gemm, "fastest", lambda *asked: instance)


def _doubtful(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums and scales of activations whose quotient is another bfloat16 if it is made in float32."""
    rng = np.random.default_rng(3)
    sums, scales = np.zeros(0, np.int32), np.zeros(0, np.float32)
    while len(sums) < rows:
        some, by = rng.integers(1, 500, 1 << 20).astype(np.int32), rng.uniform(1, 100, 1 << 20).astype(np.float32)
        factor = 1.0 / by.astype(np.float64)
        exact = (some * factor).astype(np.float32).astype(ml_dtypes.bfloat16)
        near = (some.astype(np.float32) * factor.astype(np.float32)).astype(ml_dtypes.bfloat16)
        wrong = exact != near
        sums, scales = np.concatenate([sums, some[wrong]]), np.concatenate([scales, by[wrong]])
    return sums[:rows], scales[:rows]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("right", "wrong", "share"),
    [
        ("", "", 0),
        ("slow || (least & 0xffffu) < DOUBTFUL || least >> 16 < DOUBTFUL", "false", 1),
        ("(least & 0xffffu) < DOUBTFUL", "false", 0.4),
        ("least >> 16 < DOUBTFUL", "false", 0.4),
        ("#define MIDDLE 0x8002", "#define MIDDLE 0x7fff", 0.1),
        ("#define DOUBTFUL 5", "#define DOUBTFUL 2", 0.1),
        ("if (which == sixteen)", "if (which == sixteen + 1)", 0.5),
        ("doubts &= doubts - 1", "doubts = 0", 0.5),
    ],
)
@pytest.mark.parametrize("instance", [WGMMA[3], WGMMA[11]], ids=_name)
def test_what_float32_rounds_wrong_is_rounded_in_float64(
    cuda: CudaContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    instance: Instance,
    right: str,
    wrong: str,
    share: float,
) -> None:
    """One row of activations in 16 has such sums. `share`: of their outputs, how many are wrong at least with that
    fault; none without one."""
    plant(tmp_path, SOURCES, "ternary_matmul/gemm_wgmma.cu" if right else "", right, wrong)
    _from(tmp_path / "ternary_matmul", monkeypatch, instance)
    rows = instance.tile[0]
    sums, scales = np.ones(rows, np.int32), np.ones(rows, np.float32)
    where = np.arange(rows // 16) * 17
    sums[where], scales[where] = _doubtful(len(where))
    activations = np.zeros((rows, 16), np.int8)
    for i in range(4):
        activations[:, i] = np.clip(sums - 127 * i, 0, 127)
    data = activations, np.ones((24, 16), np.int8), np.float32(1), scales
    found, wanted = product(cuda, VARIANTS["gemm", "bfloat16"], data), expected(data, "bfloat16")
    differ = np.count_nonzero(found.view(np.uint16) != wanted.view(np.uint16))
    assert differ >= share * found[where].size
    assert share or not differ


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("mixed_wide * COLUMNS + tile % mixed_tail * TAIL", "tile % mixed_tail * TAIL"),
        ("(plain + tile / mixed_tail) * ROWS", "tile / mixed_tail * ROWS"),
        ("m0 + row, full + turn.stage", "m0, full + turn.stage"),
        ("(M - mixed_wide * COLUMNS + TAIL - 1)", "(M - mixed_wide * COLUMNS)"),
    ],
)
def test_a_fault_in_smaller_tiles_is_seen(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, right: str, wrong: str
) -> None:
    if "turn.stage" in right and cuda.backend.simulated:
        pytest.skip("needs a GPU of NVIDIA's: the simulator has no copy engine (pytest -m cuda there)")
    plant(tmp_path, SOURCES, "cuda/tiles/wgmma_tiles.cuh", right, wrong)
    _from(tmp_path / "ternary_matmul", monkeypatch, MIXED)
    monkeypatch.setattr(cuda_gemm.GemmWgmma, "strips", lambda *asked: (1, 1))
    data = data_of(290, 2 * MIXED.tile[1], 64)
    found, wanted = product(cuda, VARIANTS["gemm", "int32"], data), expected(data, "int32")
    assert np.array_equal(found, wanted) == (not right)


SHARED_TILES = [
    ("gemm_wgmma.cu", "", ""),
    ("gemm_wgmma.cu", "job.kind ? sum : sum >> 6", "sum"),
    ("gemm_wgmma.cu", "m0 + m < job.M && n0 + n < job.N", "m0 + m < job.M"),
    ("wgmma.cuh", "m = i / both / HIGH * 8", "m = i / both / HIGH * 4"),
    ("wgmma.cuh", "owner / 128 * HIGH", "owner / 128 * 0"),
    ("wgmma.cuh", "each < COUNT", "each + 1 < COUNT"),
    ("wgmma.cuh", "i < fours * (rank + 1) / COUNT", "i < fours * (rank + 1) / COUNT - 1"),
]
OF_CLUSTERS = [
    ("wgmma.cuh", "of_block(sums + i, each)", "of_block(sums + i, 0)"),
    ("wgmma_tiles.cuh", "all_steps * (rank + 1) / SHARES", "all_steps / SHARES * (rank + 1)"),
    ("wgmma_tiles.cuh", "map_w, (first + step) * 16 * CHUNKS, n0, full", "map_w, step * 16 * CHUNKS, n0, full"),
    (
        "wgmma_tiles.cuh",
        "(first + step) * STAGE_DEPTH + DEPTH * panel, m0 + row",
        "step * STAGE_DEPTH + DEPTH * panel, m0 + row",
    ),
    ("wgmma_tiles.cuh", "const int byte = (first + step) * STAGE_DEPTH", "const int byte = step * STAGE_DEPTH"),
]
"""Faults in code that the simulator does not run: there the first block of a cluster does all."""


@pytest.mark.cuda
@pytest.mark.parametrize(("file", "right", "wrong"), [*SHARED_TILES, *OF_CLUSTERS])
def test_a_fault_in_tiles_that_blocks_share_is_seen(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """With fewer stages than blocks, with stages that blocks cannot share evenly, with rows that no engine copies."""
    if cuda.backend.simulated and (file, right, wrong) in OF_CLUSTERS:
        pytest.skip("needs a GPU of NVIDIA's: the simulator has no clusters of blocks (pytest -m cuda there)")
    instance = SPLIT[3]
    plant(tmp_path, SOURCES, source_of("ternary_matmul", file), right, wrong)
    _from(tmp_path / "ternary_matmul", monkeypatch, instance)
    seen = set()
    for K, gap in ((300, 4), (2600, 8), (2592, 1)):
        # A launch of large sums before leaves them in registers and shared memory.
        large = np.full((37, K), 127, np.int8), np.ones((200, K), np.int8), np.float32(1), np.ones(37, np.float32)
        data = data_of(37, 200, K)
        apart = np.zeros((37, K + gap), np.int8)
        apart[:, :K] = data[0]
        there = cuda.upload(apart).view((37, K), strides=(K + gap, 1))
        try:
            product(cuda, VARIANTS["gemm", "int32"], large)
            found = product(cuda, VARIANTS["gemm", "int32"], data, there)
            seen.add(np.array_equal(found, expected(data, "int32")))
        except DeviceFaultError:
            seen.add(False)
    assert (seen == {True}) == (not right)


OF_COPIES = [
    ("", ""),
    ("2 * (n + 64 * block), m0 + m, from", "2 * n, m0 + m, from"),
    ("2 * (n + 64 * block), m0 + m, from", "2 * (n + 64 * block), m0, from"),
    ("m0 + m, from + output_at<WIDTH>(block, m, 0)", "m0 + m, from + output_at<WIDTH>(block, 0, 0)"),
    ("m0 + m, from + output_at<WIDTH>(block, m, 0)", "m0 + m, from + output_at<WIDTH>(0, m, 0)"),
]
"""Faults in the copy engine's part with 16-bit outputs."""


@pytest.mark.cuda
@pytest.mark.parametrize(("right", "wrong"), OF_COPIES)
def test_a_fault_in_how_the_engine_copies_outputs_is_seen(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, right: str, wrong: str
) -> None:
    if cuda.backend.simulated and right:
        pytest.skip("needs a GPU of NVIDIA's: the simulator has no copy engine (pytest -m cuda there)")
    plant(tmp_path, SOURCES, "cuda/tiles/wgmma_tiles.cuh", right, wrong)
    _from(tmp_path / "ternary_matmul", monkeypatch, MIXED)
    data = data_of(290, 2 * MIXED.tile[1] + 72, 64)
    found, wanted = product(cuda, VARIANTS["gemm", "bfloat16"], data), expected(data, "bfloat16")
    assert np.array_equal(found.view(np.uint16), wanted.view(np.uint16)) == (not right)


@pytest.mark.cuda
@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_a_fault_in_the_source_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """By the bits of the product, or by the simulator, which detects reads past an array."""
    from tritmark.kernels.cuda.context import SELECT

    monkeypatch.setenv(SELECT, "simulator")
    context = cuda_context()
    plant(tmp_path, SOURCES, source_of("ternary_matmul", file), right, wrong)
    instances: list[Instance] = [
        each
        for each in (MMA[0], WGMMA[0])
        if file in ("common.cuh", "gemm_align.cu", Path(KERNELS[each].file).name)
        or (file == "mma_chunks.cuh" and each == MMA[0])
        or (file == "wgmma_tiles.cuh" and each == WGMMA[0])
    ]
    seen = set()
    for instance in instances:
        _from(tmp_path / "ternary_matmul", monkeypatch, instance)
        # Rows that are aligned, and rows that are copied first; outputs whose rows are aligned, and not.
        many = "mma" in file and "wgmma" not in file
        for N, K in ((137, 6000), (137, 5999)) if many else ((137, 416), (137, 403), (136, 416)):
            activations, codes, _, scales = data_of(21, N, K)
            data = activations, codes, np.float32(1), np.where(scales > 500, np.float32(1), scales)
            gap = 1 if file == "gemm_align.cu" else 0
            apart = np.zeros((21, K + gap), np.int8)
            apart[:, :K] = activations
            there = context.upload(apart).view((21, K), strides=(K + gap, 1))
            try:
                for dtype in ("int32", "bfloat16"):
                    found = product(context, VARIANTS["gemm", dtype], data, there)
                    wanted = expected(data, dtype)
                    seen.add("" if np.array_equal(found.view(np.uint8), wanted.view(np.uint8)) else "wrong")
            except DeviceFaultError:
                seen.add("past an array")
    assert (seen == {""}) is not bool(right), seen
