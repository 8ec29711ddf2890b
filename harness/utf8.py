"""File names that are not UTF-8, which Linux allows. Python holds such bytes as lone surrogates, which neither JSON nor
a terminal accepts."""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""The text with each such byte written as \xe9."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
