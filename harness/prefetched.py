"""What `tritmark tune prefetch` found about fetching ahead, for the kernels that obey it and for Records.

It lies in one JSON file beside the choices of `tritmark tune instances`: for each device and op a
record.TunedPrefetch, which holds for one machine and one code; any other is as if it were not there. TRITMARK_TUNED=off
ignores what was chosen.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tritmark.harness import tuned
from tritmark.harness.caches import cache_folder
from tritmark.harness.errors import UsageError

VERSION = 1
_LOG = logging.getLogger(__name__)


def path() -> Path:
    """Where it lies."""
    return cache_folder("tuned") / "prefetch.json"


def read(where: Path) -> tuple[dict[str, Any], ...]:
    """What a file holds, as JSON has it; () where there is none. Raises UsageError for a file that is damaged."""
    try:
        found = json.loads(where.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']!r}; legal: {VERSION}")
        every = tuple(dict(each) for each in found["tuned"])
        for each in every:
            if not all(isinstance(each[name], str) for name in ("device", "op", "builtin", "chosen")):
                raise ValueError("names that are no text")
            if not isinstance(each["identity"], dict):
                raise ValueError("an identity that is no object")
        return every
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        raise UsageError(f"{where}: is no file of `tritmark tune prefetch` ({type(why).__name__}: {why})") from None


def text(every: tuple[dict[str, Any], ...]) -> str:
    """What a file with that holds."""
    return json.dumps({"version": VERSION, "tuned": every}, indent=1) + "\n"


def kept(device: str, op: str, identity: Mapping[str, str]) -> dict[str, Any] | None:
    """What was found about the op's kernels on this machine, be it obeyed or not; None without any and, with a
    warning, where the file is damaged."""
    try:
        every = read(path())
    except UsageError as why:
        _LOG.warning("%s, so kernels fetch ahead as they are built to; next: remove it, and tune again", why)
        return None
    return next(
        (each for each in every if (each["device"], each["op"], each["identity"]) == (device, op, identity)), None
    )


def chosen(device: str, op: str, identity: Callable[[], Mapping[str, str]], builtin: str) -> str:
    """The strategy that beat the built-in one; "" for none. The identity is asked for only where there is any.

    Raises UsageError for a value of TRITMARK_TUNED that does not exist.
    """
    if not tuned.obeyed() or not path().exists():
        return ""
    found = kept(device, op, identity())
    return found["chosen"] if found is not None and found["builtin"] == builtin else ""
