"""Stores choices in one file, safely against other processes and against the end of this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tritmark.harness import locks, tuned
from tritmark.harness.errors import UsageError
from tritmark.harness.spec import Axes
from tritmark.harness.store import write_atomically
from tritmark.harness.tuned import Choice


def keep(variant: str, axes: Axes, identity: Mapping[str, str], choice: Choice | None) -> Path:
    """Store a choice for the variant, axes and device. It replaces earlier ones, of any driver and code. None restores
    the built-in choice. Returns the file.

    Raises UsageError if the file is damaged or cannot be written.
    """
    with locked(tuned.path()) as where:
        place = variant, tuple(sorted(axes.items()))
        others = tuple(
            each
            for each in tuned.read(where)
            if each.place != place or each.identity.get("device") != identity["device"]
        )
        write_atomically(where, tuned.text(others if choice is None else (*others, choice)))
    tuned.forget()
    return where


@contextmanager
def locked(where: Path) -> Iterator[Path]:
    """Lock the file against other callers of this function. Raises UsageError if it cannot be written."""
    try:
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.locked(where.with_suffix(".lock")):
            # Only the holder of the lock writes, so these belong to killed processes.
            for left_over in where.parent.glob(f".{where.name}.*.tmp"):
                left_over.unlink(missing_ok=True)
            yield where
    except OSError as why:
        raise UsageError(f"{where}: cannot be written: {why.strerror or why}") from None
