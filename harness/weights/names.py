"""Text that comes out of a weight file, made harmless for messages."""

from __future__ import annotations

from pathlib import Path

_LONGEST = 80


def inert(value: object) -> str:
    """`repr(value)`, cut to 80 characters: control, ANSI and right-to-left marks come out as escapes."""
    text = repr(value[: _LONGEST + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def inert_path(path: str | Path) -> str:
    """The path as it is where that can be printed, else its repr; never cut, for the user has to find the file."""
    text = str(path)
    return text if text and text.isprintable() else repr(text)
