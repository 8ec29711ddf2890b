"""Text from a weight file, made harmless for messages."""

from __future__ import annotations

from pathlib import Path

_LONGEST = 80


def inert(value: object) -> str:
    """`repr(value)`, cut to 80 characters. Control characters, ANSI sequences and right-to-left marks are escaped."""
    text = repr(value[: _LONGEST + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def inert_path(path: str | Path) -> str:
    """The path if it is printable, otherwise its repr. It is never cut, because the user must find the file."""
    text = str(path)
    return text if text and text.isprintable() else repr(text)
