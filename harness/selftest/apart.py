"""Drawn mutants that outputs do not show: changed process state, undeclared memory, skipped work.

Each is a trigger by call number and a deed. They are judged in a process of their own, and skipped work is judged by
time, so they are fewer than the other mutants. No mutant is drawn that the guards cannot detect according to their
documentation.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tritmark.harness.machine.cpu import physical_cores
from tritmark.harness.selftest.domain import MOST_THREADS
from tritmark.harness.selftest.right import CorrectKernel, right
from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Tier, Variant

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

KINDS = ("state", "memory", "skipped")
NAME = "drawn-apart"
HONEST = -1
"""The number of the kernel without a mutant."""

Deed = Callable[["DefectLaunch"], None]


@dataclass
class DefectLaunch:
    """A launch of a correct kernel that does something besides its work, or skips work."""

    inner: Launch
    inputs: Arrays
    outputs: Arrays
    kept: dict[str, Any]
    """State that is kept from launch to launch."""
    fires: Callable[[int], bool]
    deed: Deed
    instead: bool
    """The deed replaces the run, and decides whether the kernel works."""
    ran: str = ""
    runs: int = 0
    threads_used: int = 1
    bad: int = -1
    pointer: int | None = None
    here: dict[str, Any] = field(default_factory=dict)
    """State that is kept from run to run."""

    def run(self) -> None:
        self.runs += 1
        calls = self.kept["calls"] = self.kept.get("calls", 0) + 1
        self.ran = NAME
        if self.instead and self.fires(calls):
            self.deed(self)
        else:
            self.work()
            if not self.instead and self.fires(calls):
                self.deed(self)

    def work(self) -> None:
        """Run the correct kernel."""
        self.inner.run()
        self.threads_used, self.bad = self.inner.threads_used, self.inner.bad


@dataclass(frozen=True)
class LaunchMutant:
    """One mutant. As a candidate, it is drawn again from its number and seed in the process that runs it."""

    key: KernelKey
    kind: str
    number: int
    seed: int

    def variants(self, installed: Installed) -> Sequence[Variant]:
        """The kernel with the mutant, as a candidate's variants."""
        return [self.variant(right(installed, self.key))]

    @property
    def text(self) -> str:
        """Trigger and deed as text."""
        when, _, what, _, _ = self._drawn()
        return f"{when}: {what}"

    def variant(self, there: CorrectKernel) -> Variant:
        """A new kernel with the mutant."""
        _, fires, _, deed, instead = self._drawn()
        kept: dict[str, Any] = {}

        def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
            launch: Launch = DefectLaunch(
                there.bind(inputs, outputs, axes, threads), inputs, outputs, kept, fires, deed, instead
            )
            return launch

        return Variant(
            key=replace(self.key),
            name=NAME,
            tier=Tier.CANDIDATE,
            summary=self.text,
            bind=bind,
            constraints=there.constraints,
        )

    def _drawn(self) -> tuple[str, Callable[[int], bool], str, Deed, bool]:
        if self.number == HONEST:
            return "never", lambda call: False, "nothing", lambda at: None, False
        rng = np.random.default_rng([self.seed, KINDS.index(self.kind), self.number])
        if self.kind == "memory":
            what, deed = _memory(rng)
            every = int(rng.integers(1, 5))
            return f"every {every} calls", lambda call: call % every == 0, what, deed, False
        if self.kind == "state":
            what, deed = _state(rng)
            since = int(rng.integers(1, 6))
            return f"call {since}", lambda call: call == since, what, deed, False
        what, deed = _skipped(rng)
        since = int(rng.choice((1, 8, 64, 512)))
        return f"call {since} and later", lambda call: call >= since, what, deed, True


def _memory(rng: np.random.Generator) -> tuple[str, Deed]:
    small = int(np.exp(rng.uniform(np.log(64), np.log(1 << 16))))
    large = int(np.exp(rng.uniform(np.log(8 << 20), np.log(64 << 20))))

    def leak(at: DefectLaunch) -> None:
        at.kept.setdefault("leaked", []).append(bytearray(os.urandom(1) * small))

    def hide(at: DefectLaunch) -> None:
        scratch = np.ones(large, np.uint8)
        at.here["scratch"] = int(scratch[::4096].sum())

    def keep(at: DefectLaunch) -> None:
        if "static" not in at.kept:
            at.kept["static"] = np.ones(large, np.uint8)

    def map_pages(at: DefectLaunch) -> None:
        mapping = mmap.mmap(-1, 1 << 16)
        mapping[:] = b"x" * (1 << 16)
        at.kept.setdefault("mapped", []).append(mapping)

    def descriptors(at: DefectLaunch) -> None:
        # Stops below the limit: the guard must detect the leak, not the error at the limit.
        if len(at.kept.setdefault("open", [])) < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
            at.kept["open"].append(os.open(os.devnull, os.O_RDONLY))

    every: list[tuple[str, Deed]] = [
        (f"loses {small} bytes", leak),
        (f"allocates {large} bytes that it does not declare", hide),
        (f"keeps {large} bytes from the first call", keep),
        (f"loses a mapping of {1 << 16} bytes", map_pages),
        ("loses a descriptor", descriptors),
    ]
    return every[int(rng.integers(len(every)))]


def _state(rng: np.random.Generator) -> tuple[str, Deed]:
    def rounding(at: DefectLaunch) -> None:
        ctypes.CDLL("libm.so.6").fesetround(0x400)  # downward, on x86-64

    def affinity(at: DefectLaunch) -> None:
        # Not the first core, to which OpenMP may have bound the thread.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    def thread(at: DefectLaunch) -> None:
        # One thread fewer would be a legal pool, whose threads may remain.
        for _ in range(max(MOST_THREADS, physical_cores())):
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()

    def child(at: DefectLaunch) -> None:
        at.kept["child"] = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def mapping(at: DefectLaunch) -> None:
        at.kept["pages"] = mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)

    def limits(at: DefectLaunch) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))

    every: list[tuple[str, Deed]] = [
        ("the rounding mode changed", rounding),
        ("its thread bound to one core", affinity),
        ("threads left", thread),
        ("a child process left", child),
        ("pages left that can be written and executed", mapping),
        ("a handler for SIGUSR1 left", lambda at: void(signal.signal(signal.SIGUSR1, lambda number, frame: None))),
        ("SIGUSR2 ignored", lambda at: void(signal.signal(signal.SIGUSR2, signal.SIG_IGN))),
        ("a timer left", lambda at: void(signal.setitimer(signal.ITIMER_REAL, 3600))),
        ("the environment changed", lambda at: os.environ.update({"TRITMARK_DRAWN": "1"})),
        ("the umask changed", lambda at: void(os.umask(0o077))),
        ("the folder changed", lambda at: os.chdir("/")),
        ("a descriptor left open", lambda at: at.kept.setdefault("open", []).append(os.open(os.devnull, os.O_RDONLY))),
        ("its priority lowered", lambda at: void(os.nice(1))),
        ("a limit lowered", limits),
    ]
    return every[int(rng.integers(len(every)))]


def void(value: object) -> None:
    """Discard the result of a call."""


def _skipped(rng: np.random.Generator) -> tuple[str, Deed]:
    places = rng.random(int(rng.choice((1, 4, 16))))
    share = int(rng.choice((2, 4, 8)))

    def known(at: DefectLaunch) -> Any:
        arrays = [value.reshape(-1) for value in at.inputs.values() if isinstance(value, np.ndarray) and value.ndim]
        return tuple((flat.size, bytes(flat[int(flat.size * place)].tobytes())) for flat in arrays for place in places)

    def remembered(at: DefectLaunch) -> None:
        mark = known(at)
        kept = at.kept.setdefault("results", {})
        if mark in kept:
            for name, values in kept[mark].items():
                at.outputs[name][...] = values
        else:
            at.work()
            if len(kept) < 64:
                kept[mark] = {name: np.array(values) for name, values in at.outputs.items()}

    def nothing(at: DefectLaunch) -> None:
        if known(at) != at.here.get("mark"):
            at.here["mark"] = known(at)
            at.work()

    def now_and_then(at: DefectLaunch) -> None:
        if at.runs % share == 0 or at.runs == 1:
            at.work()

    def never(at: DefectLaunch) -> None:
        if at.runs == 1:
            at.work()

    every: list[tuple[str, Deed]] = [
        (f"reuses results if {len(places)} elements of its inputs are known", remembered),
        (f"does nothing if {len(places)} elements of its inputs equal those of the previous run", nothing),
        (f"works in one run of {share}", now_and_then),
        ("works in the first run of a launch only", never),
    ]
    return every[int(rng.integers(len(every)))]
