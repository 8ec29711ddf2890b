"""The digest that a Record's file ends with."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from tritmark.harness.record.record import Record

_NO_DIGEST = "sha256:" + "0" * 64


_DIGEST = re.compile(rb'\n "digest": "(sha256:[0-9a-f]{64})"\n\}\n\Z')


_DIGEST_LENGTH = 88
"""Bytes of a file from the newline before the digest on."""


class FileDigest(NamedTuple):
    """The digest that a file ends with, and the one that its bytes have."""

    claimed: str
    found: str

    @property
    def unchanged(self) -> bool:
        """No byte was changed since it was written."""
        return self.claimed == self.found


def with_digest(record: Record) -> str:
    """The text of the Record's file, the digest at its end. It finds changes, but not who changes it as well.

    A Run stands on a line of its own. A field that has its default is left out: most of them are of some devices or
    dimensions only.
    """
    version = record.schema_version  # a default that changes from version to version
    head = record.model_dump_json(exclude={"schema_version", "runs", "digest"}, exclude_defaults=True)
    runs = ",\n".join(run.model_dump_json(exclude_defaults=True) for run in record.runs)
    begin = f'{{"schema_version":{version},{head[1:-1]},"runs":[\n{runs}\n],\n "digest": "'
    end = '"\n}\n'
    return f"{begin}sha256:{sha256(f'{begin}{_NO_DIGEST}{end}'.encode()).hexdigest()}{end}"


def read_digest(data: bytes) -> FileDigest | None:
    """The digest of a file's bytes, or None where they do not end with one."""
    found = _DIGEST.search(data, max(0, len(data) - _DIGEST_LENGTH))
    if found is None:
        return None
    start, end = found.span(1)
    digest = sha256(data[:start] + _NO_DIGEST.encode() + data[end:]).hexdigest()
    return FileDigest(found[1].decode(), f"sha256:{digest}")
