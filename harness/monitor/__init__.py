"""tritmark.monitor: counts and times the calls of a program, keeps them, and compares sessions.

Importing it loads nothing but this file; kernels import `hook` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from tritmark.harness.monitor.session import MonitorSession

Program = TypeVar("Program", bound=Callable[..., Any])


@overload
def monitor(program: Program, /) -> Program: ...


@overload
def monitor(
    program: str = ..., *, database: str | Path | None = ..., interval_s: float = ..., keep: bool = ...
) -> MonitorSession: ...


def monitor(
    program: Any = "", *, database: str | Path | None = None, interval_s: float = 1.0, keep: bool = True
) -> Any:
    """Watch calls of kernels: `with tritmark.monitor() as session:`, or `@tritmark.monitor` above a function.

    All threads of the process are watched: the functions of tritmark.kernels, QuantizedLinear, products with
    PackedWeights, the ops of tritmark.torch and BitLinear. `program` is the name under which sessions are compared, by
    default that of the script. At the end the session is added to `database`, an SQLite file, by default
    `monitor/sessions.sqlite` in the state folder; `keep=False` keeps it in memory only. `interval_s` is the time
    between two samples of the machine.

    Monitors may be nested. Each is a session of its own that counts every call inside once, and so do the totals of the
    report. A process that is forked inside is not watched. Raises
    InvalidArgumentError for an interval below 0.05 s.
    """
    from tritmark.harness.monitor.session import MonitorSession

    if callable(program):
        return MonitorSession()(program)
    return MonitorSession(program, database=database, interval_s=interval_s, keep=keep)
