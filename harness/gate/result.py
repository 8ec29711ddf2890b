"""What a gate found, as one immutable, versioned JSON document. Times are nanoseconds or say seconds; ratios are
HEAD over BASE."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from tritmark.harness.record import Divergence, Environment, Machine, Model, Ratio, Status

GATE_VERSION = 3
"""Of the document; files of a later version are refused. 2: notes. 3: cases, building_seconds."""

UNIT = 1e-6
"""What the whole numbers that log ratios are kept as count."""


class Outcome(StrEnum):
    """What became of one benchmark. The first four are verdicts on its speed."""

    SLOWER = "SLOWER"
    FASTER = "FASTER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    """Too noisy to say, or an alarm that fresh processes did not confirm; `reason` says which."""
    DIFFERS = "DIFFERS"
    """HEAD's output is not BASE's, beyond what the op's family admits: it was not measured, for a wrong kernel is no
    fast one."""
    ERROR = "ERROR"
    """HEAD raised, crashed or could not be bound where BASE could."""
    ADDED = "ADDED"
    """Only HEAD has it."""
    REMOVED = "REMOVED"
    """Only BASE has it."""
    NOT_RUN = "NOT RUN"
    """This machine cannot run it, or BASE itself fails; `reason` says why."""


class Build(Model):
    """One side of the comparison."""

    given: str
    """As the command line had it: a revision, a wheel, or a folder with installed packages."""
    commit: str = ""
    """Full hash; "" for a wheel or folder."""
    subject: str = ""
    """First line of the commit's message."""
    packages: dict[str, str]
    """Version of each distribution in it."""
    digest: str
    """SHA-256 over the names and contents of its files."""
    compiler: str = ""
    """What its native code was built with, as its devices tell."""


class Confirmation(Model):
    """One more launch of a benchmark in a fresh process, asked whether it says the same."""

    outcome: Outcome | None
    """None where it did not end as it should; `reason` says why."""
    reason: str = ""
    ratio: Ratio | None = None
    smallest: float | None = None
    seconds: float = 0.0
    logs: tuple[int, ...] = ()
    """Natural logarithms of the pairs' ratios, in units of 1e-6."""


class Benchmark(Model):
    """One kernel on one workload, of both builds."""

    id: str
    """Variant id and workload id, as in a Record's Run."""
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
    """What it rests on, in a sentence; never empty."""
    identical: bool = False
    """Both builds have the same machine code, so nothing was measured."""
    code: dict[str, str] = Field(default_factory=dict)
    """Hash of the machine code of "base" and "head", where it is known."""
    ratio: Ratio | None = None
    """HEAD's time over BASE's with its 95 % interval; None where it was not measured."""
    smallest: Annotated[float, Field(ge=0)] | None = None
    """The smallest change that could have been seen, as a fraction (0.02 is 2 %), from BASE against BASE."""
    base_ns: float | None = None
    """Median time of a call in these samples."""
    head_ns: float | None = None
    calls: int = 0
    """Calls in a sample of BASE."""
    clock: str = ""
    seconds: float = 0.0
    """Spent measuring."""
    logs: tuple[int, ...] = ()
    """Natural logarithm of HEAD over BASE for each adjacent pair, in the order taken, in units of 1e-6."""
    noise: tuple[int, ...] = ()
    """The same of BASE against a second binding of BASE."""
    cases: int = 0
    """Drawn cases on which outputs of both builds were compared, whatever the workload; 0 where the machine code is the
    same."""
    confirmed: tuple[Confirmation, ...] = ()
    """What fresh processes said of an alarm."""
    first: Divergence | None = None
    """The first output element that differs: `expected` is BASE's, `found` HEAD's."""

    @model_validator(mode="after")
    def _reason_given(self) -> Self:
        if not self.reason:
            raise ValueError(f"{self.id}: {self.outcome.value} needs a reason")
        return self

    @property
    def failed(self) -> bool:
        """It makes the gate fail."""
        return self.outcome in {Outcome.SLOWER, Outcome.DIFFERS, Outcome.ERROR}


class GateResult(Model):
    """Everything one gate found."""

    version: Annotated[int, Field(ge=1, le=GATE_VERSION)] = GATE_VERSION
    created: str
    """UTC, ISO 8601."""
    seconds: float
    building_seconds: float = 0.0
    """Of these, until both were built."""
    complete: bool = True
    """False where it was interrupted: what is listed was done."""
    base: Build
    head: Build
    suite: str
    op: str = "*"
    variant: str = "*"
    device: str = "*"
    strict: bool = False
    budget: float
    """Seconds that measuring one benchmark may take (five times that where a call takes over 1 ms)."""
    together: bool
    """Both builds ran in one process; else in two that took turns."""
    why: str = ""
    """Why they were kept apart, or what to bear in mind about this gate."""
    notes: tuple[str, ...] = ()
    """What a reader has to know before all else, such as changes that are in neither build."""
    machine: Machine
    environment: Environment
    benchmarks: tuple[Benchmark, ...] = ()

    def count(self, outcome: Outcome) -> int:
        """How many benchmarks ended so."""
        return sum(each.outcome is outcome for each in self.benchmarks)

    @property
    def status(self) -> Status:
        """FAIL, AMBIGUOUS (only where strict) or PASS."""
        if any(each.failed for each in self.benchmarks):
            return Status.FAIL
        if self.strict and self.count(Outcome.AMBIGUOUS):
            return Status.AMBIGUOUS
        return Status.PASS


def kept(logs: object) -> tuple[int, ...]:
    """Log ratios as a result keeps them: whole numbers in units of 1e-6."""
    import numpy as np

    return tuple(np.rint(np.asarray(logs, np.float64) / UNIT).astype(int).tolist())
