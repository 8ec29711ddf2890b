"""A set of Records: what one `tritmark fleet run` asked for, where it ran, and what was never run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tritmark.harness.fleet.code import CodeFacts
from tritmark.harness.record import Machine
from tritmark.harness.record.model import Model

SET_VERSION = 1


class JobState(StrEnum):
    """What became of a job."""

    WAITING = "waiting"
    """Not run yet, or never, if the set has ended."""
    DONE = "done"
    """Its Record is in the set."""
    LOST = "lost"
    """Never completed; `reason` states why."""


class FleetJob(Model):
    """The Runs of one op on one machine of a kind. They make one Record."""

    kind: str
    """DEVICE/NAME."""
    op: str
    state: JobState = JobState.WAITING
    record: str = ""
    """Id of its Record; "" unless done."""
    worker: str = ""
    """Name of the Dask worker that ran it; "" unless done."""
    reason: str = ""
    """Why it is lost."""

    @property
    def key(self) -> tuple[str, str]:
        """Kind and op: no set has two jobs with the same."""
        return self.kind, self.op


class FleetWorker(Model):
    """The environment of a Dask worker, as it was checked before anything was timed there."""

    name: str
    address: str
    kinds: tuple[str, ...]
    code: CodeFacts
    python: str
    packages: dict[str, str]
    """Versions of the packages that can change a figure or a verdict."""
    machine: Machine
    """Without ceilings, which are in the Records."""


class FleetSet(Model):
    """The file set.json of a set. The Records are beside it, in runs/."""

    version: Annotated[int, Field(ge=1, le=SET_VERSION)] = SET_VERSION
    id: str
    created: str
    """UTC, ISO 8601."""
    ended: str = ""
    """"" while it runs, and after the command was killed."""
    suite: str
    suite_digest: str
    seed: int
    """Of all jobs, so that all machines judge the same data."""
    command: tuple[str, ...]
    code: CodeFacts
    """The code of the command, and of every worker."""
    commit: str | None
    """The checked-out commit of the command; None outside a checkout."""
    workers: tuple[FleetWorker, ...] = ()
    jobs: tuple[FleetJob, ...] = ()

    @property
    def missing(self) -> list[FleetJob]:
        """The jobs without a Record."""
        return [job for job in self.jobs if job.state is not JobState.DONE]

    def why(self, job: FleetJob) -> str:
        """Why the job has no Record."""
        return job.reason or ("the command ended before it was run" if self.ended else "still running, or killed")
