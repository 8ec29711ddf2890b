"""Kernels for i2s_quantize that do what a harness has to survive; VARIANTS, and an honest one among them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, KernelKey, Tier, Variant

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
KEY = KernelKey("cpu", "i2s_quantize", "none", "int8")


class Kernel:
    """A launch that does `work` on its arguments."""

    threads_used = 1
    pointer = None

    def __init__(self, name: str, work: Callable[[Kernel], None], inputs: Arrays, outputs: Arrays) -> None:
        self.name, self.work, self.x, self.scale, self.q = (
            name,
            work,
            inputs["x"],
            np.float32(inputs["scale"]),
            outputs["q"],
        )
        self.ran, self.runs, self.bad = "", 0, -1

    def run(self) -> None:
        self.ran, self.runs = self.name, self.runs + 1
        wrong = np.flatnonzero(~np.isfinite(self.x))
        self.bad = int(wrong[0]) if wrong.size else -1
        self.work(self)


def honest(kernel: Kernel) -> None:
    # In pieces: temporary arrays are memory too.
    for begin in range(0, kernel.x.size, 256):
        piece = slice(begin, begin + 256)
        quotient = np.nan_to_num(kernel.x[piece]) / kernel.scale
        kernel.q[piece] = np.rint(np.clip(quotient, -2, 1)).astype(np.int8)


def zeros(kernel: Kernel) -> None:
    kernel.q[...] = 0


def leaky(kernel: Kernel) -> None:
    """Right, and 4 KiB of every call are never given back."""
    LIBC.malloc(4096)
    honest(kernel)


def segfault(kernel: Kernel) -> None:
    ctypes.string_at(0)


def abort(kernel: Kernel) -> None:
    os.write(2, b"double free or corruption\n")
    os.abort()


def floating_point(kernel: Kernel) -> None:
    os.kill(os.getpid(), signal.SIGFPE)


def endless(kernel: Kernel) -> None:
    while True:
        time.sleep(0.01)


def deaf(kernel: Kernel) -> None:
    """Endless, and it does not listen to TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    endless(kernel)


def thirty_gigabytes(kernel: Kernel) -> None:
    np.ones(30 << 30, np.uint8)
    honest(kernel)


def leave(kernel: Kernel) -> None:
    os._exit(0)


def system_exit(kernel: Kernel) -> None:
    raise SystemExit(4)


def interrupt(kernel: Kernel) -> None:
    raise KeyboardInterrupt


def speechless(kernel: Kernel) -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise Mute


def close_all(kernel: Kernel) -> None:
    os.closerange(3, 256)


def babble(kernel: Kernel) -> None:
    """Writes into whatever is open."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\x00\x00\x00\x10passed! all fine")
        except OSError:
            continue
    honest(kernel)


def past_the_end(kernel: Kernel) -> None:
    ctypes.c_ubyte.from_address(kernel.q.ctypes.data + kernel.q.nbytes).value  # noqa: B018
    honest(kernel)


def before_the_start(kernel: Kernel) -> None:
    ctypes.c_ubyte.from_address(kernel.x.ctypes.data - 1).value  # noqa: B018
    honest(kernel)


def assigns(kernel: Kernel) -> None:
    """Writes to an input what stands there."""
    kernel.x[0] = kernel.x[0]
    honest(kernel)


def takes_a_buffer(kernel: Kernel) -> None:
    """The same, as foreign code would."""
    (ctypes.c_byte * 4).from_buffer(kernel.x)
    honest(kernel)


def _variant(work: Callable[[Kernel], None]) -> Variant:
    def bind(inputs: Arrays, outputs: Arrays, axes: Any, threads: int) -> Any:
        return Kernel(work.__name__, work, inputs, outputs)

    return Variant(key=KEY, name=work.__name__, tier=Tier.CANDIDATE, summary="", bind=bind)


WORKS = (
    honest,
    zeros,
    leaky,
    segfault,
    abort,
    floating_point,
    endless,
    deaf,
    thirty_gigabytes,
    leave,
    system_exit,
    interrupt,
    speechless,
    close_all,
    babble,
    past_the_end,
    before_the_start,
    assigns,
    takes_a_buffer,
)
VARIANTS = tuple(_variant(work) for work in WORKS)
