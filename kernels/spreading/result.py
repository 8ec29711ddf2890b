"""The result of `spread`, on the CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tritmark.harness.errors import DeviceError

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FailedDevice:
    """A GPU that was taken out."""

    device: str
    error: DeviceError
    """The reason."""


@dataclass(frozen=True, slots=True)
class Spread(Generic[K, R]):
    """The result of `spread`."""

    results: dict[K, R]
    """In the order of the tensors."""
    made_by: dict[K, str]
    """The device that made each result: "cpu", "cuda:0" and so on."""
    failed: tuple[FailedDevice, ...]
    """GPUs that were taken out, in the order of failure; others did their tensors."""
    rates: dict[str, float]
    """Measured bytes of arguments per second: of a thread of the CPU, of a place of each GPU that made a result."""
    copies: dict[tuple[str, str], str]
    """The path of copies for each pair of GPUs: "peer", or "staged" through the host."""
    wall_s: float
    """Seconds from the first tensor to the last result."""
    busy_s: dict[str, float]
    """Seconds of work: of each thread of the CPU ("cpu 0" is the caller) its processor time in calls, of each GPU the
    time for which its places had a tensor, divided by the number of places. A call with several threads counts equally
    for all of them."""

    @property
    def utilization(self) -> float | None:
        """Busy time over the number of threads (or GPUs) times wall time; None if nothing was done."""
        whole = len(self.busy_s) * self.wall_s
        return sum(self.busy_s.values()) / whole if whole else None

    @property
    def balance(self) -> float | None:
        """Mean of the busy times over the largest, 1 if all are equal; None if nothing was done."""
        most = max(self.busy_s.values(), default=0.0)
        return sum(self.busy_s.values()) / len(self.busy_s) / most if most else None


def annotate(error: BaseException, note: str, finished: Spread[Any, Any]) -> None:
    """Add a note to an error, if any, and as attribute `spread` the results that were finished."""
    if note:
        error.add_note(note)
    error.spread = finished  # type: ignore[attr-defined]


def ordered(names: Mapping[K, Any], found: Mapping[K, R]) -> dict[K, R]:
    """What was found, in the order of the names."""
    return {name: found[name] for name in names if name in found}
