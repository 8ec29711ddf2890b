"""The fields of a verdict. They are stable: a later version adds fields and renames none."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tritmark.harness.record import Cause, Status
from tritmark.harness.record.model import Model
from tritmark.harness.record.proposal import Gain

VERSION = 1
"""The version of the object that is written."""


class CheckedDimension(Model):
    """One dimension over all Runs of a kernel."""

    status: Status
    """The worst status of its Runs."""
    runs: int
    """Number of Runs in which it was judged."""
    guards: tuple[str, ...] = ()
    """Guards that detected a fault, see docs/exploits.md."""
    workload: str = ""
    """The first workload with this status, if it is not PASS."""
    reason: str = ""
    """The reason there; "" for PASS."""
    cause: Cause | None = None
    """Of a NOT RUN that is not a fault."""


class FirstDifference(Model):
    """The first incorrect element of an output, and the inputs that belong to it."""

    workload: str
    output: str
    index: tuple[int, ...]
    expected: str
    found: str
    inputs: dict[str, str] = Field(default_factory=dict)
    """Scalars, and the elements of arrays that have only axes of the output, by name and place; empty if they are not
    known."""

    def __str__(self) -> str:
        at = ", ".join(map(str, self.index))
        there = ", ".join(f"{name} = {value}" for name, value in self.inputs.items())
        return f"{self.output}[{at}] is {self.found}, expected {self.expected}" + (f" ({there})" if there else "")


class FailingInput(Model):
    """The smallest input that was found on which the kernel fails by itself."""

    file: str
    """Path of the .npz with the inputs and the expected outputs."""
    axes: dict[str, int]
    family: str
    layout: str
    threads: int
    nbytes: int
    """Bytes of all inputs."""
    guards: tuple[str, ...]
    reason: str
    difference: FirstDifference | None = None
    """None if the kernel failed in another way, such as by a crash."""
    command: str
    """The command that judges the kernel on this input alone."""


class ShapeSpeed(Model):
    """The speed at one shape, on cold data if that was timed, otherwise on hot data."""

    workload: str
    data: Literal["cold", "hot"]
    time_ns: float
    """Median time of a call."""
    low_ns: float
    """Lower end of the 95 % interval of the median."""
    high_ns: float
    """Upper end of it."""
    threads: int
    best_ns: float | None = None
    """The best built-in kernel's time, next to this one and not interleaved; None if it was not timed."""
    speedup: float | None = None
    """`best_ns` / `time_ns`; None if either time is too noisy."""
    ceiling: str = ""
    """What limits the shape: read, write or compute."""
    ceiling_fraction: float | None = None
    """Least time that the machine needs / `time_ns`; None if it is too noisy or the ceiling could not be measured."""
    baseline_fraction: float | None = None
    """The same for the baseline."""
    score: float | None = None
    """Share of the gap between baseline and ceiling: (ceiling_fraction - baseline_fraction) / (1 - baseline_fraction).
    0 is the baseline's speed, 1 the ceiling; negative if the kernel is slower than the baseline."""


class NextStep(Model):
    """A proposed change with its predicted gain."""

    rule: str
    """`tritmark advise --explain RULE` explains it."""
    title: str
    edit: str
    workload: str
    gain: Gain
    """Old time / new time."""
    verify: str
    """The command that measures the effect."""


class KernelVerdict(Model):
    """The verdict of one kernel of the file."""

    kernel: str
    """device/op/format/dtype/variant."""
    code: str
    """"pass"; "borrowed" for a correct kernel whose process holds the code of another one; DIMENSION.GUARD for a fault
    that a guard detected, such as "accuracy.values" or "memory.leak"; otherwise DIMENSION.STATUS, such as
    "performance.ambiguous"."""
    status: Status
    """The worst of the dimensions."""
    dimensions: dict[str, CheckedDimension]
    """accuracy, performance, memory, cross."""
    guard: str = ""
    """The first guard that detected a fault in the first failed dimension; "" if none did."""
    borrowed: tuple[str, ...] = ()
    """The kernels whose code its process holds. They may have made its outputs and times, so it has no score."""
    limits: tuple[str, ...] = ()
    """What its verdicts do not cover, and why, such as "not judged on other paths"."""
    first: FirstDifference | None = None
    """The first incorrect element; of the smallest failing input if there is one."""
    failing: FailingInput | None = None
    """None if accuracy did not fail, and if no single input makes it fail: repeat the check with its seed."""
    speed: tuple[ShapeSpeed, ...] = ()
    """Empty if nothing was timed."""
    best: str = ""
    """The best built-in kernel, beside which it was timed."""
    baseline: str = ""
    """The plainest built-in kernel, at which the score is 0."""
    ceiling_percent: float | None = None
    """Mean percent of the ceiling over the shapes."""
    score: float | None = None
    """Mean score over the shapes; None if the kernel is incorrect or borrowed, or nothing could be compared."""
    next: tuple[NextStep, ...] = ()
    """Up to three proposals, the largest expected saving first."""


class CheckFacts(Model):
    """The fields of a verdict."""

    version: Annotated[int, Field(ge=1, le=VERSION)] = VERSION
    code: str
    """The code of the kernel that decides: the worst one, of equal ones the first. A borrowed one is worse than one
    that passes."""
    status: Status
    passed: bool
    """Whether no verdict is FAIL or ERROR, among them those of the built-in kernels beside it."""
    kernels: tuple[KernelVerdict, ...]
    """Each kernel of the file that was judged."""
    seed: int
    """Seed of all data; `--seed` repeats it."""
    seconds: float
    record: str = ""
    """Path of the Record, which has everything; "" for a replay."""
    not_available: tuple[str, ...] = ()
    """Protections of a sandbox that this system lacks; empty outside a sandbox."""
