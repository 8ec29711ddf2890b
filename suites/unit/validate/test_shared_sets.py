"""Sets in shared memory: honest kernels of every op leave the expected outputs of each call. One skipped call or one
incorrect byte is detected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from exchanged_shapes import OPS, SHAPES, STRETCHES

from tritmark.harness.providers import load
from tritmark.harness.spec import KernelKey, Launch, Workload
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.validate.pieces import NOTHING, exchangeable
from tritmark.harness.validate.shared_sets import SharedSets, set_bytes
from tritmark.harness.worker.remote import SharedMemory

REGISTRY = load(()).registry
NATIVE = [
    shape
    for shape in (*SHAPES, *STRETCHES)
    if any(each.key == KernelKey("cpu", *shape[:3]) for each in REGISTRY.variants)
]
"""Ops with a kernel on the host."""
COUNT = 12
SMALL = ("i2s_dequantize", "none", "float32", {"n": 999})
PRODUCT = ("ternary_matmul", "tile64", "float32", {"M": 2, "N": 300, "K": 130})


class Buffer:
    def __init__(self, nbytes: int) -> None:
        whole = np.zeros(nbytes + 64, np.uint8)
        self.bytes = whole[-whole.ctypes.data % 64 :][:nbytes]


class Here:
    """Memory of this process, with the two methods that sets need."""

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(nbytes)

    def view(self, buffer: Buffer, offset: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.ndarray(shape, dtype, buffer=buffer.bytes, offset=offset)


class Bound:
    """A kernel that is bound to sets, and the judgement of its calls."""

    def __init__(self, op: str, format: str, dtype: str, axes: dict[str, int], *, layout: str = "aligned") -> None:
        self.key = KernelKey("cpu", op, format, dtype)
        material = Material(OPS[op], Workload(op=op, axes=axes, family="uniform", layout=layout), 3)
        self.cases: Cases = material.cases(self.key)
        self.encoded = tuple(material.encoded(format))
        changes = exchangeable(OPS[op], self.key, axes, material.logical, self.encoded, np.random.default_rng(1))
        self.changes = changes if self.cases.in_place else NOTHING
        self.rng = np.random.default_rng(5)
        memory = cast(SharedMemory, Here())
        self.sets = SharedSets(self.cases, self.encoded, self.changes, layout, memory, COUNT)
        variant = REGISTRY.select_best(self.key, axes)
        self.launches: list[Launch] = [variant.bind(*self.sets.given(index), axes, 1) for index in range(COUNT)]

    def lap(self, call: Callable[[int, Launch], object] = lambda index, launch: launch.run()) -> list[str]:
        """Faults of a lap in which `call` replaces each call."""
        self.sets.change(self.rng)
        for index, launch in enumerate(self.launches):
            call(index, launch)
        faults, judged = self.sets.faults("a lap", self.rng)
        assert 1 <= judged <= COUNT
        assert all(fault.guard is Guard.AUDIT for fault in faults)
        return [str(fault) for fault in faults]


@pytest.mark.parametrize("layout", ["aligned", "unaligned"])
@pytest.mark.parametrize("shape", NATIVE, ids=str)
def test_an_honest_kernel_leaves_what_is_expected(shape: tuple[str, str, str, dict[str, int]], layout: str) -> None:
    here = Bound(*shape, layout=layout)
    changed = False
    for _ in range(6):
        assert here.lap() == []
        changed |= any(here.sets.exchanged)
    assert changed is here.cases.in_place, "if a launch may hold copies of its inputs, they must not change"


@pytest.mark.parametrize("shape", [SMALL, PRODUCT], ids=str)
@pytest.mark.parametrize("left_out", range(COUNT))
def test_a_call_that_is_left_out_is_seen(shape: tuple[str, str, str, dict[str, int]], left_out: int) -> None:
    here = Bound(*shape)
    assert here.lap() == []
    assert here.lap(lambda index, launch: launch.run() if index != left_out else None)
    assert here.lap() == []


@pytest.mark.parametrize("shape", [SMALL, PRODUCT], ids=str)
def test_what_is_kept_from_before_is_no_answer(shape: tuple[str, str, str, dict[str, int]]) -> None:
    """A kernel that returns the results of its first call on an array is correct until that array's inputs change."""
    here, kept = Bound(*shape), dict[int, dict[str, npt.NDArray[Any]]]()

    def memo(index: int, launch: Launch) -> None:
        outputs = here.sets.given(index)[1]
        if index not in kept:
            launch.run()
            kept[index] = {name: array.copy() for name, array in outputs.items()}
        for name, array in outputs.items():
            array[...] = kept[index][name]

    assert here.lap(memo) == []
    assert any(here.lap(memo) for _ in range(3))


@pytest.mark.parametrize("at", [0, 1, 500, 998])
def test_one_wrong_element_of_one_call_is_seen(at: int) -> None:
    here = Bound(*SMALL)

    def slip(index: int, launch: Launch) -> None:
        launch.run()
        if index == 7:
            here.sets.given(index)[1]["x"][at] += 1

    (fault,) = here.lap(slip)
    assert f"x[{at}]" in fault


def test_what_is_made_wrong_is_no_pattern_to_look_for() -> None:
    """Each byte is the complement of the expected one, so none of it can be correct by chance."""
    here = Bound(*SMALL)
    assert here.lap() == []
    before = [here.sets.given(index)[1]["x"].copy() for index in range(COUNT)]
    here.sets.change(here.rng)
    for index in range(COUNT):
        now = here.sets.given(index)[1]["x"]
        wrong = before[index].view(np.uint8) != now.view(np.uint8)
        assert 1 <= wrong.sum() <= 64


def test_bytes_of_a_set() -> None:
    here = Bound(*SMALL)
    assert set_bytes(here.cases, here.encoded[0], "aligned") == here.sets.nbytes == 1024 + 4032
