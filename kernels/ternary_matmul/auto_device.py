"""device="auto" of products with packed weights."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tritmark.harness.contract import check_threads, dtype_name
from tritmark.harness.spec import Axes, KernelKey, Requirement, Variant
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.public.auto_device import CallClass, PlacedCall, check_unforced, class_of, placed
from tritmark.kernels.weights.packed import PackedWeights, axes_of, product_with


class QuantizesRows(Protocol):
    """How a function quantizes its rows."""

    def key(self, dtype: str, device: str) -> KernelKey:
        """The key of the kernels that quantize rows of that dtype on a device."""

    def axes(self, M: int, K: int) -> Axes:
        """The axes of such a kernel for rows (M, K)."""


def product(
    activations: Any,
    weights: Any,
    dtype: Any,
    threads: int | None,
    variant: str | None,
    function: str,
    requirement: Requirement = Requirement.LATENCY,
    quantizer: QuantizesRows | None = None,
) -> PlacedCall:
    """The device for a product with output `dtype`. `quantizer`: for a function that also quantizes `activations`."""
    check_unforced(function, variant)
    check_threads(function, threads)
    if not isinstance(activations, np.ndarray) or not activations.size or not isinstance(weights, PackedWeights):
        return placed(None)
    if len(weights.shape) != 2 or activations.shape[-1] != weights.shape[1]:
        return placed(None)
    check_unforced(function, weights.variant)
    M, of_rows = activations.size // weights.shape[1], str(activations.dtype)
    return placed(product_class(function, weights, M, of_rows, dtype, threads, requirement, quantizer))


def product_class(
    function: str,
    weights: PackedWeights,
    M: int,
    of_rows: str,
    dtype: Any,
    threads: int | None,
    requirement: Requirement = Requirement.LATENCY,
    quantizer: QuantizesRows | None = None,
) -> CallClass:
    """See product."""
    name = dtype_name(function, dtype)
    axes = axes_of(weights, M)

    def kernels(device: str) -> tuple[Variant, ...]:
        asked = threads, requirement
        found = product_with(weights, device, name, axes, None, *asked)
        if quantizer is None:
            return (found,)
        of_key, of_axes = quantizer.key(of_rows, device), quantizer.axes(M, axes["K"])
        return dispatch.select(of_key, of_axes, None, *asked), found

    detail = f"{of_rows}/{weights.format}/{name}" + ("" if requirement is Requirement.LATENCY else f" {requirement}")
    return CallClass(function, detail, class_of(axes, threads), kernels)
