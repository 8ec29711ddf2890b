"""How the linear layers of a model multiply."""

from __future__ import annotations

from typing import Any

from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.model.reference.rounding import FLOAT32, ProductArithmetic, gamma

_CODES = gamma(4, FLOAT32)
"""Of x * (127 / max |x|) in float32: torch computes 127 / y as 127 times the rounded inverse."""


def arithmetic_of(module: Any, K: int, u: float, *, quantized: bool) -> ProductArithmetic:
    """The arithmetic of a linear layer with K inputs in a dtype of unit roundoff `u`. `quantized`: whether its folder
    says that activations are quantized to int8; tritmark's layers state it themselves (`Replaced.changed`)."""
    if isinstance(module, BitLinear):
        exact = module.activation_bits == 8 and module.group_size is None
        term = gamma(6 if exact else K + 6, FLOAT32)
        return ProductArithmetic(codes=_CODES, term=term, total=u, quantized=module.activation_bits == 8)
    kind = type(module).__name__
    if kind == "AutoBitLinear":
        # Activations, and the weights of online layers, are rounded to the dtype after they are quantized.
        rounded = gamma(2 if module.online_quant else 1, u)
        return ProductArithmetic(
            codes=_CODES, term=gamma(K + 4, FLOAT32) + rounded, total=gamma(3, u), quantized=quantized
        )
    if kind == "BitLinear":
        # Of transformers: it quantizes in the dtype of the model.
        return ProductArithmetic(codes=gamma(4, u), term=gamma(K + 1, FLOAT32), total=gamma(7, u), quantized=quantized)
    return ProductArithmetic(codes=_CODES, term=gamma(K + 1, FLOAT32), total=u, quantized=quantized)


def arithmetic_of_experts(K: int, groups: bool, u: float) -> ProductArithmetic:
    """The arithmetic of BitExperts: int8 activations, exact sums except with scales of groups."""
    return ProductArithmetic(codes=_CODES, term=gamma(K + 6 if groups else 6, FLOAT32), total=u, quantized=True)
