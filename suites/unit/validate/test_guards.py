"""The memory of candidates: where arrays lie, and which accesses are detected."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import UsageError
from tritmark.harness.record import Divergence
from tritmark.harness.spec import ToleranceKind
from tritmark.harness.validate.cases import Case
from tritmark.harness.validate.compare import Expected
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.guards import ALIGNMENT, ZONE, GuardedArray, layout_offset
from tritmark.harness.validate.trial import Tally, inputs_there
from tritmark.harness.worker.remote import RemoteMemory
from tritmark.harness.worker.shared import Edge
from tritmark.kernels import OPS

BY_NAME = {op.name: op for op in OPS}

DTYPES = [np.dtype(name) for name in ("int8", "int32", "float32", "float64")] + [np.dtype(ml_dtypes.bfloat16)]
shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def write_byte(guarded: GuardedArray, at: int) -> None:
    """Change one byte, counted from the array's first."""
    address = ctypes.cast(guarded.array.ctypes.data + at, ctypes.POINTER(ctypes.c_ubyte))
    address[0] ^= 0xFF


@given(shapes, st.sampled_from(DTYPES), st.sampled_from(["aligned", "unaligned"]))
def test_arrays_stand_where_the_layout_says(shape: tuple[int, ...], dtype: np.dtype[Any], layout: str) -> None:
    guarded = GuardedArray(shape, dtype, seed=1, offset=layout_offset(layout, dtype.itemsize))
    assert guarded.array.shape == shape
    assert guarded.array.dtype == dtype
    assert guarded.array.flags.c_contiguous
    assert guarded.array.ctypes.data % ALIGNMENT == (0 if layout == "aligned" else dtype.itemsize)


@pytest.mark.parametrize("alignment", [64, 128, 4096])
def test_a_variant_gets_the_alignment_that_it_needs(alignment: int) -> None:
    guarded = GuardedArray((3,), np.dtype("int8"), seed=1, alignment=alignment)
    assert guarded.array.ctypes.data % alignment == 0


class Allocations:
    """A worker without an effect."""

    process, alive = None, True

    def number(self) -> int:
        return 1

    def call(self, what: str, task: Any, *args: Any) -> None:
        pass

    def drop_buffer(self, number: int) -> None:
        pass


@given(shapes, st.sampled_from(DTYPES), st.sampled_from([0, 1, 3]), st.sampled_from(["start", "end"]))
def test_where_an_access_outside_of_an_allocation_traps_the_array_begins_or_ends_with_it(
    shape: tuple[int, ...], dtype: np.dtype[Any], past: int, edge: Edge
) -> None:
    offset = past * dtype.itemsize
    for traps in (True, False):
        memory = RemoteMemory(Allocations(), traps=traps)  # type: ignore[arg-type]
        guarded = GuardedArray(shape, dtype, seed=1, offset=offset, memory=memory, edge=edge)
        begin, nbytes = guarded.handle.offset, guarded.array.nbytes
        after = guarded.mirrored[0].nbytes - begin - nbytes
        assert begin % ALIGNMENT == offset % ALIGNMENT
        assert (begin == offset) is (traps and edge == "start")
        assert (after == 0) is (traps and edge == "end")
        assert after in {0, ZONE}
        guarded.arm()
        assert guarded.broken() == ""


def test_unknown_layout_is_refused() -> None:
    with pytest.raises(UsageError, match="sideways"):
        layout_offset("sideways", 4)


@given(st.integers(1, 300), st.sampled_from(DTYPES), st.sampled_from([0, 1]), st.data())
def test_one_byte_outside_is_noticed(n: int, dtype: np.dtype[Any], past: int, data: st.DataObject) -> None:
    guarded = GuardedArray((n,), dtype, seed=n, offset=past * dtype.itemsize)
    guarded.poison()
    assert guarded.broken() == ""
    away = data.draw(st.integers(1, ZONE))
    before = data.draw(st.booleans())
    write_byte(guarded, -away if before else guarded.array.nbytes - 1 + away)
    assert (
        guarded.broken()
        == f"1 byte {'before its start' if before else 'past its end'} changed, the nearest {away} away from it"
    )
    guarded.arm()
    assert guarded.broken() == ""


@given(st.integers(1, 300), st.sampled_from(DTYPES), st.integers(0, 10_000))
def test_writes_inside_are_nobody_elses_business(n: int, dtype: np.dtype[Any], at: int) -> None:
    guarded = GuardedArray((n,), dtype, seed=n)
    write_byte(guarded, at % guarded.array.nbytes)
    assert guarded.broken() == ""


def test_rows_apart_have_canaries_between_them() -> None:
    guarded = GuardedArray((3, 5), np.dtype("float32"), seed=3, offset=4, gap=12)
    assert guarded.array.strides == (32, 4)
    guarded.array[...] = 1.0
    assert guarded.broken() == ""
    write_byte(guarded, 32 + 20)
    assert guarded.broken() == "bytes between its rows changed, first after row 1"


def test_a_constant_cannot_pass_for_the_canary_twice() -> None:
    """A write of the byte that is already there is not detected, but the next run has the inverse there."""
    guarded = GuardedArray((4,), np.dtype("int8"), seed=5)
    past = ctypes.cast(guarded.array.ctypes.data + 4, ctypes.POINTER(ctypes.c_ubyte))
    there = past[0]
    past[0] = there
    assert guarded.broken() == ""
    guarded.arm()
    past[0] = there
    assert guarded.broken()


@given(st.integers(1, 500), st.sampled_from(DTYPES), st.data())
def test_poison_tells_what_was_not_written(n: int, dtype: np.dtype[Any], data: st.DataObject) -> None:
    guarded = GuardedArray((n,), dtype, seed=n)
    left_out = np.zeros(n, bool)
    left_out[data.draw(st.lists(st.integers(0, n - 1), max_size=5))] = True
    never = np.ones(n, bool)
    for _ in range(2):
        guarded.poison()
        guarded.arm()
        guarded.array[~left_out] = np.arange(n).astype(dtype)[~left_out]
        never &= guarded.unwritten()
    assert np.array_equal(never, left_out)


@pytest.mark.parametrize(
    ("op", "shape", "index", "there"),
    [
        ("i2s_quantize", {"n": 4}, (2,), {"x[2]": "0.1", "scale": "0.5"}),
        ("ternary_matmul", {"M": 2, "N": 3, "K": 4}, (1, 2), {"weight_scale": "0.5", "act_scale[1]": "7.0"}),
        ("i2s_quantize", {"n": 4}, (), {}),
    ],
)
def test_a_difference_comes_with_the_inputs_of_its_element(
    op: str, shape: dict[str, int], index: tuple[int, ...], there: dict[str, str]
) -> None:
    """Values are shown in the dtype that the kernel reads; inputs over other axes are left out."""
    known = BY_NAME[op]
    values: dict[str, object] = {
        "x": np.full(4, 0.1),
        "scale": 0.5,
        "weight_scale": np.float32(0.5),
        "act_scale": np.full(2, 7, np.float32),
        "activations": np.ones((2, 4), np.int8),
        "weights": np.ones((3, 4), np.int8),
    }
    logical = {each.name: values[each.name] for each in known.inputs}
    floats = {name: np.asarray(value, "float32") for name, value in logical.items() if name in {"x", "scale"}}
    inputs = {**logical, **floats}
    first = Divergence(output=known.outputs[0].name, index=index, expected="0", found="1")
    assert inputs_there(known, Case(inputs, (), logical), first) == there


@pytest.mark.parametrize(
    ("left_out", "wrong", "reported"), [(0, True, False), (1, False, True), (1 << 16, False, True)]
)
def test_values_that_equal_the_poison_by_chance_count_as_written(left_out: int, wrong: bool, reported: bool) -> None:
    """Of 2^18 incorrect bytes with four values some hundred equal the poison of one run and its inverse in the next."""
    n, rng, tally = 1 << 18, np.random.default_rng(1), Tally(BY_NAME["i2s_quantize"])
    guarded = GuardedArray((n,), np.dtype("int8"), seed=2)
    chance = np.ones(n, bool)
    for _ in range(2):
        guarded.poison()
        guarded.arm()
        values = rng.integers(-2, 2, n, dtype=np.int8)
        guarded.array[: n - left_out] = values[: n - left_out]
        chance &= guarded.unwritten()
        expected = values ^ 64 if wrong else values
        tally.add(Expected("q", ToleranceKind.EXACT, expected, expected, None), guarded)
    assert chance.any()
    assert (Guard.POISON in tally.spoke) == reported


def test_poison_has_to_come_first() -> None:
    with pytest.raises(ValueError, match="never poisoned"):
        GuardedArray((4,), np.dtype("int8"), seed=1).unwritten()
