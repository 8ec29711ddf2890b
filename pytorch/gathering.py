"""The packed weights of converted layers in one arena of huge pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tritmark.kernels.native.arena import ArenaPages, WeightArena
from tritmark.torch.bit_linear import BitLinear
from tritmark.torch.derived import entries_of


def gather(layers: Iterable[torch.nn.Module]) -> ArenaPages | None:
    """Move what the kernels of BitLinear and BitExperts read on the CPU into one arena, in the order of the layers. It
    is no part of their state: pickles, copies and `state_dict` are as before, and weights that are moved to a device or
    written get memory of their own again. None if no layer is on the CPU. Do not call layers meanwhile."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    for layer in layers:
        for entry in entries_of(layer.weight) if hasattr(layer, "weight") else ():
            if entry.packed.is_cpu:
                found.setdefault(entry.packed.data_ptr(), (entry, []))[1].append((layer, entry))
    if not found:
        return None
    sizes = [entry.packed.nbytes for entry, _ in found.values()]
    try:
        arena = WeightArena(sizes)
    except OSError as error:  # the weights stay where they are
        return ArenaPages(sum(sizes), 0, f"this process may not reserve the memory ({error})")
    while found:
        _, uses = found.pop(next(iter(found)))
        with torch.inference_mode(False):
            moved = torch.from_numpy(arena.copied(uses[0][1].packed.numpy()))
        for layer, entry in uses:
            entry.replace(moved)
            if isinstance(layer, BitLinear):
                layer.follow_again()
    return arena.pages()
