"""The loop: each variant on each workload, judged and measured, and each weight matrix studied. What is finished is kept as it goes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from tritmark.harness.errors import InvalidArgumentError, TritmarkError, UsageError, WeightFileError
from tritmark.harness.providers import Installed
from tritmark.harness.record import (
    Accuracy,
    Cross,
    Environment,
    Lane,
    Layer,
    Machine,
    MemoryUse,
    Performance,
    Record,
    Run,
    Status,
    Verdict,
    WorkloadFacts,
)
from tritmark.harness.spec import Device, KernelKey, Op, Receipt, Variant, Workload
from tritmark.harness.store import Header, Options, Partial, Store, new_id
from tritmark.harness.suite import Suite
from tritmark.harness.validate.accuracy import judge, misfit
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.compare import BrokenReferenceError
from tritmark.harness.validate.usage import Usage, usage
from tritmark.harness.weights import TensorInfo, WeightSource, open_weights

if TYPE_CHECKING:
    from tritmark.harness.validate.performance import Bench

SIMULATED = "simulated: it has no speed"
LATER = "this version measures accuracy and performance only"
NOT_MEASURED = "the suite asks for accuracy only here"


class Observer(Protocol):
    """Is told how an invocation goes on."""

    def began(self, partial: Partial) -> None:
        """From here on what is finished is on disk."""

    def planned(self, total: int) -> None:
        """So many Runs and layers will be done."""

    def started(self, what: str) -> None:
        """What is being done now."""

    def finished(self, found: Run | Layer) -> None:
        """A Run or layer is done, or was done before the interruption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asked for. Globs match in full; a variant's name or its id."""

    suite: Suite | None
    op: str = "*"
    variant: str = "*"
    device: str = "*"
    weights: str = ""
    threads: int | None = None
    """None: every physical core of the device."""
    seed: int = 0
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Variants that share inputs, reference and buffers: one key on one workload."""

    op: Op
    key: KernelKey
    workload: Workload
    variants: tuple[Variant, ...]

    def run_id(self, variant: Variant) -> str:
        """A Run's name within its Record."""
        return f"{variant.id} {self.workload.id}"


def plan(installed: Installed, request: Request) -> list[Group]:
    """What will be run, in order, on the devices that are there.

    Raises UsageError for a glob that matches nothing, listing what there is. Where all that was asked for is on devices that are missing,
    there is nothing to run, and that is no error here.
    """
    devices = _chosen(installed, request)
    if request.suite is None:
        return []
    in_suite = list(dict.fromkeys(item.workload.op for item in request.suite.selected))
    ops = _matching("op", request.op, {name: (name,) for name in in_suite}, f"in suite {request.suite.name}")
    variants = [variant for variant in installed.registry.variants if variant.key.op in ops]
    ids = {variant.id: (variant.name, variant.id) for variant in variants}
    chosen = set(_matching("variant", request.variant, ids, "for these ops"))
    groups: dict[tuple[str, KernelKey], Group] = {}
    for item in request.suite.selected:
        for key in installed.keys(item.workload.op) if item.workload.op in ops else ():
            of_key = tuple(variant for variant in variants if variant.key == key and variant.id in chosen)
            if not of_key or key.device not in devices or not item.admits(key.format, key.dtype, key.device):
                continue
            known = groups.get((item.workload.id, key))
            if known is None or (item.workload.measure and not known.workload.measure):
                groups[item.workload.id, key] = Group(installed.ops[item.workload.op], key, item.workload, of_key)
    if not groups:
        told = f"--device {request.device!r}, " if request.device != "*" else ""
        raise UsageError(f"{told}--op {request.op!r} and --variant {request.variant!r} leave nothing of suite {request.suite.name}")
    return [group for group in groups.values() if devices[group.key.device].missing() is None]


def missing(installed: Installed, request: Request) -> dict[str, str]:
    """Devices that were asked for and cannot be used here, each with why and what to do about it."""
    told = {name: device.missing() for name, device in _chosen(installed, request).items()}
    return {name: why for name, why in told.items() if why is not None}


def _chosen(installed: Installed, request: Request) -> dict[str, Device]:
    devices = installed.registry.devices
    names = _matching("device", request.device, {name: (name,) for name in devices}, "that is installed")
    return {name: devices[name] for name in names}


def execute(installed: Installed, request: Request, store: Store, observer: Observer, resume: str | None = None) -> tuple[Record, Path]:
    """Do all of it and write the Record; returns it and its path.

    `resume` is the id or path of an interrupted run, "" for the newest, None to begin. Raises UsageError for globs that match nothing and
    for a resumption under other circumstances, WeightFileError for weights that cannot be read.
    """
    groups = plan(installed, request)
    with ExitStack() as stack:
        source = stack.enter_context(open_weights(request.weights)) if request.weights else None
        layers = tuple(source.matrices()) if source else ()
        if source and not layers:
            raise WeightFileError(path=request.weights, found="no 2-D tensor of floats", legal="weights with at least one")
        if source and not any(provider.study for provider in installed.providers.values()):
            raise UsageError("no provider studies weights; --weights cannot be obeyed")
        options = _options(installed, request)
        observer.started("machine")
        partial = stack.enter_context(_begun(installed, request, options, store, resume, roofs=bool(groups)))
        observer.began(partial)
        observer.planned(sum(len(group.variants) for group in groups) + len(layers))
        runs = tuple(_runs(installed, groups, request, partial, observer))
        studied = tuple(_layers(installed, source, layers, request, partial, observer)) if source else ()
        header = partial.header
        record = Record(
            id=header.id,
            created=header.created,
            suite=request.suite.name if request.suite else "",
            complete=True,
            environment=header.environment,
            machine=header.machine,
            lanes=tuple(_lanes(installed, request, runs, studied)),
            runs=runs,
            weights_path=request.weights,
            layers=studied,
        )
        return record, partial.complete(record)


def _matching(what: str, glob: str, names: Mapping[str, Iterable[str]], where: str) -> list[str]:
    found = [key for key, spellings in names.items() if any(fnmatchcase(name, glob) for name in spellings)]
    if not found:
        legal = ", ".join(dict.fromkeys(next(iter(spellings)) for spellings in names.values()))
        raise UsageError(f"--{what} {glob!r} matches nothing {where}; there are: {legal or 'none'}")
    return found


def _options(installed: Installed, request: Request) -> Options:
    forced = {name: device.forced() for name, device in installed.registry.devices.items()}
    return Options(
        suite=request.suite.name if request.suite else "",
        suite_digest=request.suite.digest if request.suite else "",
        op=request.op,
        variant=request.variant,
        forced={name: variant for name, variant in forced.items() if variant is not None},
        devices=tuple(f"{name} (simulated)" if device.simulated() else name for name, device in _present(installed, request).items()),
        weights=request.weights,
        threads=request.threads or 0,
        seed=request.seed,
    )


def _present(installed: Installed, request: Request) -> dict[str, Device]:
    return {name: device for name, device in _chosen(installed, request).items() if device.missing() is None}


@contextmanager
def _begun(installed: Installed, request: Request, options: Options, store: Store, resume: str | None, *, roofs: bool) -> Iterator[Partial]:
    """A new or resumed partial run. Without `roofs` no ceilings are measured.

    Their probes cycle through several times the last-level cache, more memory than studying weights may take, and layers need none.
    """
    from tritmark.harness.machine import environment, machine_facts, measure_ceilings

    facts = machine_facts()
    present = _present(installed, request).values()
    compilers = dict.fromkeys(device.compiler() for device in present)
    here = environment(request.command, request.seed, compiler="; ".join(filter(None, compilers)))
    if resume is None:
        ceilings = tuple(each for device in present if roofs for each in measure_ceilings(device))
        machine = facts.model_copy(update={"ceilings": ceilings})
        created = datetime.now(UTC).isoformat(timespec="seconds")
        header = Header(id=new_id(), created=created, options=options, environment=here, machine=machine)
        with store.begin(header) as partial:
            yield partial
        return
    with store.resume(resume) as partial:
        _same(partial, options, here, facts)
        yield partial


def _same(partial: Partial, options: Options, here: Environment, facts: Machine) -> None:
    """Runs of one Record share command, version and machine. Raises UsageError that names what differs."""
    before = partial.header
    pairs = {f"option {name}": (getattr(before.options, name), getattr(options, name)) for name in Options.model_fields}
    pairs["tritmark"] = (before.environment.tritmark, here.tritmark)
    pairs["machine"] = (before.machine.id, facts.id)
    different = [f"{name} was {was!r} and is {now!r}" for name, (was, now) in pairs.items() if was != now]
    if different:
        command = shlex.join(before.environment.command)
        raise UsageError(f"{partial.folder}: cannot be resumed: {'; '.join(different)}. It was begun with: {command}")


def _runs(installed: Installed, groups: Sequence[Group], request: Request, partial: Partial, observer: Observer) -> Iterator[Run]:
    done = partial.finished_runs()
    material: Material | None = None
    for group in groups:
        if any(group.run_id(variant) not in done for variant in group.variants):
            if material is None or material.op is not group.op or not material.suits(group.workload):
                material = None  # two of the largest at once could be too much
                material = Material(group.op, group.workload, request.seed)
            judging: _Judging | None = _Judging(installed, group, material, request)
        else:
            judging = None
        for variant in group.variants:
            run = done.get(group.run_id(variant))
            if run is None:
                assert judging is not None
                observer.started(group.run_id(variant) + (" (simulated)" if judging.simulated else ""))
                run = judging.run(variant)
                partial.add(run)
            observer.finished(run)
            yield run


class _Judging:
    """One group at work: data, reference and buffers are made when the first variant needs them."""

    def __init__(self, installed: Installed, group: Group, material: Material, request: Request) -> None:
        self._group = group
        self._material = material
        self._seed = request.seed
        self._device = installed.registry.devices[group.key.device]
        # How many threads of the host there are says nothing about a device that works by itself.
        wanted = None if self._device.memory is not None else request.threads
        self._threads = wanted or self._device.cores()
        self._refusals = {variant.name: why for variant, why in installed.registry.candidates(group.key, group.workload.axes)}
        self._cases: Cases | Verdict | None = None
        self._bench: Bench | None = None

    @property
    def simulated(self) -> bool:
        """Whether a simulator stands in for the device."""
        return self._device.simulated()

    def run(self, variant: Variant) -> Run:
        """Judge one variant, and measure it where the workload asks for that and it is right."""
        group = self._group
        start = perf_counter()
        receipt = None
        used = Usage()
        refusal = self._refusal(variant)
        if refusal is not None:
            accuracy = Accuracy(status=Status.NOT_RUN, reason=refusal)
        else:
            accuracy, receipt = self._judge(variant)
        if refusal is not None:
            performance = Performance(status=Status.NOT_RUN, reason=refusal)
        elif not group.workload.measure:
            performance = Performance(status=Status.NOT_RUN, reason=NOT_MEASURED)
        elif self._device.simulated():
            performance = Performance(status=Status.NOT_RUN, reason=SIMULATED)
        elif accuracy.status is not Status.PASS:
            performance = Performance(status=Status.NOT_RUN, reason="only a kernel that is right is measured")
        else:
            performance, used = self._measure(variant)
            if self._bench is not None and receipt is not None:
                receipt = self._bench.evidence.added_to(receipt)
        return Run(
            id=group.run_id(variant),
            op=group.op.name,
            format=group.key.format,
            dtype=group.key.dtype,
            device=group.key.device,
            variant=variant.name,
            kernel=variant.id,
            workload=WorkloadFacts(
                id=group.workload.id,
                axes=dict(group.workload.axes),
                family=group.workload.family,
                layout=group.workload.layout,
                title=group.workload.title,
                seed=self._seed,
            ),
            threads=self._threads,
            accuracy=accuracy,
            performance=performance,
            memory=MemoryUse(status=Status.NOT_RUN, reason=refusal or LATER),
            cross=Cross(status=Status.NOT_RUN, reason=refusal or LATER),
            receipt=receipt,
            seconds=perf_counter() - start,
            device_memory=used.memory,
            upload=used.upload,
            download=used.download,
        )

    def _refusal(self, variant: Variant) -> str | None:
        forced = self._device.forced()
        if forced is not None and variant.name != forced:
            return f"the environment allows only {forced} on this {self._device.type}"
        return self._refusals[variant.name]

    def _judge(self, variant: Variant) -> tuple[Accuracy, Receipt | None]:
        group = self._group
        if self._cases is None:
            self._cases = _cases(self._material, group.key)
        if isinstance(self._cases, Verdict):
            return Accuracy(status=self._cases.status, reason=self._cases.reason), None
        unfit = misfit(variant, self._cases.first.inputs, group.workload.layout, self._device)
        if unfit is not None:
            return Accuracy(status=Status.NOT_RUN, reason=unfit), None
        judged = judge(
            group.op,
            variant,
            self._cases,
            group.workload.axes,
            layout=group.workload.layout,
            threads=self._threads,
            seed=self._seed,
            device=self._device,
        )
        receipt = judged.receipt
        if receipt is not None and not receipt.code_hash:
            receipt = replace(receipt, code_hash=self._device.code_hash(variant.id))
        return judged.accuracy, receipt

    def _measure(self, variant: Variant) -> tuple[Performance, Usage]:
        try:
            from tritmark.harness.validate.performance import Bench

            inputs = self._material.encoded(self._group.key.format)[0]
            if self._bench is None:
                self._bench = Bench(
                    op=self._group.op,
                    key=self._group.key,
                    inputs=inputs,
                    axes=self._group.workload.axes,
                    device=self._device,
                    layout=self._group.workload.layout,
                    seed=self._seed,
                )
            performance = self._bench.measure(variant, self._threads)
            return performance, usage(self._device, self._group.op, variant, inputs, self._group.workload.axes)
        except Exception as error:
            return Performance(status=Status.ERROR, reason=f"{type(error).__name__}: {error}"), Usage()


def _cases(material: Material, key: KernelKey) -> Cases | Verdict:
    try:
        return material.cases(key)
    except InvalidArgumentError as error:
        return Verdict(status=Status.NOT_RUN, reason=f"the workload cannot be encoded: {error}")
    except BrokenReferenceError as error:
        return Verdict(status=Status.ERROR, reason=str(error))
    except Exception as error:
        return Verdict(status=Status.ERROR, reason=f"data or reference could not be made: {type(error).__name__}: {error}")


def _layers(
    installed: Installed, source: WeightSource, infos: Sequence[TensorInfo], request: Request, partial: Partial, observer: Observer
) -> Iterator[Layer]:
    done = partial.finished_layers()
    study = next(provider.study for provider in installed.providers.values() if provider.study)
    threads = request.threads or next(iter(installed.registry.devices.values())).cores()
    for info in infos:
        layer = done.get(info.name)
        if layer is None:
            observer.started(info.name)
            try:
                layer = study(source, info, threads=threads, seed=request.seed)
            except WeightFileError:
                raise
            except (TritmarkError, MemoryError) as error:
                rows, columns = info.shape
                reason = f"{type(error).__name__}: {error}"
                layer = Layer(
                    status=Status.ERROR, reason=reason, name=info.name, shape=(rows, columns), dtype=info.dtype, bytes=info.nbytes
                )
            partial.add(layer)
        observer.finished(layer)
        yield layer


def _lanes(installed: Installed, request: Request, runs: Sequence[Run], layers: Sequence[Layer]) -> Iterator[Lane]:
    absent = missing(installed, request)
    for name, device in installed.registry.devices.items():
        of_device = [run for run in runs if run.device == name]
        kernels = [run.kernel for run in of_device if run.receipt is not None] + [layer.kernel for layer in layers]
        if any(kernel.startswith(f"{name}/") for kernel in kernels):
            yield Lane(device=name, ran=True, reason=SIMULATED if device.simulated() else "", simulated=device.simulated())
        elif name in absent:
            yield Lane(device=name, ran=False, reason=absent[name])
        else:
            reasons = dict.fromkeys(run.accuracy.reason for run in of_device)
            yield Lane(device=name, ran=False, reason="; ".join(reasons) or "nothing of it was asked for")
