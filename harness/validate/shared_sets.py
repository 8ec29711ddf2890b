"""Sets of a workload's arrays in memory shared with a candidate's process, with the expected outputs of each.

Writes here go through this process's own mapping. They do not touch the page tables of the candidate's process, which
it could watch (write protection, soft-dirty bits, userfaultfd).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.buffers import ALIGNMENT
from tritmark.harness.spec import Arrays, ToleranceKind
from tritmark.harness.validate.audit import PIECE, Audited
from tritmark.harness.validate.cases import Cases, is_array
from tritmark.harness.validate.confirm import audit_faults
from tritmark.harness.validate.guard_names import Complaint
from tritmark.harness.validate.guards import layout_offset
from tritmark.harness.validate.pieces import Exchangeable
from tritmark.harness.worker.remote import SharedMemory
from tritmark.harness.worker.shared import PAGE, pages

MOST_DRAWN = 16
"""Outputs of a lap that are compared element by element, if kernels may round differently. They are drawn after the
lap."""

_MOST_SPOILT = 64
_LEAST_CHANGED = 16
_TOLD = 3


class SharedSets:
    """`count` sets of arrays, `nbytes` bytes each. `encoded`: the inputs of one or two sets of data.

    Without `cases.in_place`, inputs do not change: a launch may hold copies of them. Raises MemoryError.
    """

    def __init__(
        self,
        cases: Cases,
        encoded: tuple[Arrays, ...],
        changes: Exchangeable,
        layout: str,
        memory: SharedMemory,
        count: int,
    ) -> None:
        self.count = count
        self._cases, self._changes = cases, changes
        self._encoded = encoded if cases.in_place else encoded[:1]
        self._memory = memory
        self._inputs, self._outputs, self.nbytes = _places(cases, encoded[0], layout)
        self._names = [each.name for each in cases.first.expected]
        self._buffer = memory.allocate(pages(count * self.nbytes) * PAGE)
        self._whole = self._buffer.bytes[: count * self.nbytes].reshape(count, self.nbytes)
        self._case = np.zeros(count, np.intp)
        self.exchanged: list[set[int]] = [set() for _ in range(count)]
        """For each set, the pieces that come from the other data."""
        self._want = {each.name: np.repeat(each.values[np.newaxis], count, axis=0) for each in cases.first.expected}
        self._changed: list[int] = []
        for name, place in self._inputs.items():
            self._rows(place)[...] = _flat(encoded[0][name]).view(np.uint8)
        if changes.pieces.together:
            for index in range(1, count, 2):
                self._exchange(index)

    def given(self, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """One set's inputs and outputs as handles for the candidate's process."""

        def handle(place: _Place) -> Any:
            return self._memory.view(self._buffer, index * self.nbytes + place.begin, place.shape, place.dtype)

        inputs = {name: handle(place) for name, place in self._inputs.items()}
        return {**self._encoded[0], **inputs}, {name: handle(place) for name, place in self._outputs.items()}

    def change(self, rng: np.random.Generator) -> None:
        """Change the inputs of some drawn sets, and corrupt a run of bytes in each of their outputs. A call on lines
        that another core has just written takes longer, so only a few sets change, and a kernel that skips calls does
        not know which."""
        chosen = rng.choice(self.count, min(self.count, max(_LEAST_CHANGED, self.count // 32)), replace=False)
        self._changed = [int(index) for index in chosen]
        for index in self._changed:
            self._toggle(index, rng)
            for name in self._names:
                row, want = self._rows(self._outputs[name])[index], self._bytes_wanted(name)[index]
                length = int(rng.integers(1, min(_MOST_SPOILT, row.size) + 1))
                begin = int(rng.integers(row.size - length + 1))
                row[begin : begin + length] = ~want[begin : begin + length]

    def faults(self, when: str, rng: np.random.Generator) -> tuple[list[Complaint], int]:
        """Faults in the outputs of a lap, and the number of judged calls."""
        exact = all(each.tolerance_kind is ToleranceKind.EXACT for each in self._cases.first.expected)
        wrong = np.zeros(self.count, np.bool_)
        judged = self.count
        if exact:
            for name in self._names:
                wrong |= (self._rows(self._outputs[name]) != self._bytes_wanted(name)).any(axis=1)
        else:
            wrong[rng.choice(self.count, min(MOST_DRAWN, self.count), replace=False)] = True
            wrong[self._changed] = True
            judged = int(wrong.sum())
        faults: list[Complaint] = []
        for index in np.flatnonzero(wrong):
            look = Audited(
                when, int(self._case[index]), *self._left(int(index), rng), tuple(sorted(self.exchanged[index]))
            )
            faults += audit_faults(self._cases, [look], self._changes)
            if len(faults) >= _TOLD:
                break
        return faults, judged

    def _left(self, index: int, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, int]]:
        outputs, begins = {}, {}
        for name in self._names:
            flat = self._rows(self._outputs[name])[index].view(self._outputs[name].dtype)
            length = min(flat.size, PIECE // flat.itemsize)
            begins[name] = int(rng.integers(flat.size - length + 1))
            outputs[name] = flat[begins[name] : begins[name] + length].copy()
        return outputs, begins

    def _toggle(self, index: int, rng: np.random.Generator) -> None:
        pieces, here = self._changes.pieces, self.exchanged[index]
        if len(self._encoded) < 2:
            return
        if not pieces.each:
            self._exchange(index)
            return
        nth = int(rng.integers(len(pieces.each))) if pieces.together or not here else min(here)
        piece = pieces.each[nth]
        here ^= {nth}
        case = int(self._case[index])
        for part in piece.inputs:
            content = part.content(self._encoded, case, exchanged=nth in here)
            self._rows(self._inputs[part.name])[index].view(content.dtype)[part.begin : part.end] = content
        expected = self._cases.first.expected if case == 0 else self._second()
        for at, whole in enumerate(expected):
            want = self._changes.expected[case][nth][at].values if nth in here else piece.of(whole.name, whole.values)
            piece.of(whole.name, self._want[whole.name][index, ...])[...] = want

    def _exchange(self, index: int) -> None:
        if len(self._encoded) < 2 or self._cases.second is None:
            return
        case = 1 - int(self._case[index])
        self._case[index] = case
        self.exchanged[index].clear()
        for name, place in self._inputs.items():
            self._rows(place)[index] = _flat(self._encoded[case][name]).view(np.uint8)
        for whole in self._second() if case else self._cases.first.expected:
            self._want[whole.name][index] = whole.values

    def _second(self) -> Any:
        assert self._cases.second is not None
        return self._cases.second.expected

    def _rows(self, place: _Place) -> npt.NDArray[np.uint8]:
        return self._whole[:, place.begin : place.begin + prod(place.shape) * place.dtype.itemsize]

    def _bytes_wanted(self, name: str) -> npt.NDArray[np.uint8]:
        return self._want[name].reshape(self.count, -1).view(np.uint8)


def set_bytes(cases: Cases, inputs: Arrays, layout: str) -> int:
    """Bytes of one set."""
    return _places(cases, inputs, layout)[2]


@dataclass(frozen=True, slots=True)
class _Place:
    """Place of an array in a set."""

    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _places(cases: Cases, inputs: Arrays, layout: str) -> tuple[dict[str, _Place], dict[str, _Place], int]:
    """Places of inputs, places of outputs, and the bytes of all."""
    end = 0

    def placed(shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Place:
        nonlocal end
        begin = end + layout_offset(layout, dtype.itemsize)
        end = -(-(begin + prod(shape) * dtype.itemsize) // ALIGNMENT) * ALIGNMENT
        return _Place(begin, shape, dtype)

    given = {name: placed(value.shape, value.dtype) for name, value in inputs.items() if is_array(value)}
    outputs = {each.name: placed(each.values.shape, each.values.dtype) for each in cases.first.expected}
    return given, outputs, end


def _flat(value: Any) -> npt.NDArray[Any]:
    flat: npt.NDArray[Any] = np.ascontiguousarray(value).reshape(-1)
    return flat
