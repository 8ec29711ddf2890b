"""Figures other than times: percent of this machine's ceiling, elements that differ from the reference, bits per
weight."""

from __future__ import annotations

from . import shapes
from .cases import Bound, on_gpu, packed_bits
from .ceiling import percent_of_ceiling


class CeilingOfQuantize:
    """At the larger size, hot."""

    params = (shapes.VECTOR_OPS, shapes.CPU, shapes.SIZES[-1:])
    param_names = ("op", "variant", "n")
    unit = "percent"

    def track_percent_of_ceiling(self, op: str, variant: str, n: int) -> float:
        return percent_of_ceiling(Bound(op, variant, shapes.vector_shape(op, n)))


class CeilingOfMatmul:
    """Hot: weights that fit the last-level cache are read from it, as are the bytes of the probe."""

    params = (shapes.PRODUCT_OPS, shapes.CPU, shapes.LAYERS[:1])
    param_names = shapes.PARAMETERS
    unit = "percent"

    def track_percent_of_ceiling(self, op: str, variant: str, shape: str) -> float:
        return percent_of_ceiling(Bound(op, variant, shape))


class CeilingOnCuda:
    """Device time inside graphs; skipped where there is no GPU."""

    params = (shapes.CUDA_VECTOR_OPS, shapes.CUDA_VECTOR, shapes.CUDA_SIZES)
    param_names = ("op", "variant", "n")
    unit = "percent"

    @on_gpu
    def track_percent_of_ceiling(self, op: str, variant: str, n: int) -> float:
        return percent_of_ceiling(Bound(op, variant, shapes.vector_shape(op, n)))


class ExactnessOfQuantize:
    """At a size that is a multiple of nothing."""

    params = (shapes.VECTOR_OPS, shapes.CPU)
    param_names = ("op", "variant")
    unit = "mismatching elements"

    def track_mismatches(self, op: str, variant: str) -> int:
        return Bound(op, variant, shapes.vector_shape(op, shapes.SMALL_VECTOR)).mismatches()


class ExactnessOfMatmul:
    """At axes that are multiples of nothing."""

    params = (shapes.PRODUCT_OPS, shapes.CPU)
    param_names = ("op", "variant")
    unit = "mismatching elements"

    def track_mismatches(self, op: str, variant: str) -> int:
        return Bound(op, variant, shapes.small_product(op)).mismatches()


class ExactnessOnCuda:
    """On a GPU; skipped where there is none."""

    params = (shapes.CUDA_VECTOR_OPS, shapes.CUDA_VECTOR)
    param_names = ("op", "variant")
    unit = "mismatching elements"

    @on_gpu
    def track_mismatches(self, op: str, variant: str) -> int:
        return Bound(op, variant, shapes.vector_shape(op, shapes.SMALL_VECTOR)).mismatches()


class ProductsOnCuda:
    """On a GPU; skipped where there is none."""

    params = (shapes.CUDA_PRODUCT_OPS, shapes.CUDA_PRODUCT)
    param_names = ("op", "variant")
    unit = "mismatching elements"

    @on_gpu
    def track_mismatches(self, op: str, variant: str) -> int:
        return Bound(op, variant, shapes.small_product(op)).mismatches()


class Weights:
    """The size of packed weights, as a kernel writes them and as a product reads them; scales are not counted."""

    params = (("ternary_quantize/i2_s_x86/uint8", "ternary_matmul/tile64/float32"), shapes.CPU)
    param_names = ("op", "variant")
    unit = "bits"

    def track_bits_per_weight(self, op: str, variant: str) -> float:
        layer = shapes.LAYERS[0] if op.startswith("ternary_matmul") else shapes.vector_shape(op, shapes.SIZES[-1])
        return packed_bits(op, variant, layer)
