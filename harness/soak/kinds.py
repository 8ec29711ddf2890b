"""The kinds of faults that `tritmark soak --runs` plants, what is counted for each, and the bounds on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

NAMED = 0.99
"""The share of faults that must be named."""


class Kind(StrEnum):
    """A kind of fault."""

    CRASH = "crash"
    """A signal ends the process of a kernel, or the kernel exits."""
    HANG = "hang"
    """A kernel that does not return: busy, asleep, or deaf to SIGTERM."""
    WRONG = "wrong answer"
    """One element of an output is incorrect, in few calls."""
    NAN = "NaN"
    """A NaN in an output, or a forbidden input that is not reported."""
    MEMORY = "allocation failure"
    """A kernel that requests or touches too much memory, or a command under a limit of address space."""
    DEVICE = "device lost"
    """A simulated device that is lost at one of its launches."""
    CACHE = "corrupt cache"
    """A file of a cache with flipped bits, cut short, emptied or overwritten."""
    KILLED = "killed worker"
    """SIGKILL for a worker or for the command itself, at any moment."""
    DISK = "full disk"
    """ENOSPC for all files of a folder, from some call on."""
    CLOCK = "clock jump"
    """A system clock that jumps by hours, for all processes or for that of a kernel."""


@dataclass(slots=True)
class FaultTrial:
    """One run with one planted fault."""

    kind: Kind
    form: str
    """The fault in words."""
    struck: bool = False
    """Whether the fault took effect; otherwise it does not count as planted."""
    died: str = ""
    """How the harness died, "" if it did not: a traceback, an undocumented exit status, no end."""
    named: bool = False
    """Whether the Record or a message states the cause."""
    harmless: bool = False
    """Nothing to name: every Run has the verdict and every file the content that it has without the fault."""
    wrong: list[str] = field(default_factory=list)
    """Figures and verdicts that are reported and incorrect."""
    lost: list[str] = field(default_factory=list)
    """Runs that were planned or finished, and are missing."""
    seen: str = ""
    """What the command reported, shortened; for display."""
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether it must be shown."""
        return bool(self.died or self.wrong or self.lost or (self.struck and not self.named and not self.harmless))


@dataclass(slots=True)
class FaultTally:
    """The trials of a kind, or of all."""

    runs: int = 0
    planted: int = 0
    """Faults that took effect."""
    survived: int = 0
    to_name: int = 0
    """Planted faults that changed something."""
    named: int = 0
    wrong: int = 0
    lost: int = 0

    @classmethod
    def of(cls, trials: Sequence[FaultTrial]) -> FaultTally:
        """The sums over these trials. A fault that did not take effect is no fault, but its run must end well too."""
        struck = [each for each in trials if each.struck]
        return cls(
            runs=len(trials),
            planted=len(struck),
            survived=sum(not each.died for each in struck),
            to_name=sum(not each.harmless for each in struck),
            named=sum(each.named and not each.harmless for each in struck),
            wrong=sum(len(each.wrong) for each in trials),
            lost=sum(len(each.lost) for each in trials),
        )


@dataclass(slots=True)
class Soaked:
    """The result of `tritmark soak --runs`."""

    trials: list[FaultTrial] = field(default_factory=list)
    absent: dict[Kind, str] = field(default_factory=dict)
    """Kinds that cannot be planted here, and why."""
    seconds: float = 0.0

    def of(self, kind: Kind) -> FaultTally:
        """The tally of a kind."""
        return FaultTally.of([each for each in self.trials if each.kind is kind])

    @property
    def total(self) -> FaultTally:
        return FaultTally.of(self.trials)

    @property
    def bad(self) -> list[FaultTrial]:
        """The trials that must be shown."""
        return [each for each in self.trials if each.bad]

    @property
    def tried(self) -> bool:
        """Whether every kind that can be planted here took effect at least once."""
        struck = Counter(each.kind for each in self.trials if each.struck)
        return bool(struck) and all(struck[kind] for kind in Kind if kind not in self.absent)

    @property
    def failed(self) -> bool:
        """Whether the harness died, showed an incorrect figure or lost a Run, or named too few faults."""
        total = self.total
        died = any(each.died for each in self.trials)
        return bool(died or total.wrong or total.lost or total.named < NAMED * total.to_name)

    @property
    def passed(self) -> bool:
        return self.tried and not self.failed
