"""PyTorch's products on the CPU as peers of ternary_matmul: int8 (`torch._int_mm`) and bfloat16, of dense weights. It
is in no extra, because of its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.native.cpu import cores, native
from tritmark.kernels.native.threads import join_pytorch
from tritmark.kernels.peers import isa
from tritmark.kernels.peers.launch import PeerLaunch, gamma, is_installed, times

_BFLOAT16 = 2.0**-8
"""Unit roundoff of bfloat16."""
_WARM = 1024
"""Rows and columns of a product that uses all threads."""


def missing() -> str | None:
    """Why it is not installed (with the next step) or cannot be limited to the requested instruction set, or None;
    nothing is loaded."""
    return isa.unmaskable() if is_installed("torch") else "not installed: pip install torch"


def version() -> str:
    """The version of the package; nothing is loaded."""
    from importlib.metadata import version as version_of

    return f"torch {version_of('torch')}"


def load() -> None:
    """Import it, limited to the requested instruction set, and start its two thread pools. tritmark's calls run on the
    pool that spins while it spins, as in programs that use PyTorch."""
    isa.mask()
    import torch

    torch.set_num_threads(cores())
    side = torch.ones((_WARM, _WARM), dtype=torch.int8)
    torch._int_mm(side, side)
    join_pytorch(native("pool"))


def bind_int8(name: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """The int8 product in int32, times the scales, into the output."""
    import torch

    weights, activations, scale, out = _tensors(format, inputs, outputs, axes)
    columns = weights.t()

    def run() -> None:
        torch.set_num_threads(threads)
        torch.mul(torch._int_mm(activations, columns), scale, out=out)

    return PeerLaunch(name, threads, run)


def bind_bfloat16(name: str, format: str, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
    """The bfloat16 product (bfloat16 holds every int8) in bfloat16, times the scales, into the output."""
    import torch

    weights, activations, scale, out = _tensors(format, inputs, outputs, axes)
    wide, columns = activations.to(torch.bfloat16), weights.to(torch.bfloat16).t()

    def run() -> None:
        torch.set_num_threads(threads)
        torch.mul(torch.matmul(wide, columns), scale, out=out)

    return PeerLaunch(name, threads, run)


def _tensors(format: str, inputs: Arrays, outputs: Arrays, axes: Axes) -> tuple[Any, Any, Any, Any]:
    """Weights and activations, int8, the scale of each row, (M, 1), and the output."""
    import torch

    codes, _ = BUILT_IN[format].unpack(np.ascontiguousarray(inputs["weights"]), (axes["N"], axes["K"]))
    scale = (np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64)).astype(np.float32)
    made = (np.array(codes), np.array(inputs["activations"]), scale[:, np.newaxis])
    weights, activations, scales = (torch.from_numpy(each) for each in made)
    return weights, activations, scales, torch.from_numpy(outputs["out"])


def int8_roundings(axes: Axes) -> int:
    """Roundings: the scale, the sum as float32, their product."""
    return 3


def bfloat16_bound(inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound: sums in float32, in any order, rounded to bfloat16; the scale and its product in float32."""
    scale = (np.float64(inputs["weight_scale"]) / inputs["act_scale"].astype(np.float64))[:, np.newaxis]
    activations = inputs["activations"].astype(np.float64)
    magnitudes = times(np.abs(activations), np.abs(inputs["weights"]))
    exact = np.abs(times(activations, inputs["weights"]))
    within = exact + gamma(axes["K"]) * magnitudes
    return {"out": scale * (within * (1 + _BFLOAT16) * (1 + gamma(2)) - exact)}
