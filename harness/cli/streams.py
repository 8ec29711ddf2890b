"""The standard streams as the session gives them: closed, full, or of an encoding that lacks letters."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from tritmark.harness.errors import BadEnvironmentError

_ERRORS = "backslashreplace"


class OutputRefusedError(BadEnvironmentError):
    """Standard output does not take what is written there. `quiet`: its reader has gone, as `| head` does."""

    def __init__(self, error: OSError) -> None:
        self.quiet = error.errno == errno.EPIPE
        super().__init__(
            f"standard output cannot be written: {error.strerror or error}",
            next_step="send it to a file or a pipe that takes it, or to /dev/null; Records that are finished are kept",
        )


class _Output(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputRefusedError(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputRefusedError(error) from None


class _Errors(io.TextIOWrapper):
    """What cannot be told goes on all the same: there is no other place to tell it."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class _Closed(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@contextmanager
def standing() -> Iterator[None]:
    """Give this process three standard streams meanwhile: to be entered first, for a file that is opened while
    descriptor 1 is closed would take what is printed.

    What the encoding of the streams lacks is written as an escape. A write to standard output that fails raises
    OutputRefusedError, the last ones when it is flushed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
    before = sys.stdin, sys.stdout, sys.stderr
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = _taken(sys.stdout, _Output, _Closed())
    sys.stderr = _taken(sys.stderr, _Errors, io.FileIO(2, "w", closefd=False))
    try:
        yield
    finally:
        for stream, old in ((sys.stdout, before[1]), (sys.stderr, before[2])):
            if stream is not old and isinstance(stream, io.TextIOWrapper):
                with suppress(OSError, ValueError, OutputRefusedError):
                    stream.detach()
        sys.stdin, sys.stdout, sys.stderr = before


def _taken(stream: IO[str] | None, kind: type[io.TextIOWrapper], instead: io.RawIOBase) -> Any:
    """The stream as that kind; one of `instead` where it is closed, itself where it is no file."""
    if stream is None:
        return kind(io.BufferedWriter(instead), encoding="utf-8", errors=_ERRORS)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    lines = stream.line_buffering
    return kind(cast(Any, stream.buffer), encoding=stream.encoding, errors=_ERRORS, line_buffering=lines)


def give_up_output() -> None:
    """After it was refused: what is left in the buffer goes nowhere, for Python tries again when it ends, and must not
    fail then."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
