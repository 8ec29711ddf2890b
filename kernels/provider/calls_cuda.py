"""Whole calls on CUDA for the league table, see calls. tritmark's calls copy NumPy arrays to the GPU and back. Calls of
other projects take tensors on the GPU, and end when the GPU has finished."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from tritmark.harness.spec import Arrays, Axes, PublicCall
from tritmark.kernels.cuda.device import missing
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.peers import humming, torch_cuda
from tritmark.kernels.peers.launch_cuda import FASTEST
from tritmark.kernels.peers.products import inverse_scales
from tritmark.kernels.ternary_matmul.api import ternary_matmul
from tritmark.kernels.weights.packed import PackedWeights, pack_weights, preferred_format

_ON_GPU = "bfloat16 rows on the GPU"


def _weights(inputs: Arrays) -> PackedWeights:
    return pack_weights(inputs["weights"], float(inputs["weight_scale"]), format=preferred_format(DEVICE))


def _linear(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    layer = QuantizedLinear(_weights(inputs), device=DEVICE)
    rows = inputs["activations"] * inverse_scales(inputs)[:, np.newaxis]
    return lambda: layer(rows)


def _product(dtype: str, inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    weights = _weights(inputs)
    out = np.empty((axes["M"], axes["N"]), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    activations, scale = inputs["activations"], inputs["act_scale"]
    return lambda: ternary_matmul(activations, weights, act_scale=scale, dtype=dtype, out=out, device=DEVICE)


def _rows(inputs: Arrays) -> Any:
    rows, _ = humming.rows_of(humming.BF16, inputs)
    return rows


def _dense(inputs: Arrays) -> Any:
    import torch

    return torch.from_numpy(inputs["weights"] * np.float32(inputs["weight_scale"])).to("cuda")


def _torch(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    torch_cuda.begin()
    import torch

    rows, weights = _rows(inputs), _dense(inputs).to(torch.bfloat16)
    return _finished(lambda: torch.nn.functional.linear(rows, weights))


def _torch_fp8(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    torch_cuda.begin()
    import torch

    wide = _rows(inputs).float()
    scale = (wide.abs().max() / torch.finfo(torch.float8_e4m3fn).max).reshape(1)
    rows = (wide / scale).to(torch.float8_e4m3fn)
    columns = torch.from_numpy(inputs["weights"].astype(np.float32)).to("cuda").to(torch.float8_e4m3fn).t()
    own = torch.full((1,), float(inputs["weight_scale"]), device="cuda")
    return _finished(lambda: torch._scaled_mm(rows, columns, scale_a=scale, scale_b=own, out_dtype=torch.bfloat16))


def _finished(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, followed by a wait for the GPU."""
    import torch

    def whole() -> Any:
        product = call()
        torch.cuda.synchronize()
        return product

    return whole


def _humming(kind: str, inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    import json

    humming.load()
    host = {**inputs, "weights": pack_weights(inputs["weights"], 1.0, format=FASTEST).data}
    layer, rows = humming.layer_of(kind, FASTEST, host, axes), _rows(inputs)
    # Tuned for this number of rows only: otherwise the first call compiles kernels for every number of rows.
    config = json.dumps(humming.tuned(layer, axes))
    return _finished(lambda: layer(rows, tuning_config=config))


def _lacking(theirs: Callable[[], str | None]) -> str | None:
    return missing() or theirs()


def _call(
    name: str, dtype: str, takes: str, prepare: Callable[[Arrays, Axes, int], Callable[[], Any]], **more: Any
) -> PublicCall:
    return PublicCall(
        name=name,
        op="ternary_matmul",
        device=DEVICE,
        dtypes=frozenset({dtype}),
        takes=takes,
        prepare=prepare,
        scales=BUILT_IN[FASTEST].scales,
        **more,
    )


CUDA_CALLS = (
    _call("tritmark QuantizedLinear", "float32", "float32 rows in host memory", _linear, missing=missing),
    *(
        _call(
            "tritmark ternary_matmul, out=",
            dtype,
            "int8 rows and their scales in host memory",
            partial(_product, dtype),
            missing=missing,
        )
        for dtype in ("float32", "bfloat16")
    ),
    _call(
        "torch.nn.functional.linear of bfloat16",
        "bfloat16",
        _ON_GPU,
        _torch,
        missing=partial(_lacking, torch_cuda.missing),
    ),
    _call(
        "torch._scaled_mm of float8 e4m3, inexact",
        "bfloat16",
        "float8 rows on the GPU, with a rounding error of at most 1/16",
        _torch_fp8,
        missing=partial(_lacking, torch_cuda.missing),
    ),
    _call(
        "HummingLayer, W2A8",
        "bfloat16",
        f"{_ON_GPU}, which it quantizes",
        partial(_humming, humming.INT8),
        missing=partial(_lacking, humming.missing),
    ),
    _call(
        "HummingLayer, W2A16",
        "bfloat16",
        _ON_GPU,
        partial(_humming, humming.BF16),
        missing=partial(_lacking, humming.missing),
    ),
)
"""Calls of tritmark and of other projects."""
