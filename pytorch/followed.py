"""The packed weights and the scale of a layer, and whether they still match its state."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import torch

from tritmark.torch import cpu, cuda
from tritmark.torch.derived import DDP, Derived, of_state, sample_of, version_of

DEVICES: dict[str, ModuleType] = {"cpu": cpu, "cuda": cuda}
"""The implementation of the ops on each device type."""

BY_WEIGHT: dict[int, weakref.ref[Followed]] = {}
"""The Followed of each layer by the id of its weights, for ops that are called with these."""


class Followed:
    """The packed weights and the scale of a layer, with the state that they were made from.

    They are valid as long as the layer has these tensors, with these versions, at these addresses, and, on the CPU,
    with these samples.
    """

    __slots__ = (
        "N",
        "__weakref__",
        "address",
        "derived",
        "divide",
        "factor",
        "kind",
        "memory",
        "sample",
        "sampled",
        "scale",
        "scale_address",
        "scale_sample",
        "scale_sampled",
        "scale_version",
        "version",
        "weight",
        "weights_mark",
    )

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, N: int, divide: bool, before: Followed | None
    ) -> None:
        """Raises InvalidArgumentError for an invalid state."""
        # Marks of changes are read before the bytes, so that a concurrent write counts as a change.
        self.weight, self.version, self.address = weight, version_of(weight), weight.data_ptr()
        self.scale, self.scale_version, self.scale_address = scale, version_of(scale), scale.data_ptr()
        self.memory = weight.detach(), scale.detach()  # kept, so that these addresses are not reused
        self.sample, self.scale_sample = sample_of(weight), sample_of(scale)
        self.sampled = 0 if self.sample is None else self.sample[0]
        self.scale_sampled = 0 if self.scale_sample is None else self.scale_sample[0]
        self.derived: Derived
        self.derived, self.factor = of_state(weight, scale, N, divide, None if before is None else before.derived)
        self.divide = divide
        self.N = N
        self.kind: str = weight.device.type
        self.weights_mark: tuple[Any, ...] = DEVICES[self.kind].weights_mark(self.derived.packed)
        if self.version is not None and self.scale_version is not None:
            place = id(weight)
            BY_WEIGHT[place] = weakref.ref(self, lambda gone: BY_WEIGHT.get(place) is gone and BY_WEIGHT.pop(place))

    def holds(self, weight: torch.Tensor, scale: torch.Tensor) -> bool:
        """Whether this matches the state. Each call of a layer runs it, so it uses the cheapest tests."""
        return (
            weight is self.weight
            and scale is self.scale
            and weight.data_ptr() == self.address
            and scale.data_ptr() == self.scale_address
            and weight._version == self.version
            and scale._version == self.scale_version
            and (self.sample is None or self.sample[0] == self.sampled)
            and (self.scale_sample is None or self.scale_sample[0] == self.scale_sampled)
            and DDP._active_ddp_module is None
        )
