"""The candidate for fixed mutants: a correct kernel, except for its mutant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.selftest.site import Array, MutantSite, Outputs
from tritmark.harness.spec import Arrays, Axes, Launch, Tier, Values, Variant
from tritmark.harness.validate.compare import is_float
from tritmark.harness.validate.guards import bits

NAME = "stand-in"


@dataclass(frozen=True, slots=True)
class MutantPlan:
    """A mutant, ready to be planted at a site. A step that is None is done correctly.

    `outputs(site, nth)` returns the outputs for the `nth` set of data. `write(launch, outputs)` writes them.
    `report(forbidden, values)` returns the index that is reported as the first forbidden one; -1 for none.
    """

    name: str
    outputs: Callable[[MutantSite, int], Outputs] | None = None
    write: Callable[[StandIn, Outputs], None] | None = None
    report: Callable[[npt.NDArray[np.intp], Array], int] | None = None


class UnknownDataError(Exception):
    """The stand-in's memory does not hold the data of its workload."""


@dataclass
class StandIn:
    """A launch of the stand-in."""

    site: MutantSite
    plan: MutantPlan
    inputs: Arrays
    outputs: Arrays
    threads: int
    everywhere: dict[str, Any]
    """State that is kept from launch to launch."""
    here: dict[str, Any] = field(default_factory=dict)
    """State that is kept from run to run."""
    ran: str = ""
    runs: int = 0
    threads_used: int = 1
    bad: int = -1
    pointer: int | None = None

    def run(self) -> None:
        self.ran = NAME
        self.runs += 1
        self.bad, reported = self._forbidden()
        if reported:
            return
        nth = self._recognized()
        made = self.site.right[nth] if self.plan.outputs is None else self.everywhere["outputs"](nth)
        (self.plan.write or write)(self, made)

    def _forbidden(self) -> tuple[int, bool]:
        """The index that is reported, and whether there is a forbidden element."""
        for tensor in self.site.op.inputs:
            if tensor.values is not Values.FINITE or not tensor.axes:
                continue
            value: Array = self.inputs[tensor.name]
            if not is_float(value.dtype):
                continue
            forbidden = np.flatnonzero(~np.isfinite(value))
            if self.plan.report is not None:
                return self.plan.report(forbidden, value), forbidden.size > 0
            if forbidden.size:
                return int(forbidden[0]), True
        return -1, False

    def _recognized(self) -> int:
        """The number of the data set that the inputs hold. Raises UnknownDataError."""
        for nth, case in enumerate(self.site.data):
            if all(
                np.array_equal(bits(np.asarray(self.inputs[name])), bits(np.asarray(value)))
                for name, value in case.inputs.items()
            ):
                return nth
        raise UnknownDataError(f"{self.plan.name}: the inputs of {self.site.op.name} hold no data of the workload")


def write(launch: StandIn, outputs: Outputs) -> None:
    """Write outputs unchanged."""
    for name, values in outputs.items():
        launch.outputs[name][...] = values


def variant(site: MutantSite, plan: MutantPlan, made: Callable[[int], Outputs] | None) -> Variant:
    """The stand-in with a mutant, as a variant. `made(nth)` is plan.outputs, computed once; None if the plan has
    none."""
    everywhere: dict[str, Any] = {"outputs": made}

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = StandIn(site, plan, inputs, outputs, threads, everywhere)
        return launch

    return Variant(key=site.key, name=NAME, tier=Tier.CANDIDATE, summary=plan.name, bind=bind)
