"""The consequence of a mutant on a workload's data, determined outside of the judgement: none, an admitted error, or
harm.

The stand-in runs in this module's own memory, as often and on as many sets of data as the judgement promises to run a
kernel. All results are compared with the correct ones bit for bit: outputs over two opposite fillings, inputs, bytes
around and between arrays, and the reported index of forbidden elements. No code of the judgement takes part, so a
judgement that checks less kills fewer mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import numpy as np

from tritmark.harness.selftest.site import Array, MutantSite, Outputs, admits
from tritmark.harness.spec import Launch, Values, Variant
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.compare import is_float
from tritmark.harness.validate.guards import bits

MARGIN = 64
"""Bytes before and after an array that are compared."""
GAP = 3
"""Elements between strided rows in the unaligned layout."""


class Consequence(IntEnum):
    """In rising order of harm."""

    NONE = 0
    ADMITTED = 1
    HARM = 2


def of_outputs(site: MutantSite, outputs: Callable[[int], Outputs]) -> Consequence:
    """The consequence of a mutant's outputs on the worst of the sets of data."""
    return max(_compared(site, nth, outputs(nth)) for nth in range(len(site.data)))


def of_runs(site: MutantSite, variant: Callable[[], Variant], layout: str, threads: int) -> Consequence:
    """The consequence of running a variant. `variant()` makes a new one without kept state."""
    return max(
        found for filling in (0x5A, 0xA5) for found in _runs(site, variant(), site.axes, layout, threads, filling)
    )


def _runs(
    site: MutantSite, variant: Variant, axes: Any, layout: str, threads: int, filling: int
) -> Iterator[Consequence]:
    for nths in ((0, 1), (0,)) if site.cases.in_place else ((0,), (1,), (0,)):
        memory = _Memory(site, layout)
        launch = variant.bind(memory.inputs | memory.scalars(nths[0]), memory.outputs, axes, threads)
        for nth in nths:
            yield memory.run(launch, nth, filling)
    yield memory.run_forbidden(launch)


def _compared(site: MutantSite, nth: int, outputs: Outputs) -> Consequence:
    right = site.right[nth]
    if all(np.array_equal(bits(outputs[name]), bits(values)) for name, values in right.items()):
        return Consequence.NONE
    expected = site.expected(nth)
    return Consequence.ADMITTED if all(admits(expected[name], outputs[name]) for name in right) else Consequence.HARM


class _Memory:
    """The arrays of a launch, with margins."""

    def __init__(self, site: MutantSite, layout: str) -> None:
        self._site = site
        self._raws: list[Array] = []
        case = site.data[0]
        apart = {tensor.name for tensor in site.op.inputs if tensor.strided_rows and layout == "unaligned"}
        self.inputs = {
            name: self._make(v.shape, v.dtype, name in apart) for name, v in case.inputs.items() if is_array(v)
        }
        self.outputs = {name: self._make(v.shape, v.dtype, False) for name, v in site.right[0].items()}

    def scalars(self, nth: int) -> dict[str, Any]:
        return {name: value for name, value in self._site.data[nth].inputs.items() if not is_array(value)}

    def _make(self, shape: tuple[int, ...], dtype: np.dtype[Any], apart: bool) -> Array:
        gap = GAP if apart and len(shape) == 2 else 0
        wide = (*shape[:-1], shape[-1] + gap) if gap else shape
        size = int(np.prod(wide)) * dtype.itemsize
        raw = np.empty(MARGIN + size + MARGIN, np.uint8)
        self._raws.append(raw)
        array: Array = np.ndarray(wide, dtype, raw, MARGIN)
        return array[:, : shape[-1]] if gap else array

    def run(self, launch: Launch, nth: int, filling: int) -> Consequence:
        """The consequence of one run on the `nth` data, over memory filled with the byte `filling`."""
        for raw in self._raws:
            raw.fill(filling)
        case = self._site.data[nth]
        for name, array in self.inputs.items():
            array[...] = case.inputs[name]
        around = [raw.copy() for raw in self._raws]
        launch.run()
        found = {name: array.copy() for name, array in self.outputs.items()}
        for array in self.outputs.values():
            array.reshape(-1).view(np.uint8)[...] = filling
        changed = any(not np.array_equal(raw, before) for raw, before in zip(self._raws, around, strict=True))
        return Consequence.HARM if changed or launch.bad != -1 else _compared(self._site, nth, found)

    def run_forbidden(self, launch: Launch) -> Consequence:
        """The consequence of runs with NaN and infinities in the first, the last and two elements."""
        for tensor in self._site.op.inputs:
            array = self.inputs.get(tensor.name)
            if array is None or tensor.values is not Values.FINITE or not is_float(array.dtype):
                continue
            for places in ([0], [array.size - 1], [array.size // 2, array.size - 1]):
                for value in (np.nan, np.inf, -np.inf):
                    for name, each in self.inputs.items():
                        each[...] = self._site.data[0].inputs[name]
                    for place in places:
                        array[np.unravel_index(place, array.shape)] = value
                    launch.run()
                    if launch.bad != places[0]:
                        return Consequence.HARM
        return Consequence.NONE
