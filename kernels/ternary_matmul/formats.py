"""The formats of weights that products are compared in with those of others."""

from __future__ import annotations

from tritmark.kernels.formats import BUILT_IN, Format
from tritmark.kernels.ternary_matmul import cpu, cuda, cuda_gpu_int2, cuda_scaled


def one_scale(format: Format) -> bool:
    """Whether the matrix has one scale, and no other codes than -1, 0, 1: a peer makes its own weights from the codes,
    and takes the scale beside them."""
    return format.scale_per == "tensor" and set(format.codes) <= {-1, 0, 1}


_READ = dict.fromkeys(
    variant.key.weight_format for module in (cpu, cuda, cuda_gpu_int2, cuda_scaled) for variant in module.VARIANTS
)
PRODUCTS = frozenset(name for name in _READ if one_scale(BUILT_IN[name]))
"""Those of this package with one scale that it has kernels for, on any device."""
ROWS = tuple(BUILT_IN[name] for name in _READ if BUILT_IN[name].scale_per == "row")
"""The same with a scale for each row; their int32 sums are those of the codes alone."""
INTEGERS = PRODUCTS | {format.name for format in ROWS}
"""Those whose codes are summed up over whole rows, whatever the scales are."""
GROUPED = tuple(BUILT_IN[name] for name in _READ if BUILT_IN[name].scale_per == "group")
"""The same with a scale for each group."""
