"""Copies of whole arrays between host and device over lanes. A lane is a thread of the host, two pinned buffers and a
stream for each buffer.

Algorithm: an array is cut into pieces, and each thread takes the next piece when it has finished one. Contiguous
arrays are copied without Python (cython_ext/cuda_copies.pyx), others by Python. Arrays that are pinned need no lane:
the device copies them alone. A round trip copies inputs to the device, launches kernels and copies results back in one
call of native code. Its first results enter the stream directly behind the kernels, so they do not wait for the copies
of other streams.

Limit: the bus for pinned arrays, the host's threads and memory for others. One thread copies more slowly than the bus.
Pieces stay in the host's caches until the bus has read them. With several GPUs the rest is new memory for results, and
the begin and the end of a run.

Rates: `python suites/large/several_gpus.py --gpus 2 --turns 7`, also with `--pinned`. Versions, measurements and what
lost: docs/kernels/cuda_copies.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tritmark.harness.machine.cpu import affinity, usable_cores
from tritmark.kernels.cuda.backend import Allocation, ArrayCopier, Backend, HostCopy, RawLaunch, Stream
from tritmark.kernels.cuda.memory.stats import CountedCopies

COPIERS = 8
"""Threads that copy between ordinary and pinned memory, at most, for each GPU."""
PIECE = 2 << 20
"""Bytes that a lane copies at a time without Python: its buffers stay in the host's caches until the bus has read
them."""
SMALL = 16 << 20
"""Bytes up to which arrays are fetched concurrently, over NARROW lanes each and in pieces of NARROW_PIECE bytes. One
after the other, arrays of 8 MB stay far below the rate of the bus."""
NARROW, NARROW_PIECE = 3, 1 << 20
RESULT_PIECE = 8 << 20
"""Bytes that come back from a round trip at a time, over one lane, if the device copies the inputs alone. More copies
in one direction slow down those in the other."""
LONG_PIECE = 8 << 20
"""With Python: smaller pieces mean more calls of the driver, and Python's threads make one at a time."""

Array = npt.NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Lane:
    """The two pinned buffers of one thread of the host, and for each the stream that copies from or to it."""

    streams: tuple[Stream, Stream]
    buffers: tuple[Array, Array]


class _Parts:
    """An array's pieces with their byte offsets, shared by several threads; each takes the next one."""

    def __init__(self, parts: Iterator[tuple[int, Array]]) -> None:
        self._left = parts
        self._lock = Lock()

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> tuple[int, Array]:
        with self._lock:
            return next(self._left)

    def stop(self) -> None:
        """Let no thread take a further piece."""
        with self._lock:
            self._left = iter(())


class Lanes:
    """The lanes of a context in one direction, for one caller at a time. Pinned arrays need none and do not wait. Their
    streams are separate, so that a small copy of another thread need not wait for them."""

    def __init__(self, backend: Backend, copies: CountedCopies, piece: int | None = None) -> None:
        """`piece`: bytes of a piece, in place of PIECE, RESULT_PIECE and LONG_PIECE."""
        self._backend = backend
        self._copies = copies
        self._piece, self._long_piece = piece or PIECE, piece or LONG_PIECE
        self._made = False
        self._copier: ArrayCopier | None = None
        self._narrow: list[ArrayCopier] = []
        self._narrow_piece = min(self._piece, NARROW_PIECE)
        self._result_piece = piece or RESULT_PIECE
        self._trips: list[tuple[ArrayCopier, ArrayCopier]] = []
        self._lanes: list[_Lane] = []
        self._idle: list[Stream] = []
        self._mark: Allocation | None = None
        self._marking = Lock()
        self._waited_for = 0
        self._lock = Lock()

    def send(self, pointer: int, values: Array) -> None:
        """Copy an array of any strides to contiguous memory of the device; complete on return."""
        self._after_what_has_no_stream()
        if self._is_pinned(values):
            with self._alone() as stream:
                self._copies.write(pointer, values, stream)
            return
        with self._lock:
            copier = self._native() if values.flags.c_contiguous else None
            if copier is not None:
                copier.send(pointer, values)
                self._copies.sent(-(-values.nbytes // self._piece), values.nbytes)
            else:
                self._over(values, partial(self._send, pointer))

    def fetch(self, pointer: int, into: Array) -> None:
        """Copy contiguous memory of the device to an array of any strides; complete on return."""
        self._after_what_has_no_stream()
        if self._is_pinned(into):
            with self._alone() as stream:
                self._copies.read(pointer, into, stream)
            return
        if into.nbytes <= SMALL and into.flags.c_contiguous and self._fetch_beside_others(pointer, into):
            return
        with self._lock:
            copier = self._native() if into.flags.c_contiguous else None
            if copier is not None:
                copier.fetch(pointer, into)
                self._copies.fetched(-(-into.nbytes // self._piece), into.nbytes)
            else:
                self._over(into, partial(self._fetch, pointer))

    @contextmanager
    def stream(self) -> Iterator[Stream]:
        """A stream that no other call uses, behind all copies to the device so far. It and other streams do not wait
        for each other. Its work is complete on leaving, also after an error."""
        self._after_what_has_no_stream()
        with self._alone() as stream:
            yield stream

    def round_trip(
        self, inputs: Sequence[HostCopy], launches: Sequence[RawLaunch], bad: int, outputs: Sequence[HostCopy]
    ) -> int | None:
        """See ArrayCopier, over lanes that no other call uses. Returns `bad`, or None without any work if there are no
        lanes."""
        self._after_what_has_no_stream()
        with self._borrowed(self._trips, self._new_trip) as trip:
            if trip is None:
                return None
            there, back = trip
            found, up, down, nbytes = there.round_trip(inputs, launches, bad, outputs, back)
        self._copies.sent(up, sum(values.nbytes for values, _ in inputs))
        self._copies.fetched(down, nbytes)
        return found

    def _after_what_has_no_stream(self) -> None:
        """Wait for copies to the device that have no stream. They may return as soon as their source has been read, and
        the lanes' streams do not wait for them. A copy from the device returns behind them."""
        latest = self._copies.unordered
        if latest != self._waited_for:
            self._backend.read(self._written().pointer, np.empty(1, np.uint8))
            self._waited_for = latest

    def _written(self) -> Allocation:
        """Initialized memory of the device. There is one: a second thread must not read memory that is freed."""
        with self._marking:
            if self._mark is None:
                self._mark = self._backend.allocate(1)
                self._backend.write(self._mark.pointer, np.zeros(1, np.uint8))
            return self._mark

    def _is_pinned(self, values: Array) -> bool:
        return values.flags.c_contiguous and self._backend.is_pinned(values)

    @contextmanager
    def _alone(self) -> Iterator[Stream]:
        """A stream that no other call uses; its work is complete on leaving."""
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = self._backend.new_stream(apart=True)
        with stream:
            yield stream
        self._idle.append(stream)

    def _fetch_beside_others(self, pointer: int, into: Array) -> bool:
        """Fetch over lanes that no other call uses; False if there are none."""
        with self._borrowed(self._narrow, self._new_narrow) as copier:
            if copier is None:
                return False
            copier.fetch(pointer, into)
        self._copies.fetched(-(-into.nbytes // self._narrow_piece), into.nbytes)
        return True

    def _new_narrow(self) -> ArrayCopier | None:
        return self._backend.array_copier(min(NARROW, _threads()), self._narrow_piece)

    def _new_trip(self) -> tuple[ArrayCopier, ArrayCopier] | None:
        there, back = self._new_narrow(), self._backend.array_copier(1, self._result_piece)
        return None if there is None or back is None else (there, back)

    @staticmethod
    @contextmanager
    def _borrowed(free: list[T], new: Callable[[], T | None]) -> Iterator[T | None]:
        """A free object, or a new one if all are in use."""
        try:
            one: T | None = free.pop()
        except IndexError:
            one = new()
        try:
            yield one
        finally:
            if one is not None:
                free.append(one)

    def _native(self) -> ArrayCopier | None:
        """The copier without Python, made when it is first needed."""
        if not self._made:
            self._made, self._copier = True, self._backend.array_copier(_threads(), self._piece)
        return self._copier

    def _send(self, pointer: int, lane: _Lane, parts: _Parts) -> None:
        for number, (offset, piece) in enumerate(parts):
            slot = number % 2
            if number >= 2:
                lane.streams[slot].synchronize()
            np.copyto(_like(lane.buffers[slot], piece), piece)
            self._copies.write(pointer + offset, lane.buffers[slot][: piece.nbytes], lane.streams[slot])

    def _fetch(self, pointer: int, lane: _Lane, parts: _Parts) -> None:
        earlier: tuple[int, Array] | None = None
        for number, (offset, piece) in enumerate(parts):
            slot = number % 2
            self._copies.read(pointer + offset, lane.buffers[slot][: piece.nbytes], lane.streams[slot])
            if earlier:
                _take(lane, *earlier)
            earlier = slot, piece
        if earlier:
            _take(lane, *earlier)

    def _over(self, values: Array, work: Callable[[_Lane, _Parts], None]) -> None:
        """`work` for every lane that has pieces to copy, each in its own thread; complete on return."""
        others_of, nbytes = _copiers(self._backend.info.index), self._long_piece
        count = min(_threads(), -(-values.nbytes // nbytes))
        while len(self._lanes) < count:
            self._lanes.append(self._lane(nbytes))
        parts = _Parts(pieces(values, nbytes))

        def one(lane: _Lane) -> None:
            try:
                work(lane, parts)
            except BaseException:
                parts.stop()
                raise
            finally:
                for stream in lane.streams:
                    stream.synchronize()

        others = [others_of.submit(one, lane) for lane in self._lanes[1:count]] if others_of is not None else []
        try:
            one(self._lanes[0])
        finally:
            wait(others)
        for each in others:
            each.result()

    def _lane(self, nbytes: int) -> _Lane:
        backend = self._backend
        streams = backend.new_stream(apart=True), backend.new_stream(apart=True)
        return _Lane(streams, (backend.pinned(nbytes), backend.pinned(nbytes)))


def _take(lane: _Lane, slot: int, piece: Array) -> None:
    lane.streams[slot].synchronize()
    np.copyto(piece, _like(lane.buffers[slot], piece))


def _like(buffer: Array, values: Array) -> Array:
    """The first bytes of a buffer as an array of the same shape and dtype."""
    return buffer[: values.nbytes].view(values.dtype).reshape(values.shape)


def pieces(values: Array, nbytes: int) -> Iterator[tuple[int, Array]]:
    """Parts of an array that follow each other in C order, each of at most so many bytes, with the byte where it
    begins."""
    if values.nbytes <= nbytes:
        yield 0, values
        return
    if values.flags.c_contiguous:
        values = values.reshape(-1)
    row = values[0].nbytes
    if row > nbytes:
        for index in range(len(values)):
            for offset, piece in pieces(values[index], nbytes):
                yield index * row + offset, piece
        return
    step = nbytes // row
    for index in range(0, len(values), step):
        yield index * row, values[index : index + step]


@cache
def _copiers(gpu: int) -> ThreadPoolExecutor | None:
    """The threads that copy for the GPU of that number; None if the process has one core."""
    return ThreadPoolExecutor(_threads(), "tritmark-copy", initializer=_unbind) if _threads() > 1 else None


@cache
def _threads() -> int:
    """Cached: reading the limit of the control group takes as long as a copy of some megabytes."""
    return min(COPIERS, usable_cores())


def _unbind() -> None:
    """OpenMP may have bound the thread that made this one to a core, and this one with it."""
    os.sched_setaffinity(0, affinity())
