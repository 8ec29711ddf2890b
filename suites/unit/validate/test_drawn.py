"""Drawn cases: what is dealt, covered and detected, and what passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.providers import load
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import (
    Arrays,
    Axes,
    KernelKey,
    Launch,
    MaxSize,
    MinSize,
    MultipleOf,
    Tier,
    Values,
    Variant,
    Workload,
)
from tritmark.harness.validate import drawn
from tritmark.harness.validate.coverage import axis_class, axis_classes
from tritmark.harness.validate.draw import RESIDUES, Drawer, fitting
from tritmark.harness.validate.drawn import judge_drawn, rarest
from tritmark.harness.validate.families import KINDS, ROWS, forbidden, scales_apart
from tritmark.harness.validate.placement import Placement
from tritmark.harness.validate.salts import kinds, salted
from tritmark.harness.worker import Workers
from tritmark.kernels.activation_quantize.reference import reference as activation_reference
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.base import Format
from tritmark.kernels.ternary_matmul.reference import accumulate

pytestmark = pytest.mark.long

INSTALLED = load()
PRODUCT = INSTALLED.ops["ternary_matmul"]
ROWWISE = INSTALLED.ops["activation_quantize"]
ELEMENTWISE = INSTALLED.ops["i2s_dequantize"]
QUANTIZE = INSTALLED.ops["i2s_quantize"]
TILE64: Format = FORMATS["tile64"]


class Kernel:
    """A correct kernel of some op. `spoil` may change its outputs; it gets the launch and the number of the call."""

    pointer = None
    threads_used = 1

    def __init__(
        self, work: Callable[[Kernel], None], inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
    ) -> None:
        self.inputs, self.outputs, self.axes, self.threads = inputs, outputs, axes, threads
        self.ran, self.runs, self.bad = "", 0, -1
        self._work = work

    def run(self) -> None:
        self.ran, self.runs = "made", self.runs + 1
        self._work(self)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """These kernels are slow: few repeated runs."""
    monkeypatch.setattr(drawn, "_MOST_REPEATS", 6)


def made(key: KernelKey, work: Callable[[Kernel], None], **told: Any) -> Variant:
    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return Kernel(work, inputs, outputs, axes, threads)

    return Variant(key=key, name="made", tier=Tier.REFERENCE, summary="", bind=bind, **told)


def product(kernel: Kernel) -> np.ndarray[Any, Any]:
    """The int64 sums."""
    codes = TILE64.unpack(kernel.inputs["weights"], (kernel.axes["N"], kernel.axes["K"]))[0]
    return accumulate(kernel.inputs["activations"], codes)


def scaled(kernel: Kernel, sums: np.ndarray[Any, Any]) -> None:
    factor = np.float64(kernel.inputs["weight_scale"]) / kernel.inputs["act_scale"].astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        kernel.outputs["out"][...] = (sums * factor[:, None]).astype(np.float32)


def right_product(kernel: Kernel) -> None:
    scaled(kernel, product(kernel))


def spoilt_product(when: Callable[[Kernel], bool]) -> Callable[[Kernel], None]:
    def work(kernel: Kernel) -> None:
        right_product(kernel)
        if when(kernel):
            out = kernel.outputs["out"]
            out[-1, -1] = out[-1, -1] + 1 if np.isfinite(out[-1, -1]) and abs(out[-1, -1]) < 1e6 else 0.5

    return work


FLOAT = KernelKey("cpu", "ternary_matmul", "tile64", "float32")


def verdict(variant: Variant, count: int = 100, seed: int = 5, op: Any = PRODUCT) -> Accuracy:
    return judge_drawn(op, variant, variant.key, corners=(), count=count, seed=seed, cores=2, device=None).accuracy


def drawer(op: Any, variant: Variant, seed: int = 1) -> Drawer:
    return Drawer(op, variant, cores=2, threaded=True, seed=seed)


# --- What is dealt
# ----------------------------------------------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_cases_and_another_draws_others() -> None:
    variant = made(FLOAT, right_product)
    first, again, other = (drawer(PRODUCT, variant, seed).draw(40) for seed in (1, 1, 2))
    assert first == again
    assert [case.axes for case in first] != [case.axes for case in other]


def test_each_class_of_axis_and_almost_each_pair_meets() -> None:
    dealt = drawer(PRODUCT, made(FLOAT, right_product))
    cases = dealt.draw(600)
    assert not dealt.missing
    assert not dealt.refused
    assert len(dealt.tally.pairs) > 0.96 * sum(
        len(one) * len(other) for one, other in combinations(dealt.tally.factors.values(), 2)
    )
    rows = {case.axes["M"] for case in cases}
    assert max(rows) > 70
    assert len(rows & set(range(1, 71))) >= 50
    assert {case.threads for case in cases} == set(range(1, 9))
    assert len({case.seed for case in cases}) == len(cases)


FAR = 1 << 16


@pytest.mark.parametrize("name", ["ternary_matmul", "matmul_fp32", "activation_quantize", "ternary_quantize"])
def test_each_axis_is_far_larger_than_the_others_once_beside_few_and_once_beside_more(name: str) -> None:
    op = INSTALLED.ops[name]
    key = KernelKey("cpu", name, "tile64" if name == "ternary_matmul" else "none", "float32")
    cases = drawer(op, replace(made(key, right_product), key=key)).far()
    for axis in op.axes:
        others = [
            {size for other, size in case.axes.items() if other != axis} for case in cases if case.axes[axis] > FAR
        ]
        assert any(max(each) <= 5 for each in others), axis
        assert any(min(each) >= 9 for each in others), axis
        assert all(max(each) <= FAR for each in others)
    assert {case.alone for case in cases} == {True}
    assert len({case.number for case in cases}) == len(cases)


@pytest.mark.parametrize(
    ("constraints", "format", "K", "rows"),
    [
        ((), "tile64", (1 << 23) - 1, 2),
        ((MaxSize("M", 1),), "tile64", (1 << 23) - 1, 1),
        ((), "tq2_0", (1 << 23) - 256, 2),
        ((MaxSize("K", 100_000),), "tile64", 0, 0),
    ],
)
def test_the_largest_k_has_several_rows_and_the_largest_sums(
    constraints: tuple[Any, ...], format: str, K: int, rows: int
) -> None:
    key = replace(FLOAT, format=format)
    cases = drawer(PRODUCT, replace(made(key, right_product), constraints=constraints)).far()
    largest = [case for case in cases if case.axes["K"] > 1 << 20]
    assert [(case.axes["K"], case.axes["M"], case.family) for case in largest] == ([(K, rows, "constant")] if K else [])


@pytest.mark.nightly
def test_a_kernel_is_judged_on_far_cases_where_they_are_asked_for() -> None:
    def work(kernel: Kernel) -> None:
        right_product(kernel)
        if kernel.axes["M"] > FAR:
            kernel.outputs["out"][FAR:] = 0

    variant = made(FLOAT, work)
    asked: dict[str, Any] = {"corners": (), "count": 3, "seed": 5, "cores": 2, "device": None}
    assert judge_drawn(PRODUCT, variant, FLOAT, **asked).accuracy.status is not Status.FAIL
    found = judge_drawn(PRODUCT, variant, FLOAT, far=True, **asked).accuracy
    assert found.status is Status.FAIL
    assert f"out[{FAR}, 0]" in found.reason


def test_residues_are_dealt_alike() -> None:
    variant = made(KernelKey("cpu", "i2s_dequantize", "none", "float32"), lambda kernel: None)
    cases = drawer(ELEMENTWISE, variant).draw(4 * RESIDUES)
    counts = Counter(case.axes["n"] % RESIDUES for case in cases)
    assert len(counts) == RESIDUES
    assert counts[0] > 4 * RESIDUES // 16
    assert max(case.axes["n"] for case in cases) > 8192


def test_arrays_lie_at_offsets_of_their_own() -> None:
    cases = drawer(ROWWISE, made(KernelKey("cpu", "activation_quantize", "none", "int8"), lambda kernel: None)).draw(60)
    apart = [case.placement for case in cases if case.layout in {"every array off", "ragged rows"}]
    assert any(each.offset("x", 4, 1) % 32 == 0 and each.offset("q", 1, 1) % 32 for each in apart)
    assert any(each.gap("x", 4, 1) for each in apart)
    assert all(case.placement == Placement() for case in cases if case.layout == "aligned")
    ones = [case.placement for case in cases if case.layout == "one array off"]
    assert all(len(each.offsets) == 1 for each in ones)


def test_each_array_takes_every_address_early() -> None:
    variant = made(KernelKey("cpu", "activation_quantize", "none", "int8"), lambda kernel: None)
    cases = [case for case in drawer(ROWWISE, variant).draw(160) if not case.placement.flush]
    for name, itemsize in (("x", 4), ("q", 1), ("scale", 4), ("sum", 4)):
        found = {case.placement.offset(name, itemsize, 1) for case in cases}
        assert found == set(range(0, 64, itemsize)), name
    ragged = [case for case in drawer(ROWWISE, variant).draw(240) if case.layout == "ragged rows"]
    strides = {(case.axes["K"] + case.placement.gap("x", 4, 1) // 4) % 64 for case in ragged}
    by_chance = 64 * (1 - (63 / 64) ** len(ragged))
    assert len(strides) > by_chance + 4


def test_offsets_keep_to_the_declared_alignment() -> None:
    placed = Placement({"x": 61, "q": 61}, {"x": 61})
    assert (placed.offset("x", 4, 1), placed.offset("q", 1, 1)) == (60, 61)
    assert (placed.offset("x", 4, 16), placed.offset("x", 4, 64)) == (48, 0)
    assert (placed.gap("x", 4, 1), placed.gap("x", 4, 32)) == (60, 32)


@pytest.mark.parametrize(
    ("constraints", "holds"),
    [
        ((MultipleOf("K", 128),), lambda axes: axes["K"] % 128 == 0),
        ((MultipleOf("K", 48), MultipleOf("N", 32)), lambda axes: axes["K"] % 48 == 0 and axes["N"] % 32 == 0),
        ((MinSize("K", 300), MaxSize("M", 8)), lambda axes: axes["K"] >= 300 and axes["M"] <= 8),
        ((MaxSize("M", 1),), lambda axes: axes["M"] == 1),
        ((), lambda axes: True),
    ],
)
def test_shapes_are_rounded_to_constraints_never_dropped(constraints: Any, holds: Callable[[Axes], bool]) -> None:
    variant = made(FLOAT, right_product, constraints=constraints)
    dealt = drawer(PRODUCT, variant)
    cases = dealt.draw(80)
    assert len(cases) >= 80
    assert all(holds(case.axes) for case in cases)
    assert not dealt.missing
    if constraints == (MultipleOf("K", 128),):
        assert {"K odd", "K divisible by 2"} <= dealt.refused
        assert len({case.axes["N"] % 64 for case in cases}) > 30


@pytest.mark.parametrize("format", ["i2_s_x86", "i2_s_x86_r4", "tq2_0", "tq1_0", "row16"])
def test_shapes_are_rounded_to_the_format(format: str) -> None:
    variant = made(replace(FLOAT, format=format), right_product)
    for case in drawer(PRODUCT, variant).draw(30):
        assert fitting(PRODUCT, variant, case.axes) == case.axes


@pytest.mark.parametrize("format", FORMATS)
@given(st.integers(1, 70), st.integers(1, 600))
def test_a_format_holds_what_can_be_encoded_in_it(format: str, rows: int, columns: int) -> None:
    assert PRODUCT.holds is not None
    for N, K in ((rows, columns), (-(-rows // 4) * 4, -(-columns // 256) * 256)):
        axes = {"M": 1, "N": N, "K": K}
        logical = PRODUCT.generate(axes, "uniform", np.random.default_rng(0))
        if PRODUCT.holds(axes, format):
            PRODUCT.encode(logical, axes, format)
        else:
            with pytest.raises(InvalidArgumentError):
                PRODUCT.encode(logical, axes, format)


def test_a_corner_of_the_suite_is_a_case_and_rounded_too() -> None:
    variant = made(FLOAT, right_product, constraints=(MultipleOf("K", 64),))
    corner = Workload(op="ternary_matmul", axes={"M": 5, "N": 3, "K": 27}, family="constant", layout="unaligned")
    (case,) = drawer(PRODUCT, variant).draw(0, [corner])[:1]
    assert (dict(case.axes), case.family, case.layout) == ({"M": 5, "N": 3, "K": 64}, "constant", "ragged rows")


def test_every_size_is_in_a_class_that_is_listed() -> None:
    for size in range(1, 400):
        assert axis_class("M", size, ROWS) in axis_classes("M", ROWS)


def test_forbidden_values_are_none_and_of_all_kinds() -> None:
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        bits = [forbidden(dtype, kind) for kind in range(KINDS)]
        assert len(set(bits)) == KINDS
        with np.errstate(invalid="ignore"):  # signalling ones
            values = np.array(bits, f"u{dtype.itemsize}").view(dtype).astype(np.float64)
        assert not np.isfinite(values).any()
        assert sorted(values[np.isinf(values)]) == [-np.inf, np.inf]
    assert forbidden(np.dtype(np.float32), 3) == 0xFFC00000
    assert forbidden(np.dtype(np.float32), 4) == 0x7F800001
    assert forbidden(np.dtype(np.float32), 9) == 0xFFA00000


@pytest.mark.parametrize("op", sorted(INSTALLED.ops))
def test_every_kind_of_input_is_dealt_early_and_admitted(op: str) -> None:
    contract, rng = INSTALLED.ops[op], np.random.default_rng(1)
    variant = next(each for each in INSTALLED.registry.variants if each.key.op == op)
    dealt = [salts for case in drawer(contract, variant).draw(300) for salts in case.salts]
    for tensor in contract.inputs:
        assert {each[tensor.name] for each in dealt if tensor.name in each} == set(kinds(tensor))
        for kind in kinds(tensor):
            for family in contract.input_families:
                logical = contract.generate(dict.fromkeys(contract.axes, 64), family, rng)
                before, found = (
                    np.asarray(logical[tensor.name]),
                    np.asarray(salted(contract, logical, {tensor.name: kind}, rng)[tensor.name]),
                )
                assert (found.shape, found.dtype) == (before.shape, before.dtype)
                with np.errstate(invalid="ignore"):
                    values = found.astype(np.float64)
                    finite = np.isfinite(before.astype(np.float64))
                assert not np.isnan(values[finite]).any()
                assert tensor.values is Values.ANY or np.isfinite(values).all(), (kind, family)
                assert tensor.values is not Values.POSITIVE or (values > 0).all(), (kind, family)
                assert tensor.values is not Values.TERNARY or np.isin(values, (-1, 0, 1)).all(), (kind, family)


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        ("the greatest", lambda x: x.min() == 127),
        ("the least", lambda x: x.max() == -128),
        ("all negative", lambda x: x.max() < 0),
        ("never negative", lambda x: x.min() >= 0),
        ("row of zeros", lambda x: not x.any(axis=1).all()),
    ],
)
def test_inputs_are_of_the_kind_that_was_dealt(kind: str, holds: Callable[[Any], bool]) -> None:
    rng = np.random.default_rng(2)
    logical = PRODUCT.generate({"M": 5, "N": 7, "K": 40}, "uniform", rng)
    assert holds(salted(PRODUCT, logical, {"activations": kind}, rng)["activations"])
    values = salted(QUANTIZE, QUANTIZE.generate({"n": 40}, "normal", rng), {"x": "huge"}, rng)["x"]
    assert np.abs(values).max() >= 1e29


def test_scales_apart_are_positive_and_reach_denormals() -> None:
    rng = np.random.default_rng(0)
    drawn = [scales_apart((8,), rng) for _ in range(50)]
    assert all(
        scale > 0 and (below > 0).all() and np.isfinite(scale) and np.isfinite(below).all() for scale, below in drawn
    )
    assert any((below < np.finfo(np.float32).tiny).any() for _, below in drawn)


# --- What is detected
# ----------------------------------------------------------------------------------------------------------------------


def test_a_right_product_passes_and_says_what_it_was_judged_on() -> None:
    found = verdict(made(FLOAT, right_product), count=60)
    assert (found.status, found.reason) == (Status.PASS, "")
    assert found.cases >= 120
    assert found.calls > 2 * 60
    assert found.rarest == rarest(found.calls)
    assert found.rarest is not None
    assert (1 - found.rarest) ** found.calls == pytest.approx(0.05)
    assert not found.uncovered
    assert "corners values" in found.covered
    assert found.seed == 5


@pytest.mark.parametrize("packs", [False, True])
def test_what_packs_its_inputs_is_always_given_all_threads(packs: bool) -> None:
    """It may keep its first thread count."""
    found: Counter[int] = Counter()

    def counting(kernel: Kernel) -> None:
        found[kernel.threads] += 1
        right_product(kernel)

    verdict(made(FLOAT, counting, packs=packs), count=30)
    assert (set(found) == {2}) is packs


def _a_power(size: int) -> bool:
    return size & (size - 1) == 0


TRIGGERS: dict[str, Callable[[Kernel], bool]] = {
    "rows from 9 to 15": lambda kernel: 9 <= kernel.axes["M"] <= 15,
    "many rows and a tail": lambda kernel: kernel.axes["M"] >= 8 and kernel.axes["K"] % 64 != 0,
    "one residue": lambda kernel: kernel.axes["K"] % 16 == 7,
    "rows apart": lambda kernel: kernel.axes["M"] >= 8 and kernel.inputs["activations"].strides[0] > kernel.axes["K"],
    "two alignments": lambda kernel: (
        kernel.inputs["activations"].ctypes.data % 32 == 0 and kernel.outputs["out"].ctypes.data % 32 != 0
    ),
    "five threads": lambda kernel: kernel.threads == 5,
    "a row of zeros": lambda kernel: not kernel.inputs["activations"].any(axis=1).all(),
    "the least activation": lambda kernel: bool((kernel.inputs["activations"] == -128).any()),
    "a denormal scale": lambda kernel: bool((kernel.inputs["act_scale"] < 1e-38).any()),
    "the third call": lambda kernel: kernel.runs == 3,
    "every eighth call": lambda kernel: kernel.runs % 8 == 0,
    "one address of 64": lambda kernel: kernel.inputs["activations"].ctypes.data % 64 == 41,
    "whole blocks of 512": lambda kernel: kernel.axes["K"] % 512 == 0,
    "rows a power of two apart": lambda kernel: (
        _a_power(kernel.inputs["activations"].strides[0]) and not _a_power(kernel.axes["K"])
    ),
    "nothing but 127": lambda kernel: bool((kernel.inputs["activations"] == 127).all()),
    "nothing that is not negative": lambda kernel: bool((kernel.inputs["activations"] < 0).all()),
    "more rows than 70": lambda kernel: kernel.axes["M"] > 70,
}


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_fault_with_a_trigger_is_caught(trigger: str) -> None:
    found = verdict(made(FLOAT, spoilt_product(TRIGGERS[trigger])), count=150)
    assert found.status is Status.FAIL, trigger
    assert found.failed_case
    assert "repeat with --seed 5" in found.reason


def test_a_rare_fault_is_caught() -> None:
    rng = np.random.default_rng(3)
    found = verdict(made(FLOAT, spoilt_product(lambda kernel: rng.random() < 0.01)), count=100)
    assert found.status is Status.FAIL


def test_the_verdict_says_what_failures_have_in_common() -> None:
    found = verdict(made(FLOAT, spoilt_product(lambda kernel: 8 <= kernel.axes["M"] <= 15)), count=100)
    assert "all of them with M from 8 to 15" in found.reason


def float32_product(kernel: Kernel) -> None:
    with np.errstate(all="ignore"):
        factor = np.float32(kernel.inputs["weight_scale"]) / kernel.inputs["act_scale"]
        kernel.outputs["out"][...] = product(kernel).astype(np.float32) * factor[:, None]


def reciprocal(kernel: Kernel) -> None:
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / kernel.inputs["act_scale"]
        kernel.outputs["out"][...] = (
            product(kernel).astype(np.float32) * inverse[:, None] * np.float32(kernel.inputs["weight_scale"])
        )


def flushed(kernel: Kernel) -> None:
    right_product(kernel)
    out = kernel.outputs["out"]
    out[np.abs(out) < np.finfo(np.float32).tiny] = 0


def narrow_sums(kernel: Kernel) -> None:
    """Sums in int16 that are flushed every 256 products."""
    codes = TILE64.unpack(kernel.inputs["weights"], (kernel.axes["N"], kernel.axes["K"]))[0]
    activations, sums = kernel.inputs["activations"], np.zeros((), np.int64)
    for begin in range(0, kernel.axes["K"], 256):
        sums = sums + accumulate(activations[:, begin : begin + 256], codes[:, begin : begin + 256]).astype(
            np.int16
        ).astype(np.int64)
    scaled(kernel, np.asarray(sums))


def narrow_stride(kernel: Kernel) -> None:
    """The row stride in 16 bits."""
    rows = kernel.inputs["activations"]
    read = np.lib.stride_tricks.as_strided(rows, strides=(rows.strides[0] % (1 << 16), 1))
    codes = TILE64.unpack(kernel.inputs["weights"], (kernel.axes["N"], kernel.axes["K"]))[0]
    scaled(kernel, accumulate(read, codes))


@pytest.mark.parametrize("work", [float32_product, reciprocal, flushed, narrow_sums, narrow_stride])
def test_narrow_arithmetic_is_caught(work: Callable[[Kernel], None]) -> None:
    assert verdict(made(FLOAT, work), count=100).status is Status.FAIL


def quantized(kernel: Kernel) -> None:
    with np.errstate(all="ignore"):
        quotient = np.nan_to_num(kernel.inputs["x"]) / np.float32(kernel.inputs["scale"])
    kernel.outputs["q"][...] = np.rint(np.clip(quotient, -2, 1)).astype(np.int8)


def first_bad(kernel: Kernel, seen: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> None:
    quantized(kernel)
    wrong = np.flatnonzero(seen(kernel.inputs["x"].view(np.uint32)))
    kernel.bad = int(wrong[0]) if wrong.size else -1


REPORTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "no negative NaN": lambda bits: ((bits & 0x7F800000) == 0x7F800000) & (bits <= 0xFF800000),
    "no signalling NaN": lambda bits: ((bits & 0x7FFFFFFF) >= 0x7FC00000) | ((bits & 0x7FFFFFFF) == 0x7F800000),
    "no infinity": lambda bits: (bits & 0x7FFFFFFF) > 0x7F800000,
    "not in the tail": lambda bits: ((bits & 0x7F800000) == 0x7F800000) & (np.arange(bits.size) < bits.size // 16 * 16),
}


@pytest.mark.parametrize("what", REPORTS)
def test_forbidden_elements_that_are_not_reported_are_caught(what: str) -> None:
    key = KernelKey("cpu", "i2s_quantize", "none", "int8")
    found = verdict(made(key, lambda kernel: first_bad(kernel, REPORTS[what])), count=40, op=QUANTIZE)
    assert found.status is Status.FAIL
    assert "is reported as at" in found.reason


def test_forbidden_elements_that_are_reported_earn_the_guard_and_silence_does_not() -> None:
    key = KernelKey("cpu", "i2s_quantize", "none", "int8")
    every = made(key, lambda kernel: first_bad(kernel, lambda bits: (bits & 0x7F800000) == 0x7F800000))
    assert "nonfinite" in verdict(every, count=20, op=QUANTIZE).guards
    silent = verdict(replace(made(key, quantized), reports_nonfinite=False), count=20, op=QUANTIZE)
    assert silent.status is Status.PASS
    assert "nonfinite" not in silent.guards


def test_rows_that_lie_apart_are_kept_from_a_kernel_that_takes_dense_ones() -> None:
    key = KernelKey("cpu", "activation_quantize", "none", "int8")

    def dense_only(kernel: Kernel) -> None:
        x = kernel.inputs["x"]
        assert x.flags.c_contiguous
        for name, values in activation_reference({"x": x}, kernel.axes, key).items():
            kernel.outputs[name][...] = values

    variant = made(key, dense_only, dense=frozenset({"x"}), reports_nonfinite=False)
    assert verdict(variant, count=40, op=ROWWISE).status is Status.PASS
    assert verdict(replace(variant, dense=frozenset()), count=40, op=ROWWISE).status is Status.ERROR


@pytest.mark.nightly
def test_what_no_case_reaches_is_ambiguous_by_name() -> None:
    variant = made(FLOAT, right_product, constraints=(MaxSize("M", 0),))
    found = verdict(variant, count=5)
    assert (found.status, found.cases) == (Status.NOT_RUN, 0)


def test_built_in_kernels_pass_in_processes_of_their_own() -> None:
    """A short form of `tritmark run`. The repeated runs go there as one message."""
    with Workers(INSTALLED) as workers:
        for variant in INSTALLED.registry.variants:
            if variant.key in {FLOAT, KernelKey("cpu", "activation_quantize", "none", "int8")} and variant.name in {
                "scalar",
                "avx2",
            }:
                op, worker = INSTALLED.ops[variant.key.op], workers.of(variant)
                found = judge_drawn(
                    op, worker.variant, variant.key, corners=(), count=16, seed=1, cores=2, device=worker.device
                ).accuracy  # fmt: skip
                assert (found.status, found.reason) == (Status.PASS, "")
                assert found.calls > 2 * found.cases
                assert "pages" in found.guards


def test_a_suite_says_drawn_alone(tmp_path: Any) -> None:
    from tritmark.harness.suite import KnownNames, read_suite

    path = tmp_path / "suite.toml"
    path.write_text(
        'title = ""\n[[workloads]]\nop = "i2s_quantize"\ndrawn = 5\nfamilies = ["normal"]\n', encoding="utf-8"
    )
    with pytest.raises(UsageError, match="given beside drawn"):
        read_suite(path, "suite", KnownNames(INSTALLED.ops.values(), {}, {}))
