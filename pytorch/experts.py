"""Ops on the state of a layer with experts: weights in Hugging Face's layout, uint8 (E, ceil(N/4), K), and their
scales, one for each expert or for each group of a row's weights.

Rows are quantized once, sorted by expert, multiplied in one call, and put back in order. torch.compile puts these ops
into graphs, so they compute from the state that they receive.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from hashlib import blake2b
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.formats.hf_pack import HF_PACK
from tritmark.kernels.native.huge_pages import HUGE_PAGES
from tritmark.kernels.ternary_matmul_experts.spec import OP
from tritmark.kernels.weights.packed import preferred_format
from tritmark.torch import contract
from tritmark.torch.derived import kept, refuse_capture, version_of
from tritmark.torch.followed import DEVICES

SCHEMAS = {
    "bit_experts": "(Tensor x, Tensor weight, Tensor weight_scale, Tensor experts, int N, ScalarType? out_dtype=None)"
    " -> Tensor",
    "bit_experts_gradient": "(Tensor upstream, Tensor weight, Tensor weight_scale, Tensor experts) -> Tensor",
}
"""Schema of every op on such a state."""

_OP = "bit_experts"
_INDICES = (torch.int64, torch.int32)


class PackedExperts(NamedTuple):
    """Weights and scales of experts in the layout of the kernels."""

    packed: torch.Tensor
    """uint8 (E, bytes), in `format`; never written."""
    format: str
    scales: torch.Tensor
    """float32 (E,), the value of code 1; 1 if the bytes have scales."""
    digest: bytes
    """Digest of N and of the bytes that the weights were made from."""


def refuse(argument: str, found: str, legal: str) -> InvalidArgumentError:
    """Build the error about a layer's state or input."""
    return InvalidArgumentError(op="BitExperts", argument=argument, found=found, legal=legal)


def packed_experts(weight: torch.Tensor, weight_scale: torch.Tensor, N: int) -> PackedExperts:
    """A state in the layout of the kernels on its device: made once, and again after the tensors were written.

    Waits for the device if a conversion is necessary. Raises InvalidArgumentError for an invalid state, and
    NoCompatibleKernelError.
    """
    key: Hashable = weight.data_ptr(), N, tuple(weight.shape), "experts"
    versions = version_of(weight), version_of(weight_scale)
    version = None if None in versions else (*versions, weight_scale.data_ptr(), tuple(weight_scale.shape))
    make = partial(_made, weight, weight_scale, N)
    found: PackedExperts = kept(weight, key, version, None, make, weight_scale.detach())
    return found


def _made(weight: torch.Tensor, weight_scale: torch.Tensor, N: int, before: PackedExperts | None) -> PackedExperts:
    host, scales, device = _bytes_of(weight, N), _scales_of(weight_scale, weight, N), weight.device
    digest = blake2b(host.data, digest_size=32, salt=N.to_bytes(8, "little"), person=b"experts")
    digest.update(scales.data)
    mark = digest.digest()
    if before is not None and before.digest == mark and before.packed.device == device:
        return before
    E, _, K = host.shape
    group = None if scales.ndim == 1 else K // scales.shape[2]
    format = preferred_format(device.type, group=group, op=OP.name)
    form = FORMATS[format]
    with np.errstate(over="ignore"):
        wrong = np.argwhere(scales.astype(form.scale_dtype).astype(np.float32) != scales)
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        legal = f"numbers that {form.scale_dtype} holds, as kernels read them"
        raise refuse("weight_scale", f"{scales[at]} at {at}", legal)
    packed = np.empty((E, form.packed_bytes((N, K))), np.uint8)
    for expert in range(E):  # one at a time: codes take four times the memory
        codes, _ = HF_PACK.unpack(host[expert], (N, K), tail="error")
        packed[expert] = form.pack(codes, scales[expert], tail="error").reshape(-1)
    beside = torch.from_numpy(scales if group is None else np.ones(E, np.float32))
    with torch.inference_mode(False):
        return PackedExperts(torch.from_numpy(HUGE_PAGES.copied(packed)).to(device), format, beside.to(device), mark)


def _bytes_of(weight: torch.Tensor, N: int) -> npt.NDArray[np.uint8]:
    shape = tuple(weight.shape)
    if weight.dtype is not torch.uint8 or len(shape) != 3 or shape[1] != -(-N // 4) or not shape[0] or not shape[2]:
        raise refuse("weight", f"{weight.dtype} {shape}", f"torch.uint8 (E, ceil(N/4), K), for N = {N}")
    if weight.device.type not in DEVICES:
        raise refuse("weight", f"on {weight.device}", f"on {' or '.join(DEVICES)}")
    refuse_capture("weight", weight)
    host: npt.NDArray[np.uint8] = weight.detach().cpu().contiguous().numpy()
    return host


def _scales_of(weight_scale: torch.Tensor, weight: torch.Tensor, N: int) -> npt.NDArray[np.float32]:
    """float32 (E,), or (E, N, K / group). Raises InvalidArgumentError."""
    E, K, shape = weight.shape[0], weight.shape[2], tuple(weight_scale.shape)
    groups = len(shape) == 3 and shape[:2] == (E, N) and shape[2] and not K % shape[2]
    if (shape != (E,) and not groups) or not weight_scale.is_floating_point():
        legal = f"floats ({E},), one for each expert, or ({E}, {N}, {K} / group)"
        raise refuse("weight_scale", f"{weight_scale.dtype} {shape}", legal)
    if weight_scale.device != weight.device:
        raise refuse("weight_scale", f"on {weight_scale.device}", f"on {weight.device}, the device of weight")
    refuse_capture("weight_scale", weight_scale)
    scales: npt.NDArray[np.float32] = weight_scale.detach().float().cpu().contiguous().numpy()
    wrong = np.argwhere(~np.isfinite(scales) | ((scales <= 0) & (not groups)))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise refuse("weight_scale", f"{scales[at]} at {at}", "finite" if groups else "finite and above zero")
    return scales


def _check(x: torch.Tensor, experts: torch.Tensor, E: int, K: int, out_dtype: torch.dtype) -> None:
    """Raise InvalidArgumentError unless x has a row for each token, or for each token and expert."""
    contract.check_rows(_OP, "x", x, contract.FLOATS)
    contract.check_tensor(_OP, "experts", experts, _INDICES, least=1)
    if out_dtype not in contract.FLOATS:
        raise contract.refuse(_OP, "out_dtype", str(out_dtype), " or ".join(map(str, contract.FLOATS)))
    lead = tuple(experts.shape)
    if tuple(x.shape) not in {(*lead[:-1], K), (*lead, K)}:
        legal = f"{(*lead[:-1], K)}, a row for each token, or {(*lead, K)}, one for each of its experts"
        raise contract.refuse(_OP, "x", f"of shape {tuple(x.shape)}", legal)
    contract.check_device(_OP, "experts", experts, x)
    if experts.is_cpu and experts.numel():
        least, most = (int(each) for each in torch.aminmax(experts))
        if least < 0 or most >= E:
            raise contract.refuse(_OP, "experts", str(least if least < 0 else most), f"0 to {E - 1}")


def computes(name: str, kind: str) -> Callable[..., torch.Tensor]:
    """The implementation of an op on a device type."""
    return bit_experts_gradient if name == "bit_experts_gradient" else _on(DEVICES[kind])


def _on(device: ModuleType) -> Callable[..., torch.Tensor]:
    quantize, multiply = device.activation_quantize, device.ternary_matmul_experts

    def bit_experts(
        x: torch.Tensor,
        weight: torch.Tensor,
        weight_scale: torch.Tensor,
        experts: torch.Tensor,
        N: int,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        made = packed_experts(weight, weight_scale, N)
        wanted = out_dtype or x.dtype
        E, K = int(weight.shape[0]), int(weight.shape[2])
        contract.check_device(_OP, "weight", weight, x)
        _check(x, experts, E, K, wanted)
        shape = (*experts.shape, N)
        if not experts.numel():
            return x.new_empty(shape, dtype=wanted)
        flat = experts.reshape(-1)
        rows = x.reshape(-1, K)
        q, scale = quantize(rows)
        # Stable, so that the order does not depend on the algorithm.
        ascending, order = torch.sort(flat, stable=True)
        ends = torch.searchsorted(ascending, torch.arange(E, device=flat.device, dtype=flat.dtype), right=True)
        offsets = torch.cat([ends.new_zeros(1), ends]).to(torch.int32)
        taken = order if len(rows) == len(flat) else order // (len(flat) // len(rows))
        sorted_out = multiply(q[taken], made.packed, made.scales, scale[taken], offsets, N, made.format, wanted)
        out = torch.empty_like(sorted_out)
        out[order] = sorted_out
        return out.view(shape)

    return bit_experts


def bit_experts_gradient(
    upstream: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, experts: torch.Tensor
) -> torch.Tensor:
    """The gradient of bit_experts with respect to the row of each token and expert: upstream (..., k, N) times the
    dequantized weights of the expert, (..., k, K). Weights of one expert are dequantized at a time. Waits for the
    device."""
    N, K = upstream.shape[-1], weight.shape[2]
    flat, rows = experts.reshape(-1), upstream.reshape(-1, N)
    out = upstream.new_empty((len(rows), K))
    for expert in torch.unique(flat).tolist():
        packed = weight[expert]
        codes = (torch.cat([(packed >> shift) & 3 for shift in (0, 2, 4, 6)])[:N].to(upstream.dtype)) - 1
        scale = weight_scale[expert].float()
        if scale.ndim:
            codes = (codes * scale.repeat_interleave(K // scale.shape[1], dim=1)).to(upstream.dtype)
        which = torch.nonzero(flat == expert).view(-1)
        product = rows[which] @ codes
        out[which] = product if scale.ndim else (product * scale).to(upstream.dtype)
    return out.view(*experts.shape, K)


def shape(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    experts: torch.Tensor,
    N: int,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The output of bit_experts without its values."""
    return x.new_empty((*experts.shape, N), dtype=out_dtype or x.dtype)


def gradient_shape(
    upstream: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, experts: torch.Tensor
) -> torch.Tensor:
    """The output of bit_experts_gradient without its values."""
    return upstream.new_empty((*experts.shape, weight.shape[2]))


def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Save the inputs that the gradient needs."""
    x, weight, weight_scale, experts, _, _ = inputs
    ctx.save_for_backward(weight, weight_scale, experts)
    ctx.of_x = x.dtype, x.ndim == experts.ndim


def gradient(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Gradient of bit_experts with respect to x."""
    weight, weight_scale, experts = ctx.saved_tensors
    dtype, of_tokens = ctx.of_x
    found = torch.ops.tritmark.bit_experts_gradient(upstream.contiguous(), weight, weight_scale, experts)
    return (found.sum(-2) if of_tokens else found).to(dtype), None, None, None, None, None
