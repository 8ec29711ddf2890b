"""Choices that were measured on a machine: between a variant's instances (`tritmark tune instances`), for who launches,
and between variants (`tritmark tune variants`), for who selects.

They lie in one JSON file, which is read once a process. A choice holds for one variant, or one question between
variants, and one shape or class of shapes, on one device, with one driver and one code; any other is as if it were not
there. TRITMARK_TUNED=off ignores them all.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from tritmark.harness.caches import cache_folder
from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.spec import Axes

SELECT = "TRITMARK_TUNED"
"""Environment variable: "on" (default) or "off"."""
_LEGAL = ("on", "off")
VERSION = 1
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An instance or a variant that is taken in place of the built-in choice."""

    variant: str
    """The id of the variant with these instances; or which variants it is a choice between, and for what, as
    registry.Question has it."""
    axes: Mapping[str, int]
    identity: Mapping[str, str]
    """See spec.Instances, and registry.Question."""
    instance: str
    """The instance's name, or the id of the variant."""
    builtin: str
    """The built-in choice that it was compared with, in the same words. Between variants it may be what is chosen."""
    ratio: tuple[float, float, float]
    """Its time over the built-in choice's, by turns: the median, and the ends of its 95 % interval."""
    created: str

    @property
    def place(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What it is looked up by."""
        return self.variant, tuple(sorted(self.axes.items()))


def path() -> Path:
    """Where the choices lie."""
    return cache_folder("tuned") / "choices.json"


def obeyed() -> bool:
    """Whether choices are obeyed. Raises UsageError for a value of TRITMARK_TUNED that does not exist."""
    wanted = os.environ.get(SELECT, "").strip().lower() or _LEGAL[0]
    if wanted not in _LEGAL:
        raise UsageError(f"{SELECT} is {wanted!r}; {nearest(wanted, _LEGAL)}")
    return wanted == _LEGAL[0]


def read(where: Path) -> tuple[Choice, ...]:
    """The choices in a file; () where there is none. Raises UsageError for a file that is damaged."""
    try:
        found = json.loads(where.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']!r}; legal: {VERSION}")
        return tuple(_choice(each) for each in found["choices"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        raise UsageError(f"{where}: is no file of choices ({type(why).__name__}: {why})") from None


def text(choices: tuple[Choice, ...]) -> str:
    """What a file with them holds."""
    return json.dumps({"version": VERSION, "choices": [asdict(each) for each in choices]}, indent=1) + "\n"


def _choice(found: Mapping[str, Any]) -> Choice:
    if found.keys() != {each.name for each in fields(Choice)}:
        raise ValueError(f"a choice of {', '.join(found)}")
    low_to_high = found["ratio"]
    made = Choice(**{**found, "ratio": tuple(map(float, low_to_high))})
    words = (made.variant, made.instance, made.builtin, made.created, *made.identity.values())
    if len(made.ratio) != 3 or not all(isinstance(each, str) for each in words):
        raise ValueError("a choice with fields of other types")
    if not all(isinstance(size, int) for size in made.axes.values()):
        raise ValueError("a choice with axes that are no integers")
    return made


@cache
def _known() -> Mapping[tuple[str, tuple[tuple[str, int], ...]], tuple[Choice, ...]]:
    """What the file held when this process first asked."""
    try:
        choices = read(path())
    except UsageError as why:
        _LOG.warning("%s, so built-in choices are launched; next: remove it, and tune again", why)
        choices = ()
    found: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[Choice, ...]] = {}
    for each in choices:
        found[each.place] = (*found.get(each.place, ()), each)
    return found


_FORGOTTEN = [0]
"""How often."""


def forget() -> None:
    """Read the file again at the next question."""
    _known.cache_clear()
    _FORGOTTEN[0] += 1


def version() -> int:
    """Grows whenever what was read is forgotten: a choice that was remembered before may no longer be true."""
    return _FORGOTTEN[0]


def known() -> bool:
    """Whether there is any choice to be obeyed. Raises UsageError for a value of TRITMARK_TUNED that does not exist."""
    return obeyed() and bool(_known())


def chosen(variant: str, axes: Axes, identity: Callable[[], Mapping[str, str]]) -> Choice | None:
    """The choice for the variant and these axes on a device, with a driver and code of that identity, which is asked
    for only where there is any for these axes."""
    if not known():
        return None
    for each in _known().get((variant, tuple(sorted(axes.items()))), ()):
        if each.identity == identity():
            return each
    return None
