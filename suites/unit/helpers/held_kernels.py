"""Kernels that a test holds, to see what happens while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from failing_kernels import FailingLaunch, correct

from tritmark.harness.spec import Arrays, Axes, KernelKey, Launch, Tier, Variant

NAME = "held"
SECONDS = 60
"""Limit of each wait: only a failing test reaches it."""


class Held:
    """What the held kernels of a test did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._go = threading.Event()
        self.begun: list[Arrays] = []
        """The inputs of each, in the order in which they began."""
        self.ended = 0
        self.most = 0
        """The most that ran at the same time."""

    @property
    def running(self) -> int:
        return len(self.begun) - self.ended

    def release(self) -> None:
        """Let all of them compute, from now on."""
        self._go.set()

    def wait(self, inputs: Arrays) -> None:
        with self._lock:
            self.begun.append(inputs)
            self.most = max(self.most, self.running)
        assert self._go.wait(SECONDS)

    def end(self) -> None:
        with self._lock:
            self.ended += 1


def before(key: KernelKey, like: str, name: str, act: Callable[[Arrays], None]) -> Variant:
    """A kernel that calls `act` with its inputs, and then computes like a correct one. Candidates are selected only by
    name."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        return FailingLaunch(correct(key, like).bind(inputs, outputs, axes, threads), lambda: act(inputs))

    return replace(correct(key, like), name=name, tier=Tier.CANDIDATE, rank=0, bind=bind)


def held(key: KernelKey, like: str, by: Held) -> Variant:
    """A kernel that waits for `by.release()`, and then computes."""

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        class HeldLaunch(FailingLaunch):
            def run(self) -> None:
                try:
                    super().run()
                finally:
                    by.end()

        return HeldLaunch(correct(key, like).bind(inputs, outputs, axes, threads), lambda: by.wait(inputs))

    return replace(correct(key, like), name=NAME, tier=Tier.CANDIDATE, rank=0, bind=bind)
