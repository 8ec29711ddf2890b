"""The errors that a user of tritmark can meet; every one says what was found and what would have been legal."""

from __future__ import annotations

from collections.abc import Sequence


class TritmarkError(Exception):
    """Base of every error that tritmark raises on purpose."""


class InvalidArgumentError(TritmarkError, ValueError):
    """An argument breaks the contract of an operation; nothing has been written.

    `op`, `argument`, `found` and `legal` are kept as attributes.
    """

    def __init__(self, *, op: str, argument: str, found: str, legal: str) -> None:
        self.op = op
        self.argument = argument
        self.found = found
        self.legal = legal
        super().__init__(f"{op}: {argument} is {found}; legal: {legal}")


class NoCompatibleKernelError(TritmarkError, LookupError):
    """No registered variant fits; `candidates` pairs each one's name with why it was refused."""

    def __init__(self, *, request: str, candidates: Sequence[tuple[str, str]]) -> None:
        self.request = request
        self.candidates = tuple(candidates)
        lines = [f"no compatible kernel for {request}"]
        lines += [f"  {name}: {reason}" for name, reason in self.candidates] or ["  nothing is registered for it"]
        super().__init__("\n".join(lines))


class RegistrationError(TritmarkError, ValueError):
    """A variant could not be registered: a duplicate, or a contradiction in its description."""


class AmbiguousKernelError(TritmarkError, LookupError):
    """Two variants of the same tier fit equally well; the registration has to be mended, or one named."""


class UsageError(TritmarkError, ValueError):
    """A command line, suite file or environment variable that cannot be obeyed (exit status 2)."""


class RecordError(TritmarkError, ValueError):
    """A Record that cannot be read: truncated, of another version, or not a Record."""

    def __init__(self, *, path: str, found: str, legal: str) -> None:
        self.path = path
        self.found = found
        self.legal = legal
        super().__init__(f"{path}: {found}; legal: {legal}")


class WeightFileError(TritmarkError, ValueError):
    """A weight file that cannot be trusted or read; nothing was allocated for it."""

    def __init__(self, *, path: str, found: str, legal: str) -> None:
        self.path = path
        self.found = found
        self.legal = legal
        super().__init__(f"{path}: {found}; legal: {legal}")
