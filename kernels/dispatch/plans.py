"""Plans of the public functions' calls with NumPy arrays on the CPU, see cython_ext/host_plan.pyx.

The first call takes the long path, where the contract checks everything that a plan does not check itself. If it raised
nothing and the chosen kernels are this package's, a plan is made. The next call of the same kind uses it, until the
registry (and with it the measured choices), TRITMARK_FORCE_ISA or TRITMARK_TUNED changes. Here is what all plans share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness import tuned
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.monitor.hook import KernelRan
from tritmark.harness.registry import Registry
from tritmark.harness.spec import Axes, Variant
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu

ROOM = 1 << 20
"""Limit in bytes of the workspace that a plan keeps. Calls with a larger one take milliseconds, and use the long
path."""
RESTS_ON = (cpu.FORCE, tuned.SELECT)
"""Environment variables on which the choice of a kernel depends."""
_MOST_PLANNED = 8192


def native() -> Any:
    """The boundary."""
    return cpu.native("host_plan")


def widened(x: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
    """C-contiguous float16 or bfloat16 values as float32, which every kernel takes, so that a call finds its plan. None
    for other arrays, and if the copy takes more than ROOM: above it the gain becomes small."""
    if x.dtype.itemsize != 2 or not x.flags.c_contiguous or 2 * x.nbytes > ROOM:
        return None
    if x.dtype == named_dtype("bfloat16"):  # its bits are the upper half of float32's, and no NaN is converted
        return x.astype(np.float32)
    if x.dtype != named_dtype("float16"):
        return None
    with np.errstate(invalid="ignore"):
        return x.astype(np.float32)


def remember(planned: dict[Any, KernelRan], key: Any, chosen: Variant, axes: Axes, threads: int | None) -> None:
    """Keep what a plan runs, which its calls do not report."""
    planned.pop(key, None)
    if len(planned) >= _MOST_PLANNED:  # more than there are plans, so the oldest one has no plan any more
        del planned[next(iter(planned))]
    planned[key] = KernelRan(chosen.id, axes, dispatch.threads_for(chosen.key, threads))


def keep(plans: Any, key: Any, made: Callable[[], Any]) -> None:
    """Add the plan that `made` returns, if it returns one and the set has none for the key."""
    if dispatch.observed():
        return
    registry: Registry = dispatch.registry()
    plans.current(registry)  # drops outdated plans
    if key not in plans:
        plan = made()
        if plan is not None:
            plans.keep(registry, key, plan)
