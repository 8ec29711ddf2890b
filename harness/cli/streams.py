"""Standard streams that are closed, full, or have an encoding that lacks characters."""

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
    """A write to standard output failed. `quiet`: the reader closed the pipe, as `| head` does."""

    def __init__(self, error: OSError) -> None:
        self.quiet = error.errno == errno.EPIPE
        super().__init__(
            f"standard output cannot be written: {error.strerror or error}",
            next_step="redirect it to a writable file, a pipe or /dev/null; finished Records are kept",
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
    """Ignores write errors: there is no other stream to report them on."""

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
    """Give this process three open standard streams. Enter it first: otherwise, with descriptor 1 closed, the next
    opened file would receive the output.

    Characters that the encoding lacks are written as escapes. A failed write to standard output raises
    OutputRefusedError, for buffered text when it is flushed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free descriptor: this one
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
    """The stream as `kind`; a stream on `instead` if it is closed; the stream itself if it is not a file."""
    if stream is None:
        return kind(io.BufferedWriter(instead), encoding="utf-8", errors=_ERRORS)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    lines = stream.line_buffering
    return kind(cast(Any, stream.buffer), encoding=stream.encoding, errors=_ERRORS, line_buffering=lines)


def give_up_output() -> None:
    """Discard the buffered output after an error. Python flushes it at exit, and that must not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
