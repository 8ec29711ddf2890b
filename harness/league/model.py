"""The league table as data: what JSON has, and what HTML and Markdown show. Times are nanoseconds."""

from __future__ import annotations

from enum import StrEnum

from tritmark.harness.record.model import TOO_NOISY, Model, Ratio, Status, half_width


class Basis(StrEnum):
    """What a ratio to the best rests on. Two times that were not taken by turns with each other, or with the same
    thing, give none."""

    BEST = "the best"
    TURNS = "by turns with the best"
    CEILING = "each by turns with the same ceiling"
    KERNEL = "by turns with another kernel, and that with the best"
    NONE = "not compared"


class ContenderTiming(Model):
    """One temperature of a contender."""

    ns: float
    """Median time of a call."""
    low_ns: float | None = None
    """Lower end of its 95 % interval; None where only a ratio was kept."""
    high_ns: float | None = None
    ceiling: str = ""
    """read, write or compute: the one that limits; "" where none was measured."""
    share: Ratio | None = None
    """The part of that ceiling that was reached; None where the probe was no ceiling."""
    behind: Ratio | None = None
    """Its time over the best's."""
    basis: Basis = Basis.NONE
    contradicts: bool = False
    """`behind` lies outside of what its time and the best's allow, intervals included: the machine was another when one
    of them was taken."""

    @property
    def too_noisy(self) -> bool:
        """The interval of the time is too wide to compare it with others."""
        known = self.low_ns is not None and self.high_ns is not None
        return known and half_width(self.ns, self.low_ns or 0.0, self.high_ns or 0.0) > TOO_NOISY


class Contender(Model):
    """A kernel, or somebody else's implementation, at one place."""

    kernel: str
    """A variant's id, or a peer's name."""
    variant: str
    """Its name; of a peer the peer's."""
    format: str
    """Of the weights or values; of a peer that of the kernel that it was compared with."""
    version: str = ""
    """Of a peer."""
    peer: bool = False
    """Known from cross-validation only: a peer that is no variant."""
    verdict: Status
    reason: str = ""
    exact: bool | None = None
    """Whether every judged element is the exact value, rounded to the output's dtype at most once; of a peer whether
    every element is the kernel's. None where none was judged."""
    largest_error: float | None = None
    """Largest absolute difference from the reference, of a peer from the kernel."""
    bits_per_weight: float | None = None
    cold: ContenderTiming | None = None
    hot: ContenderTiming | None = None


class WholeCall(Model):
    """A public function as its users call it, from Python and back; the same arrays again and again."""

    name: str
    takes: str
    """What goes in, so that nobody takes two different pieces of work for one."""
    missing: str = ""
    """Why it could not be called here; the rest is then empty."""
    ns: float | None = None
    behind: Ratio | None = None
    """Its time over the best's, by turns; None for the best."""


class LeagueTable(Model):
    """All that do the same work."""

    device: str
    op: str
    dtype: str
    axes: dict[str, int]
    title: str = ""
    threads: int
    contenders: tuple[Contender, ...]
    """The quickest first: cold, then what has no cold figure, then what is too noisy; what is not right comes last."""
    calls: tuple[WholeCall, ...] = ()


class League(Model):
    """The whole table."""

    record: str
    """Id of the Record that the figures come from."""
    created: str
    suite: str
    tritmark: str
    machine: str
    distrust: str = ""
    """What refutes the Record; "" where nothing does."""
    tables: tuple[LeagueTable, ...]
