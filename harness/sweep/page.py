"""A sweep as a file, as a page, and in a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tritmark.harness.errors import UsageError
from tritmark.harness.report import picture as pictures
from tritmark.harness.report.machine import one_line
from tritmark.harness.report.picture import Picture
from tritmark.harness.sweep.drawing import drawn, picture, shown_crossovers
from tritmark.harness.text import units
from tritmark.harness.text.distrust import distrust
from tritmark.harness.text.visible import visible
from tritmark.harness.verify import refuted

if TYPE_CHECKING:
    from tritmark.harness.sweep.figures import SweepFigures
    from tritmark.harness.sweep.points import SweepGrid, SweepLine, SweepPoint


def headline(found: SweepFigures) -> str:
    """ternary_matmul over M: 3 kernels at 13 sizes."""
    kernels = {line.kernel for grid in found.grids for line in grid.lines}
    count = len(found.plan.axes[found.plan.along])
    sizes = units.counted(count, "size")
    return f"{found.plan.options.op} over {found.plan.along}: {units.counted(len(kernels), 'kernel')} at {sizes}"


def notes(found: SweepFigures) -> Iterator[str]:
    """What a reader must know beside the figures, the most important first."""
    faults = distrust(refuted(found.record))
    if faults:
        yield faults
    if found.plan.chosen:
        chosen = " ".join(f"{name}={found.plan.axes[name][0]}" for name in found.plan.chosen)
        yield f"not given, and taken from a workload of the suite quick: {chosen}"
    yield from found.left_out
    noisy = found.too_noisy
    if noisy:
        yield f"{units.counted(len(noisy), 'figure')} too noisy, hollow in the plot: {'; '.join(noisy)}"
    hidden = {line.label for grid in found.grids for line in set(grid.lines) - set(drawn(grid))}
    if hidden:
        yield f"not drawn, because the picture has the fastest ones: {', '.join(sorted(hidden))}"


def crossings(grid: SweepGrid) -> list[str]:
    """The marked crossings of a grid, numbered as in the picture."""
    return [
        f"{number if each.certain else f'~{number}'}: {each.text(grid.along)}"
        for number, each in enumerate(shown_crossovers(grid), start=1)
    ]


def picture_of(found: SweepFigures) -> Picture:
    """The drawing of all grids. Raises UsageError if nothing was timed."""
    if not found.grids:
        reasons = "; ".join(found.left_out) or "no kernel was chosen"
        raise UsageError(f"{found.record.id}: nothing was timed, so there is nothing to draw: {reasons}")
    record = found.record
    heading = [headline(found), one_line(record), f"{record.created[:10]}, Record {record.id}"]
    return picture(found.grids, f"{headline(found)}; the Record has the same figures", heading=heading)


def save(found: SweepFigures, path: Path) -> Path:
    """Write the plot: PNG, SVG or HTML by the suffix. Raises UsageError."""
    return pictures.write(path, picture_of(found), lambda: html(found))


@dataclass(frozen=True, slots=True)
class _Part:
    """One grid on the page."""

    title: str
    plot: object
    crossings: list[str]
    rows: list[tuple[SweepLine, SweepPoint, str]]


def html(found: SweepFigures) -> str:
    """The sweep as one HTML page that needs no network."""
    from tritmark.harness.report.page import document

    parts = [
        _Part(
            grid.place,
            pictures.element(
                picture([grid], f"{headline(found)}, {grid.place}; the table has the same figures", f"g{n}")
            ),
            crossings(grid),
            [(line, point, rate(grid, point)) for line in grid.lines for point in line.points],
        )
        for n, grid in enumerate(found.grids)
    ]
    return document(
        "sweep.html",
        headline=headline(found),
        notes=list(notes(found)),
        parts=parts,
        along=found.plan.along,
        machine=one_line(found.record),
        record=found.record,
    )


def rate(grid: SweepGrid, point: SweepPoint) -> str:
    """The rate of a figure."""
    return units.rate(point.work * 1e9 / point.ns, grid.unit) if point.work else units.NONE


def notebook(found: SweepFigures) -> str:
    """The plot as an image, then the crossings and notes: no script, and no style that reaches the notebook."""
    lines = [f"{grid.place}: {each}" for grid in found.grids for each in crossings(grid)] + list(notes(found))
    image = ""
    if found.grids:
        source = b64encode(pictures.standalone_svg(picture_of(found)).encode()).decode()
        image = f"<img alt='{escape(headline(found))}' style='max-width:100%' src='data:image/svg+xml;base64,{source}'>"
    items = "".join(f"<li>{escape(visible(each))}</li>" for each in lines)
    return f"<div><p><b>{escape(headline(found))}</b></p>{image}<ul>{items}</ul></div>"
