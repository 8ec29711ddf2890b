"""Keeping choices in their one file, whatever other processes do and whatever becomes of this one."""

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
    """Put a choice in the place of what was found before for the variant, these axes and the device, of whatever driver
    and code; None: the built-in choice is launched there again. Returns the file.

    Raises UsageError where it is damaged, or cannot be written.
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
    """Nobody else who does the same reads or writes the file meanwhile. Raises UsageError where it cannot be."""
    try:
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.locked(where.with_suffix(".lock")):
            # Only who has the lock writes, so these are of processes that were killed.
            for left_over in where.parent.glob(f".{where.name}.*.tmp"):
                left_over.unlink(missing_ok=True)
            yield where
    except OSError as why:
        raise UsageError(f"{where}: cannot be written: {why.strerror or why}") from None
