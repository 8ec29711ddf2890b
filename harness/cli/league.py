"""`tritmark league`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion, options
from tritmark.harness.cli.console import console
from tritmark.harness.cli.exit_status import UNAVAILABLE, UNTRUSTED
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from tritmark.harness.league.model import LeagueTable
    from tritmark.harness.league.turns import Session
    from tritmark.harness.providers import Installed
    from tritmark.harness.record import Record
    from tritmark.harness.store import Store

_SUITE = "league"
_KEYS = "allowed_signers"
_RESULTS = Path("results")


def league(
    record: Annotated[
        str,
        typer.Argument(
            metavar="RECORD", autocompletion=completion.records, help="Path or id; by default a new one is measured."
        ),
    ] = "",
    suite: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help=f"The suite of workloads to measure; by default '{_SUITE}'.",
            show_default=False,
            autocompletion=completion.suites,
        ),
    ] = "",
    device: options.Device = "*",
    threads: options.Threads = None,
    seed: options.Seed = None,
    peer: options.Peer = None,
    collect: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Build a static site, --out, of all signed Records in this folder.",
            show_default=False,
        ),
    ] = None,
    trusted: Annotated[
        Path | None,
        typer.Option(
            metavar="KEYS",
            dir_okay=False,
            help="With --collect: the allowed_signers file of trusted keys; by default FOLDER/allowed_signers.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the table, as JSON, on standard output.")] = False,
    out: options.Out = _RESULTS,
) -> None:
    """Compare the fastest kernel of each format and every peer; write HTML, Markdown and JSON to DIR/league.

    With --collect, build a public league from signed Records of many machines."""
    measuring = bool(suite or device != "*" or threads is not None or seed is not None or peer)
    if collect is not None:
        if record or measuring or as_json:
            raise UsageError("--collect beside a Record, or options of a measurement; legal: --trusted, --out")
        _collected(collect, trusted or collect / _KEYS, out)
        return
    if trusted is not None:
        raise UsageError("--trusted without --collect; legal: with --collect FOLDER")
    from tritmark.harness.league.absent import absent, with_repacked
    from tritmark.harness.league.contenders import tables
    from tritmark.harness.league.model import League
    from tritmark.harness.providers import load
    from tritmark.harness.report.league import peers, write
    from tritmark.harness.report.machine import one_line
    from tritmark.harness.store import Store
    from tritmark.harness.text.distrust import distrust
    from tritmark.harness.text.visible import visible
    from tritmark.harness.verify import believed, refuted

    if record and measuring:
        raise UsageError("options of a measurement beside a Record, which is already measured; legal: --json, --out")
    store = Store(out)
    session: Session | None = None
    if record:
        found, faults = believed(store.find(record))
    else:
        found, session = _measured(suite or _SUITE, device, threads, seed, peer or [], store)
        faults = refuted(found)
    ratios, calls, best = (None, None, None) if session is None else (session.ratios, session.calls, session.best)
    installed = load()
    made_tables = tables(found, ratios, calls, best, installed.scales_of, installed.bits_of)
    shown_tables = tuple(with_repacked(installed, each) for each in made_tables)
    made = League(
        record=found.id,
        created=found.created,
        suite=found.suite,
        tritmark=found.environment.tritmark,
        machine=one_line(found),
        distrust=distrust(faults),
        tables=shown_tables,
        absent=() if session is None else absent(installed, shown_tables),
    )
    if not made.tables:
        raise UsageError(f"{found.id}: has no times; legal: a Record with a performance figure")
    try:
        paths = write(made, out / "league")
    except OSError as error:
        raise UsageError(f"{out / 'league'}: the table cannot be written: {error}") from error
    errors = console(stderr=True)
    if made.distrust:
        errors.print(f"tritmark: {visible(made.distrust)}", style="bold red", soft_wrap=True)
    for problem in session.problems if session is not None else ():
        errors.print(f"tritmark: not interleaved: {problem}", style="yellow", soft_wrap=True)
    if as_json:
        typer.echo(made.model_dump_json(indent=1))
    else:
        for each in made.tables:
            console().print(_table(each))
        for line in peers(made):
            console().print(visible(line), soft_wrap=True)
    shown = errors if as_json else console()
    for path in paths.values():
        shown.print(f"League: {path}", soft_wrap=True)


def _collected(folder: Path, keys: Path, site: Path) -> None:
    """Build the public league. What was refused is on the error stream, and at the top of the site."""
    from tritmark.harness.report.league_site import build, headline, refusals
    from tritmark.harness.signing import TrustedKeys
    from tritmark.harness.text.visible import visible

    if site == _RESULTS:
        raise UsageError("--collect without --out SITE; legal: the folder of the site, such as --out site")
    try:
        index, found = build(folder, TrustedKeys(keys), site)
    except OSError as error:
        raise UsageError(f"{site}: the site cannot be written: {error}") from error
    errors = console(stderr=True)
    for line in refusals(found):
        errors.print(f"tritmark: refused: {visible(line)}", style="red", soft_wrap=True)
    if index is None:
        errors.print("tritmark: no Record was accepted, and no site was written", style="bold red", soft_wrap=True)
        raise typer.Exit(UNTRUSTED)
    console().print(headline(found), soft_wrap=True)
    console().print(f"League: {index}", soft_wrap=True)


def _measured(
    suite: str, device: str, threads: int | None, seed: int | None, peer: Sequence[str], store: Store
) -> tuple[Record, Session]:
    from tritmark.harness.candidate.adapted import AdaptedLibrary
    from tritmark.harness.cli.execute import executed, seed_of
    from tritmark.harness.cli.progress import ProgressCallback, ProgressLine
    from tritmark.harness.judge.planning import missing
    from tritmark.harness.judge.request import Request
    from tritmark.harness.league.contenders import by_work
    from tritmark.harness.league.turns import Session, complete
    from tritmark.harness.providers import load
    from tritmark.harness.worker.process import prepare

    prepare()
    adapted = tuple(AdaptedLibrary.named(each) for each in peer)
    installed: Installed = load(adapted)
    session = Session()
    request = Request(
        suite=installed.suite(suite),
        device=device,
        threads=threads,
        seed=seed_of(seed, store, None),
        command=("tritmark", *sys.argv[1:]),
        candidates=adapted,
        dimensions=frozenset({"accuracy", "performance"}),
        session=session,
        peers=frozenset(each.id for library in adapted for each in library.variants(installed)),
    )
    errors = console(stderr=True)
    why = missing(installed, request).get(device)
    if why is not None:
        errors.print(f"tritmark: {device} is missing: {why}", style="red", soft_wrap=True)
        raise typer.Exit(UNAVAILABLE)
    record = executed(installed, request, store, None)
    places = len(by_work(record, installed.scales_of))
    with ProgressLine(errors) as line:
        following = ProgressCallback(line)
        complete(session, installed, record, lambda text: following(text, places), candidates=adapted)
    return record, session


def _table(each: LeagueTable) -> Table:
    from tritmark.harness.report.league import called, figures_of, name_of, title
    from tritmark.harness.text import units
    from tritmark.harness.text.table import plain_table
    from tritmark.harness.text.visible import visible

    heads = ("kernel", "cold", "ceil.", "x best", "hot", "ceil. ", "x best ")
    shown = plain_table(visible(title(each)), *heads, right=heads[1:])
    for one in each.contenders:
        cells = [visible(name_of(one))]
        cells += [cell for pace in (one.cold, one.hot) for cell in figures_of(pace)]
        shown.add_row(*cells)
    for call in each.calls:
        if call.ns is not None:
            shown.add_row(visible(f"call: {call.name}"), "", "", "", units.time(call.ns), "", called(call))
    return shown
