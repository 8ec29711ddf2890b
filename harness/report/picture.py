"""Plots as files of their own: PNG, SVG, or an HTML page, by the suffix of the file.

PNG is light. SVG and HTML follow the light or dark scheme of the reader. The colours are those of templates/style.css.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import UsageError
from tritmark.harness.report.page import source
from tritmark.harness.report.plot import PLACEHOLDERS, Palette, style, svg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".html")
_DPI = 160
_PX_PER_PT = 96 / 72

Draw = Callable[["Figure", Palette], Mapping[str, str] | None]
"""Draws on an empty figure in the given colours. May return tooltips by the gid of their artists."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing with its size in points."""

    name: str
    """Makes the ids of its SVG unique on a page."""
    title: str
    """For screen readers."""
    width_pt: float
    height_pt: float
    draw: Draw


def checked(path: Path, option: str) -> Path:
    """The path of a picture that can be written. Raises UsageError for another suffix, and without its folder: before
    anything is measured."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{option} {path}: its suffix is {path.suffix!r}; legal: {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}; next: make it")
    return path


def write(path: Path, picture: Picture, page: Callable[[], str]) -> Path:
    """Write the picture by the suffix of the path; `page` makes the HTML. Raises UsageError if it cannot be written."""
    from tritmark.harness.store import write_atomically

    suffix = checked(path, "picture").suffix.lower()
    content = png(picture) if suffix == ".png" else page() if suffix == ".html" else standalone_svg(picture)
    write_atomically(path, content)
    return path


def figure(picture: Picture) -> Figure:
    """The drawing as a figure of matplotlib, in light colours."""
    from matplotlib.figure import Figure

    with _light() as colours:
        made = Figure(figsize=(picture.width_pt / 72, picture.height_pt / 72), facecolor=colours.paper)
        picture.draw(made, colours)
    return made


def png(picture: Picture) -> bytes:
    """The drawing as a PNG, in light colours."""
    from io import BytesIO

    sink = BytesIO()
    with _light():
        figure(picture).savefig(sink, format="png", dpi=_DPI, metadata={"Software": None})
    return sink.getvalue()


def element(picture: Picture) -> Markup:
    """The drawing as an SVG element of a page."""
    return svg(
        picture.name,
        picture.title,
        picture.height_pt,
        lambda made: picture.draw(made, PLACEHOLDERS),
        width_pt=picture.width_pt,
    )


def standalone_svg(picture: Picture) -> str:
    """The drawing as an SVG document with its own styles and ground."""
    width, height = (round(each * _PX_PER_PT) for each in (picture.width_pt, picture.height_pt))
    head, body = str(element(picture)).split(">", 1)
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"', 1)
    ground = '<rect class="fill-paper" width="100%" height="100%"></rect>'
    return f"{head}><style>{_styles()}</style>{ground}{body}\n"


@contextmanager
def _light() -> Iterator[Palette]:
    from matplotlib.style import context

    colours = _palette()
    with context(["default", {**style(colours), "figure.facecolor": colours.paper}]):
        yield colours


@cache
def _palette() -> Palette:
    light = source("style.css").partition("@media")[0]
    found: dict[str, Any] = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", light))
    series = tuple(found[f"series{number}"] for number in range(len(PLACEHOLDERS.series)))
    return Palette(found["ink"], found["quiet"], found["line"], found["paper"], series)


@cache
def _styles() -> str:
    """The colours, light and dark, and the classes of figures."""
    css = source("style.css")
    dark = css[css.index("@media (prefers-color-scheme: dark)") :]
    roots = [css[: css.index("}") + 1], dark[: dark.index("}\n}") + 3]]
    classes = re.findall(r"\.(?:fill|stroke)-[\w-]+ \{[^}]*\}", css)
    font = 'text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }'
    return "".join([*roots, *classes, font])
