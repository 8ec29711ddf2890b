"""Traces how the kernels of a device access memory, in a simulator of the device: after all timing, each kernel in a
process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from tritmark.harness.errors import TritmarkError
from tritmark.harness.judge.request import Observer, Request
from tritmark.harness.numbered import numbered
from tritmark.harness.providers import Installed
from tritmark.harness.record import Cause, Run, Status
from tritmark.harness.spec import AccessTracing, KernelAccesses, Tier, Variant
from tritmark.harness.worker import tasks
from tritmark.harness.worker.process import WorkerProcess
from tritmark.harness.worker.serve import TaskRequest

if TYPE_CHECKING:
    from tritmark.harness.providers import Candidate

_REPLY = TypeAdapter(KernelAccesses)


def accesses(
    installed: Installed, request: Request, runs: Sequence[Run], observer: Observer
) -> Iterator[KernelAccesses]:
    """The access patterns of each correct kernel that was timed, or that only a simulator kept from being timed, and of
    each correct kernel of the user, if the request is about performance.

    A kernel that cannot be traced has a note. Nothing is traced without isolation, since another process has the
    simulator.
    """
    variants = {variant.id: variant for variant in installed.registry.variants}
    wrong = {run.kernel for run in runs if not run.passed}
    kernels = (
        dict.fromkeys(run.kernel for run in runs if run.kernel not in wrong and _concerns(run, variants[run.kernel]))
        if request.isolated and "performance" in request.dimensions
        else {}
    )
    for id in kernels:
        tracing = installed.registry.devices[variants[id].key.device].tracing
        if tracing is not None and variants[id].tier is not Tier.PEER:
            observer.started(f"{id} (accesses, simulated)")
            yield traced(variants[id], tracing, request.candidates, request.timeout_s)


def _concerns(run: Run, variant: Variant) -> bool:
    if run.accuracy.status is not Status.PASS:
        return False
    # Of a user's file, a simulator judges drawn cases alone.
    users = variant.tier is Tier.CANDIDATE
    return users or run.performance.hot is not None or run.performance.cause is Cause.SIMULATOR


def traced(
    variant: Variant, tracing: AccessTracing, candidates: Sequence[Candidate] = (), timeout_s: float = 120.0
) -> KernelAccesses:
    """The access patterns of one kernel, or a note why there are none. `candidates` are loaded in its process, whose
    trace may take `timeout_s` seconds."""
    missing = tracing.missing()
    if missing is not None:
        return KernelAccesses(kernel=variant.id, note=missing)
    device = variant.key.device
    kind = (numbered(device) or (device, 0))[0]  # the accesses do not depend on which of several devices it is
    try:
        process = WorkerProcess(
            candidates,
            variant.id.replace(f"{device}/", f"{kind}/", 1),
            memory_bytes=0,
            limit_address_space=False,
            environment=tracing.environment(),
        )
        try:
            said = process.call("trace its accesses", timeout_s, TaskRequest(tasks.traced_accesses, (), (), ()))
        finally:
            process.close()
        return replace(_REPLY.validate_json(said if isinstance(said, str) else ""), kernel=variant.id)
    except ValidationError as error:
        return KernelAccesses(kernel=variant.id, note=f"its process replied {str(error).splitlines()[0]}")
    except TritmarkError as error:  # of a kernel, or of the machine: the Record is complete without it
        return KernelAccesses(kernel=variant.id, note=str(error))
