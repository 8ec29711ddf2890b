"""The kernels with planted faults, and correct ones beside them. `tritmark check` judges a file that consists of a call
of `variants`.

The kernels are the correct ones of selftest.right, for any op, with a fault before or after a call.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritmark.harness.selftest.right import CorrectKernel, right
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Tier, Variant
from tritmark.harness.validate.compare import is_float

FAULTY, HONEST = "faulty", "honest"
"""Names of the variants."""
_CHUNK = 256 << 20
_HUGE = 1 << 46
"""More bytes than any machine can map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """A fault, and when it strikes. All fields are written to the file of the candidate."""

    form: str
    """A name in FORMS, or "" for none."""
    marker: str
    """An empty file; a byte is appended when the fault strikes, from within the process of the kernel."""
    call: int = 1
    """The first call of a process that it may strike."""
    share: float = 1.0
    """The share of later calls that it strikes as well."""
    place: float = 0.0
    """The element, as a share of the output's size."""
    number: int = 0
    """An exit status, or seconds of a jump."""


@dataclass
class _State:
    """State of a process."""

    calls: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))


@dataclass
class PlantedLaunch:
    """A launch of the correct kernel with a fault."""

    name: str
    plan: FaultPlan
    state: _State
    inner: Launch
    outputs: Arrays
    ran: str = ""
    runs: int = 0
    threads_used: int = 1
    bad: int = -1
    pointer: int | None = None

    def run(self) -> None:
        self.runs += 1
        self.state.calls += 1
        now, form = self.state.calls, self.plan.form
        strikes = now == self.plan.call or (now > self.plan.call and self.state.rng.random() < self.plan.share)
        if strikes and form in BEFORE:
            self._mark()
            BEFORE[form](self.plan)
        self.inner.run()
        self.ran, self.threads_used, self.bad = self.name, self.inner.threads_used, self.inner.bad
        if strikes and form in AFTER and AFTER[form](self):
            self._mark()

    def _mark(self) -> None:
        with suppress(OSError):
            descriptor = os.open(self.plan.marker, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(descriptor, b"x")
            finally:
                os.close(descriptor)


def _segfault(plan: FaultPlan) -> None:
    ctypes.string_at(0)


def _past_the_file(plan: FaultPlan) -> None:
    """SIGBUS: a mapped page beyond the end of its file."""
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        mapped[0]


def _raises(number: signal.Signals) -> Callable[[FaultPlan], None]:
    return lambda plan: signal.raise_signal(number)


def _exit(plan: FaultPlan) -> None:
    os._exit(plan.number)


def _busy(plan: FaultPlan) -> None:
    while True:
        pass


def _asleep(plan: FaultPlan) -> None:
    while True:
        time.sleep(3600)


def _deaf(plan: FaultPlan) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _asleep(plan)


def _huge(plan: FaultPlan) -> None:
    np.empty(_HUGE, np.uint8)


def _greedy(plan: FaultPlan) -> None:
    held = []  # untouched: on a busy machine, to touch as much takes longer than a call may
    while True:
        held.append(np.empty(_CHUNK, np.uint8))


def _jump(plan: FaultPlan) -> None:
    ctypes.CDLL(None).tritmark_soak_jump(ctypes.c_long(plan.number))


BEFORE: Mapping[str, Callable[[FaultPlan], None]] = {
    "SIGSEGV": _segfault,
    "SIGBUS": _past_the_file,
    "SIGILL": _raises(signal.SIGILL),
    "SIGFPE": _raises(signal.SIGFPE),
    "SIGABRT": _raises(signal.SIGABRT),
    "exit": _exit,
    "busy": _busy,
    "asleep": _asleep,
    "deaf": _deaf,
    "huge": _huge,
    "greedy": _greedy,
    "jump": _jump,
}
"""Faults of the process."""


def _wrong(launch: PlantedLaunch) -> bool:
    """Change one element by more than any tolerance. False if there are no outputs to change."""
    if launch.bad >= 0:
        return False
    values = _some(launch)
    place = _place(launch, values.size)
    index = np.unravel_index(place, values.shape)
    old = values[index]
    if is_float(values.dtype):
        new = np.float32(1.0) if not np.isfinite(old) or abs(float(old)) < 1e-3 else -np.float32(old)
        values[index] = new
    else:
        values[index] = old ^ values.dtype.type(1)
    return bool(values[index] != old)


def _nan(launch: PlantedLaunch) -> bool:
    if launch.bad >= 0 or not is_float((values := _some(launch)).dtype):
        return False
    index = np.unravel_index(_place(launch, values.size), values.shape)
    before = values[index]
    values[index] = np.nan
    return not np.isnan(before)


def _swallowed(launch: PlantedLaunch) -> bool:
    """A forbidden element of an input that is not reported."""
    if launch.bad < 0:
        return False
    launch.bad = -1
    return True


AFTER: Mapping[str, Callable[[PlantedLaunch], bool]] = {"wrong": _wrong, "nan": _nan, "swallowed": _swallowed}
"""Faults of the results. Each returns whether it changed something."""


def _some(launch: PlantedLaunch) -> Any:
    return launch.outputs[next(iter(launch.outputs))]


def _place(launch: PlantedLaunch, size: int) -> int:
    return min(size - 1, int(launch.plan.place * size))


def variants(key: KernelKey, plan: FaultPlan) -> tuple[Variant, ...]:
    """A kernel with the fault, if the plan has one, and a correct one."""
    from tritmark.harness.providers import load

    correct = right(load(), key)
    kernels = [_variant(HONEST, correct, FaultPlan(form="", marker=""))]
    return (_variant(FAULTY, correct, plan), *kernels) if plan.form else tuple(kernels)


def _variant(name: str, correct: CorrectKernel, plan: FaultPlan) -> Variant:
    state = _State()

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = PlantedLaunch(name, plan, state, correct.bind(inputs, outputs, axes, threads), outputs)
        return launch

    return Variant(
        key=correct.key,
        name=name,
        tier=Tier.CANDIDATE,
        summary=plan.form,
        bind=bind,
        constraints=correct.constraints,
    )


def source(key: KernelKey, plan: FaultPlan) -> str:
    """The text of the candidate's file."""
    return (
        "from tritmark.harness.soak.planted import FaultPlan, variants\n"
        "from tritmark.harness.spec import KernelKey\n\n"
        f"VARIANTS = variants({key!r}, {plan!r})\n"
    )
