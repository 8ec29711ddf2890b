"""The digest at the end of a Record's file."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from tritmark.harness.record.record import Record

_NO_DIGEST = "sha256:" + "0" * 64


_DIGEST = re.compile(rb'\n "digest": "(sha256:[0-9a-f]{64})"\n\}\n\Z')


_DIGEST_LENGTH = 88
"""Bytes from the newline before the digest to the end of the file."""


class FileDigest(NamedTuple):
    """The digest that a file states (`claimed`) and the digest of its bytes (`found`)."""

    claimed: str
    found: str

    @property
    def unchanged(self) -> bool:
        """No byte changed since the file was written."""
        return self.claimed == self.found


def with_digest(record: Record) -> str:
    """The text of the Record's file, with the digest at its end. The digest detects changes, unless it is changed too.

    Each Run is one line. Fields with their default value are left out, as most fields apply to few devices.
    """
    version = record.schema_version  # always written: its default changes with each version
    head = record.model_dump_json(exclude={"schema_version", "runs", "digest"}, exclude_defaults=True)
    runs = ",\n".join(run.model_dump_json(exclude_defaults=True) for run in record.runs)
    begin = f'{{"schema_version":{version},{head[1:-1]},"runs":[\n{runs}\n],\n "digest": "'
    end = '"\n}\n'
    return f"{begin}sha256:{sha256(f'{begin}{_NO_DIGEST}{end}'.encode()).hexdigest()}{end}"


def read_digest(data: bytes) -> FileDigest | None:
    """The digests of a file's bytes; None if the file does not end with a digest."""
    found = _DIGEST.search(data, max(0, len(data) - _DIGEST_LENGTH))
    if found is None:
        return None
    start, end = found.span(1)
    digest = sha256(data[:start] + _NO_DIGEST.encode() + data[end:]).hexdigest()
    return FileDigest(found[1].decode(), f"sha256:{digest}")
