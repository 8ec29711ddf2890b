"""Matplotlib figures as small SVG elements that take their colours and their font from the page.

A figure is drawn in the stand-in colours below; `svg` turns each into a class of the style sheet (templates/style.css),
so that one drawing serves light, dark, print and forced colours. The page's policy admits no style attributes, so they
become presentation attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from tritmark.harness.text.visible import visible

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER, COLD, HOT = "#010101", "#010102", "#010103", "#010104", "#010105", "#010106"
SERIES = ("#010110", "#010111", "#010112", "#010113", "#010114", "#010115", "#010116", "#010117")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
"""A shape for each of SERIES, for readers and printers without colours."""

WIDTH_PT = 360
"""Width of every figure in points. The page shows a figure 340 to 620 pixels wide: text of 9 points is readable
throughout."""

_CLASSES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper", COLD: "cold", HOT: "hot"}
_CLASSES.update({colour: f"series{index}" for index, colour in enumerate(SERIES)})
_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may hold dollar signs
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_DECIMALS = re.compile(r"-?\d+\.\d+")
_ROUNDED = frozenset({"d", "x", "y", "transform"})
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def svg(name: str, title: str, height_pt: float, draw: Callable[[Figure], Mapping[str, str] | None]) -> Markup:
    """Draw on a new Figure and return its SVG element, the same for the same drawing.

    `name` keeps ids apart from those of the page's other figures; `title` is what a screen reader says in place of the
    picture. `draw` may return texts by gid, which become the tooltips of the artists with these gids.
    """
    from io import BytesIO

    from markupsafe import Markup
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", {**_STYLE, "svg.hashsalt": name}]):
        figure = Figure(figsize=(WIDTH_PT / 72, height_pt / 72))
        tips = draw(figure) or {}
        raw = BytesIO()
        figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(raw.getvalue())
    _tidy(root, name, tips)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", visible(title))
    # No Markup.format here: the serializer has escaped the text.
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=False))


def _tidy(element: ElementTree.Element, name: str, tips: Mapping[str, str]) -> None:
    """Drop namespaces, ids that nothing refers to, embedded styles and needless digits; put the tooltips in."""
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
