"""Kernels that fail, for the tests of recovery: in a module of their own, which workers can import."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.errors import (
    CompileError,
    DeviceError,
    DeviceFaultError,
    DeviceUnavailableError,
    InsufficientMemoryError,
    LaunchError,
)
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Tier, Variant
from tritmark.kernels.dispatch import dispatch

OP = "i2s_quantize"
KEY = KernelKey("cpu", OP, "none", "int8")
ON_GPU = KernelKey("cuda", OP, "none", "int8")
ON_GPU_PRODUCT = KernelKey("cuda", "matmul_fp32", "none", "float32")
DEQUANTIZE = KernelKey("cpu", "i2s_dequantize", "none", "float32")

MARKED = 1000.0
"""A first element of MARKED + n makes the kernel `marked` fail in way n."""


def _sigill() -> None:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=7, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    code.write(b"\x0f\x0b")  # ud2
    if os.uname().machine == "x86_64":
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    os.kill(os.getpid(), signal.SIGILL)


def _sigsegv() -> None:
    ctypes.string_at(8)


def _sigbus() -> None:
    file = os.memfd_create("truncated")
    os.ftruncate(file, mmap.PAGESIZE)
    mapping = mmap.mmap(file, mmap.PAGESIZE)
    os.ftruncate(file, 0)
    mapping[0]  # no page is behind it any more


def _sigfpe() -> None:
    os.kill(os.getpid(), signal.SIGFPE)  # Python has no division that traps


def _hang() -> None:
    while True:
        time.sleep(0.01)


def _raise(error: Callable[[], BaseException]) -> None:
    raise error()


def _leave() -> None:
    os._exit(3)


class OwnError(Exception):
    """An exception that only this module knows."""


FAULTS: Mapping[str, Callable[[], None]] = {
    "sigill": _sigill,
    "sigsegv": _sigsegv,
    "sigbus": _sigbus,
    "sigfpe": _sigfpe,
    "exit": _leave,
    "hang": _hang,
    "memory": partial(_raise, lambda: MemoryError("no room")),
    "oserror": partial(_raise, lambda: OSError(5, "input/output error")),
    "own": partial(_raise, lambda: OwnError("broken")),
}
GPU_FAULTS: Mapping[str, Callable[[], None]] = {
    "illegal_address": partial(_raise, lambda: DeviceFaultError("broke off", next_step="-", code=700)),
    "trap": partial(_raise, lambda: DeviceFaultError("broke off", next_step="-", code=719)),
    "ecc": partial(_raise, lambda: DeviceFaultError("broke off", next_step="-", code=214)),
    "timeout": partial(_raise, lambda: DeviceFaultError("broke off", next_step="-", code=702)),
    "context": partial(_raise, lambda: DeviceError("invalid handle", next_step="-")),
    "unavailable": partial(_raise, lambda: DeviceUnavailableError("busy", next_step="-")),
    "launch": partial(_raise, lambda: LaunchError("2048 threads a block", next_step="-")),
    "compile": partial(_raise, lambda: CompileError("syntax error", next_step="-")),
    "memory": partial(_raise, lambda: InsufficientMemoryError(what="x", required=1 << 50, available=1, next_step="-")),
    "hang": _hang,
    "sigsegv": _sigsegv,
}

ONCE: list[str] = []
"""Faults that struck in this process."""


class FailingLaunch:
    """Fails if `fails()`, and otherwise does what a correct launch does."""

    def __init__(self, launch: Launch, fails: Callable[[], None]) -> None:
        self._launch, self._fails = launch, fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)

    def run(self) -> None:
        self._fails()
        self._launch.run()


@cache
def correct(key: KernelKey, name: str) -> Variant:
    return next(each for each in dispatch.registry().variants if each.key == key and each.name == name)


def _bind(key: KernelKey, name: str, kind: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch = correct(key, name).bind(inputs, outputs, axes, threads)
    fault = (FAULTS if key.device == "cpu" else GPU_FAULTS).get(kind)
    if fault is not None:
        return FailingLaunch(launch, fault)
    return FailingLaunch(launch, partial(SPECIAL[kind], inputs, outputs, axes, threads))


def _needs_alignment(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    if inputs["x"].ctypes.data % 64 or outputs["q"].ctypes.data % 64:
        _sigbus()


def _one_thread(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    if threads > 1:
        _hang()


def _memory_once(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    if "memory" not in ONCE:
        ONCE.append("memory")
        raise MemoryError("no room yet")


def _context_once(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    """Fails in the process that has it in the file named by RECOVERY_TEST_PID, or writes itself there."""
    path = Path(os.environ["RECOVERY_TEST_PID"])
    known = path.read_text().split() if path.exists() else []
    count = int(os.environ.get("RECOVERY_TEST_PROCESSES", "1"))
    if str(os.getpid()) not in known:
        known.append(str(os.getpid()))
        path.write_text(" ".join(known))
    if known.index(str(os.getpid())) < count:
        raise DeviceError("the context is unusable", next_step="-")


def _few_elements(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    """A launch that fits only if it is small."""
    if axes["n"] > 500:
        raise LaunchError(f"a grid for {axes['n']} elements", next_step="-")


def _marked(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    number = float(inputs["x"][0]) - MARKED
    if 0 <= number < len(FAULTS):
        list(FAULTS.values())[int(number)]()


def _write_weights(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    address, nbytes = inputs["weights"].ctypes.data, inputs["weights"].nbytes
    ctypes.memset(address, 0x55, nbytes)  # as native code may, also to read-only arrays
    raise OSError(5, "input/output error")


ODD_ROWS = 13
"""Rows of products in which the kernel of `failing_product` fails."""


def _bind_product(error: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    if axes["M"] == ODD_ROWS:  # here, because the launch of a product must be that of a CUDA kernel
        GPU_FAULTS[error]()
    return correct(ON_GPU_PRODUCT, "tiled").bind(inputs, outputs, axes, threads)


def failing_product(kind: str) -> Variant:
    """A float32 product on the GPU that fails with ODD_ROWS rows, and is chosen before all others."""
    bind = partial(_bind_product, kind)
    tier = Tier.EXTREMELY_OPTIMIZED
    return Variant(key=ON_GPU_PRODUCT, name=kind, tier=tier, rank=99, summary="fails for some", bind=bind)


SPECIAL: Mapping[str, Callable[..., None]] = {
    "needs_alignment": _needs_alignment,
    "one_thread": _one_thread,
    "memory_once": _memory_once,
    "context_once": _context_once,
    "few_elements": _few_elements,
    "marked": _marked,
    "writes_weights": _write_weights,
}


def failing(kind: str, key: KernelKey = KEY, tier: Tier = Tier.CANDIDATE, rank: int = 0) -> Variant:
    """A kernel that fails in that way. Candidates are taken only by name."""
    return Variant(
        key=key,
        name=kind,
        tier=tier,
        rank=rank,
        summary="fails",
        bind=partial(_bind, key, "scalar" if key.device == "cpu" else "v1", kind),
    )


def _bind_nan(key: KernelKey, value: float, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    launch = correct(key, "scalar").bind(inputs, outputs, axes, threads)

    class Wrong(FailingLaunch):
        def run(self) -> None:
            self._launch.run()
            next(iter(outputs.values())).reshape(-1)[1] = value

    return Wrong(launch, lambda: None)


def not_finite(
    name: str, value: float, key: KernelKey = DEQUANTIZE, tier: Tier = Tier.CANDIDATE, rank: int = 0
) -> Variant:
    """A kernel with that value in its second output. Candidates are taken only by name."""
    return Variant(key=key, name=name, tier=tier, rank=rank, summary="incorrect", bind=partial(_bind_nan, key, value))


def writing_weights(key: KernelKey) -> Variant:
    """A product that writes to its weights, and fails then."""
    bind = partial(_bind, key, "scalar", "writes_weights")
    return Variant(key=key, name="writes_weights", tier=Tier.CANDIDATE, rank=0, summary="incorrect", bind=bind)


def reference(x: Any, scale: float) -> Any:
    return np.rint(np.clip(x / np.float32(scale), np.float32(-2), np.float32(1))).astype(np.int8)


def recovers_inside(site: Any) -> None:
    """In the worker of a judge."""
    from tritmark.kernels import i2s_quantize

    i2s_quantize(np.zeros(4, np.float32), 0.5, on_error="recover")


def weights_in_worker(site: Any) -> int:
    """In a recovering worker."""
    return len(site.kept["recovering calls"].weights)
