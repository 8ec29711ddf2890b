"""Small files of the kernel's, such as those under /sys: what they say, or None."""

from __future__ import annotations

from pathlib import Path

SYS = Path("/sys")


def line(path: Path) -> str | None:
    """The file's text without white space around it; None where there is no such file, it may not be read, or it is
    empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The file's text as a decimal number; None where it is none ("max")."""
    text = line(path)
    return int(text) if text is not None and text.isdecimal() else None
