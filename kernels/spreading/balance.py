"""Assign tensors to GPUs by the measured rate of each.

The schedule is longest processing time first: the largest waiting tensor goes where it is predicted to finish first,
then the next one. The schedule is recomputed at each request with the current rates, and the requester gets its first
tensor in it. So a GPU that is slow, or becomes slow, takes less work, and none takes a large tensor at the end that
another would finish sooner.

With this rule alone all small tensors would come last, when no large copy is left that could hide the overhead of a
call. So the last place of a GPU with several places takes small tensors from the beginning, except for some that are
kept so that all GPUs end together. Measurements: docs/kernels/cuda_copies.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

KEPT = 0.25
"""Work in small tensors that is kept for the end, per GPU, as a share of the largest waiting tensor. In the last eighth
of a run two GPUs idled for 7.0 ms with this value and for 10.6 ms with twice as much; 0.1 was as fast."""


@dataclass(frozen=True, slots=True, order=True)
class GpuPlace:
    """A place that works on one tensor at a time; a GPU has several."""

    device: str
    number: int


@dataclass(slots=True)
class WorkDone:
    """Work that a GPU has finished, and its time."""

    work: int = 0
    seconds: float = 0.0


class Balance(Generic[K]):
    """Waiting and current tensors, and the measured rates. `work` has the work of each tensor in any common unit; times
    are seconds on the caller's clock. Not thread-safe."""

    def __init__(self, work: Mapping[K, int], places: Iterable[GpuPlace]) -> None:
        self._work = dict(work)
        self._waiting = sorted(work, key=lambda name: -work[name])
        self._open = list(places)
        self._busy: dict[GpuPlace, tuple[K, float]] = {}
        self._done: dict[str, WorkDone] = {place.device: WorkDone() for place in self._open}

    @property
    def waiting(self) -> int:
        """Number of tensors that are neither done nor in work."""
        return len(self._waiting)

    @property
    def places(self) -> tuple[GpuPlace, ...]:
        """Places that still take tensors."""
        return tuple(self._open)

    def open(self, device: str = "", other_than: GpuPlace | None = None) -> bool:
        """Whether any place except `other_than` still takes tensors, on this GPU or on any."""
        return any(place.device == (device or place.device) and place != other_than for place in self._open)

    def rates(self) -> dict[str, float]:
        """Work per second and place of each GPU that has finished a tensor."""
        return {device: done.work / done.seconds for device, done in self._done.items() if done.seconds > 0}

    def seconds(self) -> dict[str, float]:
        """Seconds of finished tensors of each GPU, over all its places."""
        return {device: done.seconds for device, done in self._done.items()}

    def take(self, place: GpuPlace, now: float) -> K | None:
        """The next tensor of the place, which it begins now; None if the schedule has none for it now."""
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
        """The first tensor that the schedule assigns to the place."""
        for name in self._waiting:
            first = min(free, key=lambda each: (free[each] + self._work[name] / rates[each], each != place))
            if first == place:
                return name
            free[first] += self._work[name] / rates[first]
        return None

    def _takes_small_ones(self, place: GpuPlace) -> bool:
        """Whether it is the last of several places of its GPU."""
        beside = [each for each in self._open if each.device == place.device]
        return len(beside) > 1 and place == max(beside)

    def _small(self, place: GpuPlace, rates: dict[GpuPlace, float]) -> K | None:
        """The smallest waiting tensor that is not kept for the end. None if it would take longer there than all waiting
        tensors take on all places."""
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
        """Seconds after which a place that got nothing should ask again: until the first expected end of a current
        tensor; None without one."""
        _, free = self._expected(now)
        return min((free[place] - now for place in self._busy if place in free), default=None)

    def _expected(self, now: float) -> tuple[dict[GpuPlace, float], dict[GpuPlace, float]]:
        """The rate of each open place, and when it is free. A tensor that is overdue is expected to take twice its time
        so far. A GPU without a measurement counts as average."""
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
        """Record that the place has finished its tensor."""
        name, began = self._busy.pop(place)
        found = self._done[place.device]
        found.work += self._work[name]
        found.seconds += max(now - began, 0.0)

    def back(self, place: GpuPlace) -> None:
        """Return the tensor of the place to the waiting ones."""
        name, _ = self._busy.pop(place)
        self._waiting = sorted([name, *self._waiting], key=lambda each: -self._work[each])

    def close(self, place: GpuPlace) -> None:
        """Close the place, and return its tensor to the waiting ones."""
        self.back(place)
        self._open = [each for each in self._open if each != place]

    def close_device(self, device: str) -> None:
        """Close all places of that GPU; current tensors may still finish."""
        self._open = [place for place in self._open if place.device != device]
