"""Choices measured on a machine: between instances of a variant (`tritmark tune instances`), for launches, and between
variants (`tritmark tune variants`), for selection.

They are in one JSON file, which each process reads once. A choice is valid for one variant, or one question between
variants, one shape or shape class, one device, one driver and one build, and ignored otherwise. TRITMARK_TUNED=off
ignores all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from tritmark.harness.caches import cache_folder
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.sealed import sealed, unsealed
from tritmark.harness.spec import Axes

SELECT = "TRITMARK_TUNED"
"""Environment variable: "on" (default) or "off"."""
_LEGAL = ("on", "off")
VERSION = 1
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An instance or a variant that replaces the built-in choice."""

    variant: str
    """The id of the variant with these instances; or the place of a registry.Question between variants."""
    axes: Mapping[str, int]
    identity: Mapping[str, str]
    """See spec.Instances, and registry.Question."""
    instance: str
    """The instance's name, or the id of the variant."""
    builtin: str
    """The built-in choice that it was compared with. Between variants, it may be the chosen one."""
    ratio: tuple[float, float, float]
    """Its time over that of the built-in choice, interleaved: the median, and the ends of its 95 % interval."""
    created: str
    times_ns: Mapping[str, float] = field(default_factory=dict)
    """Between devices: the median time of a call on each."""

    @property
    def place(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """The key for lookups."""
        return self.variant, tuple(sorted(self.axes.items()))


_KNOWN = {each.name for each in fields(Choice)}
_NEEDED = {each.name for each in fields(Choice) if each.default_factory is MISSING}


def path() -> Path:
    """The file of the choices."""
    return cache_folder("tuned") / "choices.json"


def obeyed() -> bool:
    """Whether choices are used. Raises UsageError for an invalid value of TRITMARK_TUNED."""
    wanted = os.environ.get(SELECT, "").strip().lower() or _LEGAL[0]
    if wanted not in _LEGAL:
        raise UsageError(f"{SELECT} is {wanted!r}; {nearest(wanted, _LEGAL)}")
    return wanted == _LEGAL[0]


def read(where: Path) -> tuple[Choice, ...]:
    """The choices in a file; () without a file. Raises UsageError for an invalid file."""
    try:
        found = unsealed(where.read_text(encoding="utf-8"), {"version", "choices"})
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']!r}; legal: {VERSION}")
        return tuple(_choice(each) for each in found["choices"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        raise UsageError(f"{where}: not a file of choices ({type(why).__name__}: {why})") from None


def text(choices: tuple[Choice, ...]) -> str:
    """The text of a file with these choices."""
    # A field that is empty is left out, so that versions before it read the file.
    written = ({name: value for name, value in asdict(each).items() if value != {}} for each in choices)
    return sealed({"version": VERSION, "choices": list(written)})


def _choice(found: Mapping[str, Any]) -> Choice:
    if not _NEEDED <= found.keys() <= _KNOWN:
        raise ValueError(f"a choice of {', '.join(found)}")
    low_to_high = found["ratio"]
    made = Choice(**{**found, "ratio": tuple(map(float, low_to_high))})
    words = (made.variant, made.instance, made.builtin, made.created, *made.identity.values())
    if len(made.ratio) != 3 or not all(isinstance(each, str) for each in words):
        raise ValueError("a choice with fields of other types")
    if not all(isinstance(ns, float) for ns in made.times_ns.values()):
        raise ValueError("a choice with times that are not numbers")
    if not all(isinstance(size, int) for size in made.axes.values()):
        raise ValueError("a choice with axes that are not integers")
    return made


@cache
def _known() -> Mapping[tuple[str, tuple[tuple[str, int], ...]], tuple[Choice, ...]]:
    """The choices in the file, read at the first call."""
    try:
        choices = read(path())
    except UsageError as why:
        _LOG.warning("%s, so built-in choices are used; next: remove it, and tune again", why)
        choices = ()
    found: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[Choice, ...]] = {}
    for each in choices:
        found[each.place] = (*found.get(each.place, ()), each)
    return found


_FORGOTTEN = [0]
"""The number of calls of `forget`."""


def forget() -> None:
    """Read the file again at the next lookup."""
    _known.cache_clear()
    _FORGOTTEN[0] += 1


def version() -> int:
    """Grows with each `forget`: results that were cached before may be stale."""
    return _FORGOTTEN[0]


def known() -> bool:
    """Whether there are choices, and they are used. Raises UsageError for an invalid value of TRITMARK_TUNED."""
    return obeyed() and bool(_known())


def chosen(variant: str, axes: Axes, identity: Callable[[], Mapping[str, str]]) -> Choice | None:
    """The choice for the variant, these axes and that identity (device, driver, code). `identity` is called only if
    there is a choice for the axes."""
    if not known():
        return None
    for each in _known().get((variant, tuple(sorted(axes.items()))), ()):
        if each.identity == identity():
            return each
    return None
