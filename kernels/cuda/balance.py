"""Which GPU takes which tensor next, by what each was measured to take for those that it has done.

Tensors are taken as they lie in the schedule of longest processing time first: of those that wait, the largest goes
where it is predicted to be done first, then the next. That schedule is made anew whenever somebody asks, with the rates
of that moment, and whoever asks gets the first tensor that it gives him. So a GPU that is slow, or has become slow,
takes less, and none takes a large tensor at the end that another would have done sooner.

The largest first alone would leave all small ones to the end, when no large copy is under way behind which the time
that a call takes beside its own could hide. So the last place of a GPU that has several takes small ones from the
beginning, but for some that are kept to make all GPUs end together. Measured: docs/kernels/cuda_copies.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

KEPT = 0.25
"""Of the largest tensor that waits, how much work in small ones is kept for the end, for each GPU. With twice as much
two GPUs were idle for 10.6 ms of the last eighth of a run, for 7.0 ms with this; 0.1 was as quick (outside of this
project)."""


@dataclass(frozen=True, slots=True, order=True)
class GpuPlace:
    """Where one tensor at a time is worked on: a GPU has several."""

    device: str
    number: int


@dataclass(slots=True)
class WorkDone:
    """What a GPU has done so far."""

    work: int = 0
    seconds: float = 0.0


class Balance(Generic[K]):
    """What waits, what is under way where, and what was measured. `work` has each tensor's, in any one unit; times are
    in seconds on the caller's clock. Not for several threads at once."""

    def __init__(self, work: Mapping[K, int], places: Iterable[GpuPlace]) -> None:
        self._work = dict(work)
        self._waiting = sorted(work, key=lambda name: -work[name])
        self._open = list(places)
        self._busy: dict[GpuPlace, tuple[K, float]] = {}
        self._done: dict[str, WorkDone] = {place.device: WorkDone() for place in self._open}

    @property
    def waiting(self) -> int:
        """Tensors that nobody works on and nobody has done."""
        return len(self._waiting)

    @property
    def places(self) -> tuple[GpuPlace, ...]:
        """Those that take tensors."""
        return tuple(self._open)

    def open(self, device: str = "", but: GpuPlace | None = None) -> bool:
        """Whether there is a place that takes tensors, on that GPU or on any, but for one."""
        return any(place.device == (device or place.device) and place != but for place in self._open)

    def rates(self) -> dict[str, float]:
        """Of each GPU that has done something, its work a second in one place."""
        return {device: done.work / done.seconds for device, done in self._done.items() if done.seconds > 0}

    def take(self, place: GpuPlace, now: float) -> K | None:
        """The tensor that the place works on from now on; None where there is none for it as things are."""
        rates, free = self._expected(now)
        if place not in free:
            return None
        name = self._small(place, rates) if self._takes_small_ones(place) else None
        if name is None:
            name = self._largest(place, rates, free)
        if name is not None:
            self._waiting.remove(name)
            self._busy[place] = name, now
        return name

    def _largest(self, place: GpuPlace, rates: dict[GpuPlace, float], free: dict[GpuPlace, float]) -> K | None:
        """The first that the schedule gives to the place."""
        for name in self._waiting:
            first = min(free, key=lambda each: (free[each] + self._work[name] / rates[each], each != place))
            if first == place:
                return name
            free[first] += self._work[name] / rates[first]
        return None

    def _takes_small_ones(self, place: GpuPlace) -> bool:
        """Whether it is the last of several of its GPU."""
        beside = [each for each in self._open if each.device == place.device]
        return len(beside) > 1 and place == max(beside)

    def _small(self, place: GpuPlace, rates: dict[GpuPlace, float]) -> K | None:
        """The smallest that waits, but for those that are kept for the end, and none that would take longer there than
        all that waits takes everywhere."""
        if not self._waiting:
            return None
        kept = KEPT * len({each.device for each in self._open}) * self._work[self._waiting[0]]
        for name in reversed(self._waiting):
            if kept <= 0:
                waits = sum(self._work[each] for each in self._waiting)
                return name if self._work[name] * sum(rates.values()) <= waits * rates[place] else None
            kept -= self._work[name]
        return None

    def patience(self, now: float) -> float | None:
        """Seconds after which a place that got nothing asks again: when the first that is under way is expected to be
        done; None where nothing is."""
        _, free = self._expected(now)
        return min((free[place] - now for place in self._busy if place in free), default=None)

    def _expected(self, now: float) -> tuple[dict[GpuPlace, float], dict[GpuPlace, float]]:
        """For each open place its rate, and when it is free. What takes longer than expected is expected to take as
        long again; a GPU of which nothing is known is taken for an average one."""
        known = self.rates()
        usual = sum(known.values()) / len(known) if known else 1.0
        rates = {each: known.get(each.device, usual) for each in self._open}
        free = dict.fromkeys(self._open, now)
        for each, (name, began) in self._busy.items():
            if each in free:
                if self._work[name] / rates[each] <= now - began:
                    rates[each] = self._work[name] / (2 * (now - began))
                free[each] = began + self._work[name] / rates[each]
        return rates, free

    def done(self, place: GpuPlace, now: float) -> None:
        """The place has done its tensor."""
        name, began = self._busy.pop(place)
        found = self._done[place.device]
        found.work += self._work[name]
        found.seconds += max(now - began, 0.0)

    def back(self, place: GpuPlace) -> None:
        """What the place had begun waits again."""
        name, _ = self._busy.pop(place)
        self._waiting = sorted([name, *self._waiting], key=lambda each: -self._work[each])

    def close(self, place: GpuPlace) -> None:
        """The place takes nothing more, and what it had begun waits again."""
        self.back(place)
        self._open = [each for each in self._open if each != place]

    def close_device(self, device: str) -> None:
        """No place of that GPU takes anything more; what is under way there may still be done."""
        self._open = [place for place in self._open if place.device != device]
