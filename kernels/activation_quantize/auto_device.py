"""device="auto" of activation_quantize."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.contract import check_threads
from tritmark.harness.spec import Axes, Variant
from tritmark.kernels.activation_quantize.spec import OP, key_for
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.public.auto_device import CallClass, PlacedCall, check_unforced, class_of, placed


def rows(x: Any, threads: int | None, variant: str | None) -> PlacedCall:
    """The device for these rows."""
    check_unforced(OP.name, variant)
    check_threads(OP.name, threads)
    if not isinstance(x, np.ndarray) or not x.size or not x.ndim:
        return placed(None)
    return placed(rows_class(str(x.dtype), {"M": x.size // x.shape[-1], "K": x.shape[-1]}, threads))


def rows_class(dtype: str, axes: Axes, threads: int | None) -> CallClass:
    """See rows."""

    def kernels(device: str) -> tuple[Variant, ...]:
        return (dispatch.select(key_for(dtype, device), axes, None, threads),)

    return CallClass(OP.name, dtype, class_of(axes, threads), kernels)
