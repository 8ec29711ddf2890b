"""The arrays of a timed loop: as many sets of them as make memory cold, each able to hold either of two sets of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.measure.buffers import Arena, Rotation, fill, room_for
from tritmark.harness.spec import Arrays, Axes, KernelKey, Memory, Op
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.guards import layout_offset
from tritmark.harness.validate.same import same

POISON = 0xA5
"""What every byte of an output is before a call that is looked at."""


@dataclass(slots=True)
class Set:
    """One call's arrays."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    raw: dict[str, Any]
    """The outputs' bytes, flat."""
    case: int = 0
    """Which data the inputs hold."""
    awaited: bool = False
    """Its outputs were poisoned for a look at the next call, which was not made yet."""


@dataclass(slots=True)
class Sets:
    """All sets of one workload, in the memory where the device's kernels find their arrays.

    `cases` are the encoded inputs of the first set of data and, where there is another of the same shapes and scalars, of the second.
    Arrays are copied, everything else is shared. A set holds the first data until it is exchanged.
    """

    op: Op
    key: KernelKey
    axes: Axes
    cases: Sequence[Arrays]
    memory: Memory
    layout: str
    turn: Rotation
    like: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(init=False)
    """Shape and dtype of each output."""
    nbytes: int = field(init=False)
    """Of one set."""
    cold: bool = field(init=False)
    """Whether enough sets fit into the rotation, and not too many."""
    each: list[Set] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        like = self.op.outputs_like(self.axes, self.key).items()
        self.like = {name: (shape, named_dtype(dtype)) for name, (shape, dtype) in like}
        arrays = [(each.nbytes, each.dtype) for each in self.cases[0].values() if is_array(each)]
        arrays += [(prod(shape) * dtype.itemsize, dtype) for shape, dtype in self.like.values()]
        self.nbytes = sum(room_for(nbytes, dtype, self._offset(dtype), self.memory) for nbytes, dtype in arrays)
        count = self.turn.sets_for(self.nbytes)
        self.cold = count is not None
        arena = Arena((count or 1) * self.nbytes, self.memory)
        self.each = [self._set(arena) for _ in range(count or 1)]

    def restore(self) -> None:
        """Every set holds the first data again."""
        for index, each in enumerate(self.each):
            if each.case:
                self._write(index, 0)

    def exchange(self, index: int) -> None:
        """Write the other data into one set's inputs, where there is any."""
        if len(self.cases) > 1:
            self._write(index, 1 - self.each[index].case)

    def poison(self, index: int) -> None:
        """Fill one set's outputs with POISON."""
        for name, raw in self.each[index].raw.items():
            fill(self.memory, raw, self._output_bytes(name), POISON)

    def written(self, index: int) -> dict[str, npt.NDArray[np.uint8]]:
        """The bytes of one set's outputs."""
        found = {}
        for name, raw in self.each[index].raw.items():
            found[name] = np.empty(self._output_bytes(name), np.uint8)
            self.memory.read(raw, found[name])
        return found

    def changed(self, index: int) -> list[str]:
        """Names of one set's inputs that no longer are what was written there."""
        names = []
        for name, value in self.cases[self.each[index].case].items():
            if is_array(value):
                found = np.empty(value.nbytes, np.uint8)
                self.memory.read(self.each[index].inputs[name], found)
                if not same(found.view(value.dtype), value):
                    names.append(name)
        return names

    def _set(self, arena: Arena) -> Set:
        inputs = dict(self.cases[0])
        for name, array in self.cases[0].items():
            if is_array(array):
                inputs[name] = arena.take(array.shape, array.dtype, self._offset(array.dtype))
                self.memory.write(inputs[name], np.ascontiguousarray(array))
        raw = {
            name: arena.take((prod(shape) * dtype.itemsize,), np.dtype(np.uint8), self._offset(dtype) * dtype.itemsize)
            for name, (shape, dtype) in self.like.items()
        }
        outputs = {name: self.memory.view(raw[name], 0, shape, dtype) for name, (shape, dtype) in self.like.items()}
        return Set(inputs, outputs, raw)

    def _write(self, index: int, case: int) -> None:
        each = self.each[index]
        for name, value in self.cases[case].items():
            if is_array(value):
                self.memory.write(each.inputs[name], np.ascontiguousarray(value))
        each.case = case

    def _output_bytes(self, name: str) -> int:
        shape, dtype = self.like[name]
        return prod(shape) * dtype.itemsize

    def _offset(self, dtype: np.dtype[Any]) -> int:
        """Elements past the alignment at which the layout has arrays begin."""
        return layout_offset(self.layout, dtype.itemsize) // dtype.itemsize
