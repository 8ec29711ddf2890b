"""humming-kernels, of the vLLM project, as peers of ternary_matmul on CUDA: W2A8, int2 weights and int8 activations,
and W2A16, int2 weights and bfloat16 activations, which is a peer of ternary_matmul_a16 too.

It compiles a kernel for each N and K, tuned for M, at the first call with a shape, and caches it under ~/.humming.
Weights pass through its own layer (HummingLayer), as for its users. They are packed for it as w + 2 in two bits, 16
consecutive weights of a row in a little-endian uint32, the first in the lowest bits. Scales of groups are bfloat16 in
its layer. With int8 activations it makes integers of them, of which 1024 is the largest scale of the matrix
(process_int_weight_scale of its transform.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch, MultipleOf
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.formats.bits import ZERO_BYTE, join_fields
from tritmark.kernels.peers import torch_cuda
from tritmark.kernels.peers.launch import gamma, not_installed
from tritmark.kernels.peers.launch_cuda import (
    BFLOAT16,
    BFLOAT16_LEAST,
    CudaPeerLaunch,
    grouped_terms,
    on_host,
    terms,
    unsimulated,
)
from tritmark.kernels.peers.products import Bytes, Codes, inverse_scales, packed

PACKAGE = "humming-kernels"
INT8, BF16 = "int8", "bfloat16"
"""Dtypes of its activations."""
CONSTRAINTS = (MultipleOf("N", 128), MultipleOf("K", 128))
"""Its heuristics support only whole tiles."""
INTEGER_SCALES = 1024
"""The integer of the largest scale of a group."""
SLICES = 10
"""The most parts of K, each rounded to bfloat16 and added in bfloat16 (kMaxSlices of its scheduler.cuh)."""


def missing() -> str | None:
    """Why it cannot be used here and the next step, or None; nothing is loaded."""
    from importlib.metadata import PackageNotFoundError, version

    why = unsimulated()
    if why is not None:
        return why
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return not_installed("peers-cuda")
    return torch_cuda.missing()


def load() -> None:
    """Import it. Otherwise it would rebuild its compiled kernels in a background process."""
    os.environ.setdefault("HUMMING_DISABLE_PARALLEL_BUILD", "1")
    torch_cuda.begin()
    import humming.layer  # noqa: F401


def pack(codes: Codes) -> Bytes:
    """Codes (N, K) in the layout of its layer: uint8 (N, K / 4)."""
    fields = np.empty((codes.shape[0], codes.shape[1] // 4), np.uint8)
    join_fields([codes[:, place::4] for place in range(4)], out=fields)
    fields += ZERO_BYTE  # fields are w + 2
    return fields


def layer_of(kind: str, format: str, inputs: Arrays, axes: Axes) -> Any:
    """Its layer with these weights, on the device. `inputs` are on the host."""
    import torch
    from humming.layer import HummingLayer

    form, shape = BUILT_IN[format], (axes["N"], axes["K"])
    grouped = form.scale_per == "group"
    of_scales = {"scale_type": "group", "group_size": form.group} if grouped else {"scale_type": "tensor"}
    made = HummingLayer(
        shape_n=axes["N"],
        shape_k=axes["K"],
        weight_config={"dtype": "uint2", **of_scales},
        input_config={"dtype": kind},
        torch_dtype=torch.bfloat16,
    ).cuda()
    words = packed(format, PACKAGE, pack, inputs, axes).view("<i4")
    if grouped:
        stored = form.stored_scales(np.ascontiguousarray(inputs["weights"]).reshape(-1), shape)
        scale = torch.from_numpy(stored).to(torch.bfloat16)
    else:
        scale = torch.tensor([float(inputs["weight_scale"])], dtype=torch.float32)
    made.load_from_tensors({"weight": torch.from_numpy(words).to("cuda"), "weight_scale": scale.to("cuda")})
    made.transform()
    return made


def tuned(layer: Any, axes: Axes) -> Any:
    """The configuration that its heuristics choose for M rows."""
    from humming.tune import get_heuristics_config

    return get_heuristics_config(layer.humming_config, shape_m=axes["M"])


def rows_of(kind: str, inputs: Arrays) -> tuple[Any, Any]:
    """Activations on the device and their scales (M, 1): int8 codes with scales; or bfloat16 values, already scaled or
    those of the op, with None."""
    if kind != INT8:
        return torch_cuda.bfloat16_rows(inputs), None
    import torch

    scale = inverse_scales(inputs)[:, np.newaxis]
    return torch.from_numpy(inputs["activations"]).to("cuda"), torch.from_numpy(scale).to("cuda")


def bind(name: str, kind: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """Its kernel for the shape, from activations of that kind to bfloat16."""
    import json

    from humming.kernel.humming import HummingKernel
    from humming.ops import launch_kernel

    host = on_host(inputs)
    layer = layer_of(kind, format, host, axes)
    rows, scales = rows_of(kind, host)
    out = torch_cuda.over(outputs["out"])
    configs = HummingKernel.prepare_kernels(layer.humming_config.to_str(), None, json.dumps(tuned(layer, axes)))
    compiled = HummingKernel._id2kernel[int(configs[2])].kernel_filename

    def call(stream: Stream) -> None:
        with torch_cuda.within(stream):
            launch_kernel(
                configs=configs,
                inputs=rows,
                weight=layer.weight,
                weight_scale=layer.weight_scale,
                weight_scale_2=getattr(layer, "weight_scale_2", None),
                input_scale=scales,
                outputs=out,
                locks=layer.locks,
            )

    return CudaPeerLaunch(name, call, outputs, partial(_binary, compiled))


def _binary(path: str) -> list[Path]:
    return [Path(path)]


def bound(kind: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. Parts of K are summed (int8 exactly, bfloat16 in float32, see torch_cuda.bfloat16_bound), scaled in
    float32, rounded to bfloat16 and added in bfloat16."""
    scale, _, magnitudes = terms(PACKAGE, inputs)
    # Roundings: the scale of the activations, its product with the weights' scale, the sum as float32, its product;
    # or the scale, the scaled activation, and that as bfloat16.
    each = 1 + gamma(4) if kind == INT8 else (1 + gamma(2 * axes["K"] + 3)) * (1 + BFLOAT16)
    return {"out": (each * (1 + BFLOAT16) ** SLICES - 1) * scale * magnitudes}


def grouped_bound(kind: str, format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """As `bound`, for a format with a scale for each group. A scale is rounded to bfloat16, and with int8 activations
    to an integer, of which INTEGER_SCALES is the largest scale."""
    inverse, magnitudes, plain, largest = grouped_terms(PACKAGE, format, inputs, axes)
    groups = axes["K"] // BUILT_IN[format].group
    each = 1 + gamma(groups + 5) if kind == INT8 else (1 + gamma(2 * axes["K"] + groups + 3)) * (1 + BFLOAT16)
    whole = each * (1 + BFLOAT16) ** (SLICES + 1)
    off = (whole - 1) * magnitudes
    if kind == INT8:
        off += whole * largest / (2 * INTEGER_SCALES) * plain
    return {"out": inverse * off + SLICES * BFLOAT16_LEAST}
