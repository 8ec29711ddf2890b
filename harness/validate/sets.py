"""The arrays of a timed loop: enough sets to make memory cold. Each set can hold either of two sets of data, and pieces
of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.measure.buffers import HOST, Arena, Rotation, fill, on_all_cores, room_for
from tritmark.harness.spec import ArrayChange, Arrays, Axes, KernelKey, Memory, Op
from tritmark.harness.validate.bitwise import same
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.guards import layout_offset
from tritmark.harness.validate.pieces import Pieces

POISON = 0xA5
"""Value of every output byte before a call that is checked."""


_BLOCK = 1 << 22
"""Bytes compared at a time."""


@dataclass(slots=True)
class Set:
    """One call's arrays."""

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    raw: dict[str, Any]
    """The outputs' bytes, flat."""
    case: int = 0
    """The data that the inputs hold."""
    exchanged: set[int] = field(default_factory=set)
    """Pieces that come from the other data."""
    raw_inputs: dict[str, Any] = field(default_factory=dict)
    """The input arrays' bytes, flat."""
    awaited: bool = False
    """Whether its outputs were poisoned for a look at the next call, which was not made yet."""


@dataclass(slots=True)
class Sets:
    """All sets of one workload, in memory that the device's kernels can use.

    `cases`: the encoded inputs of the first set of data, and of a second one with the same shapes and scalars if there
    is one. Arrays are copied, everything else is shared. A set holds the first data until it is exchanged.
    """

    op: Op
    key: KernelKey
    axes: Axes
    cases: Sequence[Arrays]
    memory: Memory
    layout: str
    turn: Rotation
    pieces: Pieces = field(default_factory=Pieces)
    like: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(init=False)
    """Shape and dtype of each output."""
    nbytes: int = field(init=False)
    """Bytes of one set."""
    cold: bool = field(init=False)
    """Whether enough sets, and not too many, fit into the rotation."""
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
        """Restore the first data in every set."""
        for index, each in enumerate(self.each):
            if each.case or each.exchanged:
                self._write(index, 0)

    def exchange(self, index: int) -> None:
        """Write the other data into one set's inputs, if there is any."""
        if len(self.cases) > 1:
            self._write(index, 1 - self.each[index].case)

    def toggle(self, index: int, piece: int, *, spoil: bool) -> list[ArrayChange]:
        """The writes that exchange a piece of one set's inputs for the other data, or back. They are pending, because a
        kernel could detect calls after a pause. With `spoil`, the piece's part of the outputs is also filled with
        POISON, on the host, where that is cheap."""
        each, made = self.each[index], list[ArrayChange]()
        each.exchanged ^= {piece}
        held = self.pieces.each[piece]
        for part in held.inputs:
            content = part.content(self.cases, each.case, exchanged=piece in each.exchanged)
            begin = part.begin * content.itemsize
            there = self.memory.view(each.raw_inputs[part.name], begin, (1, content.nbytes), np.uint8)
            made.append(ArrayChange(there, content.view(np.uint8).reshape(1, -1)))
        if spoil and self.memory is HOST:
            parts = [self._bytes_of(index, name, *where) for name, where in held.outputs.items()]
            made += [ArrayChange(part, np.full(part.shape, POISON, np.uint8)) for part in parts]
        return made

    def write(self, changes: Sequence[ArrayChange]) -> None:
        """Make the writes that `toggle` returned."""
        for change in changes:
            if self.memory is HOST:
                change.to[...] = change.source
            else:
                self.memory.write(change.to, change.source)

    def part(self, index: int, piece: int) -> dict[str, npt.NDArray[Any]]:
        """Copies of a piece's part of one set's outputs."""
        where = self.pieces.each[piece]
        if self.memory is HOST:
            return {name: np.array(where.of(name, self.each[index].outputs[name])) for name in where.outputs}
        written = self.written(index)
        return {
            name: np.array(where.of(name, written[name].view(dtype).reshape(shape)))
            for name, (shape, dtype) in self.like.items()
        }

    def poison(self, index: int) -> None:
        """Fill one set's outputs with POISON."""
        for name, raw in self.each[index].raw.items():
            fill(self.memory, raw, self._output_bytes(name), POISON)

    def poison_all(self) -> None:
        """Fill every set's outputs with POISON."""
        for name in self.like:
            rows = self._rows(name)
            if rows is None:
                for index in range(len(self.each)):
                    self.poison(index)
                return
            rows[...] = POISON

    def others_than(self, known: Mapping[int, Mapping[str, npt.NDArray[np.uint8]]], among: Sequence[int]) -> list[int]:
        """Sets of `among` whose outputs differ from the known ones of their data, or whose data has no known
        outputs."""
        doubtful = np.ones(len(self.each), np.bool_)
        for case, outputs in known.items():
            here = np.array([each.case == case and not each.exchanged for each in self.each])
            for name, output in outputs.items():
                rows = self._rows(name)
                if rows is None:
                    return list(among)
                step = max(1, _BLOCK // rows.shape[1])
                alike = np.zeros(len(rows), np.bool_)
                on_all_cores(partial(_compare, rows, output, alike, step), len(rows), step)
                here &= alike
            doubtful &= ~here
        return [index for index in among if doubtful[index]]

    def _bytes_of(self, index: int, name: str, axis: int, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """A part of one set's output along an axis, in the form of ArrayChange; all of it if the axis is -1."""
        shape, _ = self.like[name]
        rows = self.each[index].raw[name].reshape(prod(shape[: max(axis, 0)]), -1)
        unit = rows.shape[1] // shape[axis] if axis >= 0 else 0
        part: npt.NDArray[np.uint8] = rows[:, begin * unit : end * unit] if axis >= 0 else rows
        return part

    def _rows(self, name: str) -> npt.NDArray[np.uint8] | None:
        """An output's bytes in all sets, one row each, because sets lie at equal distances; None on a device."""
        if self.memory is not HOST:
            return None
        first = self.each[0].raw[name]
        stride = self.each[1].raw[name].ctypes.data - first.ctypes.data if len(self.each) > 1 else first.nbytes
        if self.each[-1].raw[name].ctypes.data != first.ctypes.data + (len(self.each) - 1) * stride:
            return None
        return np.lib.stride_tricks.as_strided(first, (len(self.each), first.nbytes), (stride, 1))

    def written(self, index: int) -> dict[str, npt.NDArray[np.uint8]]:
        """The bytes of one set's outputs."""
        found = {}
        for name, raw in self.each[index].raw.items():
            found[name] = np.empty(self._output_bytes(name), np.uint8)
            self.memory.read(raw, found[name])
        return found

    def changed(self, index: int) -> list[str]:
        """Names of one set's inputs that changed since they were written."""
        names = []
        here = self.each[index]
        for name, value in self.cases[here.case].items():
            if is_array(value):
                given = np.array(value, order="C") if here.exchanged else value
                for part in (part for number in here.exchanged for part in self.pieces.each[number].inputs):
                    if part.name == name:
                        content = part.content(self.cases, here.case, exchanged=True)
                        given.reshape(-1)[part.begin : part.end] = content
                found = np.empty(value.nbytes, np.uint8)
                self.memory.read(self.each[index].inputs[name], found)
                if not same(found.view(value.dtype), given):
                    names.append(name)
        return names

    def _set(self, arena: Arena) -> Set:
        inputs, given = dict(self.cases[0]), {}
        for name, array in self.cases[0].items():
            if is_array(array):
                given[name] = arena.take(
                    (array.nbytes,), np.dtype(np.uint8), self._offset(array.dtype) * array.dtype.itemsize
                )
                inputs[name] = self.memory.view(given[name], 0, array.shape, array.dtype)
                self.memory.write(inputs[name], np.ascontiguousarray(array))
        raw = {
            name: arena.take((prod(shape) * dtype.itemsize,), np.dtype(np.uint8), self._offset(dtype) * dtype.itemsize)
            for name, (shape, dtype) in self.like.items()
        }
        outputs = {name: self.memory.view(raw[name], 0, shape, dtype) for name, (shape, dtype) in self.like.items()}
        return Set(inputs, outputs, raw, raw_inputs=given)

    def _write(self, index: int, case: int) -> None:
        each = self.each[index]
        for name, value in self.cases[case].items():
            if is_array(value):
                self.memory.write(each.inputs[name], np.ascontiguousarray(value))
        each.case = case
        each.exchanged.clear()

    def _output_bytes(self, name: str) -> int:
        shape, dtype = self.like[name]
        return prod(shape) * dtype.itemsize

    def _offset(self, dtype: np.dtype[Any]) -> int:
        """Elements past the alignment at which arrays of the layout begin."""
        return layout_offset(self.layout, dtype.itemsize) // dtype.itemsize


def _compare(
    rows: npt.NDArray[np.uint8], output: npt.NDArray[np.uint8], alike: npt.NDArray[np.bool_], count: int, begin: int
) -> None:
    """Mark which of `count` rows, from `begin` on, equal that output."""
    alike[begin : begin + count] = (rows[begin : begin + count] == output).all(axis=1)
