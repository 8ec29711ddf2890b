"""PyTorch's products on CUDA as peers of ternary_matmul: int8 (`torch._int_mm`) and bfloat16, of dense weights.

Its tensors are views of tritmark's arrays, and its calls go into tritmark's stream. Memory that the calls allocate
comes from a separate pool, since the graphs that the clock records continue to use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.peers.launch import gamma, not_installed
from tritmark.kernels.peers.launch_cuda import (
    BFLOAT16,
    CudaPeerLaunch,
    on_host,
    rounded_once,
    terms,
    unsimulated,
)
from tritmark.kernels.peers.products import Bytes, Codes, both_scales, packed

_LIBRARY = "libtorch_cuda.so"
_HOLDERS = ("libcublas", "libtorch_cuda")
"""Prefixes of the files that contain the functions of its products."""


def missing() -> str | None:
    """Why it cannot be used here and the next step, or None; nothing is loaded."""
    from importlib.util import find_spec

    why = unsimulated()
    if why is not None:
        return why
    found = find_spec("torch")
    if found is None or found.origin is None:
        return not_installed("peers-cuda")
    library = Path(found.origin).with_name("lib") / _LIBRARY
    return None if library.is_file() else "this PyTorch is built without CUDA: pip install torch, from PyPI"


def begin() -> None:
    """Import it and initialize the GPU."""
    import torch

    torch.set_num_threads(1)
    torch.zeros(1, device="cuda")


def load() -> None:
    """As `begin`, with all sums in float32, for which a bound exists; by default cuBLAS may add parts of them in
    bfloat16."""
    begin()
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def holders() -> list[Path]:
    """The loaded libraries that contain the functions that it launches."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if len(line.split(maxsplit=5)) > 5}
    return sorted(path for path in paths if path.name.startswith(_HOLDERS))


@contextmanager
def within(stream: Stream) -> Iterator[None]:
    """A context in which PyTorch's work goes into that stream."""
    import torch

    with torch.cuda.use_mem_pool(_temporaries()), torch.cuda.stream(_stream(stream.handle)):
        yield


@cache
def _stream(handle: int) -> Any:
    import torch

    return torch.cuda.ExternalStream(handle)


@cache
def _temporaries() -> Any:
    import torch

    return torch.cuda.MemPool()


def over(array: DeviceArray) -> Any:
    """A tensor view of a C-contiguous device array, of the same type. It keeps no memory alive."""
    import torch

    # Not torch.as_tensor: it leaks the shape, type and address from __cuda_array_interface__
    # (pytorch/pytorch#194877).
    storage = torch._C._construct_storage_from_data_pointer(array.pointer, _place(), array.nbytes)
    return torch.empty(0, dtype=getattr(torch, array.dtype.name), device=_place()).set_(storage, 0, array.shape)


@cache
def _place() -> Any:
    import torch

    return torch.device("cuda", torch.cuda.current_device())


def weights_of(format: str, inputs: Arrays, axes: Axes) -> Any:
    """Dense int8 weights (N, K) on the device. `inputs` are on the host."""
    import torch

    dense = packed(format, "dense", _dense, inputs, axes)
    return torch.from_numpy(dense.view(np.int8)).to("cuda")


def _dense(codes: Codes) -> Bytes:
    return np.ascontiguousarray(codes).view(np.uint8)


def bind_int8(
    name: str, format: str, scaled: bool, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
) -> Launch:
    """The int8 product in int32, times the scales if `scaled`."""
    import torch

    host = on_host(inputs)
    out, columns = over(outputs["out"]), weights_of(format, host, axes).t()
    activations = torch.from_numpy(host["activations"]).to("cuda")
    scale = torch.from_numpy(both_scales(host)[:, np.newaxis]).to("cuda")
    sums = torch.empty(out.shape, dtype=torch.int32, device="cuda") if scaled else out

    def call(stream: Stream) -> None:
        with within(stream):
            torch._int_mm(activations, columns, out=sums)
            if scaled:
                torch.mul(sums, scale, out=out)

    return CudaPeerLaunch(name, call, outputs, holders)


def bind_bfloat16(name: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """The bfloat16 product. The activations contain the scales, as in a model."""
    import torch

    host = on_host(inputs)
    out, columns = over(outputs["out"]), weights_of(format, host, axes).to(torch.bfloat16).t()
    rows = torch.from_numpy(host["activations"] * both_scales(host)[:, np.newaxis]).to(torch.bfloat16).to("cuda")

    def call(stream: Stream) -> None:
        with within(stream):
            torch.matmul(rows, columns, out=out)

    return CudaPeerLaunch(name, call, outputs, holders)


def int8_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of an exact sum. The scale, the sum as float32 and their product are rounded, then the output to
    bfloat16."""
    scale, sums, _ = terms("torch._int_mm", inputs)
    return rounded_once(scale * sums, gamma(3) * np.abs(scale * sums))


def bfloat16_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. Activations times scales are rounded to float32 twice and to bfloat16; sums are float32, in any order.
    Tensor cores truncate in place of rounding, which doubles the error."""
    scale, sums, magnitudes = terms("torch.matmul", inputs)
    each = (1 + gamma(2 * axes["K"] + 2)) * (1 + BFLOAT16) - 1
    return rounded_once(scale * sums, each * scale * magnitudes)
