"""Write a file atomically: in full beside its final place, then renamed."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tritmark.harness.errors import UsageError


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield the path of a new file beside `path` with the same suffix, to be written in the block. After the block the
    new file is synced and replaces `path` atomically. If the block raises, the new file is removed and `path` is
    unchanged.

    Files that a killed process left are removed by the next process that writes `path`. Raises UsageError for a
    symbolic link, a folder, and an error of the disk.
    """
    if path.is_symlink() or path.is_dir():
        kind = "a symbolic link" if path.is_symlink() else "a folder"
        raise UsageError(f"{path}: is {kind}; legal: the path of a new or existing file")
    _sweep(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
        raise


def _sweep(path: Path) -> None:
    left = re.compile(rf"\.{re.escape(path.stem)}\.([0-9]+)\.[0-9a-f]{{8}}\.tmp{re.escape(path.suffix)}")
    with suppress(OSError):
        for each in path.parent.iterdir():
            match = left.fullmatch(each.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                with suppress(OSError):
                    each.unlink()
