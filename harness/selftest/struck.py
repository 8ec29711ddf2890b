"""A correct kernel with a drawn mutant, as a variant: it runs the correct kernel, then applies the mutant's effect if
the trigger fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritmark.harness.selftest.domain import Array
from tritmark.harness.selftest.effects import Effect, MutantRun
from tritmark.harness.selftest.right import CorrectKernel
from tritmark.harness.selftest.triggers import TriggerContext
from tritmark.harness.spec import Arrays, Axes, Launch, Tier, Values, Variant

NAME = "drawn-mutant"


@dataclass
class KeptState:
    """State that the kernel keeps between launches, like static variables."""

    rng: np.random.Generator
    calls: int = 0
    struck: int = 0
    """Number of times that the mutant took effect."""
    last: Mapping[str, Array] | None = None


@dataclass
class MutantLaunch:
    """A launch of the kernel with the mutant."""

    right: CorrectKernel
    inner: Launch
    kept: KeptState
    fires: Callable[[TriggerContext], bool]
    effect: Effect | None
    reports: bool
    inputs: Arrays
    outputs: Arrays
    axes: Axes
    threads: int
    ran: str = ""
    runs: int = 0
    threads_used: int = 1
    bad: int = -1
    pointer: int | None = None
    _finite: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        self._finite = tuple(
            each.name
            for each in self.right.op.inputs
            if each.values is Values.FINITE and each.axes and each.dtype == "float32"
        )

    def run(self) -> None:
        self.runs += 1
        before = {name: np.array(value) for name, value in self.outputs.items()} if self.effect is not None else {}
        self.inner.run()
        self.ran, self.threads_used, self.bad = NAME, self.inner.threads_used, self.inner.bad
        # Calls with a report are not counted: they have no outputs that a mutant could change.
        self.kept.calls += self.bad < 0
        if self.effect is None:
            return
        # With a report, outputs are undefined. Only mutants of reports apply there, and they apply only there.
        if self.reports == (self.bad >= 0):
            self._strike(self.effect, before)
        self.kept.last = {name: np.array(value) for name, value in self.outputs.items()}

    def _strike(self, effect: Effect, before: Mapping[str, Array]) -> None:
        reported = {self._finite[0]: self.bad} if self.reports and self._finite else {}
        at = TriggerContext(
            self.axes,
            self.threads,
            self.inputs,
            self.outputs,
            self.right.decode,
            self.kept.calls,
            self.runs,
            self.kept.rng,
            reported,
        )
        if not self.fires(at):
            return
        self.kept.struck += 1
        doing = MutantRun(at, before, self.kept.last, self.bad)
        with np.errstate(all="ignore"):
            effect.strike(doing)
        self.bad = doing.bad


def variant(
    right: CorrectKernel, fires: Callable[[TriggerContext], bool], effect: Effect | None, reports: bool, seed: Any
) -> tuple[Variant, KeptState]:
    """A new kernel without kept state, and its state. `effect` None: the kernel is correct."""
    kept = KeptState(np.random.default_rng(seed))

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = MutantLaunch(
            right,
            right.bind(inputs, outputs, axes, threads),
            kept,
            fires,
            effect,
            reports,
            inputs,
            outputs,
            axes,
            threads,
        )  # fmt: skip
        return launch

    made = Variant(key=right.key, name=NAME, tier=Tier.CANDIDATE, summary="", bind=bind, constraints=right.constraints)
    return made, kept
