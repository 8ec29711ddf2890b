"""Engine: what runs a model, as one side of an interleaved comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tritmark.harness.errors import TritmarkError
from tritmark.harness.measure.alternate import Side
from tritmark.harness.models import EngineReport

Tokens = Sequence[Sequence[int]]
"""A prompt for each sequence, all of one length."""
PROMPT, DECODE = "prompt", "decode"
DECODED = 8
"""Tokens of a sample of decoding, of each sequence."""


class EngineError(TritmarkError, RuntimeError):
    """An engine cannot run the model, or not this work; the message is the engine's own."""


class Engine(Protocol):
    """An engine with a model."""

    name: str

    def side(self, work: str, tokens: Tokens) -> Side:
        """Times the prompt, or DECODED tokens behind it. Raises EngineError."""

    def report(self) -> EngineReport:
        """Its settings, and what it was not timed with."""

    def close(self) -> None:
        """End its process."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an engine that are tried."""

    threads: int
    flash: bool | None
    """Whether attention is computed in one pass; None if the engine cannot be asked."""

    def __str__(self) -> str:
        flash = "" if self.flash is None else f", flash attention {'on' if self.flash else 'off'}"
        return f"{self.threads} threads{flash}"


@dataclass(slots=True)
class Trials:
    """The settings that an engine was tried with, for each work."""

    settings: tuple[Settings, ...]
    chosen: dict[str, Settings] = field(default_factory=dict)
    failures: dict[Settings, str] = field(default_factory=dict)

    def described(self) -> str:
        """The fastest settings of each work, and how many were tried."""
        if not self.chosen:
            return ""
        same = len(set(self.chosen.values())) == 1
        each = [str(next(iter(self.chosen.values())))] if same else [f"{w}: {s}" for w, s in self.chosen.items()]
        tried = len(self.settings) - len(self.failures)
        failed = f"; {len(self.failures)} failed" if self.failures else ""
        return f"{'; '.join(each)} (fastest of {tried} tried{failed})"


def choices(threads: int | None, flash: Sequence[bool | None]) -> tuple[Settings, ...]:
    """The settings to try: these threads, or by default the physical and the usable cores, with each of `flash`."""
    from tritmark.harness.machine.cpu import physical_cores, usable_cores

    usable = usable_cores()
    counts = (threads,) if threads else tuple(dict.fromkeys((min(physical_cores(), usable), usable)))
    return tuple(Settings(count, each) for count in counts for each in flash)
