"""All samples, as a download from the page if they fit, else with the path of the Record that has them."""

from __future__ import annotations

import csv
import gzip
from base64 import b64encode
from collections.abc import Iterator
from io import StringIO
from typing import Any

from tritmark.harness.record import Record, Run
from tritmark.harness.report.section import PageContext, Section
from tritmark.harness.text import groups
from tritmark.harness.text.visible import visible

COLUMNS = ("run", "kernel", "workload", "threads", "data", "of", "sample", "ns")
_MOST_BYTES = 700_000
"""Largest size of the link, which keeps the page under 2 MB."""
_FORMULA = ("=", "+", "-", "@")


def cell(text: str) -> str:
    """The text for a cell that no spreadsheet executes: a leading apostrophe marks text that looks like a formula."""
    shown = visible(text).replace("\n", " ")
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def _rows(runs: list[Run]) -> Iterator[tuple[str | int, ...]]:
    for run in runs:
        names = (cell(run.id), cell(run.kernel), cell(run.workload.id), run.threads)
        for data, footing in (("cold", run.performance.cold), ("hot", run.performance.hot)):
            if footing is None:
                continue
            for of, samples in (("kernel", footing.timing.samples_ns), ("probe", footing.against.probe_ns)):
                yield from ((*names, data, of, number, f"{ns:.6g}") for number, ns in enumerate(samples))


def table(record: Record) -> str:
    """All samples as CSV, in nanoseconds per call."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows([run for run in record.runs if run.performance.cold or run.performance.hot]))
    return text.getvalue()


def count(record: Record) -> int:
    """The number of samples, including those of probes."""
    footings = [footing for run in record.runs for footing in (run.performance.cold, run.performance.hot) if footing]
    return sum(len(footing.timing.samples_ns) + len(footing.against.probe_ns) for footing in footings)


def _beside(record: Record, given: PageContext) -> dict[str, Any] | None:
    samples = count(record)
    if not samples:
        return None
    # A sample takes seven bytes of the link or more, so do not compress what cannot fit.
    link = _link(record) if given.room > 0 and samples * 2 < min(given.room, _MOST_BYTES) else ""
    fits = bool(link) and len(link) <= min(given.room, _MOST_BYTES)
    return {
        "samples": samples,
        "link": link if fits else "",
        "name": f"{record.id}.samples.csv.gz",
        "path": given.path or f"results/runs/{record.id}.json",
        "columns": COLUMNS,
        "simulated": groups.simulated(record),
    }


def _link(record: Record) -> str:
    packed = gzip.compress(table(record).encode("utf-8", "replace"), 6, mtime=0)
    return f"data:application/gzip;base64,{b64encode(packed).decode()}"


SECTION = Section("samples", "Raw samples", "samples.html", beside=_beside)
