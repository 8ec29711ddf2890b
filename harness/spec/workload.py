"""Workload: on which values an Op and a Variant of it meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """Where the weights of a workload lie: a matrix of a file, and what was asked for where files do not say (see
    harness.weights.Conventions)."""

    path: str
    name: str
    layout: str = ""
    weight_scale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Values for an Op's axes, an input family and the layout of the arrays. `measure` asks for the other dimensions
    too, but for that of performance only where `timed`.

    Layouts: "aligned" (64 bytes), "unaligned" (one element past that).

    With `drawn`, it stands for that many test cases that are drawn anew for each Record: shapes, families, layouts and
    threads (see harness.validate.draw). Such a workload has no axes, and both family and layout are "drawn".

    With `stored`, its weights are those of a file, and the rest is what StoredWeights makes; its family is
    "stored".
    """

    op: str
    axes: Mapping[str, int]
    family: str = "normal"
    layout: str = "aligned"
    measure: bool = False
    timed: bool = True
    title: str = ""
    drawn: int = 0
    stored: StoredMatrix | None = None

    @property
    def thoroughness(self) -> tuple[bool, bool]:
        """By which one of two that are alike is taken: the greater."""
        return self.measure, self.timed

    @property
    def id(self) -> str:
        if self.drawn:
            return f"{self.op}[drawn]/{self.family}/{self.layout}"
        shape = ",".join(f"{name}={size}" for name, size in self.axes.items())
        return f"{self.op}[{shape}]/{self.family}/{self.layout}"
