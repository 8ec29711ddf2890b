"""The bars of the section Cold and hot of a Record, drawn by the templates of the report and by matplotlib: bytes, CPU
time, and a page with both. See docs/decisions/charts-as-hand-made-svg.md.

    python suites/report/charts_two_ways.py results/baselines/nvidia-h200.gpu.json --page both.html
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from tritmark.harness.report import chart, plot, temperature
from tritmark.harness.report.page import _templates
from tritmark.harness.store import read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_PT, HEAD_PT, FOOT_PT = 20, 15, 36
Groups = Sequence[tuple[str, Sequence[chart.Bar]]]


def asked(record: Path) -> list[tuple[Groups, str]]:
    """What the section gives to chart.bars."""
    found: list[tuple[Groups, str]] = []

    def kept(groups: Groups, title: str) -> dict[str, Any]:
        found.append((groups, title))
        return drawn(groups, title)

    drawn, chart.bars = chart.bars, kept
    try:
        temperature.SECTION.variables(read(record))
    finally:
        chart.bars = drawn
    return found


def by_template(groups: Groups, title: str) -> str:
    """As the report draws it."""
    return str(_templates().get_template("charts.html").module.bars(chart.bars(groups, title)))  # type: ignore[attr-defined]


def by_matplotlib(groups: Groups, title: str) -> str:
    """The same marks, texts and tooltips as a figure."""
    height = sum(HEAD_PT + ROW_PT * len(bars) for _, bars in groups) + FOOT_PT
    values = [value for _, bars in groups for bar in bars for value in (bar.cold, bar.hot) if value is not None]
    end = 1.06 * min(200, max([100, *values]))

    def draw(figure: Figure) -> Mapping[str, str]:
        axes = figure.add_axes((0.24, FOOT_PT / height, 0.69, 1 - FOOT_PT / height))
        axes.set(xlim=(0, end), ylim=(height - FOOT_PT, 0), xlabel="percent of the measured ceiling")
        tips, y = {}, 0.0
        names, places = [], []
        for heading, bars in groups:
            figure.text(0, 1 - (y + 11) / height, heading, weight="bold")
            y += HEAD_PT
            for bar in bars:
                for at, (kind, colour, value) in enumerate((("cold", plot.COLD, bar.cold), ("hot", plot.HOT, bar.hot))):
                    if value is not None:
                        gid = f"{kind}{y:.0f}"
                        axes.barh(y + 5 + 9 * at, min(value, end), height=7.5, color=colour)[0].set_gid(gid)
                        tips[gid] = f"{heading}, {bar.name}: {kind} {value:.0f} %"
                        figure.text(1, 1 - (y + 8 + 9 * at) / height, f"{value:.0f}", ha="right", size=7.5)
                names.append(bar.name)
                places.append(y + ROW_PT / 2)
                y += ROW_PT
        axes.set_yticks(places, names)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=plot.GRID)
        axes.axvline(100, color=plot.INK, linewidth=0.8)
        return tips

    # Ids are unique on a page by the name of the figure.
    return str(plot.svg(re.sub(r"\W+", "-", title), title, height, draw))


def measured(draw: Callable[[Groups, str], str], charts: Sequence[tuple[Groups, str]]) -> tuple[list[str], float]:
    """The drawn charts, and the CPU milliseconds of all of them, without the first, which imports."""
    draw(*charts[0])
    begun = process_time()
    drawn = [draw(*each) for each in charts]
    return drawn, 1000 * (process_time() - begun)


def page(ways: Mapping[str, list[str]]) -> str:
    """Both ways beside each other, with the style of the report."""
    style = files("tritmark.harness.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    rows = ""
    for both in zip(*ways.values(), strict=True):
        figures = (
            f"<figure><figcaption>{name}</figcaption>{each}</figure>" for name, each in zip(ways, both, strict=True)
        )
        rows += f'<div class="charts">{"".join(figures)}</div>'
    return f'<!doctype html><meta charset="utf-8"><title>two ways</title><style>{style}</style><main>{rows}</main>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--page", type=Path, help="write both to this page")
    options = parser.parse_args()
    charts = asked(options.record)
    ways: dict[str, list[str]] = {}
    told: dict[str, Any] = {"charts": len(charts)}
    for name, draw in (("template", by_template), ("matplotlib", by_matplotlib)):
        ways[name], ms = measured(draw, charts)
        raw = "".join(ways[name]).encode()
        told[name] = {
            "bytes": len(raw),
            "gzipped": len(gzip.compress(raw)),
            "elements": len(re.findall(rb"<[a-z]", raw)),
            "ms": round(ms),
        }
    print(json.dumps(told, indent=1))
    if options.page:
        options.page.write_text(page(ways), encoding="utf-8")


if __name__ == "__main__":
    main()
