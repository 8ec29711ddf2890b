"""The sizes of a swept axis: `1..4096`, `1..4096:x1.5`, `1,2,8` or `2560`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tritmark.harness.errors import UsageError

LEGAL = "1..4096 (powers of two), 1..4096:x1.5 (a factor), 1,2,8 (a list) or 2560 (one size)"
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::x(\d+(?:\.\d+)?))?")
_LIST = re.compile(r"\d+(?:,\d+)*")
_SLOWEST = 1.05
"""The smallest factor. A smaller one repeats sizes and takes hours."""

AxisSizes = str | int | Iterable[int]
"""The sizes of one axis as a caller may state them: text, one size, or several."""


def sizes(axis: str, given: AxisSizes) -> tuple[int, ...]:
    """The sizes of an axis in ascending order, without repetitions. Raises UsageError for anything else than LEGAL."""
    if isinstance(given, str):
        found = _parsed(axis, given.strip())
    elif isinstance(given, Iterable):
        found = list(given)
    else:
        found = [given]
    if not found or not all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in found):
        raise _refused(axis, given)
    return tuple(sorted(set(found)))


def split(given: str) -> tuple[str, str]:
    """Name and sizes of `M=1..4096`. Raises UsageError for other text."""
    name, equals, text = given.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--axis {given!r}; legal: NAME=SIZES, such as M=1..4096; sizes: {LEGAL}")
    return name.strip(), text


def merged(given: Iterable[str]) -> dict[str, str]:
    """All `--axis` options by name. Raises UsageError for an axis that is given twice."""
    found: dict[str, str] = {}
    for each in given:
        name, text = split(each)
        if name in found:
            raise UsageError(f"--axis {name} is given twice; legal: once, with all sizes: {name}=1,2,8")
        found[name] = text
    return found


def as_text(axes: Mapping[str, tuple[int, ...]]) -> str:
    """M=1,2,4 N=2560."""
    return " ".join(f"{name}={','.join(map(str, each))}" for name, each in axes.items())


def _parsed(axis: str, text: str) -> list[int]:
    if _LIST.fullmatch(text):
        return [int(each) for each in text.split(",")]
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _refused(axis, text)
    first, last, factor = int(found[1]), int(found[2]), float(found[3] or 2)
    if not 0 < first <= last or factor < _SLOWEST:
        raise _refused(axis, text)
    steps, value = [last], float(first)
    while value < last:
        steps.append(round(value))
        value *= factor
    return steps


def _refused(axis: str, given: object) -> UsageError:
    return UsageError(f"axis {axis} is {given!r}; legal: sizes above zero in ascending order: {LEGAL}")
