"""What a drawn mutant does to a right run: outputs changed, left or confused, wrong reports, memory touched that is
not its own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tritmark.harness.selftest.domain import Array, MutantCase, Rng
from tritmark.harness.selftest.right import Memoized, write
from tritmark.harness.selftest.site import apart
from tritmark.harness.selftest.triggers import Trigger, TriggerContext
from tritmark.harness.spec import Mutant, Op, ToleranceKind
from tritmark.harness.validate.compare import is_float, rounded


@dataclass
class MutantRun:
    """A run in which a mutant strikes, after the right kernel has run."""

    at: TriggerContext
    before: Mapping[str, Array]
    """What stood in the outputs before the run."""
    last: Mapping[str, Array] | None
    """What the run before this one left, of any launch; None for the first."""
    bad: int
    """What the right kernel reports; effects change it."""


@dataclass(frozen=True)
class Effect:
    """`strike(doing)` does it."""

    text: str
    strike: Callable[[MutantRun], None]


STEPS = {ToleranceKind.EXACT: 1, ToleranceKind.ROUNDED: 3}
"""Units of the last place that are outside what a family admits: one is admitted where results are rounded, and a
right kernel may be one off in the other direction. Where errors are bounded, the bound decides."""
_TILE = 64


def draw(op: Op, trigger: Trigger, mutants: Sequence[Mutant], rng: Rng) -> Effect:
    """An effect that the outputs of the trigger's witness have room for. `mutants` are the op's own: other ways to
    compute."""
    if trigger.reports:
        return _report(rng)
    if mutants and trigger.sure is None and (trigger.kind == "always" or rng.random() < 0.2):
        return _computed(mutants[int(rng.integers(len(mutants)))], trigger.witness)
    # What strikes by number or by chance shows whenever it does, whatever the data: so the share of calls is the one
    # that the trigger says.
    sure = trigger.sure is not None
    expected = trigger.witness.expected
    names = [name for name in expected if expected[name].values.size]
    name = names[int(rng.integers(len(names)))]
    values = expected[name].values
    if sure:
        certain = [_one_off, _outside, _alarm]
        return certain[int(rng.integers(3))](name, trigger.witness, rng)
    every = [_one_off, _tail, _tile, _stale, _shifted, _whole, _outside, _alarm]
    every += [_one_off, _sign] if is_float(values.dtype) else [_one_off]
    if values.ndim == 2 and len(values) > 1:
        every.append(_rows)
    if trigger.witness.inputs and any(
        isinstance(each, np.ndarray) and each.ndim for each in trigger.witness.inputs.values()
    ):
        every.append(_input)
    return every[int(rng.integers(len(every)))](name, trigger.witness, rng)


def _where(size: int, rng: Rng) -> tuple[str, Callable[[int], int]]:
    """A place that every array has."""
    share = float(rng.random())
    every: list[tuple[str, Callable[[int], int]]] = [
        ("the last element", lambda n: n - 1),
        ("the first element", lambda n: 0),
        (f"the element at {share:.0%}", lambda n: int(n * share)),
    ]
    return every[int(rng.integers(3))]


def _one_off(name: str, case: MutantCase, rng: Rng) -> Effect:
    """One element off by the least that is not admitted."""
    expected = case.expected[name]
    text, where = _where(expected.values.size, rng)
    steps = STEPS.get(expected.tolerance_kind, 0)

    def strike(doing: MutantRun) -> None:
        out = doing.at.outputs[name]
        at = np.unravel_index(where(out.size), out.shape)
        value = out[at].reshape(1)
        if not is_float(out.dtype):
            out[at] = value[0] ^ out.dtype.type(1)
        elif steps:
            out[at] = apart(value, steps)[0]
        else:
            out[at] = _past_bound(doing, case, name)[at]

    return Effect(f"{name}: {text} off by the least", strike)


def _past_bound(doing: MutantRun, case: MutantCase, name: str) -> Array:
    """Outputs a little further from the exact value than the op's bound admits."""
    with np.errstate(all="ignore"):
        computed = case.right.compute(doing.at.inputs, doing.at.axes)
        exact = np.asarray(computed[name], np.float64)
        past = exact + np.copysign(np.broadcast_to(computed[f"{name}.bound"], exact.shape), exact)
        return apart(rounded(past, doing.at.outputs[name].dtype), 2)


def _tail(name: str, case: MutantCase, rng: Rng) -> Effect:
    """Some elements at the end of every row, or of the array, keep what stood there."""
    count = int(np.exp(rng.uniform(0, np.log(_TILE))))
    rows = case.expected[name].values.ndim == 2 and bool(rng.integers(2))

    def strike(doing: MutantRun) -> None:
        out, before = doing.at.outputs[name], doing.before[name]
        if rows:
            out[:, -count:] = before[:, -count:]
        else:
            out.reshape(-1)[-count:] = before.reshape(-1)[-count:]

    return Effect(f"{name}: the last {count}{' of each row' if rows else ''} not written", strike)


def _tile(name: str, case: MutantCase, rng: Rng) -> Effect:
    """Some elements in a row zeroed, or the first again."""
    count, start = int(np.exp(rng.uniform(0, np.log(_TILE)))), float(rng.random())
    zero = bool(rng.integers(2))

    def strike(doing: MutantRun) -> None:
        flat = doing.at.outputs[name].reshape(-1)
        at = int(flat.size * start)
        flat[at : at + count] = 0 if zero else flat[at]

    return Effect(
        f"{name}: {count} elements from {start:.0%} on {'zeroed' if zero else 'all that of the first'}", strike
    )


def _sign(name: str, case: MutantCase, rng: Rng) -> Effect:
    text, where = _where(case.expected[name].values.size, rng)

    def strike(doing: MutantRun) -> None:
        flat = doing.at.outputs[name].reshape(-1)
        at = where(flat.size)
        flat[at] = -flat[at]

    return Effect(f"{name}: sign of {text} flipped", strike)


def _rows(name: str, case: MutantCase, rng: Rng) -> Effect:
    """Two rows exchanged, or one written as the one before."""
    share, swap = float(rng.random()), bool(rng.integers(2))

    def strike(doing: MutantRun) -> None:
        out = doing.at.outputs[name]
        if len(out) > 1:
            at = 1 + int((len(out) - 1) * share)
            one, other = out[at - 1].copy(), out[at].copy()
            out[at] = one
            if swap:
                out[at - 1] = other

    return Effect(
        f"{name}: the row at {share:.0%} {'exchanged with' if swap else 'the same as'} the one before", strike
    )


def _stale(name: str, case: MutantCase, rng: Rng) -> Effect:
    """The outputs of the run before, where their shapes are the same; else what stood there."""

    def strike(doing: MutantRun) -> None:
        for each, out in doing.at.outputs.items():
            old = None if doing.last is None else doing.last[each]
            out[...] = old if old is not None and old.shape == out.shape else doing.before[each]

    return Effect("outputs of the run before, or none", strike)


def _shifted(name: str, case: MutantCase, rng: Rng) -> Effect:
    by = int(rng.choice((-1, 1)))

    def strike(doing: MutantRun) -> None:
        flat = doing.at.outputs[name].reshape(-1)
        flat[...] = np.roll(flat, by)

    return Effect(f"{name}: one element {'late' if by > 0 else 'early'}", strike)


def _whole(name: str, case: MutantCase, rng: Rng) -> Effect:
    """All of an output: zero, the negative, twice as large, or added to what stood there."""
    every: list[tuple[str, Callable[[Array, Array], Any]]] = [
        ("zero", lambda out, before: np.zeros_like(out)),
        ("twice as large", lambda out, before: out + out),
        (
            "one element's value",
            lambda out, before: np.broadcast_to(out.reshape(-1)[:1], out.size).reshape(out.shape).copy(),
        ),
        ("added to what stood there", lambda out, before: out + before),
    ]
    text, change = every[int(rng.integers(len(every)))]

    def strike(doing: MutantRun) -> None:
        out = doing.at.outputs[name]
        out[...] = change(out, doing.before[name])

    return Effect(f"{name}: {text}", strike)


def _outside(name: str, case: MutantCase, rng: Rng) -> Effect:
    """A byte beside an output changed."""
    past = bool(rng.integers(2))

    def strike(doing: MutantRun) -> None:
        out = doing.at.outputs[name]
        _poke(out, out.nbytes if past else -1)

    return Effect(f"{name}: a byte {'past its end' if past else 'before its start'} changed", strike)


def _input(name: str, case: MutantCase, rng: Rng) -> Effect:
    """An input changed."""
    arrays = [each for each, value in case.inputs.items() if isinstance(value, np.ndarray) and value.ndim]
    which, share = str(rng.choice(arrays)), float(rng.random())

    def strike(doing: MutantRun) -> None:
        value = doing.at.inputs[which]
        at = np.unravel_index(int(value.size * share), value.shape)
        _poke(value, sum(int(index) * stride for index, stride in zip(at, value.strides, strict=True)))

    return Effect(f"{which}: the element at {share:.0%} changed", strike)


def _alarm(name: str, case: MutantCase, rng: Rng) -> Effect:
    """An element reported as not finite that is; -1 means none."""

    def strike(doing: MutantRun) -> None:
        doing.bad = 0

    return Effect("the first element reported, which is admitted", strike)


def _report(rng: Rng) -> Effect:
    def silent(doing: MutantRun) -> None:
        doing.bad = -1

    def late(doing: MutantRun) -> None:
        doing.bad += 1

    def early(doing: MutantRun) -> None:
        doing.bad = doing.bad - 1 if doing.bad > 0 else -1

    every = [
        Effect("not reported", silent),
        Effect("reported one index late", late),
        Effect("reported one index early", early),
    ]
    return every[int(rng.choice(3, p=(0.6, 0.2, 0.2)))]


def _computed(mutant: Mutant, case: MutantCase) -> Effect:
    """Outputs of one of the op's own mutants."""

    right = case.right
    compute = Memoized(lambda inputs, axes: mutant.compute(right.decode(inputs, axes), axes, right.key))

    def strike(doing: MutantRun) -> None:
        with np.errstate(all="ignore"):
            write(doing.at.outputs, compute(doing.at.inputs, doing.at.axes), right.op, doing.at.axes, right.key)

    return Effect(mutant.name, strike)


def _poke(array: Array, offset: int) -> None:
    """Change one byte, `offset` bytes from the array's first."""
    ctypes.cast(array.ctypes.data + offset, ctypes.POINTER(ctypes.c_ubyte))[0] ^= 0x55
