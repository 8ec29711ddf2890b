"""The result of a gate: one immutable, versioned JSON document. Times are in nanoseconds, except fields named
`seconds`. Ratios are HEAD over BASE."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from tritmark.harness.record import Divergence, Environment, Machine, Model, Ratio, Status

GATE_VERSION = 3
"""Version of the document; later versions are refused. 2 added notes; 3 added cases and building_seconds."""

UNIT = 1e-6
"""The unit of log ratios in the document, which are integers."""


class Outcome(StrEnum):
    """The outcome of one benchmark. The first four are verdicts on its speed."""

    SLOWER = "SLOWER"
    FASTER = "FASTER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    """Too noisy for a verdict, or an alarm that fresh processes did not confirm; `reason` states which."""
    DIFFERS = "DIFFERS"
    """HEAD's output differs from BASE's by more than the op admits. It was not measured."""
    ERROR = "ERROR"
    """HEAD raised, crashed or could not be bound where BASE could."""
    ADDED = "ADDED"
    """Only HEAD has the kernel, or runs it on this machine."""
    REMOVED = "REMOVED"
    """Only BASE has the kernel, or runs it on this machine."""
    NOT_RUN = "NOT RUN"
    """This machine cannot run it, or BASE itself fails; `reason` states why."""


class Build(Model):
    """One side of the comparison."""

    given: str
    """The argument on the command line: a revision, a wheel, or a folder with installed packages."""
    commit: str = ""
    """Full hash; "" for a wheel or folder."""
    subject: str = ""
    """First line of the commit's message."""
    packages: dict[str, str]
    """Version of each distribution in it."""
    digest: str
    """SHA-256 over the names and contents of its files."""
    compiler: str = ""
    """The compilers of its native code, as its devices report them."""


class Confirmation(Model):
    """A repetition of a benchmark in a fresh process."""

    outcome: Outcome | None
    """None if the process gave no verdict on speed; `reason` states why."""
    reason: str = ""
    ratio: Ratio | None = None
    smallest: float | None = None
    seconds: float = 0.0
    logs: tuple[int, ...] = ()
    """Natural logarithms of the pairs' ratios, in units of 1e-6."""


class Benchmark(Model):
    """One kernel on one workload, of both builds."""

    id: str
    """Variant id and workload id, as in a Run of a Record."""
    op: str
    format: str
    dtype: str
    device: str
    variant: str
    axes: dict[str, int]
    family: str
    layout: str
    threads: int
    title: str = ""
    outcome: Outcome
    reason: str
    """The evidence for the outcome in a sentence; never empty."""
    identical: bool = False
    """Both builds have the same machine code, so nothing was measured."""
    code: dict[str, str] = Field(default_factory=dict)
    """Hash of the machine code of "base" and "head", if known."""
    ratio: Ratio | None = None
    """HEAD's time over BASE's with its 95 % interval; None if it was not measured."""
    smallest: Annotated[float, Field(ge=0)] | None = None
    """The smallest slow-down that would be detected, as a fraction (0.02 is 2 %), from the noise of the pairs and of
    BASE against BASE."""
    base_ns: float | None = None
    """Median time of a call in nanoseconds."""
    head_ns: float | None = None
    calls: int = 0
    """Calls in a sample of BASE."""
    clock: str = ""
    seconds: float = 0.0
    """Time spent measuring."""
    logs: tuple[int, ...] = ()
    """Natural logarithm of HEAD over BASE for each adjacent pair, in the order taken, in units of 1e-6."""
    noise: tuple[int, ...] = ()
    """The same for a second binding of BASE over BASE."""
    cases: int = 0
    """Drawn cases on which outputs of both builds were compared, for all workloads of the kernel; 0 if the machine code
    is the same."""
    confirmed: tuple[Confirmation, ...] = ()
    """The repetitions of an alarm in fresh processes."""
    first: Divergence | None = None
    """The first output element that differs: `expected` is BASE's, `found` HEAD's."""

    @model_validator(mode="after")
    def _reason_given(self) -> Self:
        if not self.reason:
            raise ValueError(f"{self.id}: {self.outcome.value} needs a reason")
        return self

    @property
    def failed(self) -> bool:
        """Whether it makes the gate fail."""
        return self.outcome in {Outcome.SLOWER, Outcome.DIFFERS, Outcome.ERROR}


class GateResult(Model):
    """The result of one gate."""

    version: Annotated[int, Field(ge=1, le=GATE_VERSION)] = GATE_VERSION
    created: str
    """UTC, ISO 8601."""
    seconds: float
    building_seconds: float = 0.0
    """The part of `seconds` until both builds were complete."""
    complete: bool = True
    """False if the gate was interrupted; the listed benchmarks are complete."""
    base: Build
    head: Build
    suite: str
    op: str = "*"
    variant: str = "*"
    device: str = "*"
    strict: bool = False
    budget: float
    """Seconds that measuring one benchmark may take; five times as many if a call takes 1 ms or more."""
    together: bool
    """Both builds ran in one process; otherwise each ran in its own, interleaved."""
    why: str = ""
    """Why the builds had separate processes; "" if they shared one."""
    notes: tuple[str, ...] = ()
    """Notes that a report shows first, such as uncommitted changes."""
    machine: Machine
    environment: Environment
    benchmarks: tuple[Benchmark, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """The number of benchmarks with this outcome."""
        return sum(each.outcome is outcome for each in self.benchmarks)

    @property
    def status(self) -> Status:
        """FAIL, AMBIGUOUS (only if strict) or PASS."""
        if any(each.failed for each in self.benchmarks):
            return Status.FAIL
        if self.strict and self.count(Outcome.AMBIGUOUS):
            return Status.AMBIGUOUS
        return Status.PASS


def kept(logs: object) -> tuple[int, ...]:
    """Log ratios as a result stores them: integers in units of 1e-6."""
    import numpy as np

    return tuple(np.rint(np.asarray(logs, np.float64) / UNIT).astype(int).tolist())
