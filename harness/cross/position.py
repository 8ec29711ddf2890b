"""Finds the line and column of a TOML key: tomllib reports positions only for its own errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")


def position(text: str, at: Sequence[int | str]) -> tuple[int, int]:
    """Line and column, from 1, of a key or of an element of its array. ("functions", 1, "arguments", 0) is the first
    string of the key `arguments` in the second [[functions]]. If the text uses another notation, the position of the
    nearest enclosing key or table."""
    start, end = 0, len(text)
    found = 0
    for index, part in enumerate(at):
        if isinstance(part, int):
            continue
        nth = at[index + 1] if index + 1 < len(at) else None
        inside = text[start:end]
        header = list(re.finditer(rf"^[ \t]*\[\[[ \t]*{re.escape(part)}[ \t]*\]\]", inside, re.MULTILINE))
        if isinstance(nth, int) and nth < len(header):
            start = start + header[nth].start()
            found = start + _indent(text, start)
            begin = start + len(header[nth].group())
            following = _HEADER.search(text, begin)
            end = following.start() if following else end
            continue
        key = re.search(rf"^[ \t]*[\"']?{re.escape(part)}[\"']?[ \t]*=", inside, re.MULTILINE)
        if key is None:
            break
        found = start + key.start() + _indent(text, start + key.start())
        if isinstance(nth, int):
            strings = list(_STRING.finditer(text, start + key.end(), end))
            found = strings[nth].start() if nth < len(strings) else found
        break
    before = text[:found]
    return before.count("\n") + 1, found - (before.rfind("\n") + 1) + 1


def _indent(text: str, start: int) -> int:
    return len(text[start:]) - len(text[start:].lstrip(" \t"))
