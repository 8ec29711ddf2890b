"""The sizes of swept axes: what is read, and what is refused."""

from __future__ import annotations

import pytest

from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load
from tritmark.harness.sweep.axes import AxisSizes, merged, sizes
from tritmark.harness.sweep.plan import SweepOptions, planned


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("1..16", (1, 2, 4, 8, 16)),
        ("1..20", (1, 2, 4, 8, 16, 20)),
        ("3..20", (3, 6, 12, 20)),
        ("10..30:x1.5", (10, 15, 22, 30)),
        ("1..4:x1.1", (1, 2, 3, 4)),
        ("7..7", (7,)),
        ("8,1,2,2", (1, 2, 8)),
        ("2560", (2560,)),
        (2560, (2560,)),
        ([4, 1], (1, 4)),
        (range(1, 4), (1, 2, 3)),
    ],
)
def test_sizes_ascend_and_both_ends_are_there(given: AxisSizes, found: tuple[int, ...]) -> None:
    assert sizes("M", given) == found


@pytest.mark.parametrize(
    "given",
    ["", "4..1", "0..8", "1..", "1..8:x1", "1..8:2", "1..8:x", "-1", "1;2", "a", "1.5", [], [0], [1.5], [True], 0],
)
def test_other_sizes_are_refused_with_the_legal_ones(given: AxisSizes) -> None:
    with pytest.raises(UsageError, match=r"axis M is .*; legal: .*powers of two"):
        sizes("M", given)


def test_options_name_an_axis_once() -> None:
    assert merged(["M=1..4", "K=256"]) == {"M": "1..4", "K": "256"}
    with pytest.raises(UsageError, match="M is given twice"):
        merged(["M=1", "M=2"])
    with pytest.raises(UsageError, match="legal: NAME=SIZES"):
        merged(["1..4"])


def test_axes_that_are_not_given_are_those_of_a_workload_and_named() -> None:
    installed = load()
    plan = planned(installed, SweepOptions(op="ternary_matmul", axes={"M": "1..4"}))
    usual = next(
        each.workload
        for each in installed.suite("quick").selected
        if each.workload.op == "ternary_matmul" and each.workload.measure
    )
    assert plan.axes == {"M": (1, 2, 4), "N": (usual.axes["N"],), "K": (usual.axes["K"],)}
    assert (plan.along, plan.chosen) == ("M", ("N", "K"))
    assert {each.fastest for each in plan.suite.selected} == {1}
    chosen = planned(
        installed, SweepOptions(op="ternary_matmul", axes={"K": "256,512", "M": 1, "N": 64}, variant="avx2")
    )
    assert (chosen.along, chosen.chosen) == ("K", ())
    assert {each.fastest for each in chosen.suite.selected} == {0}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": "ternary_matmull", "axes": {"M": "1..4"}}, "did you mean 'ternary_matmul'"),
        ({"op": "ternary_matmul", "axes": {"m": "1..4"}}, "no axis 'm'; did you mean 'M'"),
        ({"op": "ternary_matmul", "axes": {"M": "4"}}, "no axis has several sizes"),
        ({"op": "ternary_matmul", "axes": {"M": "1..4"}, "format": "tile65"}, "no format matches 'tile65'"),
        ({"op": "ternary_matmul", "axes": {"M": "1..4"}, "dtype": "int8"}, "no dtype matches 'int8'"),
        ({"op": "i2s_quantize", "axes": {"n": range(1, 300)}}, "299 shapes in 1 pictures; legal: at most 256 shapes"),
        ({"op": "ternary_matmul", "axes": {"M": "1,2", "N": "1..64"}}, "in 7 pictures; legal: .* and 6 pictures"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_runs(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        planned(load(), SweepOptions(**options))  # type: ignore[arg-type]
