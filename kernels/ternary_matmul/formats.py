"""The formats of weights that there are kernels of ternary_matmul for, on any device."""

from __future__ import annotations

from tritmark.kernels.ternary_matmul import cpu, cuda

PRODUCTS = tuple(dict.fromkeys(variant.key.format for variant in (*cpu.VARIANTS, *cuda.VARIANTS)))
"""In the order in which they are registered."""
