"""The options of a run, and its folder on disk: new, or resumed with the same options on the same machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tritmark.harness.errors import UsageError
from tritmark.harness.judge.planning import present_devices
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import Installed
from tritmark.harness.record import Environment, Machine
from tritmark.harness.spec import PEER_ISA
from tritmark.harness.store import Header, Options, Partial, Store, new_id
from tritmark.harness.utf8 import escaped


def options_of(installed: Installed, request: Request) -> Options:
    """What a resumed run must have in common with the interrupted one."""
    forced = {name: device.forced() for name, device in installed.registry.devices.items()}
    return Options(
        suite=escaped(request.suite.name) if request.suite else "",
        suite_digest=request.suite.digest if request.suite else "",
        op=request.op,
        variant=request.variant,
        forced={name: variant for name, variant in forced.items() if variant is not None},
        devices=tuple(
            f"{name} (simulated)" if device.simulated() else name
            for name, device in present_devices(installed, request).items()
        ),
        weights=escaped(request.weights),
        layout=request.conventions.layout,
        weight_scale=request.conventions.weight_scale,
        threads=request.threads or 0,
        seed=request.seed,
        dimensions=tuple(sorted(request.dimensions)),
    )


@contextmanager
def begun(
    installed: Installed, request: Request, options: Options, store: Store, resume: str | None
) -> Iterator[Partial]:
    """A new or resumed partial run."""
    from tritmark.harness.record.facts import machine_facts, prefetch_facts
    from tritmark.harness.record.versions import environment

    facts = machine_facts()
    present = present_devices(installed, request).values()
    compilers = dict.fromkeys(device.compiler() for device in present)
    here = environment(request.command, request.seed, compiler="; ".join(filter(None, compilers)))
    if resume is None:
        prefetch = tuple(each for device in present for each in prefetch_facts(device))
        machine = facts.model_copy(update={"prefetch": prefetch})
        created = datetime.now(UTC).isoformat(timespec="seconds")
        header = Header(id=new_id(), created=created, options=options, environment=here, machine=machine)
        with store.begin(header) as partial:
            yield partial
        return
    with store.resume(resume) as partial:
        _same(partial, options, here, facts)
        yield partial


def _same(partial: Partial, options: Options, here: Environment, facts: Machine) -> None:
    """Runs of one Record share command, version and machine. Raises UsageError, which names the differences."""
    before = partial.header
    pairs = {f"option {name}": (getattr(before.options, name), getattr(options, name)) for name in Options.model_fields}
    pairs["tritmark"] = (before.environment.tritmark, here.tritmark)
    held, now = (each.variables.get(PEER_ISA) for each in (before.environment, here))
    pairs["option peer_isa"] = (held, now)
    pairs["machine"] = (before.machine.id, facts.id)
    different = [f"{name} was {was!r} and is {now!r}" for name, (was, now) in pairs.items() if was != now]
    if different:
        command = shlex.join(before.environment.command)
        raise UsageError(f"{partial.folder}: cannot be resumed: {'; '.join(different)}. It was started with: {command}")
