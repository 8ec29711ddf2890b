"""Workload: the axes and values on which a Variant runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """The weights of a workload: a matrix of a file, and the conventions that the user chose for facts that the file
    does not state (see harness.weights.Conventions)."""

    path: str
    name: str
    layout: str = ""
    weight_scale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Values for an Op's axes, an input family and the layout of the arrays.

    Accuracy is always judged. `measure` adds the other dimensions; performance only if `timed`.

    Layouts: "aligned" (64 bytes), "unaligned" (one element past that).

    `drawn`: the number of test cases that are drawn anew for each Record: shapes, families, layouts and threads (see
    harness.validate.draw). Such a workload has no axes, and both family and layout are "drawn".

    `stored`: its weights come from a file, and StoredWeights makes the other inputs. Its family is "stored".
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
        """Of two equal workloads, the one with the greater value is taken."""
        return self.measure, self.timed

    @property
    def id(self) -> str:
        if self.drawn:
            return f"{self.op}[drawn]/{self.family}/{self.layout}"
        shape = ",".join(f"{name}={size}" for name, size in self.axes.items())
        return f"{self.op}[{shape}]/{self.family}/{self.layout}"
