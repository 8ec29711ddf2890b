"""A file that is there in full or not at all, however large: written beside its place, checked, and put there."""

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
    """The path of a new file beside `path`, with its suffix, to be written in the block; after the block it is made
    durable and takes the place of `path`, at once. Where the block raises, it is removed, and `path` is as it was.

    What a process that was killed left over is removed by the next that writes the same file. Raises UsageError for a
    link, a folder, and a disk that refuses.
    """
    if path.is_symlink() or path.is_dir():
        kind = "a symbolic link" if path.is_symlink() else "a folder"
        raise UsageError(f"{path}: is {kind}; legal: the name of a file, new or to be replaced")
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
