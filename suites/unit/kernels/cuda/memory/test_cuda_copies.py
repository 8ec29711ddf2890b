"""Copies over lanes without Python, with a driver that copies as late as possible: when a stream is waited for."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import struct
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Barrier, BrokenBarrierError, Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.kernels.cuda.memory import lanes as lanes_module
from tritmark.kernels.cuda.memory.lanes import Lanes
from tritmark.kernels.cuda.memory.stats import CountedCopies, PerformanceStats
from tritmark.kernels.native.cpu import native

copies = native("cuda_copies")
CODE, SIZE, POINTER, HANDLE = ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
ENTER = ctypes.CFUNCTYPE(CODE, HANDLE)
UP = ctypes.CFUNCTYPE(CODE, POINTER, HANDLE, SIZE, HANDLE)
DOWN = ctypes.CFUNCTYPE(CODE, HANDLE, POINTER, SIZE, HANDLE)
LAUNCH = ctypes.CFUNCTYPE(CODE, HANDLE, *[ctypes.c_uint] * 7, HANDLE, HANDLE, ctypes.POINTER(HANDLE))
FILL = ctypes.CFUNCTYPE(CODE, POINTER, ctypes.c_ubyte, SIZE, HANDLE)
ATTRIBUTES = ctypes.CFUNCTYPE(CODE, ctypes.c_uint, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(HANDLE), POINTER)
CONTEXT, REFUSED = 77, 700
NONE_BAD = (1 << 64) - 1
WAYS = ("send", "fetch")


class LateDriver:
    """The device's memory is the host's. `refuses` is the number of the one call, from 1, that ends with REFUSED. Its
    one kernel adds 1 to bytes, and writes its further argument."""

    def __init__(self, refuses: int = 0) -> None:
        self.writes: tuple[int, bytes] | None = None
        """Where the kernel writes its further argument."""
        self.streams = itertools.count(1)
        """Numbers of streams: no two lanes share one."""
        self.waiting: dict[int, list[Callable[[], object]]] = {}
        self.not_waited: set[int] = set()
        """Streams for which waiting was refused."""
        self.pinned: list[range] = []
        self.questions = 0
        """How often the type of memory was queried."""
        self.launched: list[tuple[int, ...]] = []
        self.asked, self._refuses, self._lock = 0, refuses, Lock()
        self.entered: list[tuple[int, frozenset[int]]] = []
        self.used: set[tuple[int, int]] = set()
        """Threads with the streams that they used."""
        self._kept: tuple[Any, ...] = ENTER(self._enter), UP(self._copy), DOWN(self._copy), ENTER(self._wait)
        self._kept = *self._kept, LAUNCH(self._launch), ATTRIBUTES(self._attributes), FILL(self._fill)
        self.addresses = tuple(ctypes.cast(each, HANDLE).value for each in self._kept)

    def _refused(self) -> bool:
        with self._lock:
            self.asked += 1
            return self.asked == self._refuses

    def _enter(self, context: int) -> int:
        self.entered.append((context, frozenset(os.sched_getaffinity(0))))
        return REFUSED * self._refused()

    def _copy(self, to: int, start: int, nbytes: int, stream: int) -> int:
        self.used.add((threading.get_ident(), stream))
        if self._refused():
            return REFUSED
        self.waiting.setdefault(stream, []).append(partial(ctypes.memmove, to, start, nbytes))
        return 0

    def _launch(self, function: int, *given: Any) -> int:
        *sizes, stream, parameters, extra = given
        self.launched.append((function, *sizes))
        if self._refused():
            return REFUSED
        assert parameters is None
        assert (extra[0], extra[2], extra[4]) == (1, 2, None)
        nbytes = ctypes.cast(extra[3], ctypes.POINTER(SIZE))[0]
        start, to, count = struct.unpack("QQQ", ctypes.string_at(extra[1], nbytes))

        def add() -> None:
            ctypes.memmove(to, bytes((byte + 1) % 256 for byte in ctypes.string_at(start, count)), count)
            if self.writes is not None:
                ctypes.memmove(*self.writes, len(self.writes[1]))

        self.waiting.setdefault(stream, []).append(add)
        return 0

    def _fill(self, to: int, byte: int, nbytes: int, stream: int) -> int:
        if self._refused():
            return REFUSED
        self.waiting.setdefault(stream, []).append(partial(ctypes.memset, to, byte, nbytes))
        return 0

    def _attributes(self, count: int, wanted: Any, into: Any, address: int) -> int:
        """The driver's report about pinned memory."""
        self.questions += 1
        if self._refused():
            return REFUSED
        assert [wanted[i] for i in range(count)] == [2, 11, 12]
        found = next((each for each in self.pinned if address in each), None)
        if found is None:
            return 1
        ctypes.cast(into[0], ctypes.POINTER(ctypes.c_uint))[0] = 1
        ctypes.cast(into[1], ctypes.POINTER(POINTER))[0] = found.start
        ctypes.cast(into[2], ctypes.POINTER(SIZE))[0] = len(found)
        return 0

    def _wait(self, stream: int) -> int:
        if self._refused():
            self.not_waited.add(stream)
            return REFUSED
        for each in self.waiting.pop(stream, []):
            each()
        return 0


def some_lanes(driver: LateDriver, count: int, piece: int) -> tuple[Any, Any]:
    """And their requirements."""
    buffers = np.zeros((count, 2, piece), np.uint8)
    each = [
        ((next(driver.streams), next(driver.streams)), tuple(buffer.ctypes.data for buffer in mine)) for mine in buffers
    ]
    return copies.CopyLanes(driver.addresses, CONTEXT, each, piece, sorted(os.sched_getaffinity(0))), buffers


@given(st.integers(0, 5000), st.integers(1, 700), st.integers(1, 5), st.sampled_from(WAYS))
def test_every_byte_is_copied_once(nbytes: int, piece: int, count: int, way: str) -> None:
    values = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    ends = (np.full(nbytes + 2, 99, np.uint8), np.full(nbytes + 2, 98, np.uint8))
    host, there = ends
    (host if way == "send" else there)[1:-1] = values
    driver = LateDriver()
    lanes, _kept = some_lanes(driver, count, piece)
    assert getattr(lanes, way)(host.ctypes.data + 1, nbytes, there.ctypes.data + 1) == 0
    assert not driver.waiting
    for each, mark in zip(ends, (99, 98), strict=True):
        np.testing.assert_array_equal(each[1:-1], values)
        assert (each[0], each[-1]) == (mark, mark)


@pytest.mark.parametrize("way", WAYS)
def test_each_lane_is_of_one_thread_in_the_context(way: str) -> None:
    host, there = np.zeros(1 << 18, np.uint8), np.zeros(1 << 18, np.uint8)
    driver = LateDriver()
    lanes, _kept = some_lanes(driver, 4, 64)
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(bound)})  # like a thread bound by OpenMP
    try:
        assert getattr(lanes, way)(host.ctypes.data, host.nbytes, there.ctypes.data) == 0
    finally:
        os.sched_setaffinity(0, bound)
    assert driver.entered == [(CONTEXT, frozenset(bound))] * 3  # including the caller
    threads = dict.fromkeys(thread for thread, _ in driver.used)
    assert 1 <= len(threads) <= 4
    assert len({stream for _, stream in driver.used}) == len(driver.used)


@pytest.mark.parametrize("refuses", [1, 2, 3, 5, 8, 20, 41])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_driver_refuses_ends_all_lanes_and_is_told(way: str, count: int, refuses: int) -> None:
    """And no work is in progress afterwards."""
    host, there = np.zeros(10_000_000, np.uint8), np.zeros(10_000_000, np.uint8)
    driver = LateDriver(refuses)
    lanes, _kept = some_lanes(driver, count, 100)
    assert getattr(lanes, way)(host.ctypes.data, host.nbytes, there.ctypes.data) == REFUSED
    assert refuses <= driver.asked < 50_000
    assert sum(map(len, driver.waiting.values())) <= 1  # except the stream for which waiting was refused


def test_no_lanes_and_no_bytes_are_refused() -> None:
    for lanes, piece in (([], 100), ([((1, 2), (3, 4))], 0)):
        with pytest.raises(ValueError, match="legal: at least 1 of each"):
            copies.CopyLanes((1, 1, 1, 1, 1, 1, 1), CONTEXT, lanes, piece, [0])


class Trip:
    """Bytes to a device, whose kernel adds 1, and back in larger pieces, as two outputs: `first` bytes and the rest."""

    back_piece = 250

    def __init__(
        self, nbytes: int, pinned: tuple[bool, bool], refuses: int = 0, bad: int = NONE_BAD, first: int = 0
    ) -> None:
        self._first = first
        self.driver = LateDriver(refuses)
        self.host = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
        self.back = np.full(nbytes, 99, np.uint8)
        self._there = np.zeros((2, nbytes), np.uint8)
        self._bad = np.array([5], np.uint64)  # of an earlier launch
        if bad != NONE_BAD:
            self.driver.writes = self._bad.ctypes.data, struct.pack("Q", bad)
        for array, is_pinned in zip((self.host, self.back), pinned, strict=True):
            if is_pinned:
                begin = array.ctypes.data
                self.driver.pinned.append(range(begin, begin + nbytes))

    def run(self, count: int, piece: int) -> Any:
        lanes, _kept = some_lanes(self.driver, count, piece)
        back, _also_kept = some_lanes(self.driver, 1, self.back_piece)
        start, to = (each.ctypes.data for each in self._there)
        arguments = struct.pack("QQQ", start, to, self.host.nbytes)
        return lanes.round_trip(
            [(self.host.ctypes.data, self.host.nbytes, start)],
            [(5, (6, 7, 8), (9, 10, 11), 12, arguments)],
            self._bad.ctypes.data,
            [
                (self.back.ctypes.data + at, nbytes, to + at)
                for at, nbytes in ((0, self._first), (self._first, self.back.nbytes - self._first))
            ],
            back,
        )


@given(st.integers(0, 3000), st.integers(8, 700), st.integers(1, 4), st.tuples(st.booleans(), st.booleans()), st.data())
def test_a_round_trip_computes_what_it_copies(
    nbytes: int, piece: int, count: int, pinned: tuple[bool, bool], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, nbytes))
    trip = Trip(nbytes, pinned, first=first)
    back = trip.back_piece if pinned[0] or not nbytes else piece
    up = min(1, nbytes) if pinned[0] else -(-nbytes // piece)
    down = sum(min(1, each) if pinned[1] else -(-each // back) for each in (first, nbytes - first))
    assert trip.run(count, piece) == (0, NONE_BAD, up, 1 + down, 8 + nbytes)
    np.testing.assert_array_equal(trip.back, trip.host + np.uint8(1))
    assert trip.driver.launched == [(5, 6, 7, 8, 9, 10, 11, 12)]
    assert not trip.driver.waiting


@pytest.mark.parametrize("pinned", [(False, False), (True, True), (False, True)])
def test_results_stay_where_the_kernel_refused_an_element(pinned: tuple[bool, bool]) -> None:
    trip = Trip(1000, pinned, bad=7)
    assert trip.run(2, 100) == (0, 7, 1 if pinned[0] else 10, 1, 8)
    assert (trip.back == 99).all()


def test_results_from_pinned_inputs_are_on_their_way_before_it_is_known_whether_an_element_was_refused() -> None:
    """After the kernel in its stream, one per buffer, and no more."""
    trip = Trip(1000, (True, False), bad=7)
    assert trip.run(2, 100) == (0, 7, 1, 3, 8 + 2 * trip.back_piece)
    assert (trip.back == 99).all()
    assert len({stream for _, stream in trip.driver.used}) == 1


def test_memory_that_is_pinned_in_part_goes_over_lanes() -> None:
    trip = Trip(1000, (False, False))
    begin = trip.host.ctypes.data
    trip.driver.pinned.append(range(begin, begin + 999))
    assert trip.run(1, 100)[2] == 10
    np.testing.assert_array_equal(trip.back, trip.host + np.uint8(1))


@pytest.mark.parametrize("pinned", [(False, False), (True, True), (True, False)])
def test_a_round_trip_that_the_driver_refuses_ends_and_is_told(pinned: tuple[bool, bool]) -> None:
    trip = Trip(1000, pinned)
    trip.run(1, 300)
    told = 0
    for refuses in range(1, trip.driver.asked + 1):
        refused = Trip(1000, pinned, refuses)
        code = refused.run(1, 300)[0]
        told += code == REFUSED
        if not code:  # the type of memory was queried and counts as ordinary
            np.testing.assert_array_equal(refused.back, refused.host + np.uint8(1))
        assert refused.driver.waiting.keys() <= refused.driver.not_waited
    assert told == trip.driver.asked - trip.driver.questions


def test_a_round_trip_takes_so_many_arrays() -> None:
    lanes, _kept = some_lanes(LateDriver(), 1, 8)
    with pytest.raises(ValueError, match="legal: at most 16 of each"):
        lanes.round_trip([(0, 0, 0)] * 17, [], 0, [], lanes)


class _Copier:
    """Like the driver's."""

    def __init__(self, driver: LateDriver, count: int, piece: int) -> None:
        self._lanes, self._kept = some_lanes(driver, count, piece)

    def send(self, pointer: int, values: Any) -> None:
        assert self._lanes.send(values.ctypes.data, values.nbytes, pointer) == 0

    def fetch(self, pointer: int, into: Any) -> None:
        assert self._lanes.fetch(into.ctypes.data, into.nbytes, pointer) == 0

    def round_trip(self, inputs: Any, launches: Any, bad: int, outputs: Any, back: _Copier) -> Any:
        given = ([(each.ctypes.data, each.nbytes, pointer) for each, pointer in of] for of in (inputs, outputs))
        code, *found = self._lanes.round_trip(next(given), launches, bad, next(given), back._lanes)
        assert code == 0
        return found


class _Backend:
    """The parts of a device that lanes use."""

    def __init__(self) -> None:
        self.driver, self.made = LateDriver(), list[tuple[int, int]]()

    def is_pinned(self, values: Any) -> bool:
        return False

    def allocate(self, nbytes: int) -> Any:
        return SimpleNamespace(pointer=0)

    def write(self, pointer: int, values: Any, stream: Any = None) -> None: ...
    def read(self, pointer: int, into: Any) -> None: ...

    def array_copier(self, lanes: int, piece: int) -> _Copier:
        self.made.append((lanes, piece))
        return _Copier(self.driver, lanes, piece)


def test_arrays_in_one_piece_go_without_python() -> None:
    backend, stats = _Backend(), PerformanceStats()
    lanes = Lanes(backend, CountedCopies(backend, stats), 4096)  # type: ignore[arg-type]
    assert not backend.made
    values = np.random.default_rng(0).standard_normal((100, 321), np.float32)
    there, back = np.zeros_like(values), np.zeros_like(values)
    lanes.send(there.ctypes.data, values)
    lanes.fetch(there.ctypes.data, back)
    np.testing.assert_array_equal(there, values)
    np.testing.assert_array_equal(back, values)
    expected = -(-values.nbytes // 4096)
    assert (stats.uploads, stats.downloads) == (expected, expected)
    assert (stats.bytes_uploaded, stats.bytes_downloaded) == (values.nbytes, values.nbytes)
    threads = lanes_module._threads()
    assert backend.made == [(threads, 4096), (min(threads, lanes_module.NARROW), 4096)]


def test_small_arrays_are_fetched_beside_each_other() -> None:
    """Each over its own lanes, which are reused; large ones over all lanes, one after the other."""
    backend, barrier = _Backend(), Barrier(3)
    lanes = Lanes(backend, CountedCopies(backend, PerformanceStats()), 4096)  # type: ignore[arg-type]
    there = np.random.default_rng(1).integers(0, 256, 40_000, np.uint8)
    fetch = _Copier.fetch

    def meets(self: _Copier, pointer: int, into: Any) -> None:
        barrier.wait(60)
        fetch(self, pointer, into)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(3) as pool:
        patch.setattr(_Copier, "fetch", meets)
        found = [np.zeros_like(there) for _ in range(6)]
        for done in [pool.submit(lanes.fetch, there.ctypes.data, into) for into in found]:
            done.result()
    assert all(np.array_equal(each, there) for each in found)
    assert len(backend.made) == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes_module, "SMALL", there.nbytes - 1)
        lanes.fetch(there.ctypes.data, found[0])
    assert backend.made[3:] == [(lanes_module._threads(), 4096)]


@pytest.mark.parametrize("pinned", [False, True])
def test_results_of_a_round_trip_come_in_few_pieces_where_what_goes_there_does(pinned: bool) -> None:
    """Each has its own lanes, which are reused."""
    backend, stats = _Backend(), PerformanceStats()
    lanes = Lanes(backend, CountedCopies(backend, stats))  # type: ignore[arg-type]
    nbytes = lanes_module.NARROW_PIECE + lanes_module.RESULT_PIECE
    values = np.random.default_rng(2).integers(0, 256, nbytes, np.uint8)
    there, found, bad = np.zeros_like(values), np.zeros_like(values), np.array([NONE_BAD])
    if pinned:
        backend.driver.pinned.append(range(values.ctypes.data, values.ctypes.data + nbytes))
    up, back = [(values, there.ctypes.data)], [(found, there.ctypes.data)]
    for _ in range(2):
        assert lanes.round_trip(up, [], bad.ctypes.data, back) == NONE_BAD
    np.testing.assert_array_equal(found, values)
    narrow = min(lanes_module.NARROW, lanes_module._threads())
    assert backend.made == [(narrow, lanes_module.NARROW_PIECE), (1, lanes_module.RESULT_PIECE)]
    small = -(-nbytes // lanes_module.NARROW_PIECE)
    assert (stats.uploads, stats.downloads) == ((2, 2 * 3) if pinned else (2 * small, 2 * (1 + small)))
    backend.driver.writes = bad.ctypes.data, struct.pack("Q", 5)
    launch = (1, (1, 1, 1), (1, 1, 1), 0, struct.pack("QQQ", there.ctypes.data, there.ctypes.data, 0))
    assert lanes.round_trip(up, [launch], bad.ctypes.data, back) == 5
    assert stats.bytes_downloaded == (3 if pinned else 2) * nbytes + 3 * bad.nbytes


def test_lanes_wait_for_copies_without_a_stream_once() -> None:
    backend = _Backend()
    counted = CountedCopies(backend, PerformanceStats())  # type: ignore[arg-type]
    lanes = Lanes(backend, counted, 4096)  # type: ignore[arg-type]
    values, there = np.ones(10000, np.uint8), np.zeros(10000, np.uint8)
    waits: list[int] = []
    backend.read = lambda pointer, into: waits.append(pointer)  # type: ignore[method-assign]
    for writes, waited in ((0, 0), (1, 1), (0, 1), (2, 2), (0, 2)):
        for _ in range(writes):
            counted.write(0, values)
        lanes.send(there.ctypes.data, values)
        assert len(waits) == waited


def test_threads_that_wait_for_copies_at_once_read_one_place() -> None:
    """An object of one thread would be freed before it is read."""
    backend, both, made = _Backend(), Barrier(2), list[int]()
    counted = CountedCopies(backend, PerformanceStats())  # type: ignore[arg-type]
    lanes = Lanes(backend, counted, 4096)  # type: ignore[arg-type]

    def allocate(nbytes: int) -> Any:
        made.append(nbytes)
        with suppress(BrokenBarrierError):
            both.wait(0.5)  # for another thread, if it gets that far
        return SimpleNamespace(pointer=0)

    backend.allocate = allocate  # type: ignore[method-assign]
    counted.write(0, np.ones(8, np.uint8))
    values, there = np.ones(10000, np.uint8), np.zeros((2, 10000), np.uint8)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(lanes.send, each.ctypes.data, values) for each in there]:
            done.result()
    assert made == [1]


def test_lanes_go_with_who_drops_them() -> None:
    """Not by the garbage collector, which may run in a thread without the context of their memory."""
    backend = _Backend()
    lanes = Lanes(backend, CountedCopies(backend, PerformanceStats()), 4096)  # type: ignore[arg-type]
    values, there = np.ones(10000, np.uint8), np.zeros(10000, np.uint8)
    lanes.send(there.ctypes.data, values)
    lanes.fetch(there.ctypes.data, values)
    gone = weakref.ref(lanes)
    gc.disable()
    try:
        del lanes
        assert gone() is None
    finally:
        gc.enable()
