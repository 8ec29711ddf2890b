"""The main loop: judges and measures each variant on each workload, and evaluates each weight matrix. Each finished
Run is written to disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tritmark.harness import tuned
from tritmark.harness.errors import UsageError, WeightFileError
from tritmark.harness.judge import stored
from tritmark.harness.judge.accesses import accesses
from tritmark.harness.judge.beginning import begun, options_of
from tritmark.harness.judge.judges import MOST, Limits
from tritmark.harness.judge.judging import SIMULATED, Group, Judgement
from tritmark.harness.judge.materials import Materials
from tritmark.harness.judge.not_judged import not_judged
from tritmark.harness.judge.planning import measured_ids, missing, plan, present_devices, timed_count
from tritmark.harness.judge.request import Observer, Request
from tritmark.harness.judge.timing import GroupTiming
from tritmark.harness.judge.together import together
from tritmark.harness.judge.untimed import listed, most_memory, untimed, why_unmeasured
from tritmark.harness.judge.weight_layers import float_layers, stored_layers
from tritmark.harness.machine.system_clock import SystemClock
from tritmark.harness.measure.heap import give_back_large
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.providers import Installed
from tritmark.harness.record import DeviceStatus, Layer, Record, Run, Status
from tritmark.harness.spec import Peer
from tritmark.harness.store import Partial, Store
from tritmark.harness.utf8 import escaped
from tritmark.harness.validate.collect import known
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.finite import require_finite
from tritmark.harness.weights.left_out import is_embedding, left_out, reads_of
from tritmark.harness.worker import Workers


def execute(
    installed: Installed, request: Request, store: Store, observer: Observer, resume: str | None = None
) -> tuple[Record, Path]:
    """Execute the request and write the Record. Returns the Record and its path.

    `resume` is the id or path of an interrupted run, "" for the newest, None for a new run. Raises UsageError for globs
    that match nothing and for a resumption with other options or on another machine, WeightFileError for unreadable
    weights.
    """
    clock = SystemClock()
    groups = plan(installed, request)
    peers = known(installed, request.libraries)
    with ExitStack() as stack:
        stack.callback(clock.warn_if_set)
        tuned.known()  # a damaged file is reported here; the log of a worker that reads it is not shown
        source = stack.enter_context(open_weights(request.weights)) if request.weights else None
        weights = TernaryWeights(source, holders_of(installed), request.conventions) if source else None
        linear = (
            stored.planned(installed, request, weights, list(present_devices(installed, request).values()))
            if weights
            else {}
        )
        # If a file has codes, the model itself uses its float tensors as floats.
        as_stored = weights is not None and any(not info.ruled for info in weights.matrices)
        layers = (
            tuple(each for each in source.matrices() if not is_embedding(each.name)) if source and not as_stored else ()
        )
        if source and not layers and not as_stored:
            found = "no ternary matrix, and no 2-D tensor of floats"
            rest = left_out(weights, set()) if weights is not None else ()
            found += "".join(f"; {len(each.names)} left out: {each.reason}" for each in rest)
            raise WeightFileError(path=request.weights, found=found, legal="weights with one")
        if weights is not None and source is not None:  # a fault of the file must not fail a kernel
            weights.require_finite()
            for each in layers:
                require_finite(source, each)
        if weights is not None:  # keeps the memory of --weights bounded
            give_back_large()
        if layers and not any(provider.evaluate_matrix for provider in installed.providers.values()):
            raise UsageError("--weights needs a provider that evaluates weights, and none is installed")
        options = options_of(installed, request)
        observer.started("machine")
        # Only the suite's groups, before stored layers are added: probes cycle through several times the last-level
        # cache, too much memory for a check of weights.
        roofed = measured_ids(groups) if "performance" in request.dimensions else frozenset()
        groups += stored.groups(linear)
        partial = stack.enter_context(begun(installed, request, options, store, resume))
        observer.began(partial)
        observer.planned(
            sum(len(group.variants) for group in groups) + (len(linear) if as_stored else len(layers)),
            timed_count(installed, groups, request),
        )
        order = {group.run_id(variant): place for place, group in enumerate(groups) for variant in group.variants}
        ended = []
        for run in _runs(installed, groups, request, peers, partial, observer, roofed):
            clock.warn_if_set()
            ended.append(run)
        runs = tuple(sorted(ended, key=lambda run: order[run.id]))
        traced = tuple(accesses(installed, request, runs, observer))
        evaluated = tuple(float_layers(installed, source, layers, request, partial, observer)) if source else ()
        if weights is not None and as_stored:
            evaluated = tuple(stored_layers(installed, weights, linear, request, partial, observer))
        header = partial.header
        record = Record(
            id=header.id,
            created=header.created,
            suite=escaped(request.suite.name) if request.suite else "",
            complete=True,
            environment=header.environment,
            machine=header.machine,
            lanes=tuple(_lanes(installed, request, runs, evaluated)),
            runs=runs,
            weights_path=escaped(request.weights),
            layers=evaluated,
            linear_layers=tuple(stored.sums(linear, runs, reads_of(weights) if weights is not None else {})),
            not_judged=not_judged(installed, request, runs, evaluated, weights),
            weights_note=weights.transform if weights is not None else "",
            accesses=traced,
            addresses=request.addresses,
        )
        record = _advised(record, store)
        return record, partial.complete(record)


def _runs(
    installed: Installed,
    groups: Sequence[Group],
    request: Request,
    peers: Sequence[Peer],
    partial: Partial,
    observer: Observer,
    roofed: frozenset[str],
) -> Iterator[Run]:
    """Every Run, in order of completion. `roofed`: ids of Runs that are compared with the machine's ceilings."""
    done = partial.finished_runs()
    # Without a suite (--weights alone), one judge at a time keeps memory small.
    judges = MOST if request.suite is not None else 1
    limits = Limits(request.candidates, request.isolated, request.timeout_s, most_memory(groups), judges)
    roofs: dict[str, Roofs] = {}
    wrong: set[str] = set()
    """Variants that are incorrect somewhere; they are not timed."""
    judgements: dict[str, Judgement] = {}
    for run in untimed(installed, groups, request, limits, done, judgements, observer):
        if run.id not in done:
            partial.add(run)
        if run.accuracy.status in {Status.FAIL, Status.ERROR}:
            wrong.add(run.kernel)
        observer.finished(run)
        yield run
    to_time = [
        (group, variant)
        for group in groups
        for variant in group.variants
        if group.run_id(variant) in roofed & judgements.keys()
        and judgements[group.run_id(variant)].left_out is None
        and why_unmeasured(variant, request, installed, wrong) is None
    ]
    _roofs(installed, dict.fromkeys(group.key.device for group, _ in to_time), partial, observer)
    if request.session is not None:
        places = [each for each in to_time if installed.registry.devices[each[0].key.device].memory is None]
        observer.started("kernels that are timed together")
        for run in together(installed, request, request.session, places, judgements):
            del judgements[run.id]
            partial.add(run)
            observer.finished(run)
            yield run
    materials = Materials(request.seed)
    with Workers(
        installed,
        request.candidates,
        isolated=request.isolated,
        timeout_s=request.timeout_s,
        memory_bytes=limits.memory_bytes,
    ) as workers:
        for group in groups:
            timing: GroupTiming | None = None
            for variant in group.variants:
                id = group.run_id(variant)
                if id not in judgements:
                    continue
                simulated = installed.registry.devices[group.key.device].simulated()
                observer.started(id + (" (simulated)" if simulated else ""))
                if timing is None:
                    on = listed(installed, group, request)
                    timing = GroupTiming(
                        workers, group, materials.of(group), on, roofs=roofs, peers=peers, libraries=request.libraries
                    )
                run = timing.run(variant, judgements[id], why_unmeasured(variant, request, installed, wrong))
                workers.must_be_fair()
                partial.add(run)
                observer.finished(run)
                yield run


def _roofs(installed: Installed, devices: Iterable[str], partial: Partial, observer: Observer) -> None:
    """Measure the ceilings of devices that will time a correct kernel; measuring takes seconds. A resumed run keeps its
    ceilings."""
    from tritmark.harness.measure.ceilings import measure_ceilings
    from tritmark.harness.measure.nodes import measure_nodes

    machine = partial.header.machine
    known = {each.device for each in machine.ceilings}
    for device in [installed.registry.devices[name] for name in devices if name not in known]:
        observer.started(f"ceilings of {device.type}")
        ceilings, rates = measure_ceilings(device), measure_nodes(device)
        machine = machine.model_copy(
            update={
                "ceilings": (*machine.ceilings, *ceilings),
                "node_bandwidths": (*machine.node_bandwidths, *rates),
            }
        )
    if machine is not partial.header.machine:
        partial.on(machine)


def _advised(record: Record, store: Store) -> Record:
    from tritmark.harness.advise.advise import advise
    from tritmark.harness.advise.missing import unadvised
    from tritmark.harness.advise.outcome import ledger_of
    from tritmark.harness.text.groups import counted

    found = {
        "proposals": advise(record, ledger_of(store).weights()),
        "unadvised": unadvised(record),
        "counts": counted(record.own),
    }
    return record.model_copy(update=found)


def _lanes(
    installed: Installed, request: Request, runs: Sequence[Run], layers: Sequence[Layer]
) -> Iterator[DeviceStatus]:
    absent = missing(installed, request)
    for name, device in installed.registry.devices.items():
        of_device = [run for run in runs if run.device == name]
        kernels = [run.kernel for run in of_device if run.receipt is not None] + [layer.kernel for layer in layers]
        if any(kernel.startswith(f"{name}/") for kernel in kernels):
            reason = SIMULATED.reason if device.simulated() else ""
            yield DeviceStatus(
                device=name, ran=True, reason=reason, simulated=device.simulated(), units=tuple(device.units())
            )
        elif name in absent:
            yield DeviceStatus(device=name, ran=False, reason=absent[name])
        else:
            reasons = dict.fromkeys(run.accuracy.reason for run in of_device)
            # A simulated device that was lost before a kernel ended is still a simulated one.
            tried = any(run.accuracy.status is Status.ERROR for run in of_device)
            yield DeviceStatus(
                device=name,
                ran=False,
                reason="; ".join(reasons) or "nothing on it was requested",
                simulated=tried and device.simulated(),
            )
