"""The request of an invocation, and the observer of its progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tritmark.harness.providers import Candidate, PeerLibrary
from tritmark.harness.record import DIMENSIONS, Layer, NotJudged, Run
from tritmark.harness.store import Partial
from tritmark.harness.suite import Suite
from tritmark.harness.weights import Conventions

if TYPE_CHECKING:
    from tritmark.harness.league.turns import Session


class Observer(Protocol):
    """Receives the progress of an invocation."""

    def began(self, partial: Partial) -> None:
        """From now on, finished Runs are on disk."""

    def planned(self, total: int, timed: int = 0) -> None:
        """`total` Runs and layers are planned; `timed` of them time kernels, one after the other."""

    def started(self, what: str) -> None:
        """`what` begins."""

    def finished(self, found: Run | Layer) -> None:
        """A Run or layer is done, now or before an interruption."""


class SilentObserver:
    """An observer that shows nothing."""

    def began(self, partial: Partial) -> None: ...
    def planned(self, total: int, timed: int = 0) -> None: ...
    def started(self, what: str) -> None: ...
    def finished(self, found: Run | Layer) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request of the command line. Globs match whole names; for variants, the name or the id."""

    suite: Suite | None
    op: str = "*"
    variant: str = "*"
    device: str = "*"
    weights: str = ""
    conventions: Conventions = field(default_factory=Conventions)
    """The user's choices for facts that weight files do not state."""
    threads: int | None = None
    """None: every physical core of the device."""
    seed: int = 0
    command: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Variants beside the installed ones; `installed` must be loaded with them."""
    only: frozenset[str] | None = None
    """Ids of variants; None: all that the globs match."""
    rivals: frozenset[str] = frozenset()
    """Ids of variants that only serve for comparison: they are not judged on drawn cases."""
    peers: frozenset[str] = frozenset()
    """Ids of variants of tier PEER that are judged on every workload, even if the suite has no peers."""
    libraries: tuple[PeerLibrary, ...] = ()
    """Third-party libraries for cross-validation, beside the installed peers."""
    isolated: bool = True
    """Each candidate runs in its own process."""
    timeout_s: float = 120.0
    """Seconds that one call of a candidate may take."""
    addresses: str = ""
    """The rule whose proposal this invocation follows."""
    dimensions: frozenset[str] = frozenset(DIMENSIONS)
    """The dimensions to judge. Accuracy is always judged with another one: only a correct kernel is measured."""
    session: Session | None = None
    """Where the ratios of kernels on the host are kept, which are then timed together; None: each is timed alone."""
    not_judged: tuple[NotJudged, ...] = ()
    """Entries that the caller left out beforehand, for the Record."""
