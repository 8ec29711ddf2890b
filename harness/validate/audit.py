"""Looking into a timed loop: what the calls that are timed do, and whether all that they do is within the time.

At moments drawn at random one set of the loop's arrays gets other data and poisoned outputs. Once a call has been made on it, the outputs
are kept for the process that has the expected values (see confirm), and the inputs must be as they were. There is always one such look
after the last sample, so work that is left out from some call on is missed too. The sample around a look is one like any other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.alternate import Timed
from tritmark.harness.measure.statistics import LEAST_SAMPLES
from tritmark.harness.spec import Launch
from tritmark.harness.validate.same import filled
from tritmark.harness.validate.sets import POISON, Sets

PIECE = 16 << 20
"""Bytes of each output that a look keeps: all of it, or a piece of that size from a place drawn at random."""

MOST_KEPT = 64 << 20
"""Bytes of outputs that are kept for each temperature, or one look's if those are more."""

LARGE = 256 << 20
"""Bytes of a set's arrays from which on there is only the look after the last sample: others would take longer than all the samples."""

_LATE_LOOKS = 3
_LATE_S = 0.005
_LATE_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Audited:
    """What a call left: `when` in words, `case` says which data its inputs held (0 or 1), `outputs` are flat and begin at element
    `begin`."""

    when: str
    case: int
    outputs: Mapping[str, npt.NDArray[Any]]
    begin: Mapping[str, int]


class Auditor:
    """Stands between `alternate` and the launches, from when they have been calibrated.

    `order` tells for each launch which set it is bound to.
    """

    def __init__(self, timed: Timed, sets: Sets, order: list[int], rng: np.random.Generator, temperature: str) -> None:
        self.timed = timed
        self.audited: list[Audited] = []
        self.faults: list[str] = []
        self._sets, self._order, self._rng, self._temperature = sets, order, rng, temperature
        self._before = timed.made
        self._samples = 0
        self._next = int(rng.integers(LEAST_SAMPLES)) if sets.nbytes < LARGE else None
        self._watched: int | None = None
        """Position in the cycle that is waited for."""
        self._spent_ns = 0

    def clock(self) -> int:
        """Nanoseconds, without those that looking takes."""
        return perf_counter_ns() - self._spent_ns

    def sample(self) -> float:
        """See Timed."""
        if self._watched is None and self._next is not None and self._samples >= self._next:
            self._begin(int(self._rng.integers(len(self.timed.launches))))
        taken = self._sample()
        self._samples += 1
        return taken

    def finish(self) -> None:
        """The look after the last sample, which is timed like the others but is in no figure."""
        self._begin((self._at + int(self._rng.integers(self.timed.calls))) % len(self.timed.launches))
        self._sample()

    @property
    def _at(self) -> int:
        """Position in the cycle of the next call."""
        return (self.timed.made - self._before) % len(self.timed.launches)

    def _begin(self, position: int) -> None:
        self._watched = position
        begun, index = perf_counter_ns(), self._order[position]
        self._sets.exchange(index)
        self._sets.poison(index)
        self._sets.each[index].awaited = True
        self._spent_ns += perf_counter_ns() - begun

    def _sample(self) -> float:
        first, made = self._at, self.timed.made
        taken = self.timed.sample()
        count = len(self.timed.launches)
        if self._watched is not None and (self._watched - first) % count < self.timed.made - made:
            begun = perf_counter_ns()
            self._look(self._order[self._watched])
            self._watched = None
            self._spent_ns += perf_counter_ns() - begun
            # Ever rarer, so that looking takes little of the time whatever a call takes.
            if self._next is not None:
                self._next = self._samples + 1 + int(self._rng.integers(1, 2 * self._samples + LEAST_SAMPLES))
        return taken

    def _look(self, index: int) -> None:
        self._sets.each[index].awaited = False
        written = self._sets.written(index)
        for name, found in written.items():
            if filled(found, POISON):
                self.faults.append(f"guard audit: {self._temperature}: a call of the timed loop did not write {name}")
        for name in self._sets.changed(index):
            self.faults.append(f"guard inputs: {self._temperature}: a call of the timed loop changed {name}")
        when = f"{self._temperature}, about call {self.timed.made}"
        self.audited.append(_audited(when, self._sets, index, written, self._rng))
        while len(self.audited) > 1 and sum(_nbytes(each) for each in self.audited) > MOST_KEPT:
            del self.audited[self._rng.integers(len(self.audited) - 1)]


def late(launch: Launch, sets: Sets, index: int, rng: np.random.Generator) -> tuple[list[Audited], list[str]]:
    """Call a launch some times by itself: what it left the moment it returned, and what is wrong if its outputs are written after that.

    The outputs are poisoned before the call and once more after it; a thread or a stream that still works shows in either.
    """
    audited, faults = [], []
    end = perf_counter_ns() + _LATE_NS
    for _ in range(_LATE_LOOKS):
        sets.poison(index)
        launch.run()
        written = sets.written(index)
        sets.poison(index)
        sleep(_LATE_S)
        audited.append(_audited("a single call", sets, index, written, rng))
        for name, found in sets.written(index).items():
            if not filled(found, POISON):
                faults.append(f"guard late: {name} was written after the call had returned")
        if faults or perf_counter_ns() > end:
            break
    launch.run()  # leaves outputs as every call does
    return audited[:1], faults


def tasks() -> frozenset[str]:
    """The threads of this process, by the kernel's numbers; none where the system does not tell."""
    try:
        return frozenset(os.listdir("/proc/self/task"))
    except OSError:
        return frozenset()


def _audited(when: str, sets: Sets, index: int, written: Mapping[str, npt.NDArray[np.uint8]], rng: np.random.Generator) -> Audited:
    outputs, begin = {}, {}
    for name, (_, dtype) in sets.like.items():
        flat = written[name].view(dtype)
        length = min(flat.size, PIECE // dtype.itemsize)
        begin[name] = int(rng.integers(flat.size - length + 1))
        outputs[name] = flat[begin[name] : begin[name] + length].copy()
    return Audited(when, sets.each[index].case, outputs, begin)


def _nbytes(look: Audited) -> int:
    return sum(array.nbytes for array in look.outputs.values())
