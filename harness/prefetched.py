"""The results of `tritmark tune prefetch`, for kernels that prefetch and for Records.

They are in one JSON file beside the choices of `tritmark tune instances`: a record.TunedPrefetch for each device and
op. A result is valid for one machine and one build, and ignored on any other. TRITMARK_TUNED=off ignores all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tritmark.harness import tuned
from tritmark.harness.caches import cache_folder
from tritmark.harness.errors import UsageError
from tritmark.harness.sealed import sealed, unsealed

VERSION = 1
_LOG = logging.getLogger(__name__)


def path() -> Path:
    """The file of the results."""
    return cache_folder("tuned") / "prefetch.json"


def read(where: Path) -> tuple[dict[str, Any], ...]:
    """The content of a file, as JSON objects; () without a file. Raises UsageError for an invalid file."""
    try:
        found = unsealed(where.read_text(encoding="utf-8"), {"version", "tuned"})
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']!r}; legal: {VERSION}")
        every = tuple(dict(each) for each in found["tuned"])
        for each in every:
            if not all(isinstance(each[name], str) for name in ("device", "op", "builtin", "chosen")):
                raise ValueError("names that are not strings")
            if not isinstance(each["identity"], dict):
                raise ValueError("an identity that is not an object")
        return every
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        raise UsageError(f"{where}: not a file of `tritmark tune prefetch` ({type(why).__name__}: {why})") from None


def text(every: tuple[dict[str, Any], ...]) -> str:
    """The text of a file with these results."""
    return sealed({"version": VERSION, "tuned": every})


def kept(device: str, op: str, identity: Mapping[str, str]) -> dict[str, Any] | None:
    """The result for the op's kernels on this machine, also if TRITMARK_TUNED is off. None without one, and with a
    warning for an invalid file."""
    try:
        every = read(path())
    except UsageError as why:
        _LOG.warning("%s, so kernels use the built-in prefetch distance; next: remove it, and tune again", why)
        return None
    return next(
        (each for each in every if (each["device"], each["op"], each["identity"]) == (device, op, identity)), None
    )


def chosen(device: str, op: str, identity: Callable[[], Mapping[str, str]], builtin: str) -> str:
    """The strategy that beat the built-in one; "" for none. `identity` is called only if there are results.

    Raises UsageError for an invalid value of TRITMARK_TUNED.
    """
    if not tuned.obeyed() or not path().exists():
        return ""
    found = kept(device, op, identity())
    return found["chosen"] if found is not None and found["builtin"] == builtin else ""
