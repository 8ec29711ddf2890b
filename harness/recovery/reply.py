"""What a worker answers to a recovering call."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from tritmark.harness import errors
from tritmark.harness.errors import TritmarkError
from tritmark.harness.recovery.failures import Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerError:
    """An error of the caller: a broken contract, an unknown name. It is raised in the parent as it is."""

    name: str
    """Its type: one of harness.errors, or built in."""
    args: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: Exception) -> CallerError:
        """The error, as plain values. Types of other packages become RuntimeError."""
        kind = type(error)
        if getattr(errors, kind.__name__, None) is kind or getattr(builtins, kind.__name__, None) is kind:
            return cls(name=kind.__name__, args=tuple(map(_plain, error.args)), state=_plain(dict(vars(error))))
        return cls(name="RuntimeError", args=(f"{kind.__name__}: {error}",), state={})

    def made(self) -> Exception:
        """The error, to raise."""
        kind = getattr(errors, self.name, None) or getattr(builtins, self.name)
        assert issubclass(kind, Exception)
        made: Exception = kind.__new__(kind, *self.args)
        made.args = self.args
        if isinstance(made, TritmarkError):
            vars(made).update(self.state)
        return made


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if isinstance(value, str | int | float | None) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One of a result, a failure of a kernel, an error of the caller, or why this attempt is impossible."""

    result: Any = None
    receipts: tuple[Any, ...] = ()
    """Of all kernels that ran, in order."""
    failure: Diagnosis | None = None
    caller: CallerError | None = None
    impossible: str = ""
