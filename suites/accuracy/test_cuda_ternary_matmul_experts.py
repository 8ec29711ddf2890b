"""ternary_matmul_experts on the GPU, or in the simulator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from cuda_products import DTYPES, same
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_sources import plant

from tritmark.harness.errors import DeviceFaultError, InvalidArgumentError
from tritmark.harness.spec import Launch, Variant
from tritmark.kernels import FORMATS, pack_weights, ternary_matmul, ternary_matmul_experts
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.launch.launch import Call
from tritmark.kernels.ternary_matmul.cuda_grouped import GroupedMma, GroupedWgmma
from tritmark.kernels.ternary_matmul_experts import cuda
from tritmark.kernels.ternary_matmul_experts.cuda import KERNELS, MMA, WGMMA, Instance, Wgmma, shares

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext

VARIANTS = {(each.name, each.key.format, each.key.dtype): each for each in cuda.VARIANTS}
NAMES = {group: format for format, group in cuda.FORMATS.items()}


class Data:
    """Drawn inputs; sums over groups that float32 holds, so that every order of them has the same bits."""

    def __init__(self, group: int, rows: list[int], N: int, K: int, seed: int = 0) -> None:
        rng, E = np.random.default_rng(seed), len(rows)
        self.group, self.format, self.experts = group, NAMES[group], np.repeat(np.arange(E), rows)
        self.offsets = np.concatenate(([0], np.cumsum(rows))).astype(np.int32)
        self.axes = {"M": sum(rows), "E": E, "N": N, "K": K}
        self.activations = rng.integers(-128, 128, (sum(rows), K), dtype=np.int8)
        self.codes = rng.integers(-1, 2, (E, N, K), dtype=np.int8)
        self.act_scale = np.ldexp(1, rng.integers(-6, 10, sum(rows))).astype(np.float32)
        self.weight_scale = np.ones(E, np.float32) if group else rng.uniform(0.1, 3, E).astype(np.float32)
        self.stored: npt.NDArray[np.float32] = self.weight_scale
        if group:
            self.stored = (rng.integers(-15, 16, (E, N, K // group)) / 16).astype(np.float32)

    def expected(self, dtype: str = "float32") -> npt.NDArray[Any]:
        """The bits that a kernel must return."""
        wide = self.codes.astype(np.float64)
        if self.group:
            wide *= np.repeat(self.stored, self.group, axis=2)
        sums: npt.NDArray[np.float64] = np.einsum("mk,mnk->mn", self.activations.astype(np.float64), wide[self.experts])
        if dtype == "int32":
            return np.asarray(sums.astype(np.int32))
        factors = self.weight_scale[self.experts].astype(np.float64) / self.act_scale.astype(np.float64)
        with np.errstate(over="ignore"):
            scaled: npt.NDArray[Any] = (sums * factors[:, np.newaxis]).astype(np.float32).astype(DTYPES[dtype])
        return scaled

    def bound(self, context: CudaContext, variant: Variant) -> tuple[Launch, dict[str, Any], Any]:
        """A launch, its inputs and its output, which is filled."""
        packed = [FORMATS[self.format].pack(*each) for each in zip(self.codes, self.stored, strict=True)]
        inputs = {
            "activations": context.upload(self.activations),
            "weights": context.upload(np.stack(packed)),
            "weight_scale": context.upload(self.weight_scale),
            "act_scale": context.upload(self.act_scale),
            "offsets": context.upload(self.offsets),
        }
        out = context.upload(np.full((self.axes["M"], self.axes["N"]), 85, DTYPES[variant.key.dtype]))
        return variant.bind(inputs, {"out": out}, self.axes, 1), inputs, out

    def product(self, context: CudaContext, dtype: str = "float32", name: str = "mma") -> npt.NDArray[Any]:
        """Of the variant of that name."""
        launch, _, out = self.bound(context, VARIANTS[name, self.format, dtype])
        launch.run()
        assert launch.bad == -1
        found: npt.NDArray[Any] = out.numpy()
        return found


def launch_instance(patch: pytest.MonkeyPatch, instance: Instance, tiles: int = 1) -> None:
    patch.setattr(cuda, "chosen", lambda *asked: instance)
    patch.setattr(cuda, "tiles_of_block", lambda *asked: tiles)


def group_of(instance: Instance) -> int:
    return instance.group if isinstance(instance, GroupedMma | GroupedWgmma) else 0


def name_of(instance: Instance) -> str:
    return "gemm" if isinstance(instance, Wgmma) else "mma"


@pytest.fixture(scope="module")
def context() -> Any:
    """As `cuda`, for tests that hypothesis runs many times."""
    from tritmark.harness.machine import gpu
    from tritmark.kernels.cuda.context import SELECT

    with pytest.MonkeyPatch.context() as patch:
        if gpu.why_not() is not None:
            patch.setenv(SELECT, "simulator")
        yield cuda_context()


def two_blocks(patch: pytest.MonkeyPatch) -> None:
    """A launch of a wgmma product has two blocks, so that each has several tiles."""
    params = Call.params
    patch.setattr(
        Call,
        "params",
        lambda call, kernel, blocks, *rest, **named: params(
            call, kernel, 2 if kernel.specific else blocks, *rest, **named
        ),
    )


@pytest.mark.parametrize("tiles", [1, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("instance", KERNELS, ids=str)
def test_every_instance_is_exact(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, instance: Instance, tiles: int
) -> None:
    """With experts without rows, with one row, and with more rows than a share."""
    launch_instance(monkeypatch, instance, tiles)
    if tiles == 2:
        two_blocks(monkeypatch)
    most, high = instance.tile
    N = high + 16 if isinstance(instance, Wgmma) else 2 * high + 5
    data = Data(group_of(instance), [0, 1, 0, most + 3, 2, 0], N, 512)
    narrow = ("float32", "bfloat16") if most > 32 else ("int32", "float32", "bfloat16", "float16")
    for dtype in narrow if tiles == 1 else ("float32",):
        if (name_of(instance), data.format, dtype) in VARIANTS:
            same(data.product(context, dtype, name_of(instance)), data.expected(dtype))


@pytest.mark.parametrize("N", [33, 136])
@pytest.mark.parametrize("K", [50, 320])
def test_wgmma_takes_rows_that_are_not_aligned(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, N: int, K: int
) -> None:
    launch_instance(monkeypatch, WGMMA[0][0])
    data = Data(0, [17, 0, 3], N, K)
    same(data.product(context, "bfloat16", "gemm"), data.expected("bfloat16"))


@settings(max_examples=12)
@given(
    group=st.sampled_from((0, 64)),
    rows=st.lists(st.integers(0, 20), min_size=1, max_size=80),
    N=st.integers(1, 40),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_any_rows_of_experts_are_exact(
    context: CudaContext, group: int, rows: list[int], N: int, blocks: int, seed: int
) -> None:
    data = Data(group, rows if any(rows) else [*rows, 1], N, blocks * (group or 50), seed)
    for name in ("mma", "gemm"):
        same(data.product(context, "float32", name), data.expected())


@pytest.mark.parametrize("share", [1, 3])
@pytest.mark.parametrize("group", [0, 128])
def test_warps_take_several_passes(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch, group: int, share: int
) -> None:
    instance = next(each for each in MMA[group] if each.tile == (8, 32))
    launch_instance(monkeypatch, instance, 2)
    monkeypatch.setattr(type(instance), "warps", lambda *asked: share)
    data = Data(group, [3, 0, 9], 80, 8 * 256 + 128)
    same(data.product(context), data.expected())


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=300), most=st.sampled_from((8, 16, 32, 64)))
def test_a_launch_has_enough_shares(rows: list[int], most: int) -> None:
    needed, M, E = sum(-(-each // most) for each in rows), sum(rows), len(rows)
    assert needed <= shares(M, E, most) <= M


@pytest.mark.parametrize("group", [0, 64])
def test_a_launch_takes_other_offsets(context: CudaContext, group: int) -> None:
    """As a graph that is replayed: the grid depends on the sizes alone."""
    first, second = ([5, 0, 3, 0, 9], [0, 17, 0, 0, 0])
    data = Data(group, first, 33, 192)
    launch, inputs, out = data.bound(context, VARIANTS["mma", data.format, "float32"])
    launch.run()
    same(out.numpy(), data.expected())
    data.experts = np.repeat(np.arange(5), second)
    inputs["offsets"].write(np.concatenate(([0], np.cumsum(second))).astype(np.int32))
    launch.run()
    same(out.numpy(), data.expected())


@pytest.mark.parametrize(
    ("offsets", "index"),
    [([1, 4, 4, 9], 0), ([0, 5, 4, 9], 2), ([0, 4, 4, 8], 3), ([0, 4, 4, 10], 3), ([0, -7, 4, 9], 1)],
)
@pytest.mark.parametrize("group", [0, 64])
def test_incorrect_offsets_on_the_device_are_reported(
    context: CudaContext, group: int, offsets: list[int], index: int
) -> None:
    data = Data(group, [4, 0, 5], 16, 64)
    data.offsets = np.array(offsets, np.int32)
    launch, _, _ = data.bound(context, VARIANTS["mma", data.format, "float32"])
    launch.run()
    assert (launch.bad, launch.bad) == (index, -1)


@settings(max_examples=12)
@given(
    offsets=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 20), min_size=4, max_size=40),
    M=st.integers(1, 12),
)
def test_no_offsets_reach_outside_of_the_arrays(context: CudaContext, offsets: list[int], M: int) -> None:
    """The simulator would detect it."""
    for rows in ([M, *[0] * (len(offsets) - 2)], [M + 40, *[0] * (len(offsets) - 2)]):  # both ways to find a share
        data = Data(0, rows, 9, 64)
        data.offsets = np.array(offsets, np.int32)
        launch, _, _ = data.bound(context, VARIANTS["mma", data.format, "float32"])
        launch.run()


@pytest.mark.parametrize("format", ["row16", "row16_g64", "tile64"])
def test_rows_have_the_bits_of_the_product_of_one_matrix(context: CudaContext, format: str) -> None:
    group = FORMATS[format].group if format != "tile64" else 0
    data = Data(group, [0, 4, 0, 6, 1], 40, 256)
    weights = pack_weights(data.codes, data.stored, format=format)
    found = ternary_matmul_experts(
        data.activations, weights, data.offsets, act_scale=data.act_scale, dtype="bfloat16", device="cuda"
    )
    for expert, (first, end) in enumerate(zip(data.offsets, data.offsets[1:], strict=False)):
        if first < end:
            one = pack_weights(data.codes[expert], data.stored[expert], format=format)
            rows = slice(first, end)
            wanted = ternary_matmul(
                data.activations[rows], one, act_scale=data.act_scale[rows], dtype="bfloat16", device="cuda"
            )
            same(found[rows], wanted)


def test_offsets_are_checked_before_anything_is_written(context: CudaContext) -> None:
    data = Data(0, [4, 0, 5], 16, 64)
    weights, out = pack_weights(data.codes, data.stored, format="row16"), np.full((9, 16), 7, np.float32)
    for offsets in ([0, 5, 4, 9], [0, 4, 4, 8]):
        with pytest.raises(InvalidArgumentError, match="offsets"):
            ternary_matmul_experts(
                data.activations, weights, np.array(offsets, np.int32), act_scale=data.act_scale, out=out, device="cuda"
            )
    assert (out == 7).all()


PLANTED: dict[str, Instance] = {
    "mma": next(each for each in MMA[0] if each.tile == (8, 16)),
    "grouped": next(each for each in MMA[64] if each.tile == (8, 16)),
    "wgmma": WGMMA[0][0],
    "grouped wgmma": WGMMA[64][0],
}
FAULTS = (
    ("mma", "cuda/tiles/experts.cuh", "at <= row", "at < row"),
    ("mma", "cuda/tiles/experts.cuh", "(row - first) % MOST == 0", "row == first"),
    ("mma", "cuda/tiles/experts.cuh", "min(end - row, MOST)", "MOST"),
    ("mma", "cuda/tiles/experts.cuh", "(nth - sum + here) * MOST", "(nth - sum + here)"),
    ("mma", "cuda/tiles/experts.cuh", "? 0 : min(end - row, MOST)", "? 0 : MOST"),
    ("mma", "cuda/tiles/experts.cuh", "{e + owner,", "{e,"),
    ("mma", "cuda/tiles/experts.cuh", "lane >= distance ? more : 0", "more"),
    ("mma", "ternary_matmul/gemm_mma.cu", "weight_scales + share.expert", "weight_scales"),
    ("mma", "ternary_matmul/gemm_mma.cu", "w += share.expert * expert_apart", "w += expert_apart"),
    ("mma", "ternary_matmul/gemm_mma.cu", "act_scale += share.first", "act_scale += 0"),
    ("mma", "ternary_matmul/gemm_mma.cu", "load((tile + blocks) * TILE", "load(tile * TILE"),
    ("grouped", "ternary_matmul/grouped_mma.cu", "a += share.first * lda", "a += 0"),
    ("grouped", "ternary_matmul/grouped_mma.cu", "w += share.expert * expert_apart", "w += 0"),
    ("grouped", "ternary_matmul/grouped_mma.cu", "M = share.rows", "M = 8"),
    ("wgmma", "cuda/tiles/expert_tiles.cuh", "list[tile].expert * expert_apart", "0"),
    ("wgmma", "cuda/tiles/expert_tiles.cuh", "(int)(tile % strips) * ROWS", "0"),
    ("wgmma", "cuda/tiles/expert_tiles.cuh", "i * gridDim.x + blockIdx.x", "i * gridDim.x"),
    ("wgmma", "cuda/tiles/expert_tiles.cuh", "share.first + share.rows", "share.first + COLUMNS"),
    ("wgmma", "cuda/tiles/expert_tiles.cuh", "i * TOGETHER < rows", "true"),
    ("wgmma", "ternary_matmul/gemm_wgmma.cu", "weight_scales + tiles[tile].expert", "weight_scales"),
    ("grouped wgmma", "cuda/tiles/expert_tiles.cuh", "step * STAGE_SCALES + i", "i"),
    ("grouped wgmma", "ternary_matmul/grouped_wgmma.cu", "here.M = tiles[tile].end", "here.M = M + 16"),
)
"""An instance, the source, the original text, and the fault that replaces it."""
HONEST = tuple((name, "cuda/tiles/experts.cuh", "", "") for name in PLANTED)


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
    """By the bits of the product, for fewer rows than experts and for more, or by the simulator, which detects accesses
    outside of an array."""
    instance = PLANTED[which]
    kernel = KERNELS[instance]
    plant(tmp_path, [kernel.file], file, right, wrong)
    monkeypatch.setattr(cuda, "KERNELS", {instance: replace(kernel, file=str(tmp_path / kernel.file))})
    launch_instance(monkeypatch, instance, 2)
    two_blocks(monkeypatch)
    seen = set[str]()
    for rows in ([0, 9, 0, 2, *[0] * 36, 1, 0], [*[0, 21, 0, 3, *[0] * 5] * 4, 2]):
        data = Data(group_of(instance), rows, 130 if isinstance(instance, Wgmma) else 37, 320)
        try:
            if not np.array_equal(data.product(simulator, "float32", name_of(instance)), data.expected()):
                seen.add("wrong")
        except DeviceFaultError:
            seen.add("outside of an array")
    assert bool(seen) is bool(right)


def test_more_rows_of_an_expert_take_wider_tiles() -> None:
    for group in MMA:
        for name, widest in (("mma", 32), ("gemm", 64)):
            axes = [{"M": M, "E": 256, "N": 512, "K": 2048} for M in (8, 512, 2048, 4096, 32768)]
            tiles = [cuda.chosen(name, group, each, 132).tile[0] for each in axes]
            assert tiles == sorted(tiles)
            assert tiles[0] == 8
            assert tiles[-1] >= widest


@given(M=st.integers(1, 1 << 20), E=st.integers(1, 1 << 12), N=st.integers(1, 1 << 14))
def test_a_block_has_no_more_tiles_than_its_list(M: int, E: int, N: int) -> None:
    tiles = shares(M, E, 16) * -(-N // 128)
    assert -(-tiles // cuda.wgmma_blocks(tiles, 132)) <= cuda.LISTED


def test_a_block_fits() -> None:
    for instance, kernel in KERNELS.items():
        if isinstance(instance, Wgmma):
            assert instance.shared_bytes + 16 * cuda.LISTED <= kernel.shared
        else:
            assert all(instance.shared(K) <= kernel.shared for K in (256, 2048, 1 << 17))
