"""The RMS norms of transformers in bfloat16 on a CPU, each as one native call."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from tritmark.kernels.native import cpu
from tritmark.torch.direct import unseen

_NAMES = ("BitNetRMSNorm", "LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "Qwen3MoeRMSNorm")
"""Classes with the same formula, as of transformers 5.24."""
_LIBRARY = torch.library.Library("tritmark", "FRAGMENT")


class RmsNorm(torch.nn.Module):  # type: ignore[misc]
    """weight * bf16(x / sqrt(mean(x^2) + eps)), as transformers' norms round it, over the last axis.

    bfloat16 on a CPU without a gradient is one native call, which sums in another order than PyTorch. Everything else,
    also under torch.compile, is computed by transformers' own operations.
    """

    def __init__(self, weight: torch.nn.Parameter, eps: float) -> None:
        """Shares the weight."""
        super().__init__()
        self.weight, self.variance_epsilon = weight, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., K) in bfloat16, or another dtype, to the same shape."""
        weight = self.weight
        if not torch.compiler.is_compiling() and _native(x, weight):
            if unseen("cpu", x, x, weight):
                return _rms_norm(x, weight, self.variance_epsilon)
            found: torch.Tensor = torch.ops.tritmark.rms_norm(x, weight, self.variance_epsilon)
            return found
        floats = x.to(torch.float32)
        floats = floats * torch.rsqrt(floats.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return weight * floats.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"


def _native(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the kernel computes it."""
    return (
        x.dtype is torch.bfloat16
        and weight.dtype is torch.bfloat16
        and x.is_cpu
        and weight.is_cpu
        and x.shape[-1:] == weight.shape
        and weight.is_contiguous()
        and x.numel() > 0
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
    )


@cache
def _kernel(forced: str | None) -> Any:
    """That of the best instruction set, at most the one that TRITMARK_FORCE_ISA names; the bits are the same."""
    most = None if forced is None else cpu.ISAS[forced].rank
    sets = [each for each in cpu.KERNELS["rms_norm"] if each.features <= cpu.features()]
    return cpu.native("rms_norm").RmsNorm([each.name for each in sets if most is None or each.rank <= most][-1])


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    rows = x.contiguous()
    out, K = torch.empty_like(rows), rows.shape[-1]
    _kernel(cpu.forced()).run(
        rows.data_ptr(), weight.data_ptr(), out.data_ptr(), rows.numel() // K, K, eps, torch.get_num_threads()
    )
    return out


_LIBRARY.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("rms_norm", _rms_norm, "CPU")
torch.library.register_fake("tritmark::rms_norm", lambda x, weight, eps: torch.empty_like(x), lib=_LIBRARY)


def native_norm(norm: Any) -> RmsNorm | None:
    """The replacement of a norm of transformers in bfloat16 on a CPU."""
    kind = type(norm)
    if kind.__name__ not in _NAMES or not kind.__module__.startswith("transformers.models."):
        return None
    if not norm.weight.is_cpu or norm.weight.dtype is not torch.bfloat16:
        return None
    made = RmsNorm(norm.weight, float(norm.variance_epsilon))
    made.train(norm.training)
    return made
