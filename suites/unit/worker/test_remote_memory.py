"""A device's memory as the judge sees it: buffers side by side, and their copies. The device is made up: bytes in
this process."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tritmark.harness.worker import tasks
from tritmark.harness.worker.remote import RemoteMemory


class Far:
    """The device's memory where the worker is; counts the copies."""

    cache = None

    def __init__(self) -> None:
        self.copies = 0

    def available(self) -> int:
        return 1 << 30

    def allocate(self, nbytes: int) -> bytearray:
        return bytearray(nbytes)

    def view(
        self, buffer: bytearray, offset: int, shape: tuple[int, ...], dtype: Any, strides: Any = None
    ) -> memoryview:
        return memoryview(buffer)[offset : offset + int(np.prod(shape)) * np.dtype(dtype).itemsize]

    def write(self, array: memoryview, values: npt.NDArray[Any]) -> None:
        self.copies += 1
        array[:] = values.tobytes()

    def read(self, array: memoryview, into: npt.NDArray[Any]) -> None:
        self.copies += 1
        into.reshape(-1).view(np.uint8)[...] = np.frombuffer(array, np.uint8)


class Worker:
    """Does in this process what a worker is asked for."""

    alive = True

    def __init__(self) -> None:
        self.far = Far()
        self.site: Any = SimpleNamespace(buffers={}, device=SimpleNamespace(memory=lambda: self.far))
        self.process = object()
        self.numbers = 0

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def call(self, what: str, task: Callable[..., Any], *args: Any) -> Any:
        return task(self.site, *(_sent(arg) for arg in args))

    def drop_buffer(self, number: int) -> None:
        del self.site.buffers[number]


def _sent(arg: Any) -> Any:
    """As pickling leaves it: a handle's buffer becomes its number."""
    if isinstance(arg, tasks.Handle):
        make, fields = arg.__reduce__()[:2]
        return make(*fields)
    return tuple(map(_sent, arg)) if isinstance(arg, tuple) else arg


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_written_comes_back(apart: bool) -> None:
    worker = Worker()
    memory = RemoteMemory(worker, traps=apart)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    for sizes in ((1000, 1, 4097), (9 << 20, 12), (255,)):
        buffers = [memory.allocate(nbytes) for nbytes in sizes]
        values = [rng.integers(0, 256, nbytes, np.uint8) for nbytes in sizes]
        memory.write_all(list(zip(buffers, values, strict=True)))
        back = [np.zeros_like(value) for value in values]
        memory.read_all(list(zip(buffers, back, strict=True)))
        for value, found in zip(values, back, strict=True):
            assert (value == found).all()
        del buffers


@pytest.mark.parametrize(("apart", "copies"), [(False, 2), (True, 6)])
def test_small_buffers_go_in_one_copy(apart: bool, copies: int) -> None:
    worker = Worker()
    memory = RemoteMemory(worker, traps=apart)  # type: ignore[arg-type]
    pairs = [(memory.allocate(nbytes), np.full(nbytes, 3, np.uint8)) for nbytes in (100, 300, 7)]
    memory.write_all(pairs)
    memory.read_all(pairs)
    assert worker.far.copies == copies


def test_a_buffer_that_is_not_copied_keeps_what_it_holds() -> None:
    memory = RemoteMemory(Worker(), traps=False)  # type: ignore[arg-type]
    first, between, last = (memory.allocate(500) for _ in range(3))
    memory.write(between, np.full(500, 9, np.uint8))
    memory.write_all([(first, np.full(500, 1, np.uint8)), (last, np.full(500, 2, np.uint8))])
    found = np.zeros(500, np.uint8)
    memory.read(between, found)
    assert (found == 9).all()


def test_places_are_used_again_only_when_all_are_free() -> None:
    memory = RemoteMemory(Worker(), traps=False)  # type: ignore[arg-type]
    first, second = memory.allocate(300), memory.allocate(300)
    assert first.start % 256 == second.start % 256 == 0
    assert second.start >= first.start + 300
    del first
    third = memory.allocate(300)
    assert third.start >= second.start + 300
    del second, third
    assert memory.allocate(300).start == 0


def test_another_process_has_none_of_the_old_buffers() -> None:
    worker = Worker()
    memory = RemoteMemory(worker, traps=False)  # type: ignore[arg-type]
    old = memory.allocate(300)
    worker.process = object()
    new = memory.allocate(300)
    assert new.number != old.number
    del old
    assert memory.allocate(300).start >= 300, "the new one is still there"
