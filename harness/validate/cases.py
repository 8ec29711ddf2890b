"""The data of one workload: made once, judged against by every variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, KernelKey, Op, Workload
from tritmark.harness.validate.compare import Expected, expectations


@dataclass(frozen=True, slots=True)
class Case:
    """What a kernel takes, and what it should give back."""

    inputs: Mapping[str, Any]
    """Encoded for the key's format. Candidates only get copies."""
    expected: tuple[Expected, ...]


@dataclass(frozen=True, slots=True)
class Cases:
    """Two cases of one workload with different data.

    `in_place`: both agree in everything but the contents of arrays, so a kernel that is bound to the first one's memory must also be right
    after the second one's data was written there.
    """

    first: Case
    second: Case
    in_place: bool


class Material:
    """Inputs of one workload: generated once, encoded once for each format.

    Two sets of data, both fixed by `seed` and the workload. The second has the scalars of the first, if the op can encode that.
    """

    def __init__(self, op: Op, workload: Workload, seed: int) -> None:
        self.op = op
        self.workload = workload
        # The same data for every layout, key and variant of the same shape and family.
        mark = int.from_bytes(sha256(repr(_identity(workload)).encode()).digest()[:8], "little")
        first, second = (op.generate(workload.axes, workload.family, np.random.default_rng([seed, mark, nth])) for nth in (0, 1))
        scalars = {tensor.name: first[tensor.name] for tensor in op.inputs if not tensor.axes}
        self._logical: tuple[Arrays, Arrays] = (first, {**second, **scalars})
        self._encoded: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    def suits(self, workload: Workload) -> bool:
        """Whether that workload has the same data: op, axes and family are the same, the layout may differ."""
        return _identity(workload) == _identity(self.workload)

    def encoded(self, format: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Both sets of data as kernels of that format take them; read-only."""
        if format not in self._encoded:
            first, second = (self.op.encode(logical, self.workload.axes, format) for logical in self._logical)
            for value in (*first.values(), *second.values()):
                if isinstance(value, np.ndarray):
                    value.setflags(write=False)
            self._encoded[format] = first, second
        return self._encoded[format]

    def cases(self, key: KernelKey) -> Cases:
        """Both cases of a key. Raises BrokenReferenceError where the reference cannot be judged against."""
        encoded = self.encoded(key.format)
        axes = self.workload.axes
        first, second = (
            Case(inputs, expectations(self.op, axes, key, self.op.reference(logical, axes, key)))
            for inputs, logical in zip(encoded, self._logical, strict=True)
        )
        return Cases(first, second, _alike(*encoded))


def is_array(value: Any) -> bool:
    """Whether an input is handed over in memory of its own; anything else is a scalar."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def _identity(workload: Workload) -> tuple[object, ...]:
    return workload.op, tuple(workload.axes.items()), workload.family


def _alike(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if first.keys() != second.keys():
        return False
    for name, value in first.items():
        other = second[name]
        if is_array(value) != is_array(other):
            return False
        same = value.shape == other.shape and value.dtype == other.dtype if is_array(value) else bool(np.all(value == other))
        if not same:
            return False
    return True
