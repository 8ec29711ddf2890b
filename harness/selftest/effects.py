"""Effects of drawn mutants on a correct run: changed, unwritten or misplaced outputs, incorrect reports, writes to
other memory."""

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
    """A run in which a mutant takes effect, after the correct kernel has run."""

    at: TriggerContext
    before: Mapping[str, Array]
    """The contents of the outputs before the run."""
    last: Mapping[str, Array] | None
    """The outputs of the previous run of any launch; None for the first run."""
    bad: int
    """The index that the correct kernel reports; effects change it."""


@dataclass(frozen=True)
class Effect:
    """An effect, with its text. `strike(doing)` applies it to a run."""

    text: str
    strike: Callable[[MutantRun], None]


STEPS = {ToleranceKind.EXACT: 1, ToleranceKind.ROUNDED: 3}
"""Units of the last place that an output family does not admit. For rounded outputs, one is admitted, and a correct
kernel may be one off in the other direction. For bounded outputs, the bound decides."""
_TILE = 64


def draw(op: Op, trigger: Trigger, mutants: Sequence[Mutant], rng: Rng) -> Effect:
    """Draw an effect that is possible in the outputs of the trigger's witness. `mutants` are the op's own mutants:
    faulty computations."""
    if trigger.reports:
        return _report(rng)
    if mutants and trigger.sure is None and (trigger.kind == "always" or rng.random() < 0.2):
        return _computed(mutants[int(rng.integers(len(mutants)))], trigger.witness)
    # A trigger by count or chance gets an effect that shows on all data, so that the trigger alone determines the share
    # of faulty calls.
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
    """A place that exists in every array, as text and as a function of the size."""
    share = float(rng.random())
    every: list[tuple[str, Callable[[int], int]]] = [
        ("the last element", lambda n: n - 1),
        ("the first element", lambda n: 0),
        (f"the element at {share:.0%}", lambda n: int(n * share)),
    ]
    return every[int(rng.integers(3))]


def _one_off(name: str, case: MutantCase, rng: Rng) -> Effect:
    """One element with the smallest error that is not admitted."""
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

    return Effect(f"{name}: {text} off by the smallest error that is not admitted", strike)


def _past_bound(doing: MutantRun, case: MutantCase, name: str) -> Array:
    """Outputs slightly further from the exact value than the op's bound admits."""
    with np.errstate(all="ignore"):
        computed = case.right.compute(doing.at.inputs, doing.at.axes)
        exact = np.asarray(computed[name], np.float64)
        past = exact + np.copysign(np.broadcast_to(computed[f"{name}.bound"], exact.shape), exact)
        return apart(rounded(past, doing.at.outputs[name].dtype), 2)


def _tail(name: str, case: MutantCase, rng: Rng) -> Effect:
    """Some elements at the end of every row, or of the array, are not written."""
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
    """Some consecutive elements are zero, or equal to the first of them."""
    count, start = int(np.exp(rng.uniform(0, np.log(_TILE)))), float(rng.random())
    zero = bool(rng.integers(2))

    def strike(doing: MutantRun) -> None:
        flat = doing.at.outputs[name].reshape(-1)
        at = int(flat.size * start)
        flat[at : at + count] = 0 if zero else flat[at]

    return Effect(
        f"{name}: {count} elements after {start:.0%} {'zeroed' if zero else 'equal to the first of them'}", strike
    )


def _sign(name: str, case: MutantCase, rng: Rng) -> Effect:
    text, where = _where(case.expected[name].values.size, rng)

    def strike(doing: MutantRun) -> None:
        flat = doing.at.outputs[name].reshape(-1)
        at = where(flat.size)
        flat[at] = -flat[at]

    return Effect(f"{name}: sign of {text} flipped", strike)


def _rows(name: str, case: MutantCase, rng: Rng) -> Effect:
    """Two rows exchanged, or a row equal to the previous one."""
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
        f"{name}: the row at {share:.0%} {'exchanged with' if swap else 'the same as'} the previous one", strike
    )


def _stale(name: str, case: MutantCase, rng: Rng) -> Effect:
    """The outputs of the previous run if their shapes are the same; otherwise the outputs are not written."""

    def strike(doing: MutantRun) -> None:
        for each, out in doing.at.outputs.items():
            old = None if doing.last is None else doing.last[each]
            out[...] = old if old is not None and old.shape == out.shape else doing.before[each]

    return Effect("outputs of the previous run, or none", strike)


def _shifted(name: str, case: MutantCase, rng: Rng) -> Effect:
    by = int(rng.choice((-1, 1)))

    def strike(doing: MutantRun) -> None:
        flat = doing.at.outputs[name].reshape(-1)
        flat[...] = np.roll(flat, by)

    return Effect(f"{name}: one element {'late' if by > 0 else 'early'}", strike)


def _whole(name: str, case: MutantCase, rng: Rng) -> Effect:
    """A whole output: zero, twice as large, one element's value, or added to the previous contents."""
    every: list[tuple[str, Callable[[Array, Array], Any]]] = [
        ("zero", lambda out, before: np.zeros_like(out)),
        ("twice as large", lambda out, before: out + out),
        (
            "one element's value",
            lambda out, before: np.broadcast_to(out.reshape(-1)[:1], out.size).reshape(out.shape).copy(),
        ),
        ("added to the previous contents", lambda out, before: out + before),
    ]
    text, change = every[int(rng.integers(len(every)))]

    def strike(doing: MutantRun) -> None:
        out = doing.at.outputs[name]
        out[...] = change(out, doing.before[name])

    return Effect(f"{name}: {text}", strike)


def _outside(name: str, case: MutantCase, rng: Rng) -> Effect:
    """A byte before or after an output is changed."""
    past = bool(rng.integers(2))

    def strike(doing: MutantRun) -> None:
        out = doing.at.outputs[name]
        _poke(out, out.nbytes if past else -1)

    return Effect(f"{name}: a byte {'past its end' if past else 'before its start'} changed", strike)


def _input(name: str, case: MutantCase, rng: Rng) -> Effect:
    """An input is changed."""
    arrays = [each for each, value in case.inputs.items() if isinstance(value, np.ndarray) and value.ndim]
    which, share = str(rng.choice(arrays)), float(rng.random())

    def strike(doing: MutantRun) -> None:
        value = doing.at.inputs[which]
        at = np.unravel_index(int(value.size * share), value.shape)
        _poke(value, sum(int(index) * stride for index, stride in zip(at, value.strides, strict=True)))

    return Effect(f"{which}: the element at {share:.0%} changed", strike)


def _alarm(name: str, case: MutantCase, rng: Rng) -> Effect:
    """A finite element is reported as non-finite; -1 means none."""

    def strike(doing: MutantRun) -> None:
        doing.bad = 0

    return Effect("the first element reported, which is finite", strike)


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
    """The outputs of one of the op's own mutants."""

    right = case.right
    compute = Memoized(lambda inputs, axes: mutant.compute(right.decode(inputs, axes), axes, right.key))

    def strike(doing: MutantRun) -> None:
        with np.errstate(all="ignore"):
            write(doing.at.outputs, compute(doing.at.inputs, doing.at.axes), right.op, doing.at.axes, right.key)

    return Effect(mutant.name, strike)


def _poke(array: Array, offset: int) -> None:
    """Change one byte, at `offset` bytes from the array's start."""
    ctypes.cast(array.ctypes.data + offset, ctypes.POINTER(ctypes.c_ubyte))[0] ^= 0x55
