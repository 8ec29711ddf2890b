"""Audits of a timed loop: whether timed calls do their work, and within the measured time.

- Before each sample, pieces of one set's inputs are exchanged for the other data (see pieces), untimed. After the
  sample, the parts of the outputs that follow from them are checked. Before the sample they are sometimes poisoned, and
  sometimes hold the earlier correct values. Before cold samples this is done half a cycle earlier, so that written data
  is cold again. Among hot calls, a random call is the first to read the change, the last call in half of the samples:
  this detects a kernel that skips every other call. The change is prepared before the sample, and the clock's own loop
  writes it: this detects a kernel that works only after a pause.
- At random times a whole set is changed to the other data.
- The remaining outputs are compared with those of an earlier call: a window after each hot sample, and all outputs of
  every set after the last cold one.

Outputs that are new or that differ are kept for the process that has the expected values (see confirm).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.alternate import Timed
from tritmark.harness.measure.buffers import HOST
from tritmark.harness.measure.statistics import LEAST_SAMPLES
from tritmark.harness.spec import ArrayChange, Launch, ToleranceKind
from tritmark.harness.validate.bitwise import filled, same
from tritmark.harness.validate.guard_names import Complaint, Guard
from tritmark.harness.validate.sets import POISON, Sets

PIECE = 16 << 20
"""Bytes of each output that a look keeps: all of it, or a part of that size from a random place."""

MOST_KEPT = 32 << 20
"""Bytes of outputs kept for each temperature, or those of one look if they are more."""

LARGE = 256 << 20
"""For a set of this many bytes or more there is only the look after the last sample: further looks would take longer
than all samples."""

_MOST_AHEAD_NS = 30_000_000
MOST_PARTS = 1024
"""Looks at pieces that are kept. An honest kernel leaves at most 64 different ones."""

WINDOW = 1 << 18
"""Bytes of each output that are compared after each hot sample: this takes 20 us, as long as the digest of a small
product."""

_MOST_MIXED = 2048
_MIXED = 0.25
"""Number of cold sets with pieces exchanged beforehand, and the share of their pieces."""

_LATE_LOOKS = 3
_LATE_S = 0.005
_LATE_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Audited:
    """Outputs of a call. `when`: in words. `case`: which data its inputs held (0 or 1). `outputs`: flat, from element
    `begin` on. `exchanged`: the input pieces that came from the other data."""

    when: str
    case: int
    outputs: Mapping[str, npt.NDArray[Any]]
    begin: Mapping[str, int]
    exchanged: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditedPiece:
    """A piece's part of the outputs of a call. `exchanged`: whether the piece came from the other data."""

    when: str
    case: int
    piece: int
    exchanged: bool
    outputs: Mapping[str, npt.NDArray[Any]]


@dataclass(slots=True)
class AuditedOutputs:
    """Outputs of calls: as first found for each data, and all that another process must judge."""

    whole: dict[int, dict[str, npt.NDArray[np.uint8]]] = field(default_factory=dict)
    parts: dict[tuple[int, int, bool], Mapping[str, npt.NDArray[Any]]] = field(default_factory=dict)
    audited: list[Audited] = field(default_factory=list)
    kept: list[AuditedPiece] = field(default_factory=list)
    faults: list[Complaint] = field(default_factory=list)

    def fault(self, guard: Guard, text: str) -> None:
        """Record a fault, once."""
        found = Complaint(guard, text)
        if found not in self.faults:
            self.faults.append(found)

    def whole_of(self, sets: Sets, index: int, when: str, rng: np.random.Generator, *, always: bool = False) -> None:
        """Check all outputs of one set, and keep them if they are new (or `always`)."""
        here, written = sets.each[index], sets.written(index)
        for piece in here.exchanged:
            if (here.case, piece, True) not in self.parts:
                self.part_of(sets, index, piece, when)
        known = self.expected(sets, index)
        alike = known is not None and all(same(known[name], written[name]) for name in written)
        if known is None and not here.exchanged:
            self.whole[here.case] = written
        if alike and not always:
            return
        for name, found in written.items():
            if filled(found, POISON):
                self.fault(Guard.AUDIT, f"{when.partition(',')[0]}: a call of the timed loop did not write {name}")
            elif known is not None and sets.op.tolerance_kind is ToleranceKind.EXACT and not same(known[name], found):
                self.fault(
                    Guard.AUDIT,
                    f"{when.partition(',')[0]}: two calls of the timed loop wrote different {name} for the same inputs",
                )
        self.audited.append(audited(when, sets, index, written, rng))
        while len(self.audited) > 1 and sum(_nbytes(each) for each in self.audited) > MOST_KEPT:
            del self.audited[rng.integers(len(self.audited) - 1)]

    def part_of(self, sets: Sets, index: int, piece: int, when: str) -> None:
        """Check a piece's part of one set's outputs."""
        here = sets.each[index]
        key = (here.case, piece, piece in here.exchanged)
        found, known = sets.part(index, piece), self.parts.get(key)
        if known is None:
            self.parts[key] = found
        elif all(same(known[name], found[name]) for name in found):
            return
        if len(self.kept) < MOST_PARTS:
            self.kept.append(AuditedPiece(when, *key, found))

    def expected(self, sets: Sets, index: int) -> dict[str, npt.NDArray[np.uint8]] | None:
        """The outputs that the set had when its inputs were last the same; None if that was not observed."""
        here = sets.each[index]
        if here.case not in self.whole:
            return None
        if not here.exchanged:
            return self.whole[here.case]
        made = {}
        for name, (shape, dtype) in sets.like.items():
            made[name] = self.whole[here.case][name].copy()
            array = made[name].view(dtype).reshape(shape)
            for piece in here.exchanged:
                known = self.parts.get((here.case, piece, True))
                if known is None:
                    return None
                sets.pieces.each[piece].of(name, array)[...] = known[name]
        return made


class Auditor:
    """Wraps the launches for `alternate` after calibration.

    `order`: the set that each launch is bound to. `seen` receives the outputs. `call_ns`: approximate time of a call.
    """

    def __init__(
        self,
        timed: Timed,
        sets: Sets,
        order: list[int],
        rng: np.random.Generator,
        temperature: str,
        seen: AuditedOutputs,
        *,
        call_ns: float,
    ) -> None:
        self.timed, self.seen = timed, seen
        self._sets, self._order, self._rng, self._temperature = sets, order, rng, temperature
        self._before = timed.made
        self._samples = 0
        self._small = sets.nbytes < LARGE
        self._next = int(rng.integers(LEAST_SAMPLES)) if self._small else None
        self._watched: int | None = None
        """Position in the cycle of the awaited call."""
        self._spent_ns = 0
        self._ahead: dict[int, tuple[int, list[int]]] = {}
        """For future cold samples: the set of the call that follows a change, and the exchanged pieces of that set."""
        half = len(timed.launches) // 2
        self._cycle = 0 if timed.warm or half * call_ns > _MOST_AHEAD_NS else half
        """Least number of calls between a change and the cold call that follows it: written data must leave the caches.
        If that takes long, calls are so slow that a cached part of the inputs changes nothing."""
        self._ending = False
        self._now: tuple[int, dict[str, npt.NDArray[np.uint8]]] | None = None
        """For the hot set: the data that its inputs hold, and the outputs that it should hold."""

    def change_ahead(self) -> None:
        """Give each cold set its own mixture, and exchange pieces for the samples of the first half of the cycle. The
        pieces stay in caches until enough other data was touched."""
        if not self.timed.warm and self._small and self._sets.pieces.each:
            self._mix()
            for sample in range(1 + -(-self._cycle // self.timed.calls)):
                self._change_for(sample)

    def _mix(self) -> None:
        """Mix the data of the sets: a kernel could answer sets with equal data from one. On a device each write takes
        long, so there only looks and samples change sets."""
        sets = self._sets
        if sets.memory is not HOST or not sets.pieces.together:
            return
        begun = perf_counter_ns()
        for index in self._rng.permutation(len(sets.each))[:_MOST_MIXED]:
            if not sets.each[index].awaited:
                for piece in np.flatnonzero(self._rng.random(len(sets.pieces.each)) < _MIXED):
                    sets.write(sets.toggle(int(index), int(piece), spoil=False))
        self._spent_ns += perf_counter_ns() - begun

    def _change_for(self, sample: int) -> None:
        calls = self.timed.calls
        nth = self._nth()
        index = self._order[(sample * calls + nth) % len(self.timed.launches)]
        if not self._sets.each[index].awaited:
            changed, changes = self._change(index)
            self._ahead[sample] = index, changed
            self._write(changes)

    def _nth(self) -> int:
        """A call of a sample, the last one in half of the samples: no later call can make up for skipped work there."""
        calls = self.timed.calls
        return calls - 1 if self._rng.random() < 0.5 else int(self._rng.integers(calls))

    def clock(self) -> int:
        """Nanoseconds without the time of the looks."""
        return perf_counter_ns() - self._spent_ns

    def sample(self) -> float:
        """See Timed."""
        if self._watched is None and self._next is not None and self._samples >= self._next:
            self._begin(int(self._rng.integers(len(self.timed.launches))), poison=self._rng.random() < 0.5)
        taken = self._sample()
        self._samples += 1
        return taken

    def finish(self) -> None:
        """Look after the last sample, which is timed but is in no figure, and then at every set."""
        self._begin((self._at + int(self._rng.integers(self.timed.calls))) % len(self.timed.launches), poison=True)
        self._ending = True
        self._sample()
        while self._ahead:
            self._samples += 1
            self._sample()

    @property
    def called(self) -> list[int]:
        """The sets of the calls so far. The outputs of others are older than their inputs: an earlier cycle left
        them."""
        return self._order[: min(self.timed.made - self._before, len(self.timed.launches))]

    @property
    def _at(self) -> int:
        """Position in the cycle of the next call."""
        return (self.timed.made - self._before) % len(self.timed.launches)

    def _begin(self, position: int, *, poison: bool) -> None:
        self._watched = position
        begun, index = perf_counter_ns(), self._order[position]
        self._sets.exchange(index)
        for other, pieces in self._ahead.values():
            if other == index:
                pieces.clear()  # overwritten
        if poison or len(self._sets.cases) < 2:
            self._sets.poison(index)
        self._sets.each[index].awaited = True
        self._spent_ns += perf_counter_ns() - begun

    def _sample(self) -> float:
        timed, count = self.timed, len(self.timed.launches)
        index, changed = self._ahead.pop(self._samples, (0, []))
        warm = int(timed.warm)
        first, made = self._at + warm, timed.made + warm
        if timed.warm and self._small and self._sets.pieces.each and not self._sets.each[self._order[0]].awaited:
            index = self._order[0]
            taken, changed = self._sample_around(index)
        else:
            if timed.warm:
                timed.take(1)
            taken = timed.take(timed.calls)
        begun = perf_counter_ns()
        if changed:
            self._look(index, changed)
        if self._watched is not None and (self._watched - first) % count < timed.made - made:
            self._look_at_all(self._order[self._watched])
            self._watched = None
            # Ever rarer, so that looks take little of the time for calls of any length.
            if self._next is not None:
                self._next = self._samples + 1 + int(self._rng.integers(1, 2 * self._samples + LEAST_SAMPLES))
        self._spent_ns += perf_counter_ns() - begun
        if not (timed.warm or self._ending) and self._small and self._sets.pieces.each:
            self._change_for(self._samples + 1 + -(-self._cycle // timed.calls))
        return taken / timed.calls

    def _sample_around(self, index: int) -> tuple[int, list[int]]:
        """Nanoseconds of a hot sample with a change inside, and the exchanged pieces. The kernel must not be able to
        detect the time of the change."""
        timed, on_host = self.timed, self._sets.memory is HOST
        # A clock that records its calls cannot be interrupted.
        nth = self._nth() if on_host else 0
        changed, changes = self._change(index)
        taken = timed.sample_around(nth, changes) if on_host else None
        if taken is None:
            timed.take(1)
            taken = timed.take(nth) if nth else 0
            self._write(changes)
            taken += timed.take(timed.calls - nth)
        return taken, changed

    def _write(self, changes: list[ArrayChange]) -> None:
        begun = perf_counter_ns()
        self._sets.write(changes)
        self._spent_ns += perf_counter_ns() - begun

    def _change(self, index: int) -> tuple[list[int], list[ArrayChange]]:
        """Exchange one or two pieces of a set's inputs. Returns the pieces and the pending writes."""
        begun, sets = perf_counter_ns(), self._sets
        here, pieces = sets.each[index], sets.pieces
        if pieces.together:
            most = 2 if self.timed.warm else 1
            chosen = [
                int(piece) for piece in self._rng.choice(len(pieces.each), min(most, len(pieces.each)), replace=False)
            ]
        elif here.case:
            chosen = []
        else:
            chosen = list(here.exchanged) or [int(self._rng.integers(len(pieces.each)))]
        spoil = self._rng.random() < 0.5
        changes = [change for piece in chosen for change in sets.toggle(index, piece, spoil=spoil)]
        self._spent_ns += perf_counter_ns() - begun
        return chosen, changes

    def _look(self, index: int, changed: list[int]) -> None:
        sets = self._sets
        when = f"{self._temperature}, about call {self.timed.made}"
        # all outputs follow from the piece that is exchanged now, perhaps by a change for a later call
        if not sets.pieces.together:
            changed = list(sets.each[index].exchanged) or changed
        for piece in changed:
            self.seen.part_of(sets, index, piece, when)
        if not self.timed.warm or sets.memory is not HOST or not sets.pieces.together:
            return
        here = sets.each[index]
        if self._now is None or self._now[0] != here.case:
            known = self.seen.expected(sets, index)
            self._now = None if known is None else (here.case, {name: array.copy() for name, array in known.items()})
        if self._now is None:
            return
        for piece in changed:
            for name, (shape, dtype) in sets.like.items():
                array = self._now[1][name].view(dtype).reshape(shape)
                sets.pieces.each[piece].of(name, array)[...] = self.seen.parts[
                    here.case, piece, piece in here.exchanged
                ][name]
        for name, raw in here.raw.items():
            begin = int(self._rng.integers(max(1, raw.nbytes - WINDOW + 1)))
            if not same(self._now[1][name][begin : begin + WINDOW], raw[begin : begin + WINDOW]):
                self.seen.whole_of(sets, index, when, self._rng)
                break

    def _look_at_all(self, index: int) -> None:
        self._sets.each[index].awaited = False
        when = f"{self._temperature}, about call {self.timed.made}"
        for name in self._sets.changed(index):
            self.seen.fault(Guard.INPUTS, f"{self._temperature}: a call of the timed loop changed {name}")
        self.seen.whole_of(self._sets, index, when, self._rng)


def late(launch: Launch, sets: Sets, index: int, rng: np.random.Generator) -> tuple[list[Audited], list[Complaint]]:
    """Make a few single calls. Returns the outputs at the return of the call, and faults if outputs are written later.

    The outputs are poisoned before the call and again after it. A thread or stream that still works shows in one of
    them.
    """
    looks: list[Audited] = []
    faults: list[Complaint] = []
    end = perf_counter_ns() + _LATE_NS
    for _ in range(_LATE_LOOKS):
        sets.poison(index)
        launch.run()
        written = sets.written(index)
        sets.poison(index)
        sleep(_LATE_S)
        looks.append(audited("a single call", sets, index, written, rng))
        for name, found in sets.written(index).items():
            if not filled(found, POISON):
                faults.append(
                    Complaint(
                        Guard.LATE,
                        f"{name} was written after the call had returned; wait for all work before returning",
                    )
                )
        if faults or perf_counter_ns() > end:
            break
    launch.run()  # leave outputs as every call does
    return looks[:1], faults


def tasks() -> frozenset[str]:
    """Thread ids of this process; empty if the system does not report them."""
    try:
        return frozenset(os.listdir("/proc/self/task"))
    except OSError:
        return frozenset()


def audited(
    when: str, sets: Sets, index: int, written: Mapping[str, npt.NDArray[np.uint8]], rng: np.random.Generator
) -> Audited:
    """A copy of one set's outputs, or of a part of them."""
    outputs, begin = {}, {}
    for name, (_, dtype) in sets.like.items():
        flat = written[name].view(dtype)
        length = min(flat.size, PIECE // dtype.itemsize)
        begin[name] = int(rng.integers(flat.size - length + 1))
        outputs[name] = flat[begin[name] : begin[name] + length].copy()
    return Audited(when, sets.each[index].case, outputs, begin, tuple(sorted(sets.each[index].exchanged)))


def _nbytes(look: Audited) -> int:
    return sum(array.nbytes for array in look.outputs.values())
