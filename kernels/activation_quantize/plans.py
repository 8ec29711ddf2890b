"""Plans of activation_quantize, see kernels/dispatch/plans.py."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.monitor.hook import KernelRan
from tritmark.harness.spec import Arrays, Axes, Launch, Variant
from tritmark.kernels.activation_quantize.spec import KEY
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.dispatch.plans import RESTS_ON, keep, native, remember
from tritmark.kernels.native import cpu

PLANNED: dict[Any, KernelRan] = {}
"""The kernels of the plans, by their keys."""


@cache
def quantize_plans() -> Any:
    """The plans of all calls."""
    return native().QuantizePlans(*RESTS_ON)


def plan_quantize(M: int, K: int, variant: str | None, threads: int | None) -> None:
    """Make the plan for the next call of that kind."""
    key = native().quantize_key(M, K, variant, threads)
    if key is not None:

        def made() -> Any:
            axes = {"M": M, "K": K}
            chosen = dispatch.select(KEY, axes, variant, threads)
            if not cpu.own(chosen):
                return None
            remember(PLANNED, key, chosen, axes, threads)
            return native().QuantizePlan(quantize_launch(chosen, axes, threads))

        keep(quantize_plans(), key, made)


def quantize_launch(
    chosen: Variant, axes: Axes, threads: int | None, dtype: str = "float32", constants: Arrays = MappingProxyType({})
) -> Launch:
    """A launch bound to arrays without content, except `constants`: a plan passes the addresses of others."""
    M, K = axes["M"], axes["K"]
    inputs = {"x": np.empty((M, K), named_dtype(dtype)), **constants}
    outputs = {"q": np.empty((M, K), np.int8), "scale": np.empty(M, np.float32), "sum": np.empty(M, np.int32)}
    return chosen.bind(inputs, outputs, axes, dispatch.threads_for(chosen.key, threads))
