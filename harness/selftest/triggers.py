"""Triggers of drawn mutants.

A trigger is made from a case, its witness: it is one of the case's properties, with a drawn width. So every trigger
fires on some case that the contract admits. The width of triggers limits what a judgement can promise: this module sets
the limits, and docs/method.md states them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritmark.harness.selftest.domain import Array, Domain, MutantCase, NothingAdmittedError, Rng
from tritmark.harness.selftest.values import ValueClass, forbidden, value_class
from tritmark.harness.spec import Arrays, Axes
from tritmark.harness.validate.cases import is_array


@dataclass
class TriggerContext:
    """The facts of a run that a trigger may use."""

    axes: Axes
    threads: int
    inputs: Arrays
    outputs: Arrays
    decode: Callable[[Arrays, Axes], Mapping[str, Any]]
    call: int
    """Number of the call of this kernel in this process, from 1."""
    run: int
    """Number of the run of this launch, from 1."""
    rng: Rng
    first_bad: Mapping[str, int] = field(default_factory=dict)
    """Flat index of the first non-finite element, for each input that must be finite."""

    def arrays(self) -> Mapping[str, Array]:
        """Inputs and outputs that are arrays, by name."""
        return {**{name: value for name, value in self.inputs.items() if is_array(value)}, **self.outputs}

    def logical(self, name: str) -> Array:
        """One input in the reference's form."""
        return np.asarray(self.decode(self.inputs, self.axes)[name])


@dataclass(frozen=True)
class Trigger:
    """A trigger: `fires(context)`. `witness` is a case on which it fires. `sure`, for triggers that depend on chance or
    counts, is the same condition without these."""

    kind: str
    text: str
    fires: Callable[[TriggerContext], bool]
    witness: MutantCase
    sure: Callable[[TriggerContext], bool] | None = None
    reports: bool = False
    """The trigger concerns elements that must be reported: the fault is in the report, not in the outputs."""


STATIC = ("shape", "residue", "range", "relation", "stride", "alignment", "threads", "values")
"""Kinds that are combined in pairs."""
KINDS = (*STATIC, "two triggers", "report", "call", "rare", "always")

_POWERS = (4, 8, 16, 32, 64, 128)
_OTHERS = (3, 5, 6, 7, 12, 24, 48, 96)


def draw(domain: Domain, kind: str, calls: int, rng: Rng) -> Trigger | None:
    """A trigger of a kind; None if the op has none. `calls`: how often the judgement runs a correct kernel."""
    try:
        if kind == "two triggers":
            return _two(domain, rng)
        if kind == "report":
            return _report(domain, rng)
        if kind == "values":
            value = value_class(domain.op, rng)
            return None if value is None else _values(value, domain.draw(rng, value=value))
        witness = domain.draw(rng, kind)
        if kind == "call":
            return _call(witness, calls, rng)
        if kind == "rare":
            return _rare(witness, calls, rng)
        if kind == "always":
            return Trigger(kind, "always", lambda at: True, witness)
        return _of(kind, witness, rng, narrow=True)
    except NothingAdmittedError:
        return None


def _of(kind: str, witness: MutantCase, rng: Rng, narrow: bool) -> Trigger | None:
    """A trigger of a kind that is a property of a case. `narrow`: it may fire on as few as one case in 128."""
    return {
        "shape": _shape,
        "residue": _residue,
        "range": _range,
        "relation": _relation,
        "stride": _stride,
        "alignment": _alignment,
        "threads": _threads,
    }[kind](witness, rng, narrow)


def _axis(witness: MutantCase, rng: Rng) -> tuple[str, int]:
    axis = str(rng.choice(list(witness.axes)))
    return axis, witness.axes[axis]


def _shape(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger | None:
    """A class of shapes for which kernels have separate paths."""
    axis, size = _axis(witness, rng)
    width = int(rng.choice(_POWERS))
    rest = size % width
    every: list[tuple[str, Callable[[Axes], bool], bool]] = [
        (f"{axis} == 1", lambda axes: axes[axis] == 1, size == 1),
        (f"{axis} > 1", lambda axes: axes[axis] > 1, size > 1),
        (f"{axis} < {width}", lambda axes: axes[axis] < width, size < width),
        (f"{axis} >= {width}", lambda axes: axes[axis] >= width, size >= width),
        (f"{axis} is no multiple of {width}", lambda axes: axes[axis] % width != 0, rest != 0),
        (f"{axis} is a multiple of {width}", lambda axes: axes[axis] % width == 0, rest == 0),
        (f"{axis} is odd", lambda axes: axes[axis] % 2 == 1, size % 2 == 1),
        (
            f"{axis} >= {width} and no multiple of it",
            lambda axes: axes[axis] >= width and axes[axis] % width != 0,
            size >= width and rest != 0,
        ),
    ]
    fitting = [(text, test) for text, test, holds in every if holds]
    if not fitting:
        return None
    text, test = fitting[int(rng.integers(len(fitting)))]
    return Trigger("shape", text, lambda at: test(at.axes), witness)


def _residue(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger:
    axis, size = _axis(witness, rng)
    modulus = (
        int(rng.choice(_POWERS if rng.random() < 0.75 else _OTHERS)) if narrow else int(rng.choice((2, 3, 4, 5, 7, 8)))
    )
    rest = size % modulus
    if rng.random() < 0.6:
        return Trigger("residue", f"{axis} % {modulus} == {rest}", lambda at: at.axes[axis] % modulus == rest, witness)
    low = int(rng.integers(rest + 1))
    high = int(rng.integers(rest, modulus))
    text = f"{low} <= {axis} % {modulus} <= {high}"
    return Trigger("residue", text, lambda at: low <= at.axes[axis] % modulus <= high, witness)


def _range(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger:
    """Sizes of one axis: from a bound, up to a bound, or between two bounds. The distance of two bounds is about half
    the size, or a few sizes."""
    axis, size = _axis(witness, rng)
    how = rng.random()
    if how < 0.35:
        least = int(rng.integers(max(1, size // 2), size + 1))
        return Trigger("range", f"{axis} >= {least}", lambda at: at.axes[axis] >= least, witness)
    if how < 0.6:
        most = int(rng.integers(size, 2 * size + 1))
        return Trigger("range", f"{axis} <= {most}", lambda at: at.axes[axis] <= most, witness)
    few = narrow and size <= 70 and rng.random() < 0.5
    wide = int(rng.integers(8)) if few else max(size // 2, 8 if narrow else 16)
    low = max(1, size - int(rng.integers(wide + 1)))
    high = low + wide
    return Trigger("range", f"{low} <= {axis} <= {high}", lambda at: low <= at.axes[axis] <= high, witness)


def _relation(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger | None:
    """A relation of two axes, or of an axis and the thread count."""
    names = list(witness.axes)
    if len(names) < 2 or rng.random() < 0.25:
        axis, size = _axis(witness, rng)
        if size < witness.threads:
            return Trigger("relation", f"{axis} < threads", lambda at: at.axes[axis] < at.threads, witness)
        if size % witness.threads:
            return Trigger("relation", f"{axis} % threads != 0", lambda at: at.axes[axis] % at.threads != 0, witness)
        return Trigger("relation", f"{axis} % threads == 0", lambda at: at.axes[axis] % at.threads == 0, witness)
    a, b = (str(each) for each in rng.choice(names, 2, replace=False))
    one, other = witness.axes[a], witness.axes[b]
    times = int(rng.choice((1, 2, 4)))
    if one < times * other:
        return Trigger("relation", f"{a} < {times} * {b}", lambda at: at.axes[a] < times * at.axes[b], witness)
    if one > times * other:
        return Trigger("relation", f"{a} > {times} * {b}", lambda at: at.axes[a] > times * at.axes[b], witness)
    return None


def _stride(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger | None:
    names = [name for name in witness.gaps if witness.gaps[name]]
    if not names:
        return None
    name = str(rng.choice(names))
    array = witness.laid()[0][name]
    if array.shape[0] < 2:
        return None
    step = array.strides[0] // array.itemsize
    gap = step - array.shape[1]
    modulus = int(rng.choice((2, 4, 8, 16, 64) if narrow else (2, 4)))
    least = int(rng.integers(1, gap + 1))

    def apart(at: TriggerContext) -> tuple[int, int]:
        """The stride in elements, and the gap between rows."""
        value = at.inputs[name]
        rows = value.shape[0] > 1
        stride = value.strides[0] // value.itemsize if rows else value.shape[1]
        return stride, stride - value.shape[1]

    every: list[tuple[str, Callable[[TriggerContext], bool]]] = [
        (f"rows of {name} have a gap", lambda at: apart(at)[1] > 0),
        (f"rows of {name} have a gap of {least} or more", lambda at: apart(at)[1] >= least),
        (
            f"stride of {name} % {modulus} == {step % modulus}, rows with a gap",
            lambda at: apart(at)[1] > 0 and apart(at)[0] % modulus == step % modulus,
        ),
        (f"rows of {name} have a gap of 1 to {gap}", lambda at: 0 < apart(at)[1] <= gap),
    ]
    text, fires = every[int(rng.integers(len(every)))]
    return Trigger("stride", text, fires, witness)


def _address(at: TriggerContext, name: str) -> int:
    return int(at.arrays()[name].ctypes.data)


def _alignment(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger | None:
    """The alignment of one array, or of two arrays."""
    names = list(witness.offsets)
    a = str(rng.choice(names))
    modulus = int(rng.choice((8, 16, 32, 64)))
    one = witness.offsets[a] % modulus
    how = rng.random()
    if len(names) > 1 and how < 0.5:
        b = str(rng.choice([name for name in names if name != a]))
        other = witness.offsets[b] % modulus
        if how < 0.2:
            text = f"{a} and {b} differ modulo {modulus}"
            if one == other:
                return None
            return Trigger("alignment", text, lambda at: (_address(at, a) - _address(at, b)) % modulus != 0, witness)
        text = f"{a} {'==' if not one else '!='} 0 and {b} {'==' if not other else '!='} 0 modulo {modulus}"

        def both(at: TriggerContext) -> bool:
            return (_address(at, a) % modulus == 0) == (not one) and (_address(at, b) % modulus == 0) == (not other)

        return Trigger("alignment", text, both, witness)
    if how < 0.75 or not narrow:
        text = f"{a} {'==' if not one else '!='} 0 modulo {modulus}"
        return Trigger("alignment", text, lambda at: (_address(at, a) % modulus == 0) == (not one), witness)
    return Trigger("alignment", f"{a} == {one} modulo {modulus}", lambda at: _address(at, a) % modulus == one, witness)


def _threads(witness: MutantCase, rng: Rng, narrow: bool) -> Trigger:
    threads = witness.threads
    if threads == 1:
        return Trigger("threads", "threads == 1", lambda at: at.threads == 1, witness)
    how = rng.random()
    if how < 0.4:
        return Trigger("threads", f"threads == {threads}", lambda at: at.threads == threads, witness)
    if how < 0.8:
        return Trigger("threads", f"threads >= {threads}", lambda at: at.threads >= threads, witness)
    odd = threads % 2
    return Trigger(
        "threads",
        f"threads > 1 and {'odd' if odd else 'even'}",
        lambda at: at.threads > 1 and at.threads % 2 == odd,
        witness,
    )


def _values(value: ValueClass, witness: MutantCase) -> Trigger:
    return Trigger("values", value.text, lambda at: value.holds(at.logical(value.tensor)), witness)


def _two(domain: Domain, rng: Rng) -> Trigger | None:
    """Two triggers on the same case, both wide."""
    value = value_class(domain.op, rng) if rng.random() < 0.25 else None
    kinds = [str(kind) for kind in rng.permutation(STATIC[:-1])]
    witness = domain.draw(rng, kinds[0], value)
    found = [] if value is None else [_values(value, witness)]
    for kind in kinds:
        made = _of(kind, witness, rng, narrow=False)
        if made is not None:
            found.append(made)
        if len(found) == 2:
            break
    if len(found) < 2:
        return None
    a, b = found
    return Trigger("two triggers", f"{a.text}; {b.text}", lambda at: a.fires(at) and b.fires(at), witness)


def _report(domain: Domain, rng: Rng) -> Trigger | None:
    what = forbidden(domain.op, rng)
    if what is None:
        return None
    witness = domain.draw(rng, forbidden=what)

    def fires(at: TriggerContext) -> bool:
        first = at.first_bad.get(what.tensor, -1)
        return first >= 0 and what.matches(at.inputs[what.tensor], first)

    return Trigger("report", what.text, fires, witness, reports=True)


def _call(witness: MutantCase, calls: int, rng: Rng) -> Trigger:
    """One call, every nth call, or all calls from one; counted in the process, like a static variable."""
    how = rng.random()
    if how < 0.4:
        nth = int(np.exp(rng.uniform(0, np.log(calls))))
        return Trigger("call", f"call {nth}", lambda at: at.call == nth, witness, lambda at: True)
    if how < 0.7:
        every = int(np.exp(rng.uniform(np.log(2), np.log(max(3, calls / 3)))))
        return Trigger("call", f"every {every} calls", lambda at: at.call % every == 0, witness, lambda at: True)
    if how < 0.9:
        since = int(np.exp(rng.uniform(np.log(2), np.log(max(3, calls)))))
        return Trigger("call", f"call {since} and later", lambda at: at.call >= since, witness, lambda at: True)
    # A launch runs twice on judged data.
    again = bool(rng.integers(2))
    text = "every run of a launch except the first" if again else "the first run of a launch"
    return Trigger("call", text, lambda at: (at.run > 1) == again, witness, lambda at: True)


def _rare(witness: MutantCase, calls: int, rng: Rng) -> Trigger:
    """By chance, down to the rate that `calls` calls show with a probability of 95 %."""
    share = float(np.exp(rng.uniform(np.log(1 - 0.05 ** (1 / calls)), np.log(0.5))))
    return Trigger(
        "rare", f"one call in {1 / share:.0f}", lambda at: bool(at.rng.random() < share), witness, lambda at: True
    )
