"""Whole calls of i2s_quantize on each device, see calls. On CUDA they copy the values to the GPU and the codes back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, PublicCall
from tritmark.kernels.cuda.device import missing
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.i2s_quantize.api import KEY, i2s_quantize


def _prepare(device: str, inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    x, scale, out = inputs["x"], float(inputs["scale"]), np.empty(axes["n"], np.int8)
    # A GPU has no thread count.
    limit = threads if device == KEY.device else None
    return lambda: i2s_quantize(x, scale, out=out, threads=limit, device=device)


def _call(device: str, **more: Any) -> PublicCall:
    return PublicCall(
        name="tritmark i2s_quantize, out=",
        op=KEY.op,
        device=device,
        dtypes=frozenset({KEY.dtype}),
        takes="float32 values in host memory",
        prepare=partial(_prepare, device),
        **more,
    )


QUANTIZE_CALLS = (_call(KEY.device), _call(DEVICE, missing=missing))
"""The same call on each device."""
