"""The error history: one JSON object a line, in a file of bounded size that several processes append to.

A line that was cut off, by a full disk or a killed process, is skipped and counted. No error of the file reaches the
program whose failure is written.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from filelock import Timeout

from tritmark.harness.caches import cache_folder
from tritmark.harness.locks import locked
from tritmark.harness.recovery.failures import FailureKind
from tritmark.harness.recovery.result import Recovery
from tritmark.harness.recovery.strategies import Strategy

MOST_BYTES = 1 << 20
"""Limit of the file. When it is reached, the older half of the lines is removed."""
_LINE = 4096
"""Limit of a line in bytes: details are cut first."""
_WAIT_S = 1.0
"""How long a program waits for the lock, before it gives up the line."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFailure:
    """One line of the history."""

    created: str
    """Time in UTC, ISO 8601."""
    op: str
    kernel: str
    """Id of the kernel that failed."""
    kind: FailureKind
    code: str
    found: str
    strategy: Strategy
    """The one that gave the result; NONE if the call was refused."""
    replacement: str
    """Id of the kernel that gave the result."""
    tried: tuple[str, ...]
    seconds_lost: float
    advice: str
    detail: str = ""
    index: int | None = None
    """In a batch, the index of the product."""


@dataclass(frozen=True, slots=True)
class ErrorHistory:
    """The content of the file."""

    failures: tuple[PastFailure, ...]
    """Oldest first."""
    unreadable: int
    """Lines that are not entries."""


def path() -> Path:
    """The file of the history."""
    return cache_folder("errors") / "history.jsonl"


def line_of(recovery: Recovery) -> bytes:
    """The line of a failure, at most _LINE bytes."""
    found, detail = recovery.diagnosis.found[:800], recovery.diagnosis.detail[-1200:]
    while True:
        entry = PastFailure(
            created=recovery.created,
            op=recovery.op[:100],
            kernel=recovery.failed[:300],
            kind=recovery.diagnosis.kind,
            code=recovery.diagnosis.code[:100],
            found=found,
            strategy=recovery.strategy,
            replacement=recovery.kernel[:300],
            tried=tuple(str(each.strategy) for each in recovery.tried)[:20],
            seconds_lost=round(recovery.seconds_lost, 6),
            advice=recovery.advice,
            detail=detail,
            index=recovery.index,
        )
        made = json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"
        if len(made) <= _LINE or not (found or detail):
            return made
        found, detail = found[: len(found) // 2], detail[len(detail) // 2 + 1 :]  # escapes may take six bytes each


def append(recovery: Recovery, where: Path | None = None) -> bool:
    """Write a failure. Returns whether it was written; never raises an error of the file."""
    try:
        file = where or path()
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file.with_suffix(".lock"), _WAIT_S):
            _append(file, line_of(recovery))
    except (OSError, Timeout) as error:
        _unwritable(str(error))
        return False
    return True


def _append(file: Path, line: bytes) -> None:
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size + len(line) > MOST_BYTES:
            kept = _newer_half(os.pread(descriptor, size, max(0, size - MOST_BYTES)))
            os.close(descriptor)
            descriptor = -1
            _replace(file, kept + line)
            return
        cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if cut else b"") + line)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _newer_half(content: bytes) -> bytes:
    half = content[-(MOST_BYTES // 2) :]
    kept = half[half.find(b"\n") + 1 :]
    return kept if kept.endswith(b"\n") or not kept else kept + b"\n"


def _replace(file: Path, content: bytes) -> None:
    # Not store.write_atomically: it raises an error for users, and its module is for Records.
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@cache
def _unwritable(why: str) -> None:
    _LOG.warning("the error history is not written: %s; next: free space, or set TRITMARK_CACHE", why)


def read(where: Path | None = None) -> ErrorHistory:
    """The history; empty without a file. Raises OSError if the file cannot be read."""
    try:
        content = (where or path()).read_bytes()
    except FileNotFoundError:
        return ErrorHistory((), 0)
    found, unreadable = [], 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            found.append(_entry(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            unreadable += 1
    return ErrorHistory(tuple(found), unreadable)


def _entry(found: Any) -> PastFailure:
    """An entry. Fields of newer versions are ignored."""
    texts = {
        name: found.get(name, "")
        for name in ("created", "op", "kernel", "code", "found", "replacement", "advice", "detail")
    }
    if not all(isinstance(each, str) for each in texts.values()) or not texts["created"]:
        raise ValueError("a field of another type")
    index = found.get("index")
    if index is not None and type(index) is not int:
        raise ValueError("an index of another type")
    lost = float(found.get("seconds_lost", 0))
    if not isfinite(lost):
        raise ValueError("not a number of JSON")
    return PastFailure(
        **texts,
        kind=FailureKind(found["kind"]),
        strategy=Strategy(found["strategy"]),
        tried=tuple(map(str, found.get("tried", ()))),
        seconds_lost=lost,
        index=index,
    )
