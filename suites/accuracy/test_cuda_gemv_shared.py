"""ternary_matmul for 2 to 8 rows with activations in shared memory: every instance is exact, and is launched where it
was faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_products import DTYPES, data_of, expected, product, same
from hypothesis import given
from hypothesis import strategies as st
from planted_sources import plant

from tritmark.harness.errors import DeviceFaultError
from tritmark.kernels.cuda.context import SELECT, CudaContext, cuda_context
from tritmark.kernels.ternary_matmul import cuda_gemv_shared as kernels
from tritmark.kernels.ternary_matmul.cuda import VARIANTS
from tritmark.kernels.ternary_matmul.cuda_gemv_shared import (
    HALVES,
    QUARTERS,
    SEVEN,
    SHAPES,
    WHOLE,
    Shared,
    shared_shape,
)

GEMV = {each.key.dtype: each for each in VARIANTS if each.name == "gemv"}
SOURCES = ("ternary_matmul/gemv_shared.cu",)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("M", [2, 7, 8])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.pairs}-{shape.tiles}-{shape.steps}")
def test_every_instance_is_exact(
    cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, shape: Shared, M: int, dtype: str
) -> None:
    """All of the K that it takes, and a tail; one block, and a part of another."""
    monkeypatch.setattr(kernels, "shared_shape", lambda *asked: shape)
    most = 256 * shape.steps * (shape.threads // 32 // shape.tiles)
    taken = [(shape.rows + 19, most), (5, 200), (shape.rows, most // 2 + 49)]
    for N, K in (each for each in taken if shape.takes(M, each[1])):
        data = data_of(M, N, K)
        for constant in (True, False):
            same(product(cuda, GEMV[dtype], data, constant=constant), expected(data, dtype))


@pytest.mark.parametrize("gap", [1, 16, 61])
def test_rows_of_activations_may_lie_apart(cuda: CudaContext, monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    monkeypatch.setattr(kernels, "shared_shape", lambda *asked: WHOLE)
    M, N, K = 3, 20, 192
    data = data_of(M, N, K)
    apart = np.full((M, K + gap), 99, np.int8)
    apart[:, :K] = data[0]
    there = cuda.upload(apart).view((M, K), strides=(K + gap, 1))
    same(product(cuda, GEMV["int32"], data, there), expected(data, "int32"))


@given(
    M=st.integers(2, 8),
    N=st.integers(1, 1 << 20) | st.integers(1, 30000),
    K=st.integers(1, 8000),
    sms=st.integers(1, 200),
)
def test_a_chosen_instance_fits_its_block(M: int, N: int, K: int, sms: int) -> None:
    assert shared_shape(M, N, K, sms, early=False) is None
    shape = shared_shape(M, N, K, sms, early=True)
    assert shape is None or shape.takes(M, K)


@pytest.mark.parametrize(
    ("target", "shape"),
    [
        ((2, 13824, 2560), SEVEN),
        ((8, 13824, 2560), SEVEN),
        ((8, 14784, 2560), SEVEN),
        ((8, 14785, 2560), HALVES),
        ((8, 12500, 2560), None),
        ((6, 16000, 2560), WHOLE),
        ((8, 16000, 2560), HALVES),
        ((4, 14336, 4096), QUARTERS),
        ((8, 2560, 2560), None),
        ((8, 20480, 3200), None),
        ((8, 55296, 5120), None),
    ],
)
def test_it_is_launched_where_it_was_faster(target: tuple[int, int, int], shape: Shared | None) -> None:
    assert shared_shape(*target, sms=132, early=True) == shape


FAULTS = [
    ("gemv_shared.cu", "", ""),
    ("gemv_shared.cu", "row < N && chunk < chunks);", "chunk < chunks);"),
    ("gemv_shared.cu", "row < N && chunk < chunks);", "row < N);"),
    ("gemv_shared.cu", "min(16, max(0, K - 16 * unit))", "16"),
    ("gemv_shared.cu", "activations16(row, 16ll * unit, K, false)", "activations16(row, 16ll * unit, K + 1, false)"),
    ("gemv_shared.cu", "unit < 4 * chunks; unit += blockDim.x", "unit < 4 * chunks - 3; unit += blockDim.x"),
    ("gemv_shared.cu", "placed(g, pitch, chunk, i)", "placed(g, pitch, chunk, i ^ 1)"),
    ("gemv_shared.cu", "tile == s % TILES", "tile == s % TILES && s"),
    ("gemv_shared.cu", "apart < 4", "apart < 2"),
    ("gemv_shared.cu", "row_sums[threadIdx.x] = 0", "row_sums[threadIdx.x] = 1"),
    ("gemv_shared.cu", "t == 0 && g < M", "t == 0 && g < M - 1"),
    ("gemv_shared.cu", "(acc[p][2][e] >> 4)", "(acc[p][2][e] >> 3)"),
    ("gemv_shared.cu", "p < split; p++", "p < split - 1; p++"),
    ("gemv_shared.cu", "2 * t + e % 2 < M", "2 * t < M"),
    ("gemv_shared.cu", "n0 + row < N", "true"),
    ("gemv_shared.cu", "8 * (e / 2) + g", "8 * (e % 2) + g"),
]
"""Source, original text, and the fault that replaces it; none in the first."""


@pytest.mark.cuda
@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_a_fault_in_the_source_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """By the bits of the product, or by the simulator, which detects reads past an array."""
    monkeypatch.setenv(SELECT, "simulator")
    plant(tmp_path, SOURCES, f"ternary_matmul/{file}", right, wrong)
    moved = replace(kernels.KERNELS[HALVES], file=str(tmp_path / SOURCES[0]))
    monkeypatch.setitem(kernels.KERNELS, HALVES, moved)
    monkeypatch.setattr(kernels, "shared_shape", lambda *asked: HALVES)
    seen = set()
    for M, K, apart in ((3, 1403, 1403), (4, 1408, 1408), (3, 1403, 1408)):  # rows that are not aligned, and that are
        data = data_of(M, HALVES.rows + 9, K)
        rows = np.full((M, apart), 99, np.int8)
        rows[:, :K] = data[0]
        there = cuda_context().upload(rows.reshape(-1)[: (M - 1) * apart + K]).view((M, K), strides=(apart, 1))
        try:
            found = product(cuda_context(), GEMV["int32"], data, there)
            seen.add("" if np.array_equal(found, expected(data, "int32")) else "wrong")
        except DeviceFaultError:
            seen.add("past an array")
    assert (seen == {""}) is not bool(right), seen
