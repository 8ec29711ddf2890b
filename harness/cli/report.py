"""`tritmark report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritmark.harness.cli import completion
from tritmark.harness.errors import UsageError

if TYPE_CHECKING:
    from tritmark.harness.record import Record
    from tritmark.harness.report.section import PageContext
    from tritmark.harness.store import Store


class ReportFormat(StrEnum):
    """The file format of the report."""

    HTML = "html"
    MD = "md"


def report(
    record: Annotated[
        str,
        typer.Argument(metavar="RECORD", autocompletion=completion.records, help="Path or id; by default the newest."),
    ] = "",
    against: Annotated[
        str,
        typer.Option(
            metavar="RECORD",
            autocompletion=completion.records,
            help="Compare with this Record; by default the latest earlier one of this machine and suite that passed.",
        ),
    ] = "",
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Show asv's results for this machine from that folder, such as results/asv.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Write a page over all Records, and each missing report.")
    ] = False,
    format: Annotated[
        ReportFormat, typer.Option("--format", help="html: write a page and print its path; md: print Markdown.")
    ] = ReportFormat.HTML,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Folder of Records and reports.")] = Path(
        "results"
    ),
) -> None:
    """Write the report of a Record, or of all Records, and print its path."""
    from tritmark.harness.store import Store

    store = Store(out)
    if every and (record or against or history or format is not ReportFormat.HTML):
        raise UsageError("options of one Record beside --all; legal: --open and --out")
    if format is ReportFormat.MD and show:
        raise UsageError("--open beside --format md, which writes no page; legal: one of the two")
    if every:
        page = _all(store)
    else:
        path = store.find(record) if record else store.latest()
        if format is ReportFormat.MD:
            _print_markdown(path, against, history, store)
            return
        page = _one(path, against, history, store)
    typer.echo(page)
    if show:
        _open(page)


def given_for(record: Record, store: Store, *, baseline: Record | None = None, path: str = "") -> PageContext:
    """The context of a page: the baseline (the given one or the latest passing), faults of the Record and the baseline,
    and the record of the rules."""
    from dataclasses import replace

    from tritmark.harness.report.baseline import latest_passing
    from tritmark.harness.report.models import FOLDER, results_of
    from tritmark.harness.report.section import PageContext
    from tritmark.harness.text.distrust import distrust
    from tritmark.harness.text.visible import visible
    from tritmark.harness.verify import refuted

    missing = ""
    if baseline is None:
        latest = latest_passing(record, store)
        baseline, missing = latest.record, latest.missing
    reported = distrust(refuted(record))
    if baseline is not None:
        reported = "; ".join(filter(None, (reported, distrust(refuted(baseline), f"the baseline {baseline.id}"))))
    if reported:
        typer.echo(f"tritmark: {visible(reported)}", err=True)
    models, unread = results_of(record, store.out / FOLDER)
    given = PageContext(
        baseline=baseline,
        no_baseline=missing,
        path=path,
        distrust=reported,
        models=models,
        unread_models=unread,
    )
    if not record.proposals:
        return given
    from tritmark.harness.advise.outcome import ledger_of

    ledger = ledger_of(store)
    return replace(given, rules=ledger.summaries(), weights=ledger.weights())


def _given(path: Path, against: str, history: Path | None, store: Store) -> tuple[Record, PageContext]:
    from tritmark.harness.store import read

    record = read(path)
    baseline = read(store.find(against)) if against else None
    if baseline is not None and baseline.id == record.id:
        raise UsageError(f"{against}: the Record itself; legal: an earlier one")
    given = given_for(record, store, baseline=baseline, path=str(path))
    if history is not None:
        from dataclasses import replace

        from tritmark.harness.report.past import gathered
        from tritmark.harness.text.visible import visible

        given = replace(
            given,
            history=gathered(history, record.machine, lambda text: typer.echo(f"tritmark: {visible(text)}", err=True)),
        )
    return record, given


def _say_change(record: Record, given: PageContext) -> None:
    """Report on standard error what changed since the baseline; standard output has the page's path."""
    from tritmark.harness.report.compare import compare, summary
    from tritmark.harness.text.visible import visible

    if given.baseline is not None:
        text = summary(compare(record, given.baseline), given.baseline)
        typer.echo(f"tritmark: {visible(text)}", err=True)


def _one(path: Path, against: str, history: Path | None, store: Store) -> Path:
    from tritmark.harness.report import build

    record, given = _given(path, against, history, store)
    _say_change(record, given)
    try:
        return build(record, store.html, given)
    except OSError as error:
        raise UsageError(f"{store.html}: the report cannot be written: {error}") from error


def _print_markdown(path: Path, against: str, history: Path | None, store: Store) -> None:
    from tritmark.harness.report.markdown import markdown

    record, given = _given(path, against, history, store)
    typer.echo(markdown(record, given), nl=False)


def _all(store: Store) -> Path:
    from tritmark.harness.report.landing import build_all

    try:
        return build_all([store.path(id) for id in store.records()], store.html)
    except OSError as error:
        raise UsageError(f"{store.html}: the page cannot be written: {error}") from error


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        typer.echo(f"tritmark: cannot start a browser; the page is {page}", err=True)
