"""What is asked for, and who is told how it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tritmark.harness.providers import Candidate, PeerLibrary
from tritmark.harness.record import DIMENSIONS, Layer, NotJudged, Run
from tritmark.harness.store import Partial
from tritmark.harness.suite import Suite
from tritmark.harness.weights import Conventions


class Observer(Protocol):
    """Is told how an invocation goes on."""

    def began(self, partial: Partial) -> None:
        """From here on what is finished is on disk."""

    def planned(self, total: int, timed: int = 0) -> None:
        """So many Runs and layers will be done; `timed` of them take times of kernels, one after the other."""

    def started(self, what: str) -> None:
        """What is being done now."""

    def finished(self, found: Run | Layer) -> None:
        """A Run or layer is done, or was done before the interruption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asked for. Globs match in full; a variant's name or its id."""

    suite: Suite | None
    op: str = "*"
    variant: str = "*"
    device: str = "*"
    weights: str = ""
    conventions: Conventions = field(default_factory=Conventions)
    """What is asked for where weights do not say."""
    threads: int | None = None
    """None: every physical core of the device."""
    seed: int = 0
    command: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Beside what is installed; `installed` must have been loaded with them."""
    only: frozenset[str] | None = None
    """Ids of variants; None for all that the globs match."""
    rivals: frozenset[str] = frozenset()
    """Ids of variants that are there to be compared with: they are not judged on drawn cases."""
    peers: frozenset[str] = frozenset()
    """Ids of variants of tier PEER that are judged on every workload, whether the suite has peers or not."""
    libraries: tuple[PeerLibrary, ...] = ()
    """Of others, to cross-validate with, beside the peers that are installed."""
    isolated: bool = True
    """Each candidate in a process of its own."""
    timeout_s: float = 120.0
    """Seconds that one call of a candidate may take."""
    addresses: str = ""
    """The rule whose proposal this follows."""
    dimensions: frozenset[str] = frozenset(DIMENSIONS)
    """What is judged. Accuracy is judged wherever another dimension is: only a kernel that is right is measured."""
    not_judged: tuple[NotJudged, ...] = ()
    """What the caller left out beforehand, for the Record."""
