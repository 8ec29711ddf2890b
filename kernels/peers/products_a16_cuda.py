"""Products of other projects on CUDA as variants of ternary_matmul_a16, of tier PEER. Activations are unchanged
bfloat16. Bind packs the weights into the peer's layout, or dequantizes them, as its users do beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch, Variant
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.formats.row16_grouped import FORMATS as GROUPED
from tritmark.kernels.peers import humming, products, torch_cuda
from tritmark.kernels.peers.launch import gamma, times
from tritmark.kernels.peers.launch_cuda import (
    BFLOAT16,
    BFLOAT16_LEAST,
    CudaPeerLaunch,
    Floats,
    on_host,
    rounded_once,
    variant,
)
from tritmark.kernels.ternary_matmul_a16.cuda import FORMAT
from tritmark.kernels.ternary_matmul_a16.spec import NAMES

_OP = NAMES["bfloat16"]


def terms(name: str, inputs: Arrays) -> tuple[float, Floats, Floats]:
    """The scale, the exact sums without it, and the sums of the magnitudes of their terms, (M, N).

    Raises InvalidArgumentError if they exceed float32, which has the range of bfloat16.
    """
    activations, scale = inputs["activations"].astype(np.float64), float(inputs["weight_scale"])
    magnitudes = times(np.abs(activations), np.abs(inputs["weights"]))
    products.held(name, np.full(len(activations), scale), magnitudes)
    return scale, times(activations, inputs["weights"]), magnitudes


def bind_torch(name: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """torch.matmul of dequantized weights."""
    import torch

    host = on_host(inputs)
    scale = float(host["weight_scale"])
    columns = (torch_cuda.weights_of(FORMAT, host, axes) * scale).to(torch.bfloat16).t()
    rows, out = torch_cuda.bfloat16_rows(host), torch_cuda.over(outputs["out"])

    def call(stream: Stream) -> None:
        with torch_cuda.within(stream):
            torch.matmul(rows, columns, out=out)

    return CudaPeerLaunch(name, call, outputs, torch_cuda.holders)


def torch_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. Scaled weights are rounded to bfloat16; sums are float32, in any order. Tensor cores truncate in place
    of rounding, which doubles the error."""
    scale, sums, magnitudes = terms("torch.matmul", inputs)
    each = (1 + gamma(2 * axes["K"] + 1)) * (1 + BFLOAT16) - 1
    found = rounded_once(scale * sums, each * scale * magnitudes)
    return {"out": found["out"] + BFLOAT16_LEAST}


def humming_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. Parts of K are summed in float32, scaled, rounded to bfloat16 and added in bfloat16."""
    scale, _, magnitudes = terms(humming.PACKAGE, inputs)
    each = (1 + gamma(2 * axes["K"] + 3)) * (1 + BFLOAT16) ** humming.SLICES - 1
    return {"out": each * scale * magnitudes + humming.SLICES * BFLOAT16_LEAST}


def _grouped(format: str) -> tuple[Variant, ...]:
    """The peers of products with a scale for each group."""
    return (
        variant(
            "humming-w2a16",
            "bfloat16",
            "humming-kernels, int2 weights with scales of groups and bfloat16 activations, tuned for the shape",
            partial(humming.bind, "humming-w2a16", humming.BF16, format),
            humming.missing,
            humming.load,
            op=_OP,
            format=format,
            constraints=humming.CONSTRAINTS,
            error_bound=partial(humming.grouped_bound, humming.BF16, format),
        ),
        variant(
            "torch-bfloat16",
            "bfloat16",
            "PyTorch, torch.matmul of dense bfloat16 weights that contain the scales, sums in float32",
            partial(torch_cuda.bind_dequantized, "torch-bfloat16", format),
            torch_cuda.missing,
            torch_cuda.load,
            op=_OP,
            format=format,
            error_bound=partial(torch_cuda.dequantized_bound, format),
        ),
    )


VARIANTS: tuple[Variant, ...] = (
    variant(
        "humming-w2a16",
        "bfloat16",
        "humming-kernels, int2 weights and bfloat16 activations, compiled and tuned for the shape; from PyPI",
        partial(humming.bind, "humming-w2a16", humming.BF16, FORMAT),
        humming.missing,
        humming.load,
        op=_OP,
        constraints=humming.CONSTRAINTS,
        error_bound=humming_bound,
    ),
    variant(
        "torch-bfloat16",
        "bfloat16",
        "PyTorch, torch.matmul of dequantized bfloat16 weights, sums in float32",
        partial(bind_torch, "torch-bfloat16"),
        torch_cuda.missing,
        torch_cuda.load,
        op=_OP,
        error_bound=torch_bound,
    ),
    *(each for form in GROUPED for each in _grouped(form.name)),
)
"""The variants of packages on PyPI; they register through the entry-point group `tritmark.variants`."""
