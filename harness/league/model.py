"""The league table as data, for JSON, HTML and Markdown. Times are nanoseconds."""

from __future__ import annotations

from enum import StrEnum

from tritmark.harness.record.model import TOO_NOISY, Model, Ratio, Status, half_width


class Basis(StrEnum):
    """How a ratio to the best was measured. Times that share no interleaved measurement have no ratio."""

    BEST = "the best"
    TURNS = "by turns with the best"
    CEILING = "each by turns with the same ceiling"
    KERNEL = "by turns with another kernel, and that with the best"
    NONE = "not compared"


class ContenderTiming(Model):
    """The cold or the hot time of a contender."""

    ns: float
    """Median time of a call."""
    low_ns: float | None = None
    """Lower end of its 95 % interval; None if only a ratio was kept."""
    high_ns: float | None = None
    """Upper end of its 95 % interval."""
    ceiling: str = ""
    """The limiting ceiling: read, write or compute; "" if none was measured."""
    share: Ratio | None = None
    """Fraction of that ceiling; None if the probe was slower than the kernel."""
    behind: Ratio | None = None
    """Its time over the time of the best."""
    basis: Basis = Basis.NONE
    contradicts: bool = False
    """`behind` contradicts the two times beyond their intervals: the machine changed between the measurements."""

    @property
    def too_noisy(self) -> bool:
        """The interval of the time is too wide for comparisons."""
        known = self.low_ns is not None and self.high_ns is not None
        return known and half_width(self.ns, self.low_ns or 0.0, self.high_ns or 0.0) > TOO_NOISY


class Contender(Model):
    """A kernel or a peer in one table."""

    kernel: str
    """Id of the variant, or name of the peer."""
    variant: str
    """Name of the variant or peer."""
    format: str
    """Format of the weights or values; for a peer, the format of the kernel that it was compared with."""
    version: str = ""
    """Version of a peer, and of a variant also the instruction sets of its build."""
    peer: bool = False
    """A peer that is not a variant and is known from cross-validation only."""
    verdict: Status
    reason: str = ""
    exact: bool | None = None
    """Every judged element is the exact value, rounded at most once to the output's dtype. For a peer: every element is
    equal to the kernel's. None if no element was judged."""
    largest_error: float | None = None
    """Largest absolute difference from the reference; for a peer, from the kernel."""
    bits_per_weight: float | None = None
    cold: ContenderTiming | None = None
    hot: ContenderTiming | None = None


class WholeCall(Model):
    """A public function called from Python, hot."""

    name: str
    takes: str
    """The inputs, to distinguish calls that do different work."""
    missing: str = ""
    """Why it could not be called; then it has no time."""
    ns: float | None = None
    """Median time of a call."""
    behind: Ratio | None = None
    """Its time over the time of the best, interleaved; None for the best."""


class LeagueTable(Model):
    """All contenders for the same work."""

    device: str
    op: str
    dtype: str
    axes: dict[str, int]
    title: str = ""
    threads: int
    scales: str = ""
    """The scales of the weights in words, "" if they are not known."""
    repacked: tuple[str, ...] = ()
    """Formats with such scales that have no kernel of this op there: their weights are repacked into one that has."""
    contenders: tuple[Contender, ...]
    """Sorted by cold time, then those without a cold figure, those with noisy figures, and incorrect ones last."""
    calls: tuple[WholeCall, ...] = ()


class AbsentPeer(Model):
    """A peer without figures."""

    name: str
    op: str
    scales: str
    """The scales of the weights in words."""
    reason: str
    """What is not installed and the next step, or why it has no such product."""


class League(Model):
    """All league tables of a Record."""

    record: str
    """Id of the Record."""
    created: str
    suite: str
    tritmark: str
    machine: str
    distrust: str = ""
    """What contradicts the Record; "" for nothing."""
    tables: tuple[LeagueTable, ...]
    absent: tuple[AbsentPeer, ...] = ()
    """Peers for the same work that were not timed; empty for a Record that was not measured just now."""

    @property
    def builds(self) -> dict[str, str]:
        """By version and build, the names of the peers that were timed, separated by commas."""
        found: dict[str, dict[str, None]] = {}
        for table in self.tables:
            for one in table.contenders:
                if one.version:
                    found.setdefault(one.version, {})[one.variant] = None
        return {version: ", ".join(names) for version, names in found.items()}
