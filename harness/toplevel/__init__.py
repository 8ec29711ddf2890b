"""tritmark: benchmark and validation harness for BitNet (1.58-bit, ternary) kernels.

`tritmark.kernels` has the kernels and `tritmark.torch` the PyTorch ops and modules. `tritmark.monitor` watches the
calls of a program, `tritmark.check` judges a kernel of yours, and `tritmark.sweep` times kernels over an axis. Each
part is imported at its first use. Other distributions may add parts: a folder `tritmark/` without an `__init__.py`.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from pkgutil import extend_path as _extend_path
from pkgutil import iter_modules as _iter_modules
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from tritmark.harness.check import check as check
    from tritmark.harness.monitor import monitor as monitor
    from tritmark.harness.sweep import sweep as sweep

_own = list(__path__)
_found: list[str] = list(_extend_path([], __name__))
# In the order of sys.path, as for a namespace package, so that the first of two installations is used. If another
# finder loaded this package, as in the gate, sys.path does not lead to this folder.
__path__ = _found if set(_own) <= set(_found) else [*_own, *_found]

__version__: str
"""Version of the installed distribution."""


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        globals()[name] = version("tritmark")
        return globals()[name]
    if name == "monitor":
        from tritmark.harness.monitor import monitor

        globals()[name] = monitor
        return monitor
    if name == "check":
        from tritmark.harness.check import check

        globals()[name] = check
        return check
    if name == "sweep":
        from tritmark.harness.sweep import sweep

        globals()[name] = sweep
        return sweep
    if not name.startswith("_"):
        from importlib.util import find_spec

        if find_spec(f"{__name__}.{name}") is not None:
            return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its parts are {', '.join(_parts())}")


def __dir__() -> list[str]:
    return [
        *(name for name in globals() if name.startswith("__")),
        "__version__",
        "check",
        "monitor",
        "sweep",
        *_parts(),
    ]


def _parts() -> list[str]:
    return sorted({each.name for each in _iter_modules(__path__) if not each.name.startswith("_")})
