"""The extension modules, each imported at its first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tritmark.kernels.native import prefetch


@cache
def native(module: str) -> Any:
    """The extension module of that name. Importing tritmark.kernels loads only `cpu`.

    All others except `masking` need the thread pool, which gets its limits when it is loaded.
    """
    loaded = prefetch.extension() if module == prefetch.OP else import_module(f"tritmark.cython_ext.{module}")
    if module == "pool":
        from tritmark.kernels.native.threads import prepare

        prepare(loaded)
    elif module not in {"cpu", "masking"}:
        native("pool")
    return loaded
