"""Matplotlib figures as small SVG elements with the colours and the font of the page.

A figure is drawn in the placeholder colours below. `svg` replaces each by a class of templates/style.css, so that one
drawing serves light, dark, print and forced colours. The policy of the page forbids style attributes, so they become
presentation attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from tritmark.harness.text.visible import visible

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER, COLD, HOT = "#010101", "#010102", "#010103", "#010104", "#010105", "#010106"
SERIES = ("#010110", "#010111", "#010112", "#010113", "#010114", "#010115", "#010116", "#010117")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
"""A shape for each of SERIES, for readers who do not see the colours."""

WIDTH_PT = 360
"""Width of each figure in points. The page shows it 340 to 620 pixels wide, where text of 9 points is readable."""


class Palette(NamedTuple):
    """The colours of a figure: placeholders, or colours that are shown as they are."""

    ink: str
    muted: str
    grid: str
    paper: str
    series: tuple[str, ...]


PLACEHOLDERS = Palette(INK, MUTED, GRID, PAPER, SERIES)

_CLASSES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper", COLD: "cold", HOT: "hot"}
_CLASSES.update({colour: f"series{index}" for index, colour in enumerate(SERIES)})
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_DECIMALS = re.compile(r"-?\d+\.\d+")
_ROUNDED = frozenset({"d", "x", "y", "transform"})
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def style(colours: Palette) -> dict[str, Any]:
    """The settings of matplotlib for a figure in these colours."""
    return {
        "svg.fonttype": "none",
        "text.parse_math": False,  # a name may hold dollar signs
        "font.size": 9,
        "axes.edgecolor": colours.muted,
        "axes.labelcolor": colours.ink,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "text.color": colours.ink,
        "xtick.color": colours.muted,
        "ytick.color": colours.muted,
        "xtick.labelcolor": colours.ink,
        "ytick.labelcolor": colours.ink,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "grid.color": colours.grid,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
    }


def svg(
    name: str,
    title: str,
    height_pt: float,
    draw: Callable[[Figure], Mapping[str, str] | None],
    *,
    width_pt: float = WIDTH_PT,
) -> Markup:
    """Draw on a new Figure and return its SVG element. Equal drawings give equal elements.

    `name` makes the ids unique on the page. `title` is the text for screen readers. `draw` may return tooltips by the
    gid of their artists.
    """
    from io import BytesIO

    from markupsafe import Markup
    from matplotlib.figure import Figure
    from matplotlib.style import context

    with context(["default", {**style(PLACEHOLDERS), "svg.hashsalt": name}]):
        figure = Figure(figsize=(width_pt / 72, height_pt / 72))
        tips = draw(figure) or {}
        raw = BytesIO()
        figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(raw.getvalue())
    _tidy(root, name, tips)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", visible(title))
    # No Markup.format: the serializer has already escaped the text.
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=False))


def _tidy(element: ElementTree.Element, name: str, tips: Mapping[str, str]) -> None:
    """Remove namespaces, unused ids, embedded styles and needless digits; insert the tooltips."""
    element.tag = element.tag.removeprefix(_SVG)
    own = element.get("id", "")
    if element.tag in {"path", "clipPath"} and own:
        element.set("id", f"{name}-{own}")
    else:
        element.attrib.pop("id", None)
    for key, value in list(element.attrib.items()):
        if key == "style":
            del element.attrib[key]
            _style(element, value)
        elif key == f"{_XLINK}href":
            del element.attrib[key]
            element.set("href", f"#{name}-{value.removeprefix('#')}")
        elif key == "clip-path":
            element.set(key, _REFERENCE.sub(rf"url(#{name}-\1)", value))
        elif key in _ROUNDED:
            element.set(key, _DECIMALS.sub(_short, value).replace("\n", ""))
    for child in list(element):
        if child.tag in {f"{_SVG}style", f"{_SVG}metadata"}:
            element.remove(child)
        else:
            _tidy(child, name, tips)
    if element.tag != "text":
        element.text = None
    element.tail = None
    if own in tips:
        tip = ElementTree.Element("title")
        tip.text = visible(tips[own])
        element.insert(0, tip)


def _style(element: ElementTree.Element, css: str) -> None:
    classes = []
    for declaration in css.split(";"):
        key, _, value = (word.strip() for word in declaration.partition(":"))
        if key in {"fill", "stroke"} and value in _CLASSES:
            classes.append(f"{key}-{_CLASSES[value]}")
        elif key and key != "font-family":
            element.set(key, value)
    if classes:
        element.set("class", " ".join(classes))


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")
