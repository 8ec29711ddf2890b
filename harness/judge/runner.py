"""The main loop: judges and measures each variant on each workload, and evaluates each weight matrix. Each finished
Run is written to disk."""

from __future__ import annotations

import os
import shlex
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from tritmark.harness import tuned
from tritmark.harness.errors import (
    BadEnvironmentError,
    InvalidArgumentError,
    TritmarkError,
    UsageError,
    WeightFileError,
)
from tritmark.harness.judge import stored
from tritmark.harness.judge.accesses import accesses
from tritmark.harness.judge.judges import MOST, Limits, Task, judged
from tritmark.harness.judge.judging import (
    NOT_RIGHT,
    RIVAL_OF_NONE,
    SIMULATED,
    Group,
    Judgement,
    LeftOut,
    ListedWorkload,
    drawn_run,
    listed_run,
    refused,
    run_id,
    threads_of,
)
from tritmark.harness.judge.not_judged import SIMULATED_SHARE, not_judged
from tritmark.harness.judge.request import Observer, Request
from tritmark.harness.judge.timing import GroupTiming
from tritmark.harness.machine.system_clock import SystemClock
from tritmark.harness.measure.buffers import rotation
from tritmark.harness.measure.heap import give_back_large
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Installed
from tritmark.harness.record import Accuracy, DeviceStatus, Environment, Layer, Machine, Record, Run, Status
from tritmark.harness.spec import PEER_ISA, Device, KernelKey, Peer, Tier, Variant, Workload
from tritmark.harness.store import Header, Options, Partial, Store, new_id
from tritmark.harness.suite import SelectedWorkload
from tritmark.harness.utf8 import escaped
from tritmark.harness.validate.accuracy import Judged
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.collect import known
from tritmark.harness.validate.drawn import Draw
from tritmark.harness.weights import TensorInfo, TernaryWeights, WeightSource, holders_of, open_weights
from tritmark.harness.weights.finite import require_finite
from tritmark.harness.weights.left_out import is_embedding, left_out
from tritmark.harness.worker import Workers

_MATERIALS = 1 << 24
"""Input elements that are kept for the next key with the same workloads."""

_FEW_DRAWN = 120
"""A suite with at most this many drawn cases is quick: only the user's kernels get far cases, which take as long as all
others. `full` has them for built-in kernels."""

_MEMORY = 2 << 30
_TIMES = 8


def plan(installed: Installed, request: Request) -> list[Group]:
    """The groups to run, in order, on the devices of this machine.

    Raises UsageError for a glob that matches nothing; the message lists the legal names. If all requested devices are
    missing, the result is empty, without an error.
    """
    devices = _chosen(installed, request)
    if request.suite is None:
        return []
    in_suite = list(dict.fromkeys(item.workload.op for item in request.suite.selected))
    drawn = {item.workload.op for item in request.suite.selected if item.workload.drawn}
    ops = _matching("op", request.op, {name: (name,) for name in in_suite}, f"in suite {request.suite.name}")
    variants = [variant for variant in installed.registry.variants if variant.key.op in ops]
    ids = {variant.id: (variant.name, variant.id) for variant in variants}
    chosen = set(_matching("variant", request.variant, ids, "for these ops"))
    if request.only is not None:
        chosen &= request.only
    by_op: dict[str, dict[KernelKey, list[Variant]]] = {}
    for variant in variants:
        if variant.id in chosen and variant.key.device in devices:
            by_op.setdefault(variant.key.op, {}).setdefault(variant.key, []).append(variant)
    groups: dict[tuple[str, KernelKey], Group] = {}
    corners: dict[KernelKey, list[Workload]] = {}
    for item in request.suite.selected:
        for key, known_of_key in by_op.get(item.workload.op, {}).items():
            of_key = tuple(variant for variant in known_of_key if _wanted(variant, item, request))
            if not of_key or not item.admits(key.format, key.dtype, key.device):
                continue
            if item.workload.drawn and "accuracy" not in request.dimensions:
                continue
            if item.workload.op in drawn and not item.workload.measure and not item.workload.drawn:
                corners.setdefault(key, []).append(item.workload)  # judged among the drawn cases
                continue
            if item.workload.drawn:
                of_key = tuple(variant for variant in of_key if variant.id not in request.rivals)
                if not of_key:
                    continue
            if item.fastest:
                of_key = _fastest(installed, key, item, of_key)
            known = groups.get((item.workload.id, key))
            if known is None or item.workload.thoroughness > known.workload.thoroughness:
                groups[item.workload.id, key] = Group(installed.ops[item.workload.op], key, item.workload, of_key)
    if not groups:
        text = f"--device {request.device!r}, " if request.device != "*" else ""
        raise UsageError(
            f"{text}--op {request.op!r} and --variant {request.variant!r} leave nothing of suite {request.suite.name}"
        )
    # One process serves all Runs of a candidate, so they are adjacent. Drawn cases come before all timing.
    order = {
        key: place for place, key in enumerate(dict.fromkeys(key for op in in_suite for key in installed.keys(op)))
    }
    there = [
        replace(group, corners=tuple(corners.get(group.key, ()))) if group.workload.drawn else group
        for group in groups.values()
        if devices[group.key.device].missing() is None
    ]
    return sorted(there, key=lambda group: (not group.workload.drawn, order[group.key]))


def _wanted(variant: Variant, item: SelectedWorkload, request: Request) -> bool:
    """Whether a workload is for this variant. A peer runs if it is requested, or if the suite has peers and it is
    installed. Under PEER_ISA a missing peer is kept too, to report why it cannot be limited."""
    asked = variant.tier is not Tier.PEER or request.variant != "*" or variant.id in request.peers
    return asked or (item.peers and (PEER_ISA in os.environ or variant.missing() is None))


def _fastest(
    installed: Installed, key: KernelKey, item: SelectedWorkload, variants: tuple[Variant, ...]
) -> tuple[Variant, ...]:
    """The `item.fastest` highest variants that take the axes, all kernels of the user, and all peers."""
    refused = {variant.id for variant, why in installed.registry.candidates(key, item.workload.axes) if why is not None}
    peers = {variant.id for variant in variants if variant.tier is Tier.PEER}
    left = (variant for variant in variants if variant.id not in refused | peers)
    fitting = sorted(left, key=lambda variant: variant.precedence, reverse=True)
    kept = {variant.id for variant in fitting[: item.fastest]} | peers | installed.added
    return tuple(variant for variant in variants if variant.id in kept) or variants[:1]


def missing(installed: Installed, request: Request) -> dict[str, str]:
    """Requested devices that cannot be used here, each with the reason and the next step."""
    reported = {name: device.missing() for name, device in _chosen(installed, request).items()}
    return {name: why for name, why in reported.items() if why is not None}


def _chosen(installed: Installed, request: Request) -> dict[str, Device]:
    devices = installed.registry.devices
    names = _matching("device", request.device, {name: (name,) for name in devices}, "that is installed")
    return {name: devices[name] for name in names}


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
            stored.planned(installed, request, weights, list(_present(installed, request).values())) if weights else {}
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
        options = _options(installed, request)
        observer.started("machine")
        # Only the suite's groups, before stored layers are added: probes cycle through several times the last-level
        # cache, too much memory for a check of weights.
        roofed = _measured(groups) if "performance" in request.dimensions else frozenset()
        groups += stored.groups(linear)
        partial = stack.enter_context(_begun(installed, request, options, store, resume))
        observer.began(partial)
        observer.planned(
            sum(len(group.variants) for group in groups) + (len(linear) if as_stored else len(layers)),
            _timed(installed, groups, request),
        )
        order = {group.run_id(variant): place for place, group in enumerate(groups) for variant in group.variants}
        ended = []
        for run in _runs(installed, groups, request, peers, partial, observer, roofed):
            clock.warn_if_set()
            ended.append(run)
        runs = tuple(sorted(ended, key=lambda run: order[run.id]))
        traced = tuple(accesses(installed, request, runs, observer))
        evaluated = tuple(_layers(installed, source, layers, request, partial, observer)) if source else ()
        if weights is not None and as_stored:
            evaluated = tuple(_stored_layers(installed, weights, linear, request, partial, observer))
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
            linear_layers=tuple(stored.sums(linear, runs)),
            not_judged=not_judged(installed, request, runs, evaluated, weights),
            weights_note=weights.transform if weights is not None else "",
            accesses=traced,
            addresses=request.addresses,
        )
        record = _advised(record, store)
        return record, partial.complete(record)


def _timed(installed: Installed, groups: Iterable[Group], request: Request) -> int:
    """Number of Runs that will be timed if they are correct."""
    count = 0
    for group in groups:
        measured = group.workload.measure and "performance" in request.dimensions
        if measured and not installed.registry.devices[group.key.device].simulated():
            found = installed.registry.candidates(group.key, group.workload.axes or None)
            refused = {variant.id for variant, why in found if why is not None}
            count += sum(variant.id not in refused for variant in group.variants)
    return count


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


def _matching(what: str, glob: str, names: Mapping[str, Iterable[str]], where: str) -> list[str]:
    found = [key for key, spellings in names.items() if any(fnmatchcase(name, glob) for name in spellings)]
    if not found:
        legal = dict.fromkeys(next(iter(spellings)) for spellings in names.values())
        offer = nearest(glob, legal, among=[name for spellings in names.values() for name in spellings])
        raise UsageError(f"--{what} {glob!r} matches nothing {where}; {offer}")
    return found


def _options(installed: Installed, request: Request) -> Options:
    forced = {name: device.forced() for name, device in installed.registry.devices.items()}
    return Options(
        suite=escaped(request.suite.name) if request.suite else "",
        suite_digest=request.suite.digest if request.suite else "",
        op=request.op,
        variant=request.variant,
        forced={name: variant for name, variant in forced.items() if variant is not None},
        devices=tuple(
            f"{name} (simulated)" if device.simulated() else name
            for name, device in _present(installed, request).items()
        ),
        weights=escaped(request.weights),
        layout=request.conventions.layout,
        weight_scale=request.conventions.weight_scale,
        threads=request.threads or 0,
        seed=request.seed,
        dimensions=tuple(sorted(request.dimensions)),
    )


def _present(installed: Installed, request: Request) -> dict[str, Device]:
    return {name: device for name, device in _chosen(installed, request).items() if device.missing() is None}


def _measured(groups: Iterable[Group]) -> frozenset[str]:
    """Ids of Runs that the suite times."""
    return frozenset(group.run_id(variant) for group in groups if group.workload.measure for variant in group.variants)


@contextmanager
def _begun(
    installed: Installed, request: Request, options: Options, store: Store, resume: str | None
) -> Iterator[Partial]:
    """A new or resumed partial run."""
    from tritmark.harness.record.facts import machine_facts, prefetch_facts
    from tritmark.harness.record.versions import environment

    facts = machine_facts()
    present = _present(installed, request).values()
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
    limits = Limits(request.candidates, request.isolated, request.timeout_s, _most_memory(groups), judges)
    roofs: dict[str, Roofs] = {}
    wrong: set[str] = set()
    """Variants that are incorrect somewhere; they are not timed."""
    judgements: dict[str, Judgement] = {}
    for run in _untimed(installed, groups, request, limits, done, judgements, observer):
        if run.id not in done:
            partial.add(run)
        if run.accuracy.status in {Status.FAIL, Status.ERROR}:
            wrong.add(run.kernel)
        observer.finished(run)
        yield run
    to_time = [
        variant
        for group in groups
        for variant in group.variants
        if group.run_id(variant) in roofed & judgements.keys()
        and judgements[group.run_id(variant)].left_out is None
        and _unmeasured(variant, request, installed, wrong) is None
    ]
    _roofs(installed, dict.fromkeys(variant.key.device for variant in to_time), partial, observer)
    materials = _Materials(request.seed)
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
                    on = _listed(installed, group, request)
                    timing = GroupTiming(
                        workers, group, materials.of(group), on, roofs=roofs, peers=peers, libraries=request.libraries
                    )
                run = timing.run(variant, judgements[id], _unmeasured(variant, request, installed, wrong))
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


def _unmeasured(variant: Variant, request: Request, installed: Installed, wrong: set[str]) -> LeftOut | None:
    """Why a variant is not measured: it is incorrect, or every kernel that it would be compared with is incorrect."""
    if variant.id in wrong:
        return NOT_RIGHT
    if variant.id not in request.rivals or request.only is None:
        return None
    key = variant.key
    of_file = [
        each
        for each in installed.registry.variants
        if each.id in request.only - request.rivals
        and (each.key.device, each.key.op, each.key.dtype) == (key.device, key.op, key.dtype)
    ]
    return RIVAL_OF_NONE if of_file and all(each.id in wrong for each in of_file) else None


def _untimed(
    installed: Installed,
    groups: Sequence[Group],
    request: Request,
    limits: Limits,
    done: Mapping[str, Run],
    judgements: dict[str, Judgement],
    observer: Observer,
) -> Iterator[Run]:
    """Judge everything that needs no clock, in parallel. Yields Runs that are already done, and Runs that are not
    timed, in order of completion. Judgements of the other Runs go to `judgements`, by Run id."""
    drawn = {variant.id: group for group in groups if group.workload.drawn for variant in group.variants}
    others = {
        group.run_id(variant): group for group in groups if not group.workload.drawn for variant in group.variants
    }
    tasks = []
    for group in groups:
        device = installed.registry.devices[group.key.device]
        refusals = {
            variant.id: why for variant, why in installed.registry.candidates(group.key, group.workload.axes or None)
        }
        on = _listed(installed, group, request)
        chosen = []
        for variant in group.variants:
            known, refusal = done.get(group.run_id(variant)), refused(device, variant, refusals)
            if known is not None:
                yield known
            elif refusal is not None and group.workload.drawn:
                yield drawn_run(group, variant, Judged(refusal.verdict(Accuracy), None), device, request, ())
            elif refusal is not None:
                yield listed_run(group, variant, on, Judgement.refusing(refusal))
            else:
                chosen.append(variant.id)
        if chosen and group.workload.drawn:
            count = -(-group.workload.drawn // SIMULATED_SHARE) if device.simulated() else group.workload.drawn
            tasks.append(
                Task(
                    tuple(chosen),
                    Draw(
                        group.key,
                        count,
                        group.corners,
                        request.seed,
                        request.threads or device.cores(),
                        far=not device.simulated()
                        and (group.workload.drawn > _FEW_DRAWN or not installed.added.isdisjoint(chosen)),
                    ),
                )
            )
        elif chosen:
            tasks.append(Task(tuple(chosen), on))
    observer.started("accuracy and memory, in parallel")
    for task, variant, found in judged(installed, tasks, limits):
        if isinstance(found, Judged):
            device = installed.registry.devices[variant.key.device]
            yield drawn_run(drawn[variant.id], variant, found, device, request, installed.registry.variants)
            continue
        assert isinstance(task.on, ListedWorkload)
        id = run_id(variant, task.on.workload)
        if found.whole:
            yield listed_run(others[id], variant, task.on, found)
        else:
            judgements[id] = found


def _listed(installed: Installed, group: Group, request: Request) -> ListedWorkload:
    threads = threads_of(installed.registry.devices[group.key.device], request.threads)
    return ListedWorkload(group.key, group.workload, request.seed, threads, request.dimensions)


def _most_memory(groups: Sequence[Group]) -> int:
    """The memory limit of a candidate in bytes: a constant, several times the largest workload, and the buffers that
    timing cycles through."""
    most = 0
    for group in groups:
        if group.workload.drawn:
            continue
        with suppress(InvalidArgumentError):  # the format does not admit this workload
            traffic = group.op.traffic(group.workload.axes, group.key)
            most = max(most, traffic.read + traffic.written)
    return _MEMORY + _TIMES * most + 4 * rotation().nbytes


class _Materials:
    """A cache of the data of workloads, limited in elements."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: OrderedDict[int, Material] = OrderedDict()

    def of(self, group: Group) -> Material:
        """The data of the group's workload."""
        for number, there in self._known.items():
            if there.op is group.op and there.suits(group.workload):
                self._known.move_to_end(number)
                return there
        once = group.workload.stored is not None  # nothing else has the same data
        while self._known and (once or sum(known.elements for known in self._known.values()) > _MATERIALS):
            self._known.popitem(last=False)  # two of the largest together could exceed the memory
        made = Material(group.op, group.workload, self._seed)
        self._known[id(made)] = made
        return made


def _layers(
    installed: Installed,
    source: WeightSource,
    infos: Sequence[TensorInfo],
    request: Request,
    partial: Partial,
    observer: Observer,
) -> Iterator[Layer]:
    done = partial.finished_layers()
    evaluate_matrix = next(
        provider.evaluate_matrix for provider in installed.providers.values() if provider.evaluate_matrix
    )
    threads = request.threads or next(iter(installed.registry.devices.values())).cores()
    for info in infos:
        layer = done.get(info.name)
        if layer is None:
            observer.started(info.name)
            try:
                layer = evaluate_matrix(source, info, threads=threads, seed=request.seed)
            except (WeightFileError, BadEnvironmentError):
                raise
            except (TritmarkError, MemoryError) as error:
                rows, columns = info.shape
                reason = f"{type(error).__name__}: {error}"
                layer = Layer(
                    status=Status.ERROR,
                    reason=reason,
                    name=info.name,
                    shape=(rows, columns),
                    dtype=info.dtype,
                    bytes=info.nbytes,
                )
            partial.add(layer)
        observer.finished(layer)
        yield layer


def _stored_layers(
    installed: Installed,
    weights: TernaryWeights,
    linear: stored.Plan,
    request: Request,
    partial: Partial,
    observer: Observer,
) -> Iterator[Layer]:
    done = partial.finished_layers()
    for info in (each for each in weights.matrices if each.name in linear):
        layer = done.get(info.name)
        if layer is None:
            observer.started(info.name)
            layer = stored.evaluated(installed, request, weights, info, linear[info.name])
            partial.add(layer)
        observer.finished(layer)
        yield layer


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
