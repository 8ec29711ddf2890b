"""ternary_matmul_experts: each row has the bits of ternary_matmul with the weights of its expert, for any offsets,
layout, thread count and instruction set."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.spec import Workload
from tritmark.harness.validate.cases import Material
from tritmark.kernels import FORMATS, PackedWeights, pack_weights, ternary_matmul, ternary_matmul_experts
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul_experts.api import with_receipt
from tritmark.kernels.ternary_matmul_experts.offsets import check, drawn, expert_of, touched
from tritmark.kernels.ternary_matmul_experts.spec import OP

GROUPS = (32, 64, 128, 256)
GROUPED = {isa.name for isa in cpu.KERNELS["ternary_matmul_tile64_grouped"]}
"""Instruction sets with kernels for groups."""


def _weights(E: int, N: int, K: int, group: int, rng: Any) -> PackedWeights:
    codes = rng.integers(-1, 2, (E, N, K), dtype=np.int8)
    if not group:
        return pack_weights(codes, rng.uniform(1e-3, 10, E).astype(np.float32), format="tile64")
    scales = rng.uniform(-2, 2, (E, N, K // group)).astype(np.float16).astype(np.float32)
    return pack_weights(codes, scales, format=f"tile64_g{group}")


def _of_expert(weights: PackedWeights, expert: int) -> PackedWeights:
    return PackedWeights(weights.data[expert], weights.format, weights.matrix, weights.scale[expert])


def _in_a_loop(activations: Any, weights: PackedWeights, offsets: Any, act_scale: Any, dtype: str, variant: Any) -> Any:
    parts = [
        ternary_matmul(
            activations[begin:end], _of_expert(weights, e), act_scale=act_scale[begin:end], dtype=dtype, variant=variant
        )
        for e, (begin, end) in enumerate(pairwise(offsets))
        if begin < end
    ]
    return np.concatenate(parts)


def _bits(values: Any) -> Any:
    return np.ascontiguousarray(values).view(np.uint8)


COUNTS = st.one_of(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.sampled_from([0, 0, 0, 1, 40, 97, 200]), min_size=1, max_size=6),
).filter(any)


@given(
    counts=COUNTS,
    N=st.integers(1, 200),
    K=st.integers(1, 300),
    group=st.sampled_from([0, *GROUPS]),
    dtype=st.sampled_from(["int32", "float32", "bfloat16"]),
    gap=st.integers(0, 70),
    threads=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
@example(counts=[300], N=130, K=5, group=0, dtype="float32", gap=1, threads=3, seed=1)
@example(counts=[0, 0, 5, 0, 1, 0], N=65, K=7, group=0, dtype="int32", gap=0, threads=2, seed=1)
@example(counts=[1] * 8, N=512, K=4, group=64, dtype="bfloat16", gap=0, threads=4, seed=1)
def test_rows_have_the_bits_of_the_product_with_their_expert(
    isa: str, counts: list[int], N: int, K: int, group: int, dtype: str, gap: int, threads: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    group = group if isa in GROUPED else 0
    K = K if not group else group * (1 + K % 3)
    dtype = "float32" if group and dtype == "int32" else dtype
    weights = _weights(len(counts), N, K, group, rng)
    offsets = np.cumsum([0, *counts], dtype=np.int32)
    M = int(offsets[-1])
    activations = rng.integers(-128, 128, (M, K + gap), dtype=np.int8)[:, :K]
    act_scale = rng.uniform(1e-2, 1e3, M).astype(np.float32)
    out, receipt = with_receipt(
        activations, weights, offsets, act_scale=act_scale, dtype=dtype, variant=isa, threads=threads
    )
    assert (receipt.ran, receipt.note) == (isa, "")
    assert np.array_equal(_bits(out), _bits(_in_a_loop(activations, weights, offsets, act_scale, dtype, isa)))


def test_many_experts_and_one_row_each(isa: str) -> None:
    rng = np.random.default_rng(5)
    weights = _weights(300, 70, 36, 0, rng)
    offsets = np.arange(301, dtype=np.int32)
    activations = rng.integers(-128, 128, (300, 36), dtype=np.int8)
    ones = np.ones(300, np.float32)
    for threads in (1, 2, 5):
        out = ternary_matmul_experts(activations, weights, offsets, variant=isa, threads=threads)
        assert np.array_equal(out, _in_a_loop(activations, weights, offsets, ones, "float32", isa))


@pytest.mark.parametrize("format", ["row16", "i2_s_x86", "tile80", "q2_0", "tq2_0", "tq1_0", "row16_g64", "iq2_bn"])
def test_other_formats_are_repacked_exactly_or_refused(format: str) -> None:
    rng, form = np.random.default_rng(2), FORMATS[format]
    codes = rng.integers(-1, 2, (3, 64, 256), dtype=np.int8)
    scale = rng.choice(np.array([0.5, 2, 3], np.float32), (3, *form.scale_shape((64, 256))))
    weights = pack_weights(codes, scale, format=format)
    x, offsets = rng.integers(-9, 10, (5, 256), dtype=np.int8), np.array([0, 1, 1, 5], np.int32)
    if form.scale_per == "row":
        with pytest.raises(NoCompatibleKernelError, match=r"iq2_bn has a scale for each row, tile64 one scale"):
            ternary_matmul_experts(x, weights, offsets)
        return
    out, receipt = with_receipt(x, weights, offsets)
    assert receipt.note.endswith(f"repacked from {format}")
    of_rows = weights.dequantize()[np.repeat(np.arange(3), np.diff(offsets))].astype(np.float64)
    assert np.array_equal(out, np.einsum("mk,mnk->mn", x.astype(np.float64), of_rows).astype(np.float32))


X, OFFSETS = np.ones((4, 8), np.int8), np.array([0, 1, 4], np.int32)
WEIGHTS = pack_weights(np.ones((2, 3, 8), np.int8), np.array([1, 2], np.float32))


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ([1, 1, 4], r"offsets is 1 at index 0; legal: 0"),
        ([0, 3, 2], r"offsets is 2 at index 2, after 3; legal: ascending"),
        ([0, -1, 4], r"offsets is -1 at index 1, after 0; legal: ascending"),
        ([0, 1, 3], r"offsets is 3 at the end; legal: 4"),
        ([0, 1, 5], r"offsets is 5 at the end; legal: 4"),
        ([0, 4], r"offsets is of shape \(2,\); legal: E = 2"),
        ([0, 1, 2, 4], r"offsets is of shape \(4,\); legal: E = 2"),
    ],
)
def test_offsets_outside_the_contract_are_refused_and_nothing_is_written(offsets: Any, why: str) -> None:
    out = np.full((4, 3), 7, np.float32)
    with pytest.raises(InvalidArgumentError, match=why):
        ternary_matmul_experts(X, WEIGHTS, np.array(offsets, np.int32), out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"offsets": OFFSETS.astype(np.int64)}, r"offsets is of dtype int64; legal: int32"),
        ({"offsets": [0, 1, 4]}, r"offsets is a list"),
        (
            {"weights": pack_weights(np.ones((3, 8), np.int8), 1.0)},
            r"weights is of shape \(3, 8\); legal: PackedWeights",
        ),
        ({"weights": np.ones((2, 3, 8), np.int8)}, r"weights is a ndarray; legal: PackedWeights"),
        ({"activations": X[:, :7]}, r"activations is of shape \(4, 7\)|strided"),
        ({"act_scale": np.ones(3, np.float32)}, r"act_scale is of shape \(3,\); legal: M = 4"),
        ({"act_scale": 0.0}, r"act_scale is 0.0 at index 0; legal: finite and above zero"),
        ({"dtype": "float16"}, r"dtype is 'float16'; legal: int32, float32, bfloat16"),
        ({"out": np.empty((4, 2), np.float32)}, r"out is of shape \(4, 2\); legal: shape \(4, 3\)"),
        ({"threads": 0}, r"threads is 0"),
    ],
)
def test_arguments_outside_the_contract_are_refused(asked: dict[str, Any], why: str) -> None:
    given_: dict[str, Any] = {"activations": X, "weights": WEIGHTS, "offsets": OFFSETS}
    with pytest.raises(InvalidArgumentError, match=why):
        ternary_matmul_experts(**given_ | asked)


def test_int32_of_groups_is_refused() -> None:
    weights = pack_weights(np.ones((2, 3, 32), np.int8), 1.0, format="tile64_g32")
    with pytest.raises(InvalidArgumentError, match="'int32' for tile64_g32, which has a scale for each group of 32"):
        ternary_matmul_experts(np.ones((4, 32), np.int8), weights, OFFSETS, dtype="int32")


def test_a_kernel_reports_the_first_offset_that_does_not_fit(isa: str) -> None:
    act_scale, out = np.ones(4, np.float32), np.full((4, 3), 7, np.float32)
    for offsets, bad in (([1, 1, 4], 0), ([0, 3, 2], 2), ([0, 1, 5], 2), ([0, 1, 3], 2), ([0, 1, 4], -1)):
        launch = cpu.native("ternary_matmul").TernaryMatmulExperts(
            "tile64", isa, X, WEIGHTS.data, 3, WEIGHTS.scale, act_scale, np.array(offsets, np.int32), out, 2
        )
        launch.run()
        assert launch.bad == bad
        assert (out == 7).all() == (bad >= 0)
    assert (launch.ran, launch.runs) == (isa, 1)


def test_a_single_matrix_goes_to_no_experts_and_experts_to_no_single_product() -> None:
    with pytest.raises(InvalidArgumentError, match=r"weights is of shape \(2, 3, 8\); legal: one matrix \(N, K\)"):
        ternary_matmul(X, WEIGHTS)


def test_weights_of_experts_keep_scales_and_shapes() -> None:
    assert WEIGHTS.shape == (2, 3, 8)
    assert WEIGHTS.matrix == (3, 8)
    assert np.array_equal(WEIGHTS.expert_scales, [1, 2])
    codes, scale = WEIGHTS.unpack()
    assert codes.shape == (2, 3, 8)
    assert np.array_equal(scale, [1, 2])
    assert np.array_equal(WEIGHTS.dequantize()[:, 0, 0], [1, 2])
    again = PackedWeights.from_bytes(WEIGHTS.data.reshape(-1), "tile64", (2, 3, 8))
    assert np.array_equal(ternary_matmul_experts(X, again, OFFSETS), ternary_matmul_experts(X, WEIGHTS, OFFSETS))
    with pytest.raises(InvalidArgumentError, match=r"scale is 0\.0 for expert 1; legal: finite and above zero"):
        pack_weights(np.ones((2, 3, 8), np.int8), np.array([1, 0], np.float32))
    with pytest.raises(InvalidArgumentError, match=r"float32 of shape \(2,\), or one number"):
        pack_weights(np.ones((2, 3, 8), np.int8), np.ones(3, np.float32))


def test_calls_recover_in_a_worker() -> None:
    expected = ternary_matmul_experts(X, WEIGHTS, OFFSETS)
    assert np.array_equal(ternary_matmul_experts(X, WEIGHTS, OFFSETS, on_error="recover"), expected)


@given(M=st.integers(1, 700), E=st.integers(1, 300), family=st.sampled_from(OP.input_families), seed=st.integers(0, 99))
def test_drawn_offsets_are_legal_and_the_uniform_ones_even(M: int, E: int, family: str, seed: int) -> None:
    offsets = drawn(family, M, E, np.random.default_rng(seed))
    assert offsets.dtype == np.int32
    check("op", offsets, M)
    counts = np.diff(offsets)
    assert np.array_equal(expert_of(offsets, M), np.repeat(np.arange(E), counts))
    if family == "uniform":
        busy = counts[counts > 0]
        assert len(busy) == touched(M, E)
        assert busy.max() - busy.min() <= 1


def test_planned_calls_have_the_bits_of_others_and_refuse_the_same() -> None:
    rng = np.random.default_rng(3)
    weights = _weights(4, 70, 64, 0, rng)
    for counts in ([3, 0, 2, 0], [0, 5, 0, 0], [1, 1, 1, 2]):
        x, act_scale = rng.integers(-128, 128, (5, 64), dtype=np.int8), rng.uniform(1, 9, 5).astype(np.float32)
        offsets = np.cumsum([0, *counts], dtype=np.int32)
        out = ternary_matmul_experts(x, weights, offsets, act_scale=act_scale)
        assert len(weights.plans) == 1
        assert np.array_equal(_bits(out), _bits(_in_a_loop(x, weights, offsets, act_scale, "float32", None)))
    given_: dict[str, Any] = {"activations": x, "weights": weights, "offsets": offsets}
    given_ |= {"act_scale": act_scale, "out": out}
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"offsets": offsets[::-1].copy()}, "offsets is 5 at index 0"),
        ({"offsets": offsets[:-1].copy()}, "offsets is of shape"),
        ({"act_scale": -act_scale}, "act_scale is -"),
        ({"activations": x[:, :63]}, "activations is of shape|strided"),
        ({"out": np.empty((5, 69), np.float32)}, "out is of shape"),
        ({"out": act_scale.repeat(70).reshape(5, 70), "act_scale": 0.0}, "act_scale is 0"),
    )
    for changed, why in cases:
        before = out.copy()
        with pytest.raises(InvalidArgumentError, match=why):
            ternary_matmul_experts(**given_ | changed)
        assert np.array_equal(out, before)
    with pytest.raises(InvalidArgumentError, match="legal: one matrix"):
        ternary_matmul(x, weights, act_scale=act_scale)


@given(
    M=st.integers(1, 90), E=st.integers(1, 40), family=st.sampled_from(OP.input_families), seed=st.integers(0, 1 << 30)
)
def test_both_sets_of_a_drawn_case_have_legal_offsets(M: int, E: int, family: str, seed: int) -> None:
    """Elements of other inputs are exchanged between the sets."""
    workload = Workload(op=OP.name, axes={"M": M, "E": E, "N": 65, "K": 64}, family=family)
    sets = Material(OP, workload, seed, salts=({}, {}), near=True).logical
    assert len(sets) == 2
    for each in sets:
        check("op", each["offsets"], M)
