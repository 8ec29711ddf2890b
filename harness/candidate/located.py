"""Errors in a user's file, with line and column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tritmark.harness.errors import UsageError

LARGEST = 1 << 20
"""Bytes of a source or manifest."""


@dataclass(frozen=True, slots=True)
class Located:
    """A file's text, with positions in it."""

    path: str
    text: str

    def error(self, offset: int, message: str) -> UsageError:
        """A UsageError at a character of the text, from 0."""
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        return self.error_at(line, column, message)

    def error_at(self, line: int, column: int, message: str) -> UsageError:
        """A UsageError at a line and column, both from 1."""
        return UsageError(f"{self.path}:{line}:{column}: {message}")

    def find(self, key: str, value: str | None = None) -> int:
        """Offset of a TOML key, or of a value of this key; 0 if the key is not in the text."""
        found = re.search(rf"^[ \t]*(?:\w+\.)*({re.escape(key)}|\"{re.escape(key)}\")[ \t]*=", self.text, re.MULTILINE)
        if found is None:
            return 0
        if value is None:
            return found.start(1)
        quoted = re.compile(rf"(?<=[\"']){re.escape(value)}(?=[\"'])").search(self.text, found.end())
        plain = quoted or re.compile(rf"(?<!\w){re.escape(value)}(?!\w)").search(self.text, found.end())
        return plain.start() if plain else found.start(1)


def read_text(path: Path, what: str) -> str:
    """Read a small text file. Raises UsageError if it does not exist, is too large, or is not UTF-8."""
    try:
        data = path.read_bytes() if path.stat().st_size <= LARGEST else None
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; legal: {what}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data is None:
        raise UsageError(f"{path}: over {LARGEST} bytes; legal: {what}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}; legal: {what}") from None


_STAND_IN: dict[str, str] = {}
"""From the SHA-256 of the replacement that this process sees to the SHA-256 of the file."""


def stands_for(changed: bytes, file: bytes) -> None:
    """Let the replacement of a file in this process count as the file; see spec.Masking."""
    _STAND_IN[sha256(changed).hexdigest()] = sha256(file).hexdigest()


def digest_of(data: bytes) -> str:
    """SHA-256 of a file's contents in hexadecimal; for a replacement, that of the original."""
    found = sha256(data).hexdigest()
    return _STAND_IN.get(found, found)


def must_be_as_opened(path: Path, text: bytes, digest: str) -> None:
    """Raises UsageError if a file changed after it was opened."""
    if digest_of(text) != digest:
        raise UsageError(f"{path}: changed while it was checked; next: run again on an unchanged file")
