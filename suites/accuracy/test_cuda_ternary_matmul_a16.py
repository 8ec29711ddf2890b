"""ternary_matmul_a16 on the GPU or in the simulator: every instance of its kernels within the bound that is known
beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_sources import plant

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError
from tritmark.harness.machine.gpu import why_not
from tritmark.harness.spec import Axes, KernelKey
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels import pack_weights, ternary_matmul_a16
from tritmark.kernels.cuda.context import SELECT, cuda_context
from tritmark.kernels.cuda.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.ternary_matmul_a16 import cuda
from tritmark.kernels.ternary_matmul_a16.api import with_receipt
from tritmark.kernels.ternary_matmul_a16.cuda import GEMV, KERNELS, MMA, VARIANTS, WGMMA, A16Gemv, A16Wgmma, Instance
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, FAMILIES, NAMES, OPS

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

EVERY: tuple[Instance, ...] = (*GEMV, *MMA, *WGMMA)
# The simulator has no clusters: there instances that differ in `split` are one.
INSTANCES = EVERY if why_not() is None else tuple({(type(each), each.tile): each for each in EVERY}.values())
BY_NAME = {(variant.key.op, variant.name, variant.key.dtype): variant for variant in VARIANTS}


def _name(instance: Instance) -> str:
    split = f"-{instance.split}" if isinstance(instance, A16Wgmma) else ""
    return "-".join(map(str, instance.tile)) + f"-{type(instance).__name__[3:].lower()}{split}"


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
    context: CudaContext, given: str, dtype: str, axes: Axes, family: str, apart: int = 0, variant: str = "gemm"
) -> Any:
    op, chosen = OPS[given], BY_NAME[NAMES[given], variant, dtype]
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
    out = context.array((axes["M"], axes["N"]), named_dtype(dtype))
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
    """A whole tile, and one that is cut off in M, N and K beside three that are not; each output dtype."""
    only(instance)
    rows, high = instance.tile
    more = 0 if isinstance(instance, A16Gemv) else 3
    for M, N, K, dtype in (
        (rows, high, 128, "bfloat16"),
        (max(1, rows - 5) + more, high + 4, 395, "float16"),
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
@pytest.mark.parametrize("instance", [_small(GEMV[0]), _small(MMA[0]), WGMMA[0]], ids=_name)
def test_rings_and_blocks_go_round(cuda: CudaContext, only: Any, instance: Instance) -> None:
    """More stages than a ring has, more tiles than blocks, more passes than warps."""
    only(instance)
    rows, high = instance.tile
    M = rows if isinstance(instance, A16Gemv) else rows + 1
    K = 130 * instance.stages * instance.panels if isinstance(instance, A16Wgmma) else 1300
    found = _compared(cuda, "bfloat16", "float32", {"M": M, "N": 3 * high, "K": K}, "uniform")
    assert found.first is None, found.first


@pytest.mark.cuda
@pytest.mark.parametrize("gap", [1, 8])
@pytest.mark.parametrize("instance", [GEMV[0], MMA[0], WGMMA[0]], ids=_name)
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
        ({"weights": pack_weights(np.ones((4, 256), np.int8), np.ones((4, 1), np.float32), format="tq2_0")}, "weights"),
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
    ("gemm_wgmma.cu", "min(16, max(0, 2 * (K - k)))", "16"),
    ("gemm_wgmma.cu", "16 * i < rows_a ? bytes : 0", "bytes"),
    ("gemm_wgmma.cu", "twice(BACK(t / 2 + 2))", "twice(BACK(t / 2))"),
    ("gemm_wgmma.cu", "m < M - m0 && row + n < N - n0", "m < M - m0"),
    ("gemm_wgmma.cu", "acts + part * SLICES / 4 * COLUMNS * DEPTH", "acts"),
    ("gemm_wgmma.cu", "m0 + m < M && n0 + n < N", "m0 + m < M"),
    ("gemm_wgmma.cu", "(m0 + m) * (long long)N + n0 + n, sum * weight_scale", "(m0 + m) * (long long)N + n, sum"),
]
"""Source, what is there, and a fault in its place; none in the first three."""


@pytest.mark.cuda
@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_a_fault_in_the_source_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    """By the bound of the product, or by the simulator, which sees what is read past an array."""
    monkeypatch.setenv(SELECT, "simulator")
    context = cuda_context()
    shared = ("cuda/overlap.cuh", "ternary_matmul/common.cuh", "ternary_matmul/wgmma.cuh")
    plant(tmp_path, (*shared, *_SOURCES), f"ternary_matmul_a16/{file}", right, wrong)
    every = (_small(GEMV[0]), _small(MMA[0]), WGMMA[0], WGMMA[1])
    seen = set()
    for instance in (each for each in every if _file(each) == file or (file == "a16.cuh" and each is every[0])):
        kernel = replace(
            cuda._kernel(instance, "bfloat16"), file=str(tmp_path / "ternary_matmul_a16" / _file(instance))
        )
        monkeypatch.setattr(cuda, "KERNELS", {(instance, "bfloat16"): kernel})
        monkeypatch.setattr(cuda, "fastest", lambda *asked, instance=instance: instance)
        # Rows that are aligned and rows that are not.
        for K in (403, 416) if isinstance(instance, A16Wgmma) else (1203, 1208):
            axes = {"M": 5 if isinstance(instance, A16Gemv) else 21, "N": instance.tile[1] + 9, "K": K}
            try:
                seen.add("" if _compared(context, "bfloat16", "float32", axes, "normal").first is None else "wrong")
            except DeviceFaultError:
                seen.add("past an array")
    assert (seen == {""}) is not bool(right), seen


_SOURCES = tuple(
    f"ternary_matmul_a16/{name}" for name in ("a16.cuh", "wgmma.cuh", "gemv.cu", "gemm_mma.cu", "gemm_wgmma.cu")
)


def _file(instance: Instance) -> str:
    return Path(cuda._kernel(instance, "bfloat16").file).name
