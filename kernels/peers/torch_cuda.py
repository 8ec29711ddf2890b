"""PyTorch's products on CUDA as peers of ternary_matmul: int8 (`torch._int_mm`), float8 (`torch._scaled_mm`) and
bfloat16, of dense weights.

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

from tritmark.harness.machine import gpu
from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.peers.launch import gamma, not_installed, times
from tritmark.kernels.peers.launch_cuda import (
    BFLOAT16,
    BFLOAT16_LEAST,
    CudaPeerLaunch,
    grouped_terms,
    on_host,
    rounded_once,
    terms,
    unsimulated,
)
from tritmark.kernels.peers.products import Bytes, Codes, both_scales, inverse_scales, packed

_LIBRARY = "libtorch_cuda.so"
E4M3, E4M3_LEAST, E4M3_MOST = 2.0**-4, 2.0**-9, 448.0
"""Of float8 with 4 bits of exponent (OCP OFP8): unit roundoff, least and largest number."""
FAST_BITS, FAST_K = 14, 32
"""Bits that Hopper keeps of a sum with fast accumulation, and the terms that an instruction adds."""
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


def missing_float8() -> str | None:
    """As `missing`, and without tensor cores for float8."""
    why = missing()
    if why is not None or gpu.driver_problem() is not None:  # without a GPU the device itself is missing
        return why
    capability = gpu.device_info(0).capability
    return None if capability >= (8, 9) else f"float8 needs compute capability 8.9, and this GPU has {capability}"


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
    """Dense int8 weights (N, K), or (E, N, K) of experts, on the device. `inputs` are on the host."""
    import torch

    dense = packed(format, "dense", _dense, inputs, axes)
    return torch.from_numpy(dense.view(np.int8)).to("cuda")


def _dense(codes: Codes) -> Bytes:
    return np.ascontiguousarray(codes).view(np.uint8)


def bfloat16_rows(inputs: Arrays) -> Any:
    """Activations of bfloat16 on the device: those of the op, or int8 codes times their scales. `inputs` are on the
    host."""
    import torch

    if "act_scale" in inputs:
        return (
            torch.from_numpy(inputs["activations"] * inverse_scales(inputs)[:, np.newaxis])
            .to(torch.bfloat16)
            .to("cuda")
        )
    rows = np.ascontiguousarray(inputs["activations"]).view(np.int16)
    return torch.from_numpy(rows).to("cuda").view(torch.bfloat16)


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


def bind_dequantized(name: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """The bfloat16 product with weights times the scales of their groups, in bfloat16."""
    import torch

    host, form = on_host(inputs), BUILT_IN[format]
    stored = form.stored_scales(np.ascontiguousarray(host["weights"]).reshape(-1), (axes["N"], axes["K"]))
    scales = torch.from_numpy(stored).to("cuda").repeat_interleave(form.group, dim=1)
    out, columns = over(outputs["out"]), (weights_of(format, host, axes) * scales).to(torch.bfloat16).t()
    rows = bfloat16_rows(host)

    def call(stream: Stream) -> None:
        with within(stream):
            torch.matmul(rows, columns, out=out)

    return CudaPeerLaunch(name, call, outputs, holders)


def bind_fp8(name: str, format: str, fast: bool, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """The float8 (e4m3) product with one scale for all activations, as cuBLAS is fastest. The activations contain their
    scales. `fast`: cuBLAS may accumulate with fewer bits (use_fast_accum)."""
    import torch

    host = on_host(inputs)
    out, columns = over(outputs["out"]), weights_of(format, host, axes).to(torch.float8_e4m3fn).t()
    values = host["activations"] * both_scales(host)[:, np.newaxis]
    step = float8_step(inputs)
    rows = torch.from_numpy(values / step).to("cuda").to(torch.float8_e4m3fn)
    scales = [torch.tensor(each, dtype=torch.float32, device="cuda") for each in (step, 1.0)]

    def call(stream: Stream) -> None:
        with within(stream):
            torch._scaled_mm(rows, columns, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast, out=out)

    return CudaPeerLaunch(name, call, outputs, holders)


def float8_step(inputs: Arrays) -> np.float32:
    """The scale of all activations: E4M3_MOST is the largest that codes and scales allow."""
    return np.float32(128 * float(both_scales(on_host(inputs)).max()) / E4M3_MOST)


def float8_bound(fast: bool, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. An activation is rounded to float8, by half of its least number if it is small. Sums are float32, in
    any order, truncated; or, if `fast`, of FAST_BITS in parts of FAST_K, as DeepSeek-V3 (2024, 3.3.2) found on H800."""
    scale, sums, magnitudes = terms("torch._scaled_mm", inputs)
    step = float(float8_step(inputs))
    small = times(np.ones_like(inputs["activations"], np.float64), np.abs(inputs["weights"])) * step * E4M3_LEAST / 2
    sum_error = gamma(2 * axes["K"] + 6)
    if fast:
        sum_error += (axes["K"] / FAST_K + 1) * 2.0 ** (1 - FAST_BITS)
    rounded = E4M3 * scale * magnitudes + small
    return rounded_once(scale * sums, (1 + sum_error) * (scale * magnitudes + rounded) - scale * magnitudes)


def int8_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of an exact sum. The scale, the sum as float32 and their product are rounded, then the output to
    bfloat16."""
    scale, sums, _ = terms("torch._int_mm", inputs)
    return rounded_once(scale * sums, gamma(3) * np.abs(scale * sums))


def dequantized_bound(format: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """As bfloat16_bound, for weights that contain the scales of their groups and are rounded to bfloat16, too."""
    inverse, magnitudes, _, _ = grouped_terms("torch.matmul", format, inputs, axes)
    rounded = 3 if "act_scale" in inputs else 2  # weights, the output, and activations that were codes
    each = (1 + gamma(2 * axes["K"] + 3)) * (1 + BFLOAT16) ** rounded - 1
    return {"out": each * inverse * magnitudes + BFLOAT16_LEAST}


def bfloat16_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound. Activations times scales are rounded to float32 twice and to bfloat16; sums are float32, in any order.
    Tensor cores truncate in place of rounding, which doubles the error."""
    scale, sums, magnitudes = terms("torch.matmul", inputs)
    each = (1 + gamma(2 * axes["K"] + 2)) * (1 + BFLOAT16) - 1
    return rounded_once(scale * sums, each * scale * magnitudes)
