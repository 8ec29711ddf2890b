"""The candidate that mutants are planted into: a right kernel, but for the one thing that its mutant does."""

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
    """A mutant, ready to be planted at a site. What is None is done right.

    `outputs(site, nth)` gives what is written for the `nth` set of data. `write(launch, outputs)` writes it.
    `report(forbidden)` says which index is told as the first that the contract forbids, of all that are, -1 for none.
    """

    name: str
    outputs: Callable[[MutantSite, int], Outputs] | None = None
    write: Callable[[StandIn, Outputs], None] | None = None
    report: Callable[[npt.NDArray[np.intp], Array], int] | None = None


class UnknownDataError(Exception):
    """Other data stands in the stand-in's memory than that of its workload."""


@dataclass
class StandIn:
    """A launch of it."""

    site: MutantSite
    plan: MutantPlan
    inputs: Arrays
    outputs: Arrays
    threads: int
    everywhere: dict[str, Any]
    """What it keeps from one launch to the next."""
    here: dict[str, Any] = field(default_factory=dict)
    """What it keeps from one run to the next."""
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
        """The index that is told, and whether there is a forbidden element indeed."""
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
        """Which set of data stands in the inputs."""
        for nth, case in enumerate(self.site.data):
            if all(
                np.array_equal(bits(np.asarray(self.inputs[name])), bits(np.asarray(value)))
                for name, value in case.inputs.items()
            ):
                return nth
        raise UnknownDataError(
            f"{self.plan.name}: what stands in the inputs of {self.site.op.name} is no data of the workload"
        )


def write(launch: StandIn, outputs: Outputs) -> None:
    """Write outputs as they are."""
    for name, values in outputs.items():
        launch.outputs[name][...] = values


def variant(site: MutantSite, plan: MutantPlan, made: Callable[[int], Outputs] | None) -> Variant:
    """The stand-in with a mutant, as the harness takes it. `made(nth)` is plan.outputs, computed once, where the
    plan has them."""
    everywhere: dict[str, Any] = {"outputs": made}

    def bind(inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> Launch:
        launch: Launch = StandIn(site, plan, inputs, outputs, threads, everywhere)
        return launch

    return Variant(key=site.key, name=NAME, tier=Tier.CANDIDATE, summary=plan.name, bind=bind)
