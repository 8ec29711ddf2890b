"""A regular file, read at given places and never mapped.

A mapping would be shorter, but its pages stay resident until they are dropped by hand, and a file that shrinks while
it is mapped kills the process with SIGBUS. `preadv` fills the caller's buffer, leaves the rest to the page cache, and
shows a file that shrank as a short read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert, inert_path

_LEGAL = "a regular file that may be read"


def _open_without_waiting(path: str, flags: int) -> int:
    # A fifo with no writer blocks a plain open() for ever.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


class PlainFile:
    """A regular file (or a symlink to one) open for reading; `size` in bytes is as it was when opened.

    Raises WeightFileError for a path that is missing, unreadable, or a folder, fifo, socket or device.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._own_errors(_LEGAL), ExitStack() as undo:
            # Looked at before opening too, since opening a device can have effects of its own.
            self._require_regular(os.stat(path))
            self._file = undo.enter_context(open(path, "rb", buffering=0, opener=_open_without_waiting))
            self.size = self._require_regular(os.fstat(self._file.fileno())).st_size
            undo.pop_all()

    def _require_regular(self, status: os.stat_result) -> os.stat_result:
        if not stat.S_ISREG(status.st_mode):
            kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
            raise self.error(f"a {kinds.get(stat.S_IFMT(status.st_mode), 'device')}", _LEGAL)
        return status

    @contextmanager
    def _own_errors(self, legal: str) -> Iterator[None]:
        try:
            yield
        except WeightFileError:
            raise
        except (OSError, ValueError) as error:
            raise self.error(reason(error), legal) from error

    def error(self, found: str, legal: str) -> WeightFileError:
        """The error to raise about this file; parts of `found` that come from the file must be inert already."""
        return WeightFileError(path=inert_path(self.path), found=found, legal=legal)

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from byte `offset`; the caller has bounded `count`. Raises WeightFileError past the end."""
        if offset + count > self.size:
            raise self.error(f"ends at byte {self.size}", f"{count} bytes from byte {offset}")
        buffer = bytearray(count)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the whole `buffer`, of bytes, from byte `offset`. Raises WeightFileError if the file ends first."""
        rest = buffer
        while rest:
            with self._own_errors("a readable file, inside the `with` block that opened it"):
                got = os.preadv(self._file.fileno(), [rest], offset)
            if got == 0:
                raise self.error(
                    f"ends at byte {offset}, {len(rest)} short", f"the {self.size} bytes it had when opened"
                )
            offset += got
            rest = rest[got:]

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def reason(error: OSError | ValueError) -> str:
    """What the system said, without the path; ValueError is what Python gives for a NUL in a path, or a closed file."""
    return (error.strerror if isinstance(error, OSError) else None) or inert(str(error))
