"""tritmark.kernels: the ops, their kernels, and the functions that run them.

The functions pick the best kernel that this machine and the shapes admit; `variant=` forces one. Arrays are NumPy's.
"""

from __future__ import annotations

import os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from tritmark.harness.monitor import hook
from tritmark.harness.monitor.receipts import receipts
from tritmark.harness.spec import DeviceStats
from tritmark.kernels import functions
from tritmark.kernels.dispatch.dispatch import register
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.functions import *  # noqa: F403
from tritmark.kernels.native import cpu
from tritmark.kernels.weights.packed import PackedWeights, pack_weights

if TYPE_CHECKING:
    from tritmark.kernels.cuda.memory.memory import MemoryHealth as MemoryHealth
    from tritmark.kernels.linear.bound_linears import BoundLinears as BoundLinears
    from tritmark.kernels.linear.bound_linears import bind_linears as bind_linears
    from tritmark.kernels.linear.gathering import gather_weights as gather_weights
    from tritmark.kernels.linear.linear import QuantizedLinear as QuantizedLinear
    from tritmark.kernels.linear.warming import WarmedCall as WarmedCall
    from tritmark.kernels.linear.warming import warm_up as warm_up
    from tritmark.kernels.native.arena import ArenaPages as ArenaPages
    from tritmark.kernels.provider.builtin import OPS as OPS
    from tritmark.kernels.provider.builtin import PROVIDER as PROVIDER
    from tritmark.kernels.public.device_health import check_memory_health as check_memory_health
    from tritmark.kernels.public.device_health import performance_stats as performance_stats
    from tritmark.kernels.spreading.result import Spread as Spread
    from tritmark.kernels.spreading.spread import spread as spread

# Imported at their first use: a program needs few of them, and most start without any.
_LATE = {
    "ArenaPages": "native.arena",
    "BoundLinears": "linear.bound_linears",
    "MemoryHealth": "cuda.memory.memory",
    "OPS": "provider.builtin",
    "PROVIDER": "provider.builtin",
    "QuantizedLinear": "linear.linear",
    "Spread": "spreading.result",
    "WarmedCall": "linear.warming",
    "bind_linears": "linear.bound_linears",
    "check_memory_health": "public.device_health",
    "gather_weights": "linear.gathering",
    "performance_stats": "public.device_health",
    "spread": "spreading.spread",
    "warm_up": "linear.warming",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        globals()[name] = getattr(_import_module(f"{__name__}.{_LATE[name]}"), name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "FORMATS",
    "OPS",
    "PROVIDER",
    "ArenaPages",
    "BoundLinears",
    "DeviceStats",
    "MemoryHealth",
    "PackedWeights",
    "QuantizedLinear",
    "Spread",
    "WarmedCall",
    "bind_linears",
    "check_memory_health",
    "gather_weights",
    "pack_weights",
    "performance_stats",
    "receipts",
    "register",
    "spread",
    "warm_up",
]
__all__ += functions.__all__

hook.provide(lambda *asked: cpu.native("call_counts").Recorder(*asked))
if os.environ.get(hook.VARIABLE):
    from tritmark.harness.monitor.environment import begin

    begin()
