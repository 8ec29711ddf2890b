"""The league table as an HTML page and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tritmark.harness.league.model import Basis, Contender, ContenderTiming, League, LeagueTable, WholeCall
from tritmark.harness.record import Status
from tritmark.harness.report.markdown import code, table
from tritmark.harness.text import units

BEST = "best"
_BASES = {
    Basis.TURNS: "",
    Basis.BEST: "",
    Basis.CEILING: "c",
    Basis.KERNEL: "k",
    Basis.NONE: "",
}
"""The mark after a ratio that was not interleaved with the best kernel."""
LEGEND = {
    "c": "not interleaved with the best: both were interleaved with the same ceiling, and the ratio follows from these",
    "k": "not interleaved with the best: interleaved with another kernel, which was interleaved with the best",
}
CONTRADICTS = "!"
"""The mark after a ratio that contradicts the two times."""
CONTRADICTION = (
    "the ratio contradicts the two times beyond their 95 % intervals, because the machine changed between them; "
    "trust the ratio, which is interleaved, and measure again on a quiet machine"
)


def title(table_: LeagueTable) -> str:
    """The title of a table: op, shape, output dtype, device, threads, scales of the weights."""
    axes = " ".join(f"{name}={size}" for name, size in table_.axes.items())
    threads = units.counted(table_.threads, "thread")
    scales = f"{table_.scales}, also of {', '.join(table_.repacked)}" if table_.repacked else table_.scales
    return ", ".join(filter(None, (f"{table_.op} {axes}", table_.dtype, table_.device, threads, scales)))


def behind(pace: ContenderTiming | None) -> str:
    """A contender's time over the time of the best kernel."""
    if pace is None:
        return units.NONE
    if pace.basis is Basis.BEST:
        return BEST
    marks = (_BASES[pace.basis], CONTRADICTS if pace.contradicts else "")
    return " ".join(filter(None, (units.times(pace.behind), *marks)))


def figures_of(pace: ContenderTiming | None) -> tuple[str, str, str]:
    """Time, percent of the ceiling, ratio to the best kernel."""
    if pace is None:
        return units.NONE, units.NONE, units.NONE
    time = f"{units.time(pace.ns)}, {units.NOISY}" if pace.too_noisy else units.time(pace.ns)
    share = None if pace.share is None or pace.share.too_noisy else pace.share.median
    return time, units.percent(share), behind(pace)


def exactness(contender: Contender) -> str:
    """Exact, or the largest absolute error: from the reference, or for a peer from the kernel."""
    if contender.exact is None:
        return units.NONE
    error = units.number(contender.largest_error)
    if contender.peer:
        return "equal to the kernel" if contender.exact else f"at most {error} from the kernel"
    if contender.exact:
        return "exact"
    # State the bound too: sums of thousands of products are large, so an absolute error alone looks like a fault.
    bound = "within its bound, " if contender.verdict is Status.PASS else ""
    return f"{bound}error at most {error}"


def notes(league: League) -> list[str]:
    """The meaning of the marks that occur after ratios, and the number of noisy figures."""
    each = [pace for table in league.tables for one in table.contenders for pace in (one.cold, one.hot)]
    paces = [pace for pace in each if pace is not None]
    marks = {_BASES[pace.basis] for pace in paces if pace.behind is not None}
    reported = [f"{mark}: {reported}" for mark, reported in LEGEND.items() if mark in marks]
    if any(pace.contradicts for pace in paces):
        reported.append(f"{CONTRADICTS}: {CONTRADICTION}")
    noisy = sum(pace.too_noisy for pace in paces)
    if noisy:
        of = units.counted(len(paces), "time")
        reported.append(f"{noisy:,} of {of} {'is' if noisy == 1 else 'are'} too noisy: listed last, and never the best")
    return reported


def peers(league: League) -> list[str]:
    """What was timed of other projects, and what was not."""
    lines = [f"Peer {names}: {version}" for version, names in league.builds.items()]
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for one in league.absent:
        reasons.setdefault((one.name, one.reason), {})[f"{one.op}, {one.scales}" if one.scales else one.op] = None
    return lines + [f"Not timed: {name}: {why} ({'; '.join(work)})" for (name, why), work in reasons.items()]


def headline(league: League) -> str:
    """The numbers of kernels and workloads."""
    kernels = {one.kernel for each in league.tables for one in each.contenders}
    return f"{units.counted(len(kernels), 'kernel')} on {units.counted(len(league.tables), 'workload')}"


def html(league: League) -> str:
    """The league table as one self-contained HTML page."""
    from tritmark.harness.report.page import document

    return document(
        "league.html",
        league=league,
        headline=headline(league),
        notes=notes(league),
        peers=peers(league),
        title=title,
        figures_of=figures_of,
        exactness=exactness,
        name_of=name_of,
        called=called,
        distrust=league.distrust,
    )


def called(call: WholeCall) -> str:
    """The time of a whole call over the time of the fastest one."""
    if call.ns is None:
        return units.NONE
    return BEST if call.behind is None else units.times(call.behind)


def markdown(league: League) -> str:
    """The league table as Markdown."""
    lines = [f"**NOT BELIEVED** {code(league.distrust)}", ""] if league.distrust else []
    lines += [
        f"### League: {headline(league)}",
        "",
        f"Record {code(league.record)}, suite {code(league.suite)}, tritmark {code(league.tritmark)}.  ",
        f"Machine: {code(league.machine)}.",
        "",
        *(f"{note}.  " for note in notes(league)),
        "",
    ]
    for each in league.tables:
        lines += [f"#### {code(title(each))}", "", *_contenders(each), *_calls(each)]
    if peers(league):
        lines += ["#### Peers", "", *(f"- {code(each)}" for each in peers(league)), ""]
    return "\n".join(lines).strip() + "\n"


def _contenders(each: LeagueTable) -> Iterator[str]:
    head = ("kernel", " cold", " of the ceiling", " x best", " hot", " of the ceiling", " x best", " bits a weight")
    rows = []
    for one in each.contenders:
        figures = [cell for pace in (one.cold, one.hot) for cell in figures_of(pace)]
        rows.append(
            (code(name_of(one)), *figures, units.number(one.bits_per_weight), exactness(one), one.verdict.value.upper())
        )
    yield from table((*head, "values", "verdict"), rows)


def _calls(each: LeagueTable) -> Iterator[str]:
    if each.calls:
        rows = (
            (code(call.name), code(call.takes), units.time(call.ns), called(call), _missing(call))
            for call in each.calls
        )
        yield from table(("whole call from Python", "takes", " hot", " x best", "not called"), rows)


def _missing(call: WholeCall) -> str:
    return code(call.missing) if call.missing else ""


def name_of(one: Contender) -> str:
    """The name of a row, without device, op and dtype, which are in the title of the table."""
    return f"{one.variant}, peer, {one.version}" if one.peer else f"{one.format} {one.variant}"


def write(league: League, folder: Path) -> dict[str, Path]:
    """Write `folder`/<record id>.html, .md and .json atomically and return their paths by suffix.

    Files of a Record that is not believed have other names. Raises OSError if a file cannot be written, and RecordError
    if the id is not a legal file name.
    """
    from tritmark.harness.report.page import page_name, put

    name = page_name(league.record, folder, league.distrust)
    texts = {"html": html(league), "md": markdown(league), "json": f"{league.model_dump_json(indent=1)}\n"}
    return {suffix: put(folder, f"{name}.{suffix}", text) for suffix, text in texts.items()}
