"""Draws mutants: each is a trigger and an effect, drawn by number from the seed of an invocation, and so repeatable.

A mutant must do harm. If neither the trigger's witness nor further cases on which it fires show harm, the draw is
dropped and counted as equivalent. Harm is determined outside of the judgement (see harmful).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from tritmark.harness.selftest import effects, triggers
from tritmark.harness.selftest.domain import Array, Domain, MutantCase, NothingAdmittedError, Rng
from tritmark.harness.selftest.effects import Effect
from tritmark.harness.selftest.site import admits
from tritmark.harness.selftest.struck import variant
from tritmark.harness.selftest.triggers import Trigger
from tritmark.harness.spec import KernelKey, Mutant, Variant
from tritmark.harness.validate.guards import bits

_DRAWS = 40
"""Maximum draws for one mutant. An op without mutants of a kind gets one of another kind."""
_CASES = 12
"""Further cases that are tried before a mutant counts as equivalent."""


@dataclass(frozen=True)
class DrawnMutant:
    """One mutant of a key, identified by `number` and the seed of the draw."""

    key: KernelKey
    number: int
    trigger: Trigger
    effect: Effect
    equivalent: int
    """Number of draws before this one that did no harm."""

    @property
    def kind(self) -> str:
        return self.trigger.kind

    @property
    def text(self) -> str:
        """Trigger and effect as text."""
        return f"{self.trigger.text}: {self.effect.text}"

    def candidate(self, right: Any, seed: Sequence[int]) -> Variant:
        """A new kernel with this mutant."""
        made, _ = variant(right, self.trigger.fires, self.effect, self.trigger.reports, seed)
        return made


def mark(key: KernelKey) -> int:
    """A number for the key that is the same in every process."""
    return int.from_bytes(sha256(str(key).encode()).digest()[:4], "little")


def draw(domain: Domain, mutants: Sequence[Mutant], calls: int, seed: int, number: int) -> DrawnMutant:
    """The mutant of that number. Consecutive numbers begin with consecutive kinds, so that all kinds are equally
    frequent.

    Raises NothingAdmittedError if no draw did harm.
    """
    key = domain.right.key
    rng = np.random.default_rng([seed, mark(key), number])
    kinds = [*np.roll(triggers.KINDS, -number)]
    equivalent = 0
    for attempt in range(_DRAWS):
        kind = kinds[attempt * len(kinds) // _DRAWS]
        trigger = triggers.draw(domain, str(kind), calls, rng)
        if trigger is None:
            continue
        effect = effects.draw(domain.op, trigger, mutants, rng)
        if _harms(domain, trigger, effect, rng):
            return DrawnMutant(key, number, trigger, effect, equivalent)
        equivalent += 1
    raise NothingAdmittedError(f"{key}: no mutant of number {number}")


def _harms(domain: Domain, trigger: Trigger, effect: Effect, rng: Rng) -> bool:
    """Whether the mutant does harm on the witness, or on another case on which the trigger fires."""
    if harmful(trigger.witness, trigger, effect):
        return True
    for _ in range(_CASES):
        try:
            values = domain.draw(rng)
        except NothingAdmittedError:
            return False
        # With the witness's addresses, threads and shape, on which the trigger may need to fire.
        if harmful(values, trigger, effect):
            return True
        other = _other_values(domain, trigger.witness, rng)
        if other is not None and harmful(other, trigger, effect):
            return True
    return False


def _other_values(domain: Domain, witness: MutantCase, rng: Rng) -> MutantCase | None:
    """The witness with values of another family; None if these cannot be judged."""
    from tritmark.harness.errors import InvalidArgumentError
    from tritmark.harness.validate.compare import BrokenReferenceError

    try:
        with np.errstate(all="ignore"):
            made = replace(
                witness, logical=domain.op.generate(witness.axes, str(rng.choice(domain.op.input_families)), rng)
            )
        _ = made.inputs, made.expected
    except (InvalidArgumentError, BrokenReferenceError):
        return None
    return made


def harmful(case: MutantCase, trigger: Trigger, effect: Effect) -> bool:
    """Whether a kernel with that mutant violates the op's contract in two runs on the case. Triggers by chance or count
    always fire here.

    This does not use the judgement's code: outputs are compared with the contract's bounds, the report with the inputs,
    and bytes of inputs and around outputs with their copies.
    """
    fires = trigger.sure or trigger.fires
    candidate, kept = variant(case.right, fires, effect, trigger.reports, 0)
    inputs, outputs = case.laid()
    launch = candidate.bind(inputs, outputs, case.axes, case.threads)
    first = min((min(places) for places in case.forbidden.values()), default=-1)
    for filling in (0x5A, 0xA5):
        for out in outputs.values():
            out.reshape(-1).view(np.uint8)[...] = filling
        watched = [each for each in (*inputs.values(), *outputs.values()) if isinstance(each, np.ndarray) and each.ndim]
        roots = [_root(each) for each in watched]
        before = [root.copy() for root in roots]
        launch.run()
        if not kept.struck:
            continue
        if launch.bad != first:
            return True
        if first < 0 and not _admitted(case, outputs):
            return True
        written = [outputs[name].copy() for name in outputs]
        for out in outputs.values():
            out.reshape(-1).view(np.uint8)[...] = filling
        changed = any(not np.array_equal(root, old) for root, old in zip(roots, before, strict=True))
        for name, values in zip(outputs, written, strict=True):
            outputs[name][...] = values
        if changed:
            return True
    return False


def _admitted(case: MutantCase, outputs: Mapping[str, Array]) -> bool:
    expected = case.expected
    return all(
        np.array_equal(bits(outputs[name]), bits(each.values)) or admits(each, outputs[name])
        for name, each in expected.items()
    )  # fmt: skip


def _root(array: Array) -> Array:
    """All bytes of the memory of which an array is a view."""
    base: Any = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    found: Array = base.reshape(-1).view(np.uint8)
    return found
