"""The formats of weights in which products are compared with those of other projects."""

from __future__ import annotations

from tritmark.kernels.formats import BUILT_IN, Format
from tritmark.kernels.ternary_matmul import cpu, cuda, cuda_gpu_int2, cuda_grouped, cuda_scaled


def one_scale(format: Format) -> bool:
    """Whether the matrix has one scale and only the codes -1, 0, 1: a peer then packs its own weights from the codes
    and takes the scale beside them."""
    return format.scale_per == "tensor" and set(format.codes) <= {-1, 0, 1}


_READ = dict.fromkeys(
    variant.key.weight_format
    for module in (cpu, cuda, cuda_gpu_int2, cuda_scaled, cuda_grouped)
    for variant in module.VARIANTS
)
PRODUCTS = frozenset(name for name in _READ if one_scale(BUILT_IN[name]))
"""This package's formats with one scale that have kernels on any device."""
ROWS = tuple(BUILT_IN[name] for name in _READ if BUILT_IN[name].scale_per == "row")
"""The formats with a scale for each row; their int32 sums do not contain the scales."""
INTEGERS = PRODUCTS | {format.name for format in ROWS}
"""The formats with codes that are summed over whole rows, with any scales."""
GROUPED = tuple(BUILT_IN[name] for name in _READ if BUILT_IN[name].scale_per == "group")
"""The formats with a scale for each group."""
