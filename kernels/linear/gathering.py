"""All packed weights of a model in one arena of huge pages."""

from __future__ import annotations

from collections.abc import Iterable

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.native.arena import ArenaPages, WeightArena
from tritmark.kernels.public.foreign import AUTO
from tritmark.kernels.weights.packed import PackedWeights

_OP = "gather_weights"
_LEGAL = "layers of QuantizedLinear in host memory, and PackedWeights"


def gather_weights(layers: Iterable[QuantizedLinear | PackedWeights]) -> ArenaPages:
    """Move the packed weights of these layers, in this order, into one arena of huge pages, aligned to cache lines: the
    bytes that products on the CPU read. Layers and PackedWeights stay the same objects; weights that several layers
    share are moved once.

    Returns how much of it lies in huge pages, and why not all. Bound calls (`bind`, `bind_linears`) of before keep the
    bytes of before, so bind afterwards. Do not call it while another thread uses the layers. Memory is needed once
    more for the largest layer.

    Raises InvalidArgumentError for another object, for a layer on a device with its own memory, and for weights that
    `PackedWeights.placed` put on NUMA nodes; OSError if the process may not reserve the memory. Then nothing was moved.
    """
    given = list(layers)
    found: dict[int, PackedWeights] = {}
    for nth, each in enumerate(given):
        weights = _weights_of(each, nth)
        if weights.placement is not None:
            raise InvalidArgumentError(
                op=_OP, argument="layers", found=f"weights placed over NUMA nodes as number {nth}", legal="without one"
            )
        found[id(weights)] = weights
    arena = WeightArena(data.nbytes for weights in found.values() for data in weights.on_host())
    for weights in found.values():
        weights.move(arena.copied)
    for each in given:
        if isinstance(each, QuantizedLinear):
            each.forget_plans()
    return arena.pages()


def _weights_of(item: object, nth: int) -> PackedWeights:
    if isinstance(item, PackedWeights):
        return item
    if not isinstance(item, QuantizedLinear):
        found = f"a {type(item).__name__} as number {nth}"
        raise InvalidArgumentError(op=_OP, argument="layers", found=found, legal=_LEGAL)
    if item.device != AUTO and dispatch.registry().devices[item.device].memory is not None:
        found = f"a layer on {item.device} as number {nth}"
        raise InvalidArgumentError(op=_OP, argument="layers", found=found, legal=_LEGAL)
    return item.weights
