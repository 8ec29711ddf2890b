"""Reads small files of the Linux kernel, such as those under /sys."""

from __future__ import annotations

from pathlib import Path

SYS = Path("/sys")


def line(path: Path) -> str | None:
    """The file's text, stripped; None if it is missing, unreadable or empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The file's text as a decimal number; None if it is not a number ("max")."""
    text = line(path)
    return int(text) if text is not None and text.isdecimal() else None
