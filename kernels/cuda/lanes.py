"""Copies of whole arrays between host and device over lanes: a thread of the host, two pinned buffers and a stream for
each, of which each thread takes the next piece when it is done with one.

The device copies from and to pinned memory by itself, at the full rate of the bus; ordinary memory it reaches only
through the driver's own buffers, while the caller waits. One thread of the host copies more slowly than the bus: 7 GB/s
beside 55 on an H100's host. What came before: threads that share each piece, which meet at its end (17 GB/s up); then
lanes in Python (10.8 GB/s of float32 through ternary_quantize on one of two H100s, 17.7 on both), whose threads wait
for each other between pieces, so that smaller pieces, which the host's caches hold, made it slower. Arrays that lie in
one piece of memory are now copied without Python in between (cython_ext/cuda_copies.pyx), others still by it.

What it gives today suites/large/several_gpus.py tells. On two H100s and a host of 32 cores, outside of this project: 29
GB/s on one and 50 on both through ternary_quantize, by turns in one process with pieces of 1 MiB (23, 41), with four
threads (23, 37), and with the driver alone for arrays up to 4 MiB (26, 47). Copies alone, in C: 46 and 69 GB/s with
eight threads and 2 MiB, 40 and 73 with 1 MiB, 27 and 44 with four threads; stores past the caches are slower (31, 38),
and so is the driver's own way from ordinary memory, with any number of threads (8, 14).

An array that whoever made it has pinned is copied by the device alone: 54 GB/s on an H200, 51 on an H100, for 41 and 40
over lanes, outside of this project. Through ternary_quantize 33 and 36 GB/s on one of two H100s and 59 and 56 on both,
in two runs (several_gpus.py --pinned). Before the lanes' streams were apart from others, each small copy of one thread,
such as that of a scale, waited for what another thread was copying: 26 GB/s on an H200 (--gpus 1).

What several GPUs lost, found on two H100s by leaving parts out, outside of this project: with ternary_quantize from
pinned memory 38 GB/s on one and 57 on both, copies alone in threads of Python 50 and 90 to 103. A call took 500 us of
Python (with a driver that does nothing, on a Zen 3), and gave Python's lock back some twenty times, behind which the
threads of the other GPU waited; fewer questions to the driver changed little. Now a thread of `spread` keeps what it
bound (offload.py), and copies there, launches and copies back are one call of native code (round_trip): 165 us of
Python, and one wait. By turns in one process 44 and 79 GB/s from pinned memory, copies alone 51 and 93 to 103; from
ordinary memory 28 and 50, where it was 20 and 28 on another machine of this kind; with PLACES of three 44 and 81, 31
and 55. By several_gpus.py --gpus 2 --turns 7 --pinned 45.7 and 75.6, with PLACES of three 44.1 and 71.4. Changed
nothing: results into memory that was touched before; one lane of small pieces for results.

What was left, found in the same way on three more machines: results came back in pieces of 1 MiB, and each of these
copies slows those the other way. Of 28 GB from pinned memory, GB/s on one and both: 46.5 and 86.5 as it was; 54.0 and
99.6 without results, 53.4 and 96.5 with results copied by the host alone, 45.6 and 94.8 with results copied by the
device alone. In pieces of 16 MiB over one lane 51.8 and 99.4. Now they come in pieces of RESULT_PIECE where inputs are
pinned; by turns on a quiet machine, whose copies alone make 55.0 and 108.2: 50.8 and 97.0 before, 53.6 and 101.9 now;
on another 48.6 and 89.8 before, 52.2 and 95.9 now (pieces of 4, 8 and 16 MiB alike). By several_gpus.py 53 and 99.8 to
101.5 on one machine, 1.89, 1.90 and 1.91 times as fast, 53 and 97.8 to 98.9 on another, 1.85, 1.86 and 1.90, 48.3 and
87.3 on a busy one.

What was left then did not grow with the GPUs: small tensors came last, when no large copy was under way behind which a
call's Python and results could hide. By the times at which copies of round trips began and ended, on two H200s, nothing
was on its way to a GPU for 13 to 25 ms of 520 to 540 on one, and for 22 to 32 of 285 to 295 on both, most of it at the
end. With a place of each GPU that takes small ones from the beginning (balance.py) it was 16 to 24 of 277 to 291 on
both, on one the same, spread over the run: two large ones were fetched at once. With four places, so many small ones
among them, 6 to 11 of 515 to 521 and 13 to 22 of 272 to 290. Rates by turns, one and both, largest first with three
places, then so with three and with four: 52.9 and 98.4, 53.1 and 100.8, 54.0 and 101.3, copies alone 55.2 and 108.1;
from ordinary memory 33.6 and 58.2, 34.1 and 60.4, 35.8 and 63.9. Two places for small ones of four are no better than
one (52.5 and 94.0, 51.5 and 92.5), nor is one upload at a time while places bind. What is left: some 5 ms each at the
start, where all bind at once, and at the end; and of the rate while copies are under way 55 alone, 100 to 107 on both:
the host's memory, which is also written. There results cost most where memory that was given back has to be got from
the hypervisor again: 14.7 MB take 2.6 ms to fetch into memory that the process had kept, 3 to 6 into new. To touch it
while inputs are on their way, by writes, gained 0.1 and 0.9 %; by reads first, or by madvise, it lost. Two processes
with a GPU each, at the same time, made 50.2 and 49.8 where one alone made 50.6 and 47.1: what is left is within one
process. It grows with the work (16 layers take half of what 32 take) and with the places (four, five, six and eight:
522, 525, 528 and 535 ms on one, 288, 293, 304 and 323 on both). When nothing is under way most places are fetching:
their calls end 7 to 10 ms after their last byte of 235 MB has gone there. Changed nothing: waiting by sleep in place of
the driver's spinning (1 % less), large pages for results, a shorter switch interval of Python's. Results into memory
that malloc keeps from run to run: 49.7 and 87.9 before, 53.1 and 99.4 then. Binding first and then a round trip, by
turns: 523 and 285 ms before, 525 and 281 then.

By copies alone in threads of Python, outside of this project, of 28 GB from pinned memory on two H100s, ms on one and
both: 509 and 259 with three at a time; 513 and 268 with a sixteenth of it copied back into pinned memory; 519 and 291
with that copied on into new memory, 516 and 276 where of four threads two at a time have their copy under way, for
else all end together and the bus has nothing. So most of what is left is new memory for results. On another machine,
where that made 287, to touch the memory while others copy made 308, to have the kernel fill it in
(MADV_POPULATE_WRITE) 340. In spread, two or three of four places at a time and first calls without Python in between
took 520 and 283 ms where it was 531 and 297, 524 and 297 where it was 536 and 304 on another machine: 1.84 and 1.77
times as fast for 1.79 and 1.76. First calls from ordinary memory were slower then, 476 for 464 on both. Not kept.

By the times of round trips again, on four H100s of which one or two worked: a GPU had nothing on its way for 4 to 10 ms
with one, for 11 to 40 with two, much of it where the large tensors end and three places of each GPU bind the next size
at once. Now a thread keeps what it bound for each size (offload.py), and copies for it in the round trip: 309, 317 and
286 ms on both where it was 323, 331 and 308 (three machines, by turns, outside of this project), on one the same or 4
ms less; from ordinary memory the same. A program in C with the same copies, a kernel like it and four threads for each
GPU, on six machines, was 1.85 to 2.2 times as fast on both without results, 1.79 to 2.1 with results into pinned
memory, 1.75 to 2.1 into memory that it had touched, 1.55 to 1.96 into new; 538 and 311 ms so where round trips through
ternary_quantize took 527 and 298, copies alone 510 and 261. Changed nothing: results into memory that was touched
before, six or eight places of which two to four are let through at a time (539 to 550 and 329 to 344 for 552 and 317),
tensors in the model's order (318 for 309).

What Python cost then, by the times at which each thread's functions began and ended on two H200s, outside of this
project as all figures here: of 290 ms on both, threads waited 97 in all, up to 8.6 at a time, where the choice of a
kernel asks whether there is a GPU. The driver was asked five questions or more at each call, and after each of them a
thread waited for Python's lock again. A GPU in use is not asked for now (device.missing): 9 ms in all. And what tells
that a kernel refused an element is set in the round trip, where a copy waited behind those of others. Threads whose
Python is one call of round_trip had been 13 and 15 ms faster on both (270 for 283, 285 for 300); with the first change
they were 9, 16 and 5 faster (261 for 269, 281 for 297, 271 for 276), with both 4 faster and 4 slower (279 for 283, 302
for 298), on seven hosts. Not kept: what comes next sent while results come back, 200 lines (279 for 283 and 296 for 300
before, 265 for 269 with the first change; 516 for 522, 532 for 542 and 513 for 514 on one); five, six or eight places
(278, 280 and 290 for 276); twice, four or eight times KEPT, or largest first (274, 279, 290 and 291 for 276). What was
left, on another host: copies there were under way for 262 to 272 ms of 285 to 289, at 52 GB/s beside results, where
alone they need 256; for 4 to 6 before the first and 8 to 10 after the last nothing was, and for 2 to 13 in between,
where the largest have ended.

By the times at which each round trip began, was put into its stream, had been done and had its results, on two hosts,
outside of this project: after the last of them both took 1.3 to 4.3 ms more, one 0.7 to 2.0, for all threads woke at
once and gave back what they had. Now each ends when nothing waits. By several_gpus.py, in turns on one host: 0.526 and
0.282, 0.518 and 0.277, 0.520 and 0.279 s before; 0.524 and 0.279, 0.519 and 0.274 with it, and 0.523 and 0.295 while
copies alone were slower too. Not kept: results' pages written to while inputs are on their way, from 7 ms less to 1
more on one and from 8 less to 14 more on both, on four hosts; 32 queues of the device's for 8
(CUDA_DEVICE_MAX_CONNECTIONS), 273 for 272; results by a kernel that writes to the host's memory, in 1 to 132 blocks (of
copies alone on one 514 to 571 ms, where the device's own copies make it 513 and none 510).

A third of the largest results took 6 to 11 ms to fetch, the others 3: they waited for other streams' copies there. Now
the first two pieces are put into the stream right behind the kernels, into the lane's buffers, and wait no more. In 24
turns within one process, outside of this project: 522.6 and 273.6 ms before, 519.6 and 271.0 so. By several_gpus.py, in
turns, on one host 0.518 and 0.273, 0.517 and 0.276, 0.517 and 0.270 s before, 1.90, 1.87 and 1.91 times as fast; 0.516
and 0.267, 0.516 and 0.264, 0.518 and 0.272 so, 1.93, 1.96 and 1.90. On another (9 turns) 0.521 and 0.270, 0.520 and
0.272, 0.517 and 0.267 before; 0.516 and 0.266, 0.515 and 0.264, 0.517 and 0.269. On a busy one, where copies alone are
1.87 to 1.94 times as fast, 1.73, 1.69 and 1.83 times before, 1.79, 1.78 and 1.81. What is left is the rate of copies
that are under way: on one host 286 ms on both, 268 without results, 257 without kernels and Python too.

From ordinary memory, where the host has the work, small pieces are no slower (31.5 and 54.3; 29.7 and 53.4 in pieces of
8 MiB). Changed nothing: one, two or three uploads at a time for each GPU; results put into the stream before the
element that the kernel refuses is known.
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
from tritmark.kernels.cuda.stats import CountedCopies

COPIERS = 8
"""Threads that copy between ordinary and pinned memory, at most, for each GPU."""
PIECE = 2 << 20
"""Bytes that a lane copies at a time without Python: its buffers stay in the host's caches until the bus has read
them."""
SMALL = 16 << 20
"""Bytes up to which arrays are fetched beside each other, over NARROW lanes each and in pieces of NARROW_PIECE bytes:
one after the other those of 8 MB came at 4 GB/s, far below the bus."""
NARROW, NARROW_PIECE = 3, 1 << 20
RESULT_PIECE = 8 << 20
"""Bytes that come back from a round trip at a time, over one lane, where the device copies what goes there by itself:
the more copies one way, the slower those the other way."""
LONG_PIECE = 8 << 20
"""With Python: smaller ones mean more calls of the driver, of which its threads make one at a time."""

Array = npt.NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Lane:
    """Of one thread of the host: two pinned buffers, and for each the stream that copies from or to it."""

    streams: tuple[Stream, Stream]
    buffers: tuple[Array, Array]


class _Parts:
    """An array's pieces with the bytes where they begin, for several threads: each takes the next one."""

    def __init__(self, parts: Iterator[tuple[int, Array]]) -> None:
        self._left = parts
        self._lock = Lock()

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> tuple[int, Array]:
        with self._lock:
            return next(self._left)

    def stop(self) -> None:
        """Nobody takes one any more."""
        with self._lock:
            self._left = iter(())


class Lanes:
    """Those of a context in one direction, whose callers take turns. An array that is pinned needs none, and waits
    for nobody. Their streams are apart from others: a small copy of another thread need not wait for them."""

    def __init__(self, backend: Backend, copies: CountedCopies, piece: int | None = None) -> None:
        """`piece`: bytes of one, in place of PIECE, RESULT_PIECE and LONG_PIECE."""
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
        """The other way."""
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

    def round_trip(
        self, inputs: Sequence[HostCopy], launches: Sequence[RawLaunch], bad: int, outputs: Sequence[HostCopy]
    ) -> int | None:
        """See ArrayCopier, over lanes that nobody else has; what is at `bad`, or None, and nothing was done, where
        there are none."""
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
        """Wait for copies to the device that were given without a stream: they may return when what they copy has been
        read, and the lanes' streams do not wait for them. A copy from the device returns behind them."""
        latest = self._copies.unordered
        if latest != self._waited_for:
            self._backend.read(self._written().pointer, np.empty(1, np.uint8))
            self._waited_for = latest

    def _written(self) -> Allocation:
        """Memory of the device that may be read: one, or a second thread would read what goes with its own."""
        with self._marking:
            if self._mark is None:
                self._mark = self._backend.allocate(1)
                self._backend.write(self._mark.pointer, np.zeros(1, np.uint8))
            return self._mark

    def _is_pinned(self, values: Array) -> bool:
        return values.flags.c_contiguous and self._backend.is_pinned(values)

    @contextmanager
    def _alone(self) -> Iterator[Stream]:
        """A stream that nobody else has; what was put in is complete on leaving."""
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = self._backend.new_stream(apart=True)
        with stream:
            yield stream
        self._idle.append(stream)

    def _fetch_beside_others(self, pointer: int, into: Array) -> bool:
        """Over lanes that nobody else has; False where there are none."""
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
        """One that nobody else has, made where all are in use."""
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
        """What copies without Python, made when it is first needed."""
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
        """`work` for every lane that has something to do, each in a thread of its own; complete on return."""
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
    """The threads that copy for the GPU of that number; None where the process has one core."""
    return ThreadPoolExecutor(_threads(), "tritmark-copy", initializer=_unbind) if _threads() > 1 else None


@cache
def _threads() -> int:
    """Asked once: a copy of some megabytes takes as long as to read what the control group grants."""
    return min(COPIERS, usable_cores())


def _unbind() -> None:
    """OpenMP may have bound the thread that made this one to a core, and this one with it."""
    os.sched_setaffinity(0, affinity())
