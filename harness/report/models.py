"""Whole models as a section of the report: the plot of where time goes, and the results beside a Record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritmark.harness.model_advice import proposals
from tritmark.harness.models import Frame, ModelResult, TimeSplit
from tritmark.harness.record import Record, Status
from tritmark.harness.report.model_judgement import lines, verdict
from tritmark.harness.report.section import PageContext, Section
from tritmark.harness.text import units

FOLDER = "models"
"""The folder of results below the one of Records."""
_WIDTH, _ROW = 1000, 22
_LEAST_WIDTH = 0.6
"""Frames that are narrower are not drawn."""
_SHOWN = 8
"""The most faults of each kind that are listed."""
_LETTER = 6.2
"""Width of a letter."""
_COLORS = {"linears": 0, "attention": 1, "norms": 2, "activation": 3, "head": 4, "embedding": 5, "Python": 7, "idle": 7}
_REST = 6


@dataclass(frozen=True, slots=True)
class Box:
    """A frame of the plot."""

    x: float
    y: float
    width: float
    color: int
    label: str
    tip: str
    style: str = ""
    """faint: time outside of operations; holder: a module whose time is that of those inside it."""


def boxes(split: TimeSplit) -> list[Box]:
    """The frames of a step from left to right, each above those inside it."""
    scale = _WIDTH / split.ms if split.ms else 0.0

    def drawn(frame: Frame, x: float, depth: int) -> Iterator[Box]:
        width = frame.ms * scale
        if width < _LEAST_WIDTH:
            return
        label = _label(frame.name, int((width - 6) / _LETTER))
        python = f", {_ms(frame.python_ms)} of it Python" if frame.python_ms and frame.part != "Python" else ""
        tip = f"{frame.name} ({frame.part}): {_ms(frame.ms)}, {units.percent(frame.ms / split.ms)}{python}"
        style = "faint" if frame.part in {"Python", "idle"} else "holder" if frame.part == "rest" else ""
        yield Box(round(x, 2), depth * _ROW, round(width, 2), _color(frame.part), label, tip, style)
        at = x
        for each in frame.inner:
            yield from drawn(each, at, depth + 1)
            at += each.ms * scale
        if frame.inner and frame.python_ms * scale >= _LEAST_WIDTH:
            rest = frame.python_ms * scale
            tip = f"Python in {frame.name}: {_ms(frame.python_ms)}"
            yield Box(round(at, 2), (depth + 1) * _ROW, round(rest, 2), _COLORS["Python"], "", tip, "faint")

    found: list[Box] = []
    at = 0.0
    for each in split.frames:
        found += drawn(each, at, 0)
        at += each.ms * scale
    return found


def _label(name: str, letters: int) -> str:
    """The name in so many letters; of a block its number, if the name is too long."""
    if len(name) <= letters:
        return name
    number = name.removeprefix("block ")
    if number != name:
        return number if len(number) <= letters else ""
    return f"{name[: letters - 1]}…" if letters > 3 else ""


def _ms(ms: float) -> str:
    return units.time(ms * 1e6)


def kind_of(part: str) -> str:
    """The color's name of a part."""
    if part in _COLORS:
        return part
    known = ("q, k, v", "o", "gate, up", "down", "other linears")
    return "linears" if part in known or part.startswith("experts:") else "rest"


def _color(part: str) -> int:
    return _COLORS.get(kind_of(part), _REST)


def split_title(split: TimeSplit) -> str:
    """The step that was divided."""
    what = "A decoded token" if split.work == "decode" else "The prompt"
    sequences = units.counted(split.batch, "sequence")
    return f"{what} of {sequences}, {'behind' if split.work == 'decode' else 'of'} {split.prompt:,} tokens"


def plot(split: TimeSplit) -> dict[str, Any]:
    """The variables of the plot of a step."""
    found = boxes(split)
    kinds = dict.fromkeys(kind_of(each.name) for each in split.parts)
    return {
        "title": split_title(split),
        "boxes": found,
        "width": _WIDTH,
        "row": _ROW,
        "height": max((each.y for each in found), default=0) + _ROW,
        "kinds": [(kind, _COLORS.get(kind, _REST)) for kind in kinds],
        "split": split,
    }


def variables(found: ModelResult) -> dict[str, Any]:
    """The variables of the template for one result."""
    failed = [each for each in found.layers if each.status is Status.FAIL]
    return {
        "found": found,
        "failed": failed,
        "verdict": verdict(found),
        "faults": tuple(lines(found, _SHOWN)),
        "plots": [plot(each) for each in found.splits],
        "proposals": proposals(found),
        "changed": sorted({each.changed for each in found.layers if each.changed}),
        "worst": max(found.agreement.drift, key=lambda each: each.relative, default=None),
    }


def results_of(record: Record, folder: Path) -> tuple[tuple[ModelResult, ...], tuple[str, ...]]:
    """The newest result of each model on the Record's machine, from `folder`, and the files that cannot be read."""
    from pydantic import ValidationError

    found: dict[tuple[str, str, str], ModelResult] = {}
    unread = []
    for path in sorted(folder.glob("*.json")):
        try:
            each = ModelResult.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            unread.append(path.name)
            continue
        if each.machine == record.machine.id:
            found[each.model, each.device, each.dtype] = each
    return tuple(found.values()), tuple(unread)


def _beside(record: Record, given: PageContext) -> dict[str, Any] | None:
    if not given.models and not given.unread_models:
        return None
    return {"models": [variables(each) for each in given.models], "unread": given.unread_models}


SECTION = Section("models", "Whole models", "models.html", beside=_beside)
