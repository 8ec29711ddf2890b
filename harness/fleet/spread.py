"""Spreads jobs over a Dask cluster and keeps their Records as they finish.

Dask places the jobs by resources, moves those of lost workers to others of the same kind, and gives up on a job whose
workers died too often (`distributed.scheduler.allowed-failures`). At most one job for each host of a kind is submitted
at a time, since a lost worker counts against every job that was assigned to it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from tritmark.harness.errors import BadEnvironmentError, MissingPackageError, RecordError, TritmarkError
from tritmark.harness.extras import install
from tritmark.harness.fleet import inside
from tritmark.harness.fleet.code import CodeFacts
from tritmark.harness.fleet.kinds import MachineKind, Offer, of_kinds, offers
from tritmark.harness.fleet.model import FleetJob, FleetWorker
from tritmark.harness.fleet.plan import FleetPlan
from tritmark.harness.fleet.sets import SetFolder

if TYPE_CHECKING:
    from tritmark.harness.record import Record

_POLL_S = 0.2
_CONNECT_S = 10.0
_FETCH_S = 30.0
"""Seconds to wait for a finished Record. A worker that dies before it sent it makes Dask repeat the job."""
_MODULE = inside.__name__


class FleetObserver(Protocol):
    """Receives the progress of a fleet."""

    def started(self, what: str) -> None:
        """A job was given to Dask."""

    def finished(self, job: FleetJob, record: Record) -> None:
        """The Record of a job is on disk."""

    def lost(self, job: FleetJob, reason: str) -> None:
        """A job will have no Record."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler. Raises MissingPackageError without Dask, BadEnvironmentError if nothing answers."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "the package distributed is missing", name="distributed", next_step=install("fleet")
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadEnvironmentError(
            f"no Dask scheduler answers at {address!r}: {error}",
            next_step="start one with `dask scheduler`, and use the address that it prints, such as tcp://10.0.0.5:8786",
        ) from error
    try:
        yield client
    finally:
        with suppress(OSError, TimeoutError):
            client.close(timeout=_CONNECT_S)


def workers_of(client: Any) -> Mapping[str, Mapping[str, Any]]:
    """The workers of the scheduler, by address. Raises BadEnvironmentError if it does not answer any more."""
    try:
        found: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    except (OSError, TimeoutError, KeyError) as error:  # a client that gave up has no workers
        raise _lost() from error
    return found


def _lost() -> BadEnvironmentError:
    return BadEnvironmentError("the scheduler is lost", next_step="start it again, then the command")


def checked(
    client: Any, offered: Sequence[Offer], code: CodeFacts, known: Sequence[FleetWorker] | None = None
) -> list[FleetWorker]:
    """The environments of these workers. `known`: those that they join later; of newcomers, lost ones are left out.

    Raises BadEnvironmentError, which names every worker with other code than `code`, and every kind with two different
    machines. Nothing was timed then.
    """
    found: list[FleetWorker] = []
    refused: list[str] = []
    for offer in offered:
        told = _facts(client, offer)
        if told is None and known is not None:
            continue
        if told is None:
            told = "does not answer"
        if isinstance(told, str):
            refused.append(f"worker {offer.name} ({offer.address}) {told}")
            continue
        try:
            worker = FleetWorker(
                name=offer.name, address=offer.address, kinds=tuple(map(str, offer.kinds)), **told
            )  # fmt: skip
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            refused.append(f"worker {offer.name} ({offer.address}) has another version of tritmark: {where}")
            continue
        others = [code, *(each.code for each in (*(known or ()), *found))]
        why = next(filter(None, (other.refusal(worker.code) for other in others)), "")
        if why:
            refused.append(f"worker {offer.name} ({offer.address}) {why}")
        else:
            found.append(worker)
    if refused:
        raise BadEnvironmentError(
            "; ".join(refused),
            next_step="install the same wheel there, stop these workers, or leave their kinds out by --kind",
        )
    _must_be_alike([*(known or ()), *found])
    return found


def _facts(client: Any, offer: Offer) -> dict[str, Any] | str | None:
    """Fields of FleetWorker, why the worker cannot state them, or None if it was lost."""
    devices = tuple(dict.fromkeys(kind.device for kind in offer.kinds))
    # As text, since a worker without tritmark, or with another Python, could not unpickle a function of ours.
    source = f"__import__({_MODULE!r}, fromlist=['facts']).facts({devices!r})"
    told = client.run(eval, source, workers=[offer.address], on_error="return").get(offer.address)
    if told is None or isinstance(told, OSError):
        return None
    if isinstance(told, ImportError):
        return f"has no tritmark with this command ({told})"
    if not isinstance(told, str):
        return f"does not state its environment ({type(told).__name__}: {told})"
    found: dict[str, Any] = json.loads(told)
    return found


def _must_be_alike(workers: Sequence[FleetWorker]) -> None:
    machines: dict[str, dict[str, FleetWorker]] = {}
    for worker in workers:
        for kind in worker.kinds:
            machines.setdefault(kind, {}).setdefault(worker.machine.id, worker)
    for kind, of in machines.items():
        if len(of) > 1:
            named = ", ".join(f"{each.name} has {each.machine.cpu}, machine {id}" for id, each in of.items())
            raise BadEnvironmentError(
                f"kind {kind} has different machines, whose figures do not compare: {named}",
                next_step="start their workers with different names in --resources",
            )


class FleetSpread:
    """The jobs of one set on a cluster."""

    def __init__(
        self,
        client: Any,
        plan: FleetPlan,
        folder: SetFolder,
        kinds: Sequence[MachineKind],
        observer: FleetObserver,
        *,
        devices: Collection[str],
        wait_s: float,
    ) -> None:
        self._client = client
        self._plan = plan
        self._folder = folder
        self._observer = observer
        self._devices = devices
        self._wait_s = wait_s
        self._kinds = {str(kind): kind for kind in kinds}
        self._waiting = {str(kind): [job for job in plan.jobs if job.kind == str(kind)] for kind in kinds}
        self._submitted: dict[str, tuple[FleetJob, Any]] = {}
        """Jobs and futures, by the future's key."""
        self._missing_since: dict[str, float] = {}
        self._machines = {
            kind: worker.machine.id for worker in folder.found.workers for kind in worker.kinds
        }  # fmt: skip

    def run(self) -> None:
        """Run all jobs, until each has a Record or is lost. Raises KeyboardInterrupt, after jobs were stopped.

        Raises BadEnvironmentError for a worker with other code that joined later, and if the scheduler is lost."""
        from distributed import as_completed

        completed = as_completed(loop=self._client.loop)
        try:
            while True:
                for future in self._next():
                    completed.add(future)
                if not self._submitted:
                    break
                if not completed.has_ready():
                    sleep(_POLL_S)
                    continue
                for future in completed.next_batch(block=False):
                    if self._ended(future):
                        completed.add(future)
        except BaseException as error:
            self._stop()
            if isinstance(error, Exception) and self._client.status != "running":
                raise _lost() from error
            raise

    def _next(self) -> Iterator[Any]:
        """Submit jobs of kinds with an idle host; give up on those of kinds without a worker."""
        offered = self._offered()
        self._check_newcomers(offered)
        for text, waiting in self._waiting.items():
            hosts = {each.host for each in offered if self._kinds[text] in each.kinds}
            under_way = [job for job, _ in self._submitted.values() if job.kind == text]
            if not hosts:
                since = self._missing_since.setdefault(text, monotonic())
                if monotonic() - since >= self._wait_s:
                    self._give_up(text, f"no worker of kind {text} was left for {self._wait_s:g} s")
                continue
            self._missing_since.pop(text, None)
            for _ in range(min(len(waiting), len(hosts) - len(under_way))):
                yield self._submit(waiting.pop(0))

    def _offered(self) -> list[Offer]:
        return of_kinds(offers(workers_of(self._client), self._devices), self._kinds.values())

    def _submit(self, job: FleetJob) -> Any:
        found = self._folder.found
        order = inside.JobOrder(
            set_id=found.id,
            op=job.op,
            kind=job.kind,
            machine=self._machines[job.kind],
            code=found.code,
            arguments=self._plan.arguments,
            files=self._plan.files,
        )
        future = self._client.submit(
            inside.judged,
            order,
            key=f"tritmark-{found.id}-{job.kind}-{job.op}",
            resources={self._kinds[job.kind].resource: 1},
            pure=False,
        )
        self._submitted[future.key] = job, future
        self._observer.started(f"{job.op} on {job.kind}")
        return future

    def _ended(self, future: Any) -> bool:
        """Keep the Record of a future, or note why there is none. True if Dask runs the job again."""
        if future.key not in self._submitted:
            return False
        job, _ = self._submitted[future.key]
        try:
            data, worker = future.result(timeout=_FETCH_S)
        except TimeoutError:
            return True
        except Exception as error:  # whatever the job raised, or KilledWorker of Dask
            self._check_newcomers(self._offered())
            self._lose(job, _reason(error))
        else:
            try:
                record = self._folder.add(job, worker, data)
            except RecordError as error:
                self._lose(job, str(error))
            else:
                if record is not None:
                    self._observer.finished(job, record)
        del self._submitted[future.key]
        return False

    def _check_newcomers(self, offered: Sequence[Offer]) -> None:
        """Check and note workers that joined later. One with other code would fail every job that it gets, within
        milliseconds."""
        known = {each.address for each in self._folder.found.workers}
        new = [each for each in offered if each.address not in known and set(map(str, each.kinds)) & self._kinds.keys()]
        for worker in checked(self._client, new, self._folder.found.code, self._folder.found.workers):
            self._folder.on(worker)

    def _give_up(self, kind: str, reason: str) -> None:
        under_way = [(job, future) for job, future in self._submitted.values() if job.kind == kind]
        for _, future in under_way:
            future.cancel()
            del self._submitted[future.key]
        for job in (*(job for job, _ in under_way), *self._waiting[kind]):
            self._lose(job, reason)
        self._waiting[kind].clear()

    def _lose(self, job: FleetJob, reason: str) -> None:
        self._folder.lose(job, reason)
        self._observer.lost(job, reason)

    def _stop(self) -> None:
        """End what is under way, so that no machine measures what is not kept.

        A cluster that does not answer any more must not hide the error that ended the command."""
        with suppress(Exception):
            self._client.cancel([future for _, future in self._submitted.values()])
            source = f"__import__({_MODULE!r}, fromlist=['stop']).stop({self._folder.found.id!r})"
            addresses = [each.address for each in self._offered()]
            self._client.run(eval, source, workers=addresses, on_error="ignore")


def _reason(error: Exception) -> str:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return f"{error.allowed_failures + 1} workers died with it, one after the other"
    return str(error) if isinstance(error, TritmarkError) else f"{type(error).__name__}: {error}"
