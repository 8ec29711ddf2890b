"""Settings of this thread's floating-point unit: rounding, denormals flushed to zero, trapping exceptions.

The sticky status flags are not settings.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import NamedTuple

_ROUNDING = ("to nearest", "down", "up", "toward zero")
_MXCSR_SETTINGS = 0xFFC0
_FPCR_ROUNDING = ("to nearest", "up", "down", "toward zero")


class _X86(ctypes.Structure):
    """glibc's fenv_t on x86-64: what FNSTENV stores, and MXCSR."""

    _fields_ = (("control", ctypes.c_uint16), ("rest", ctypes.c_uint8 * 26), ("mxcsr", ctypes.c_uint32))


class _Aarch64(ctypes.Structure):
    """glibc's fenv_t on aarch64."""

    _fields_ = (("control", ctypes.c_uint32), ("mxcsr", ctypes.c_uint32))


class Floating(NamedTuple):
    """Control words: of x87 and MXCSR on x86-64; FPCR, and 0, on aarch64."""

    control: int
    mxcsr: int

    def described(self) -> dict[str, str]:
        """Each setting, in words."""
        if platform.machine() != "x86_64":
            flushed = "flushed to zero" if self.control >> 24 & 1 else "kept"
            return {
                "the rounding mode": _FPCR_ROUNDING[self.control >> 22 & 3],
                "denormals": flushed,
                "FPCR": f"{self.control:#x}",
            }
        return {
            "the rounding mode": _ROUNDING[self.mxcsr >> 13 & 3],
            "denormal results": "flushed to zero" if self.mxcsr >> 15 & 1 else "kept",
            "denormal operands": "read as zero" if self.mxcsr >> 6 & 1 else "kept",
            "the mask of floating-point exceptions": f"{self.mxcsr >> 7 & 0x3F:#04x}",
            "the rounding mode of x87": _ROUNDING[self.control >> 10 & 3],
            "the precision of x87": f"{self.control >> 8 & 3}",
            "the mask of x87's exceptions": f"{self.control & 0x3F:#04x}",
        }


def _reader() -> tuple[Floating, Callable[[], Floating | None]]:
    """The current settings, and a function that detects changes; see `changed`."""
    kind = {"x86_64": _X86, "aarch64": _Aarch64}.get(platform.machine())
    library = ctypes.CDLL(None)
    if kind is None or not hasattr(library, "fegetenv"):
        return Floating(0, 0), lambda: None
    usual, now = kind(), kind()
    at_usual, at_now = ctypes.byref(usual), ctypes.byref(now)
    get, put = library.fegetenv, library.fesetenv
    mask = _MXCSR_SETTINGS if kind is _X86 else 0
    get(at_usual)
    wanted = (usual.control, usual.mxcsr & mask)

    def changed() -> Floating | None:
        get(at_now)
        if now.control == wanted[0] and now.mxcsr & mask == wanted[1]:
            return None
        found = Floating(now.control, now.mxcsr & mask)
        put(at_usual)
        return found

    return Floating(*wanted), changed


USUAL, changed = _reader()
"""USUAL: the settings at import, before any candidate runs. changed(): if the settings of the calling thread differ,
restores them and returns the ones that it found; otherwise None. It takes half a microsecond."""
