"""Tasks that read the state of a process that only code inside it can read. For the rest see validate.state."""

from __future__ import annotations

import builtins
import ctypes
import gc
import locale
import random
import signal
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from tritmark.harness.worker.floating import Floating, changed
from tritmark.harness.worker.site import UNMASKED, Site

_ACTION = 152
"""Bytes of glibc's struct sigaction on 64-bit machines; it begins with the handler."""
_PRCTL = {
    2: "the signal at its parent's end",
    3: "whether it may be dumped",
    7: "whether it keeps capabilities",
    25: "whether it may read the time stamp counter",
    27: "the secure bits",
    30: "the timer slack",
    34: "the policy for broken memory",
    37: "whether it takes in orphans",
}
"""Operations of prctl(2) that read a setting which /proc does not show, or only to some users."""
_BY_POINTER = frozenset({2, 25, 37})
"""Operations that write the setting to an address."""
_FIRST_BIND = "state when first bound"
_FLOATING = "floating-point settings left"


FIRST_CALL = frozenset(
    {
        "the path of modules",
        "the recursion limit",
        "what finds modules",
        "the filters of warnings",
        "the level of logging",
        "the objects that the garbage collector passes over",
    }
)
"""Settings that a first call may change too, since it may import a library."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """State that loading a candidate's libraries may change, but its calls must not."""

    environment: dict[str, str]
    locale: str
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of the interpreter, NumPy, PyTorch (if loaded) and the process (prctl(2)), by name."""


@dataclass(frozen=True, slots=True)
class StateInProcess:
    """State of the process as reported from inside."""

    handlers: dict[int, int] = field(default_factory=dict)
    """Address of each signal's handler, by signal number; 0: default, 1: ignored."""
    timers: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """Interval timers: whether they run, and the interval in seconds."""
    loaded: Loaded = Loaded({}, "")
    first_bound: Loaded | None = None
    """`loaded` after the candidate was bound for the first time."""
    floating: tuple[Floating, ...] = ()
    """Changed floating-point settings that runs left."""
    pools: int = 0
    """Threads that linear algebra libraries started for the thread count that the harness set."""


def inside(site: Site) -> StateInProcess:
    """Read the whole state."""
    timers = {
        name: signal.getitimer(getattr(signal, name)) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
    }
    ran(site)
    return StateInProcess(
        handlers=_handlers(),
        timers={name: (left > 0, interval) for name, (left, interval) in timers.items()},
        loaded=_loaded(),
        first_bound=site.kept.get(_FIRST_BIND),
        floating=tuple(site.kept.get(_FLOATING, ())),
        pools=_pools(),
    )


def unmasked(site: Site) -> Mapping[str, str]:
    """The sources that still reveal hidden features to code in this process, each with the reason."""
    found: Mapping[str, str] = site.kept.get(UNMASKED, {})
    return found


def _pools() -> int:
    frameworks = sys.modules.get("tritmark.harness.candidate.frameworks")  # a built-in kernel's process has none
    return 0 if frameworks is None else int(frameworks.Numpy.started)


def bound(site: Site) -> None:
    """Call this after the candidate was bound."""
    if _FIRST_BIND not in site.kept:
        site.kept[_FIRST_BIND] = _loaded()
        ran(site)


def ran(site: Site) -> None:
    """Call this after each run. Records floating-point settings that the run changed, and restores them."""
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
    return Loaded(
        found,
        str(locale.setlocale(locale.LC_ALL)),
        {**_prctl(library), **_alternate_stack(library), **_interpreter(), **_torch()},
    )


def _prctl(library: Any) -> dict[str, str]:
    found = {}
    for operation, name in _PRCTL.items():
        value = ctypes.c_int()
        reported = library.prctl(operation, ctypes.byref(value) if operation in _BY_POINTER else 0, 0, 0, 0)
        found[name] = str(value.value if operation in _BY_POINTER and reported == 0 else reported)
    return found


def _alternate_stack(library: Any) -> dict[str, str]:
    """The alternate stack for signal handlers: sigaltstack(2)."""
    found = (ctypes.c_uint64 * 3)()  # stack_t of 64-bit machines: address, flags, size
    if library.sigaltstack(None, found) != 0:
        return {}
    return {"the stack for signals": f"{found[2]} bytes at {found[0]:#x}, {found[1] & 0xFFFFFFFF}"}


def _interpreter() -> dict[str, str]:
    found = {
        "the garbage collector": f"{'on' if gc.isenabled() else 'off'} {gc.get_threshold()} {gc.get_debug()}",
        "what NumPy does at floating-point errors": f"{np.geterr()} {np.geterrcall()}",
        "the state of Python's random numbers": _mark(repr(random.getstate()).encode()),
        "the switch interval": f"{sys.getswitchinterval():g} s",
        "the recursion limit": str(sys.getrecursionlimit()),
        "the trace function": _named(sys.gettrace()),
        "the profile function": _named(sys.getprofile()),
        "the path of modules": _mark(repr(sys.path).encode()),
        "what finds modules": _mark(repr([*map(_named, sys.meta_path), *map(_named, sys.path_hooks)]).encode()),
        "the hooks of exceptions": f"{_named(sys.excepthook)}, {_named(sys.unraisablehook)}",
        "the digits of an integer": str(sys.get_int_max_str_digits()),
        "the built-in functions": _mark(
            repr(sorted((name, id(value)) for name, value in vars(builtins).items())).encode()
        ),
        "the objects that the garbage collector passes over": str(gc.get_freeze_count()),
        "what hears of the garbage collector": str(len(gc.callbacks)),
        "the filters of warnings": _mark(repr(warnings.filters).encode()),
        "NumPy's buffer": f"{np.getbufsize()} elements",
        "the standard streams": _mark(repr([id(each) for each in (sys.stdin, sys.stdout, sys.stderr)]).encode()),
        "how NumPy prints": _mark(repr(np.get_printoptions()).encode()),
        **_of_modules(),
    }
    if "numpy.random" in sys.modules:
        state: Any = np.random.get_state(legacy=True)  # the stub admits a dict too
        found["the state of NumPy's random numbers"] = _mark(np.asarray(state[1]).tobytes() + repr(state[2:]).encode())
    return found


def _of_modules() -> dict[str, str]:
    """Settings of standard library modules that are loaded."""
    found = {}
    if (threading := sys.modules.get("threading")) is not None:
        found["the stack of threads"] = f"{threading.stack_size()} bytes"
        found["the hook of threads' exceptions"] = _named(threading.excepthook)
    if (decimal := sys.modules.get("decimal")) is not None:
        here = decimal.getcontext()
        traps = sorted(each.__name__ for each, on in here.traps.items() if on)
        found["the context of decimal"] = f"{here.prec} {here.rounding} {here.Emin} {here.Emax} {here.clamp} {traps}"
    if (logging := sys.modules.get("logging")) is not None:
        found["the level of logging"] = f"{logging.root.level} {logging.root.manager.disable}"
    if (socket := sys.modules.get("socket")) is not None:
        found["the time limit of sockets"] = str(socket.getdefaulttimeout())
    if (tracemalloc := sys.modules.get("tracemalloc")) is not None:
        found["whether memory is traced"] = str(tracemalloc.is_tracing())
    return found


def _torch() -> dict[str, str]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "is_grad_enabled"):
        return {}
    return {
        "PyTorch's default dtype": str(torch.get_default_dtype()),
        "whether PyTorch records gradients": str(torch.is_grad_enabled()),
        "whether PyTorch is deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "the state of PyTorch's random numbers": _mark(torch.get_rng_state().numpy().tobytes()),
    }


def _mark(state: bytes) -> str:
    return f"{crc32(state):08x}"


def _named(function: Any) -> str:
    return "none" if function is None else f"one of {getattr(function, '__module__', None) or type(function).__name__}"


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
