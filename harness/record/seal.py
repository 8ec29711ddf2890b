"""The digest that a Record's file ends with."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from tritmark.harness.record.whole import Record

_UNSEALED = "sha256:" + "0" * 64


_SEAL = re.compile(rb'\n "digest": "(sha256:[0-9a-f]{64})"\n\}\n\Z')


_SEAL_LENGTH = 88
"""Bytes of a file from the newline before the digest on."""


class Seal(NamedTuple):
    """The digest that a file ends with, and the one that its bytes have."""

    claimed: str
    found: str

    @property
    def whole(self) -> bool:
        """No byte was changed since it was written."""
        return self.claimed == self.found


def sealed(record: Record) -> str:
    """The text of the Record's file, the digest at its end. It finds changes, but not who changes it as well."""
    text = record.model_copy(update={"digest": _UNSEALED}).model_dump_json(indent=1) + "\n"
    begin, digits, end = text.rpartition(_UNSEALED)
    assert digits
    return f"{begin}sha256:{sha256(text.encode()).hexdigest()}{end}"


def seal(data: bytes) -> Seal | None:
    """The seal of a file's bytes, or None where they do not end with one."""
    found = _SEAL.search(data, max(0, len(data) - _SEAL_LENGTH))
    if found is None:
        return None
    start, end = found.span(1)
    digest = sha256(data[:start] + _UNSEALED.encode() + data[end:]).hexdigest()
    return Seal(found[1].decode(), f"sha256:{digest}")
