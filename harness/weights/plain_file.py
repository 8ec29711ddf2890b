"""A regular file, read at given offsets and never mapped.

Mapped pages stay resident until they are dropped explicitly, and a mapped file that shrinks kills the process with
SIGBUS. `preadv` fills the caller's buffer, leaves the rest to the page cache, and reports a file that shrank as a short
read.
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
    # A plain open() of a fifo without a writer blocks forever.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


class PlainFile:
    """A regular file (or a symlink to one), open for reading; `size` is in bytes, as of opening.

    Raises WeightFileError for a missing or unreadable path, a folder, fifo, socket or device.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._own_errors(_LEGAL), ExitStack() as undo:
            # Checked before opening too: opening a device can have side effects.
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
        """Build an error about this file; parts of `found` from the file must already be inert."""
        return WeightFileError(path=inert_path(self.path), found=found, legal=legal)

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from byte `offset`; the caller limits `count`. Raises WeightFileError past the end."""
        if offset + count > self.size:
            raise self.error(f"ends at byte {self.size}", f"{count} bytes from byte {offset}")
        buffer = bytearray(count)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with bytes from byte `offset`. Raises WeightFileError if the file ends first."""
        rest = buffer
        while rest:
            with self._own_errors("a readable file, inside the `with` block that opened it"):
                got = os.preadv(self._file.fileno(), [rest], offset)
            if got == 0:
                raise self.error(
                    f"ends at byte {offset}, {len(rest)} bytes too early", f"the {self.size} bytes it had when opened"
                )
            offset += got
            rest = rest[got:]

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()


def reason(error: OSError | ValueError) -> str:
    """The system's message without the path. Python raises ValueError for a NUL in a path and for a closed file."""
    return (error.strerror if isinstance(error, OSError) else None) or inert(str(error))
