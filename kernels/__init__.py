"""tritmark.kernels: the ops, their kernels, and the functions that run them.

The functions pick the best kernel that this machine and the shapes admit; `variant=` forces one. Arrays are NumPy's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tritmark.harness.monitor import hook
from tritmark.harness.monitor.receipts import receipts
from tritmark.harness.spec import DeviceStats
from tritmark.kernels import functions
from tritmark.kernels.cuda.memory.memory import MemoryHealth
from tritmark.kernels.dispatch.dispatch import register
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.functions import *  # noqa: F403
from tritmark.kernels.linear.bound_linears import BoundLinears, bind_linears
from tritmark.kernels.linear.gathering import gather_weights
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.linear.warming import WarmedCall, warm_up
from tritmark.kernels.native import cpu
from tritmark.kernels.native.arena import ArenaPages
from tritmark.kernels.public.device_health import check_memory_health, performance_stats
from tritmark.kernels.spreading.result import Spread
from tritmark.kernels.spreading.spread import spread
from tritmark.kernels.weights.packed import PackedWeights, pack_weights

if TYPE_CHECKING:
    from tritmark.kernels.provider.builtin import OPS as OPS
    from tritmark.kernels.provider.builtin import PROVIDER as PROVIDER


def __getattr__(name: str) -> Any:
    if name in {"OPS", "PROVIDER"}:
        from tritmark.kernels.provider import builtin

        globals().update(OPS=builtin.OPS, PROVIDER=builtin.PROVIDER)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
