"""Mutants for kernels of any op: inputs read incorrectly, outputs written incorrectly, results reused, forbidden
elements reported incorrectly.

Every array of an op gets all mutants that its rank, dtype and values admit. Names begin with the array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.selftest.site import Array, MutantSite, Outputs, apart, other_zero
from tritmark.harness.selftest.stand_in import MutantPlan, StandIn, write
from tritmark.harness.spec import Axes, KernelKey, Mutant, Op, Tensor, ToleranceKind, Values
from tritmark.harness.validate.compare import is_float
from tritmark.harness.validate.guards import bits

TILE = 16
"""Elements of a dropped tile. The tail is the remainder of the size modulo 4 tiles."""
SQUARE = 8
"""Rows and columns of the transposed tile."""

Change = Callable[[Array], Array]


def generic(op: Op, key: KernelKey, axes: Axes) -> Iterator[MutantPlan]:
    """Every mutant of this module for an op and a key; `axes` may be any that the key admits."""
    for tensor in op.inputs:
        yield from _read(tensor)
    for name, (shape, dtype) in op.outputs_like(axes, key).items():
        yield from _written(op, name, len(shape), named_dtype(dtype))
        yield from _misplaced(name)
    yield from _kept()
    if any(tensor.values is Values.FINITE for tensor in op.inputs):
        yield from _misreported()


def special(mutant: Mutant) -> MutantPlan:
    """An op's own mutant."""

    def outputs(site: MutantSite, nth: int) -> Outputs:
        with np.errstate(all="ignore"):
            return site.written(mutant.compute(site.logical[nth], site.axes, site.key))

    return MutantPlan(mutant.name, outputs=outputs)


def _read(tensor: Tensor) -> Iterator[MutantPlan]:
    """Mutants that read one input incorrectly."""
    name, kind = tensor.name, named_dtype(tensor.dtype)

    def plan(what: str, change: Change) -> MutantPlan:
        def outputs(site: MutantSite, nth: int) -> Outputs:
            inputs = site.logical[nth]
            with np.errstate(all="ignore"):
                changed = {**inputs, name: change(np.asarray(inputs[name]))}
            try:
                return site.compute(changed)
            except InvalidArgumentError:
                # The contract has no result for the values that this mutant would read.
                return site.right[nth]

        return MutantPlan(f"input {name}: {what}", outputs=outputs)

    neutral = 1 if tensor.values is Values.POSITIVE else 0
    yield plan("ignored", lambda x: np.full_like(x, neutral))
    if is_float(kind):
        yield plan("twice as large", lambda x: (x * x.dtype.type(2)).astype(x.dtype))
        if tensor.values is Values.POSITIVE:
            yield plan("one unit of the last place larger", lambda x: apart(x, 1))
        else:
            yield plan("sign lost", np.abs)
    elif tensor.values is Values.TERNARY:
        yield plan("codes -1 and 1 swapped", np.negative)
        yield plan("code -1 taken for 0", lambda x: np.maximum(x, 0))
        yield plan("code 1 taken for 0", lambda x: np.minimum(x, 0))
        yield plan("codes 0 and 1 swapped", lambda x: np.where(x < 0, x, 1 - x).astype(x.dtype))
    elif tensor.values is not Values.OFFSETS:
        yield plan("taken as unsigned", lambda x: x.view(f"u{x.itemsize}").astype(np.int16))
        yield plan("sign lost", lambda x: np.abs(x.astype(np.int16)))
    if not tensor.axes:
        return
    yield MutantPlan(
        f"input {name}: that of the first data kept",
        outputs=lambda site, nth: site.compute({**site.logical[nth], name: site.logical[0][name]}),
    )
    yield plan("read one element early", lambda x: np.roll(x.reshape(-1), 1).reshape(x.shape))
    yield plan("read one element late", lambda x: np.roll(x.reshape(-1), -1).reshape(x.shape))
    yield plan("two neighbours swapped", _swapped)
    yield plan("last element not read", lambda x: _without(x, (..., slice(-1, None)), neutral, flat=True))
    yield plan(
        "tail not read", lambda x: _without(x, (..., slice(x.shape[-1] // (4 * TILE) * 4 * TILE, None)), neutral)
    )
    yield plan("one tile not read", lambda x: _without(x, (..., _middle(x.shape[-1])), neutral))
    if len(tensor.axes) == 2:
        yield plan("row 0 for all", lambda x: np.broadcast_to(x[:1], x.shape).copy())
        yield plan("rows one on", lambda x: np.roll(x, 1, axis=0))
        yield plan("one tile transposed", _transposed)
    if tensor.strided_rows:
        yield MutantPlan(
            f"input {name}: rows taken for dense",
            write=lambda launch, right: write(launch, _dense(launch, name, right)),
        )


def _written(op: Op, name: str, rank: int, dtype: np.dtype[Any]) -> Iterator[MutantPlan]:
    """Mutants that write one output incorrectly."""

    def plan(what: str, change: Change) -> MutantPlan:
        def outputs(site: MutantSite, nth: int) -> Outputs:
            right = site.right[nth]
            with np.errstate(all="ignore"):
                return {**right, name: change(np.array(right[name]))}

        return MutantPlan(f"output {name}: {what}", outputs=outputs)

    yield plan("all zero", np.zeros_like)
    yield plan("twice as large", lambda v: (v * v.dtype.type(2)).astype(v.dtype))
    if is_float(dtype):
        # An admitted error is no mutant: one unit of the last place, and either zero, for rounded outputs.
        if op.tolerance_kind is ToleranceKind.EXACT:
            yield plan("last element off by the least", lambda v: _at(v, -1, apart(v, 1)))
            yield plan("sign of zero", other_zero)
        else:
            yield MutantPlan(
                f"output {name}: last element off by the least", outputs=lambda site, nth: _past(site, nth, name)
            )
        yield plan("one NaN", lambda v: _at(v, v.size // 2, np.full_like(v, np.nan)))
    else:
        yield plan("last element off by the least", lambda v: _at(v, -1, v ^ v.dtype.type(1)))
        if dtype.itemsize > 2:
            yield plan("saturated to int16", lambda v: np.clip(v, -(1 << 15), (1 << 15) - 1))
            yield plan("wrapped to int16", lambda v: v.astype(np.int16).astype(v.dtype))
    if not rank:
        return
    yield plan(
        "the first element everywhere", lambda v: np.broadcast_to(v.reshape(-1)[:1], v.size).reshape(v.shape).copy()
    )
    yield plan("one element early", lambda v: np.roll(v.reshape(-1), -1).reshape(v.shape))
    yield plan("one element late", lambda v: np.roll(v.reshape(-1), 1).reshape(v.shape))
    yield plan("two neighbours swapped", _swapped)
    yield plan("one tile transposed", _transposed)
    if rank == 2:
        yield plan("row 0 for all", lambda v: np.broadcast_to(v[:1], v.shape).copy())
        yield plan("rows one on", lambda v: np.roll(v, 1, axis=0))
        yield plan("written column by column", lambda v: np.ascontiguousarray(v.T).reshape(v.shape))


def _misplaced(name: str) -> Iterator[MutantPlan]:
    """Mutants that do not write one output, in part or as a whole, or write outside of it."""

    def unwritten(what: str, where: Callable[[int], slice]) -> MutantPlan:
        def leave(launch: StandIn, outputs: Outputs) -> None:
            out = launch.outputs[name].reshape(-1)
            kept = out[where(out.size)].copy()
            write(launch, outputs)
            out[where(out.size)] = kept

        return MutantPlan(f"output {name}: {what}", write=leave)

    def outside(what: str, where: Callable[[Array], int]) -> MutantPlan:
        def spill(launch: StandIn, outputs: Outputs) -> None:
            write(launch, outputs)
            out = launch.outputs[name]
            _poke(out, where(out))

        return MutantPlan(f"output {name}: {what}", write=spill)

    def add(launch: StandIn, outputs: Outputs) -> None:
        stood = launch.outputs[name].copy()
        write(launch, outputs)
        with np.errstate(all="ignore"):
            launch.outputs[name][...] = stood + launch.outputs[name]

    yield unwritten("never written", lambda n: slice(0, n))
    yield unwritten("last element never written", lambda n: slice(n - 1, n))
    yield unwritten("tail never written", lambda n: slice(n // (4 * TILE) * 4 * TILE, n))
    yield unwritten("one tile never written", _middle)
    yield outside("one element too many", lambda out: out.nbytes)
    yield outside("one element before the first", lambda out: -out.itemsize)
    yield MutantPlan(f"output {name}: added to what stood there", write=add)


def _kept() -> Iterator[MutantPlan]:
    """Mutants that write results of another run, or change inputs."""

    def first(launch: StandIn, outputs: Outputs) -> None:
        write(launch, launch.everywhere.setdefault("first", outputs))

    def first_of_launch(launch: StandIn, outputs: Outputs) -> None:
        write(launch, launch.here.setdefault("first", outputs))

    def previous(launch: StandIn, outputs: Outputs) -> None:
        write(launch, launch.everywhere.get("last", outputs))
        launch.everywhere["last"] = outputs

    def once(launch: StandIn, outputs: Outputs) -> None:
        if launch.runs == 1:
            write(launch, outputs)

    def changes(launch: StandIn, outputs: Outputs) -> None:
        write(launch, outputs)
        for value in launch.inputs.values():
            if isinstance(value, np.ndarray) and value.ndim:
                _poke(value, sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True)))

    yield MutantPlan("the first result ever, kept", write=first)
    yield MutantPlan("the first result of the launch, kept", write=first_of_launch)
    yield MutantPlan("the result before this one", write=previous)
    yield MutantPlan("only the first run of a launch writes", write=once)
    yield MutantPlan("inputs changed", write=changes)


def _misreported() -> Iterator[MutantPlan]:
    """Mutants that report forbidden elements incorrectly. `at`: the flat indices of all non-finite elements."""
    yield MutantPlan("NaN and infinity not reported", report=lambda at, x: -1)
    yield MutantPlan("NaN not reported", report=lambda at, x: _first(at[~np.isnan(x.reshape(-1)[at])]))
    yield MutantPlan("infinity not reported", report=lambda at, x: _first(at[x.reshape(-1)[at] != np.inf]))
    yield MutantPlan("negative infinity not reported", report=lambda at, x: _first(at[x.reshape(-1)[at] != -np.inf]))
    yield MutantPlan("NaN or infinity in the first element not reported", report=lambda at, x: _first(at[at != 0]))
    yield MutantPlan(
        "NaN or infinity in the last element not reported", report=lambda at, x: _first(at[at != x.size - 1])
    )
    yield MutantPlan("NaN or infinity reported one index late", report=lambda at, x: int(at[0]) + 1 if at.size else -1)
    yield MutantPlan(
        "the last NaN or infinity reported, not the first", report=lambda at, x: int(at[-1]) if at.size else -1
    )
    yield MutantPlan("NaN or infinity reported if there is none", report=lambda at, x: int(at[0]) if at.size else 0)


def _first(at: Array) -> int:
    return int(at[0]) if at.size else -1


def _without(values: Array, where: Any, neutral: int, flat: bool = False) -> Array:
    made = values.copy()
    (made.reshape(-1) if flat else made)[where] = neutral
    return made


def _middle(size: int) -> slice:
    """One tile in the middle, or the whole array if it is smaller than a tile."""
    start = size // 2 // TILE * TILE
    return slice(start, start + TILE)


def _at(values: Array, where: int, others: Array) -> Array:
    """The values, with one of them from `others`."""
    values.reshape(-1)[where] = others.reshape(-1)[where]
    return values


def _swapped(values: Array) -> Array:
    """The values, with the last two different neighbours swapped."""
    made = values.copy()
    flat = made.reshape(-1)
    different = np.flatnonzero(bits(flat[1:]) != bits(flat[:-1]))
    if different.size:
        at = int(different[-1])
        flat[at : at + 2] = flat[at : at + 2][::-1].copy()
    return made


def _transposed(values: Array) -> Array:
    """The values, with the first tile transposed. An array of another rank is split into rows of a tile's width."""
    made = values.copy()
    if made.ndim == 2:
        side = min(SQUARE, *made.shape)
        made[:side, :side] = values[:side, :side].T
    elif made.size >= SQUARE * SQUARE:
        flat = made.reshape(-1)[: SQUARE * SQUARE]
        flat[...] = flat.reshape(SQUARE, SQUARE).T.reshape(-1).copy()
    return made


def _past(site: MutantSite, nth: int, name: str) -> Outputs:
    """The outputs, with an error of the last element slightly larger than the contract admits."""
    expected = site.expected(nth)[name]
    if expected.error_bound is None:
        return {**site.right[nth], name: _at(np.array(expected.values), -1, apart(np.array(expected.values), 2))}
    exact, bound = expected.exact.reshape(-1)[-1:].astype(np.float64), expected.error_bound.reshape(-1)[-1:]
    with np.errstate(over="ignore"):
        past = apart((exact + np.copysign(bound, exact)).astype(expected.values.dtype), 2)
    return {**site.right[nth], name: _at(np.array(expected.values), -1, past)}


def _dense(launch: StandIn, name: str, right: Outputs) -> Outputs:
    """The outputs of a kernel that ignores the stride between rows."""
    array = launch.inputs[name]
    strides = (array.shape[1] * array.itemsize, array.itemsize)
    if array.strides == strides or array.shape[0] == 1:
        return right
    nth = launch._recognized()
    read = np.lib.stride_tricks.as_strided(array, strides=strides).copy()
    return launch.site.compute({**launch.site.logical[nth], name: read})


def _poke(array: Array, offset: int) -> None:
    """Change one byte, at `offset` bytes from the array's start."""
    import ctypes

    ctypes.cast(array.ctypes.data + offset, ctypes.POINTER(ctypes.c_ubyte))[0] ^= 0x55
