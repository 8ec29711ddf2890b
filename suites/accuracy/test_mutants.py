"""Tests of the oracle: a kernel with one planted mutant must fail, and the same kernel without it
has to pass."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Op, Tier, Values, Variant, Workload
from tritmark.harness.validate.accuracy import Judged, judge, misfit
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.compare import named_dtype, rounded  # type: ignore[attr-defined]
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.i2s_quantize.spec import OP as I2S_QUANTIZE
from tritmark.kernels.ternary_matmul.spec import OP as TERNARY_MATMUL
from tritmark.kernels.ternary_quantize.spec import OP as TERNARY_QUANTIZE

MATMUL = KernelKey("cpu", "ternary_matmul", "tile64", "float32")
QUANTIZE = KernelKey("cpu", "i2s_quantize", "none", "int8")
BLOCKS = KernelKey("cpu", "ternary_quantize", "none", "int8")

Compute = Callable[[Op, KernelKey, Arrays, Axes], Mapping[str, Any]]


@dataclass
class Candidate:
    """A kernel in Python, bound to its arguments. `compute` returns the outputs; the hooks do what no kernel may do."""

    op: Op
    key: KernelKey
    inputs: Arrays
    outputs: Arrays
    axes: Axes
    compute: Compute
    before: Callable[[Candidate], bool] = lambda self: False
    """True: the run ends here."""
    after: Callable[[Candidate], None] = lambda self: None
    name: str = "candidate"
    counts: bool = True
    threads_used: int = 1
    ran: str = ""
    runs: int = 0
    bad: int = -1
    pointer: int | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        self.ran = self.name
        self.runs += self.counts
        if self.before(self):
            return
        for tensor in self.op.inputs:
            if tensor.values is Values.FINITE and tensor.axes:
                wrong = np.flatnonzero(~np.isfinite(self.inputs[tensor.name]))
                self.bad = int(wrong[0]) if wrong.size else -1
                if wrong.size:
                    return
        for name, values in self.compute(self.op, self.key, self.inputs, self.axes).items():
            self.outputs[name][...] = values
        self.after(self)


def right(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """The outputs of the contract: the reference on the decoded inputs, rounded to the outputs' dtypes."""
    logical = dict(inputs)
    if op is TERNARY_MATMUL:
        logical["weights"], _ = FORMATS[key.format].unpack(inputs["weights"], (axes["N"], axes["K"]))
    expected = op.reference(logical, axes, key)
    dtypes = {name: named_dtype(dtype) for name, (_, dtype) in op.outputs_like(axes, key).items()}
    return {
        name: rounded(values, dtypes[name]) if values.dtype == np.float64 else values.astype(dtypes[name])
        for name, values in expected.items()
        if name in dtypes
    }


def judged(
    op: Op,
    key: KernelKey,
    axes: Axes,
    compute: Compute = right,
    *,
    family: str = "normal",
    layout: str = "aligned",
    **mutant: Any,
) -> Judged:
    """The verdict on a candidate that computes so, with such a mutant."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = Candidate(op, key, inputs, outputs, axes, compute, **mutant)
        return launch

    variant = Variant(key=key, name="candidate", tier=Tier.BASELINE, summary="", bind=bind)
    workload = Workload(op=op.name, axes=axes, family=family, layout=layout)
    return judge(op, variant, Material(op, workload, 7).cases(key), axes, layout=layout, threads=2, seed=7)


SHAPES: list[tuple[Op, KernelKey, Axes]] = [
    (TERNARY_MATMUL, MATMUL, {"M": 3, "N": 65, "K": 130}),
    (TERNARY_MATMUL, KernelKey("cpu", "ternary_matmul", "tile64", "bfloat16"), {"M": 2, "N": 5, "K": 7}),
    (TERNARY_MATMUL, KernelKey("cpu", "ternary_matmul", "tile64", "int32"), {"M": 1, "N": 64, "K": 2176}),
    (I2S_QUANTIZE, QUANTIZE, {"n": 129}),
    (TERNARY_QUANTIZE, BLOCKS, {"n": 300, "block": 128}),
]

IDS = [key.op + "-" + key.dtype for _, key, _ in SHAPES]


@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
@pytest.mark.parametrize(("op", "key", "axes"), SHAPES, ids=IDS)
def test_the_candidate_without_a_mutant_passes(op: Op, key: KernelKey, axes: Axes, layout: str) -> None:
    for family in op.input_families:
        verdict = judged(op, key, axes, family=family, layout=layout).accuracy
        assert verdict.status is Status.PASS, verdict.reason
        assert verdict.cases == 3
        assert verdict.mismatches == 0


def weights(inputs: Arrays, axes: Axes) -> Any:
    codes, _ = FORMATS["tile64"].unpack(inputs["weights"], (axes["N"], axes["K"]))
    return codes


def with_weights(change: Callable[[Any], None]) -> Compute:
    """The product with weights that were decoded wrongly."""

    def compute(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
        codes = weights(inputs, axes).copy()
        change(codes)
        acc = inputs["activations"].astype(np.int64) @ codes.astype(np.int64).T
        return {"out": acc * (inputs["weight_scale"] / inputs["act_scale"].astype(np.float64))[:, None]}

    return compute


def swap_one_pair(codes: Any) -> None:
    """Exchanges two neighbours in one row; if they are equal, there is no mutant."""
    row, column = np.argwhere(codes[:, 1:] != codes[:, :-1])[0]
    codes[row, column], codes[row, column + 1] = codes[row, column + 1], codes[row, column]


def flip(codes: Any) -> None:
    np.negative(codes, out=codes)


def drop_the_tail(codes: Any) -> None:
    codes[:, codes.shape[1] // 64 * 64 :] = 0


def one_row_on(codes: Any) -> None:
    codes[...] = np.roll(codes, 1, axis=0)


def times_the_activation_scale(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    return {"out": right(op, key, inputs, axes)["out"] * inputs["act_scale"][:, None] ** 2}


def without_the_weight_scale(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    return {"out": right(op, key, {**inputs, "weight_scale": np.float32(1)}, axes)["out"]}


def two_ulp_off(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    out = right(op, key, inputs, axes)["out"]
    out.flat[-1] = np.nextafter(np.nextafter(out.flat[-1], np.float32(np.inf)), np.float32(np.inf))
    return {"out": out}


def int16_accumulators(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """Sums in 16 lanes of int16 that are flushed every 4096 values only, as the layout I2_S is summed by its
    original."""
    codes = weights(inputs, axes)
    acc = np.zeros((axes["M"], axes["N"]), np.int64)
    for start in range(0, axes["K"], 4096):
        for lane in range(16):
            part = slice(start + lane, min(start + 4096, axes["K"]), 16)
            products = inputs["activations"][:, part].astype(np.int64) @ (codes[:, part] + 1).astype(np.int64).T
            acc += products.astype(np.int16)
    acc -= inputs["activations"].astype(np.int64).sum(axis=1)[:, None]
    return {"out": acc * (inputs["weight_scale"] / inputs["act_scale"].astype(np.float64))[:, None]}


def first_row_for_all(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """The stride between the rows of activations is 0."""
    activations = np.broadcast_to(inputs["activations"][:1], inputs["activations"].shape)
    return right(op, key, {**inputs, "activations": activations}, axes)


def rows_taken_for_dense(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """Uses K as the stride between rows of activations, regardless of the actual stride."""
    activations = np.lib.stride_tricks.as_strided(inputs["activations"], strides=(axes["K"], 1))
    return right(op, key, {**inputs, "activations": activations}, axes)


def written_column_by_column(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    out = right(op, key, inputs, axes)["out"]
    return {"out": np.ascontiguousarray(out.T).reshape(out.shape)}


PRODUCTS: dict[str, tuple[Compute, Axes, str, str]] = {
    "swapped code: two codes change places": (
        with_weights(swap_one_pair),
        {"M": 1, "N": 64, "K": 128},
        "normal",
        "aligned",
    ),
    "swapped code: plus for minus": (with_weights(flip), {"M": 1, "N": 64, "K": 128}, "normal", "aligned"),
    "dropped tail": (with_weights(drop_the_tail), {"M": 1, "N": 64, "K": 129}, "normal", "aligned"),
    "wrong scale: product for quotient": (times_the_activation_scale, {"M": 2, "N": 64, "K": 64}, "normal", "aligned"),
    "wrong scale: none": (without_the_weight_scale, {"M": 2, "N": 64, "K": 64}, "normal", "aligned"),
    "wrong scale: the last bits": (two_ulp_off, {"M": 2, "N": 64, "K": 64}, "normal", "aligned"),
    "off by one block of rows": (with_weights(one_row_on), {"M": 1, "N": 65, "K": 64}, "normal", "aligned"),
    "int16 overflow, K = 2176": (int16_accumulators, {"M": 1, "N": 4, "K": 2176}, "constant", "aligned"),
    "int16 overflow, K = 4096": (int16_accumulators, {"M": 1, "N": 4, "K": 4096}, "constant", "aligned"),
    "int16 overflow, K = 27648": (int16_accumulators, {"M": 1, "N": 4, "K": 27648}, "constant", "aligned"),
    "wrong stride for M > 1: activations": (first_row_for_all, {"M": 2, "N": 64, "K": 64}, "normal", "aligned"),
    "wrong stride for M > 1: rows apart": (rows_taken_for_dense, {"M": 2, "N": 64, "K": 64}, "normal", "unaligned"),
    "wrong stride for M > 1: output": (written_column_by_column, {"M": 2, "N": 64, "K": 64}, "normal", "aligned"),
}


@pytest.mark.parametrize("mutant", PRODUCTS)
def test_a_wrong_product_fails(mutant: str) -> None:
    compute, axes, family, layout = PRODUCTS[mutant]
    verdict = judged(TERNARY_MATMUL, MATMUL, axes, compute, family=family, layout=layout).accuracy
    assert verdict.status is Status.FAIL
    assert verdict.mismatches > 0
    assert verdict.first is not None
    assert verdict.first.output == "out"
    assert verdict.first.expected != verdict.first.found


def test_what_makes_the_int16_mutant_visible_is_the_constant_family() -> None:
    """The sums of ordinary data stay small: without the family that provokes it, the mutant would pass."""
    axes = {"M": 1, "N": 4, "K": 2176}
    assert judged(TERNARY_MATMUL, MATMUL, axes, int16_accumulators, family="normal").accuracy.status is Status.PASS


def blocks_begin_early(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """Each block looks for its largest element one place early."""
    early = np.concatenate([inputs["x"][:1], inputs["x"][:-1]])
    return {**right(op, key, inputs, axes), "scales": right(op, key, {**inputs, "x": early}, axes)["scales"]}


def the_next_block_s_scale(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    outputs = right(op, key, inputs, axes)
    half = np.repeat(np.roll(outputs["scales"], -1), axes["block"])[: axes["n"]] * np.float32(0.5)
    return {**outputs, "codes": (inputs["x"] > half).astype(np.int8) - (inputs["x"] < -half)}


def the_last_block_is_full(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    """The tail is taken together with the block before."""
    outputs = right(op, key, inputs, axes)
    outputs["scales"][-1] = np.abs(inputs["x"][-axes["block"] :]).max()
    return outputs


# Small blocks reveal shifted boundaries: the largest of 7 elements is often the first or last one, of 128 rarely.
@pytest.mark.parametrize(
    ("compute", "output", "block"),
    [
        (blocks_begin_early, "scales", 7),
        (the_next_block_s_scale, "codes", 7),
        (the_next_block_s_scale, "codes", 128),
        (the_last_block_is_full, "scales", 7),
        (the_last_block_is_full, "scales", 128),
    ],
)
def test_blocks_off_by_one_fail(compute: Compute, output: str, block: int) -> None:
    verdict = judged(TERNARY_QUANTIZE, BLOCKS, {"n": 1031, "block": block}, compute).accuracy
    assert verdict.status is Status.FAIL
    assert verdict.first is not None
    assert verdict.first.output == output


def ties_away(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    quotient = inputs["x"] / np.float32(inputs["scale"])
    return {"q": np.clip(np.trunc(quotient + np.copysign(np.float32(0.5), quotient)), -2, 1).astype(np.int8)}


def test_ties_rounded_away_fail() -> None:
    assert judged(I2S_QUANTIZE, QUANTIZE, {"n": 512}, ties_away, family="ties").accuracy.status is Status.FAIL


def write_past(candidate: Candidate, at: int) -> None:
    """One byte outside the output, counted from its first."""
    out = next(iter(candidate.outputs.values()))
    ctypes.cast(out.ctypes.data + at, ctypes.POINTER(ctypes.c_ubyte))[0] = 0x5A


def ends_after(count: int) -> Callable[[Candidate], bool]:
    return lambda candidate: candidate.runs > count


def shrink(candidate: Candidate) -> None:
    """Leave the last element as it was before the run."""
    out = next(iter(candidate.outputs.values()))
    out.flat[-1] = candidate.memory["last"]


def remember_last(candidate: Candidate) -> bool:
    candidate.memory["last"] = next(iter(candidate.outputs.values())).flat[-1].copy()
    return False


def change_an_input(candidate: Candidate) -> None:
    array = next(value for value in candidate.inputs.values() if isinstance(value, np.ndarray) and value.ndim)
    # It may only be read, as far as NumPy knows.
    last = array.ctypes.data + sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True))
    ctypes.cast(last, ctypes.POINTER(ctypes.c_ubyte))[0] ^= 1


def write_between_rows(candidate: Candidate) -> None:
    array = candidate.inputs["activations"]
    ctypes.cast(array.ctypes.data + array.shape[1], ctypes.POINTER(ctypes.c_ubyte))[0] ^= 1


def zero_all(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    return {name: np.zeros_like(values) for name, values in right(op, key, inputs, axes).items()}


def not_a_number(op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
    out = right(op, key, inputs, axes)["out"]
    out.flat[0] = np.nan
    return {"out": out}


class Stale:
    """The result of the first call ever, kept outside of any launch."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None

    def __call__(self, op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
        if self.kept is None:
            self.kept = right(op, key, inputs, axes)
        return self.kept


class Previous:
    """Always the result of the previous call; the first call is correct."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None

    def __call__(self, op: Op, key: KernelKey, inputs: Arrays, axes: Axes) -> dict[str, Any]:
        now = right(op, key, inputs, axes)
        before, self.kept = self.kept or now, now
        return before


@pytest.mark.parametrize(("op", "key", "axes"), SHAPES, ids=IDS)
class TestEveryOp:
    """Mutants that any kernel can have."""

    def test_zeros(self, op: Op, key: KernelKey, axes: Axes) -> None:
        verdict = judged(op, key, axes, zero_all).accuracy
        assert verdict.status is Status.FAIL
        assert verdict.mismatches > 0

    @pytest.mark.parametrize("stale", [Stale, Previous])
    def test_stale_output(self, op: Op, key: KernelKey, axes: Axes, stale: Callable[[], Compute]) -> None:
        verdict = judged(op, key, axes, stale()).accuracy
        assert verdict.status is Status.FAIL
        assert "in case 2" in verdict.reason

    def test_only_the_first_run_of_a_launch_computes(self, op: Op, key: KernelKey, axes: Axes) -> None:
        assert judged(op, key, axes, before=ends_after(1)).accuracy.status is Status.FAIL

    def test_nothing_is_ever_written(self, op: Op, key: KernelKey, axes: Axes) -> None:
        verdict = judged(op, key, axes, before=ends_after(0)).accuracy
        assert verdict.status is Status.FAIL
        assert "never written" in verdict.reason

    def test_the_last_element_is_never_written(self, op: Op, key: KernelKey, axes: Axes) -> None:
        verdict = judged(op, key, axes, before=remember_last, after=shrink).accuracy
        assert verdict.status is Status.FAIL
        assert "1 elements" in verdict.reason

    @pytest.mark.parametrize("side", ["before", "after"])
    def test_one_byte_outside(self, op: Op, key: KernelKey, axes: Axes, side: str) -> None:
        shape, dtype = next(iter(op.outputs_like(axes, key).values()))
        nbytes = int(np.prod(shape)) * named_dtype(dtype).itemsize
        verdict = judged(
            op, key, axes, after=lambda candidate: write_past(candidate, -1 if side == "before" else nbytes)
        ).accuracy
        assert verdict.status is Status.FAIL
        assert verdict.mismatches == 0
        assert "the nearest 1 away" in verdict.reason

    def test_changed_input(self, op: Op, key: KernelKey, axes: Axes) -> None:
        verdict = judged(op, key, axes, after=change_an_input).accuracy
        assert verdict.status is Status.FAIL
        assert "was changed" in verdict.reason

    def test_an_exception_is_an_error_with_its_text(self, op: Op, key: KernelKey, axes: Axes) -> None:
        def fail(*_: Any) -> Mapping[str, Any]:
            raise RuntimeError("the tile is on fire")

        verdict = judged(op, key, axes, fail).accuracy
        assert verdict.status is Status.ERROR
        assert verdict.reason == "RuntimeError: the tile is on fire"

    @pytest.mark.parametrize(
        ("lie", "told"),
        [
            ({"name": "another"}, "another ran in place of candidate"),
            ({"counts": False}, "does not count its runs"),
            ({"threads_used": 3}, "used 3 threads"),
            ({"threads_used": 0}, "used 0 threads"),
        ],
    )
    def test_a_launch_that_lies(self, op: Op, key: KernelKey, axes: Axes, lie: dict[str, Any], told: str) -> None:
        verdict = judged(op, key, axes, **lie).accuracy
        assert verdict.status is Status.FAIL
        assert told in verdict.reason

    def test_a_legal_input_reported_as_bad(self, op: Op, key: KernelKey, axes: Axes) -> None:
        def report(candidate: Candidate) -> None:
            candidate.bad = 3

        assert judged(op, key, axes, after=report).accuracy.status is Status.FAIL


def test_nan_in_an_output_fails() -> None:
    verdict = judged(TERNARY_MATMUL, MATMUL, {"M": 1, "N": 64, "K": 64}, not_a_number).accuracy
    assert verdict.status is Status.FAIL
    assert verdict.first is not None
    assert verdict.first.found == "nan"


def test_writing_between_rows_of_an_input_fails() -> None:
    axes = {"M": 2, "N": 64, "K": 64}
    verdict = judged(TERNARY_MATMUL, MATMUL, axes, after=write_between_rows, layout="unaligned").accuracy
    assert verdict.status is Status.FAIL
    assert "between its rows" in verdict.reason


def test_infinite_input_that_goes_unnoticed_fails() -> None:
    def look_away(candidate: Candidate) -> bool:
        candidate.outputs["q"][...] = right(candidate.op, candidate.key, candidate.inputs, candidate.axes)["q"]
        return True

    with np.errstate(invalid="ignore"):
        verdict = judged(I2S_QUANTIZE, QUANTIZE, {"n": 100}, before=look_away).accuracy
    assert verdict.status is Status.FAIL
    assert "is reported as at -1" in verdict.reason


def test_a_variant_is_not_given_memory_that_it_did_not_ask_for() -> None:
    variant = Variant(key=QUANTIZE, name="picky", tier=Tier.BASELINE, summary="", bind=lambda *_: None, alignment=64)  # type: ignore[arg-type]
    inputs = {"x": np.zeros(4, np.float32), "scale": np.float32(1)}
    assert misfit(variant, inputs, "aligned") is None
    assert misfit(variant, inputs, "unaligned") == "it needs arrays aligned to 64 bytes, but x is unaligned"
