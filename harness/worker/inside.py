"""What of a process's state only code within it can tell: tasks. The rest is read from outside, see validate.state."""

from __future__ import annotations

import ctypes
import locale
import signal
from dataclasses import dataclass, field
from typing import Any

from tritmark.harness.worker.floating import Floating, changed
from tritmark.harness.worker.site import Site

_ACTION = 152
"""Bytes of glibc's struct sigaction on 64-bit machines; it begins with the handler."""
_FIRST_BIND = "state when first bound"
_FLOATING = "floating-point settings left"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading a candidate's libraries may change, and its calls may not."""

    environment: dict[str, str]
    locale: str


@dataclass(frozen=True, slots=True)
class Inside:
    """State of the process as it tells itself."""

    handlers: dict[int, int] = field(default_factory=dict)
    """Address of each signal's handler, 0 the default and 1 ignored; by its number."""
    timers: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """Interval timers: whether they run, and the interval in seconds."""
    loaded: Loaded = Loaded({}, "")
    first_bound: Loaded | None = None
    """What `loaded` was once the candidate was bound for the first time."""
    floating: tuple[Floating, ...] = ()
    """Settings that runs left."""


def inside(site: Site) -> Inside:
    """Read all of it."""
    timers = {
        name: signal.getitimer(getattr(signal, name)) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
    }
    ran(site)
    return Inside(
        handlers=_handlers(),
        timers={name: (left > 0, interval) for name, (left, interval) in timers.items()},
        loaded=_loaded(),
        first_bound=site.kept.get(_FIRST_BIND),
        floating=tuple(site.kept.get(_FLOATING, ())),
    )


def bound(site: Site) -> None:
    """To be called after the candidate was bound."""
    if _FIRST_BIND not in site.kept:
        site.kept[_FIRST_BIND] = _loaded()
        ran(site)


def ran(site: Site) -> None:
    """To be called after each run: take notice of floating-point settings that it left, and set them back."""
    found = changed()
    if found is not None:
        known = site.kept.setdefault(_FLOATING, [])
        if found not in known:
            known.append(found)


def _loaded() -> Loaded:
    library = ctypes.CDLL(None)
    pointers, found = ctypes.POINTER(ctypes.c_char_p).in_dll(library, "environ"), {}
    for entry in iter(_Entries(pointers)):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        found[name] = value
    return Loaded(found, str(locale.setlocale(locale.LC_ALL)))


class _Entries:
    """The strings of a list that ends with a null pointer."""

    def __init__(self, pointers: Any) -> None:
        self._pointers = pointers

    def __getitem__(self, index: int) -> bytes:
        entry: bytes | None = self._pointers[index] if self._pointers else None
        if entry is None:
            raise IndexError(index)
        return entry


def _handlers() -> dict[int, int]:
    library, action = ctypes.CDLL(None), (ctypes.c_uint64 * (_ACTION // 8))()
    return {
        int(number): int(action[0])
        for number in signal.valid_signals()
        if library.sigaction(int(number), None, action) == 0
    }
