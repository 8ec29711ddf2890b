"""A check: opens a user's kernel, judges it beside the best built-in one, and looks for the smallest failing input.
`tritmark check` and `tritmark.check` are thin layers over it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from time import monotonic

from tritmark.harness.candidate.native import NativeFile
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.candidate.plan import Plan, planned
from tritmark.harness.check import inputs_file
from tritmark.harness.check.facts import CheckedDimension, FailingInput, KernelVerdict
from tritmark.harness.check.failing import DataPoint, FailureSearch, FoundFailure, replayed
from tritmark.harness.check.summary import check_verdict
from tritmark.harness.check.verdict import CheckVerdict
from tritmark.harness.errors import UsageError
from tritmark.harness.judge.not_judged import SIMULATED_SHARE
from tritmark.harness.judge.planning import plan
from tritmark.harness.judge.request import Request
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Candidate, Installed, load
from tritmark.harness.record import DIMENSIONS, Record, Run, Status
from tritmark.harness.spec import Variant, Workload
from tritmark.harness.store import Store
from tritmark.harness.text.outcome import deciding
from tritmark.harness.validate.draw import Drawer
from tritmark.harness.worker import Workers

_TIMEOUT_S, _MEMORY = 5.0, 2 << 30
"""Limits of the kernel in the search for a smallest input, for each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to judge, and how: the options of `tritmark check`."""

    file: Path
    op: str = "*"
    suite: str = "quick"
    device: str = "*"
    threads: int | None = None
    dimensions: frozenset[str] = frozenset(DIMENSIONS)
    timeout_s: float = 30.0
    isolated: bool = True
    scored: bool = False
    """Time the plainest built-in kernel too, for a score."""


@dataclass(frozen=True, slots=True)
class OpenedCheck:
    """A user's kernel with everything installed, ready to be judged."""

    options: CheckOptions
    candidate: Candidate
    installed: Installed
    plan: Plan

    @property
    def warnings(self) -> str:
        """What the compiler warns of."""
        return self.candidate.warnings if isinstance(self.candidate, NativeFile) else ""

    @property
    def absent(self) -> Mapping[str, str]:
        """Devices of the kernels that this machine lacks, and why."""
        devices = self.installed.registry.devices
        names = dict.fromkeys(each.key.device for each in self.plan.mine)
        return {name: why for name in names if (why := devices[name].missing())}

    @property
    def impossible(self) -> bool:
        """Whether every device of the kernels is missing."""
        return len(self.absent) == len({each.key.device for each in self.plan.mine})

    def request(self, seed: int, command: tuple[str, ...]) -> Request:
        """The request to the judge."""
        options, devices = self.options, {each.key.device for each in self.plan.mine}
        return Request(
            suite=self.plan.suite,
            device=devices.pop() if len(devices) == 1 else "*",
            threads=options.threads,
            seed=seed,
            command=command,
            candidates=(self.candidate,),
            only=self.plan.ids,
            rivals=frozenset(variant.id for variant in self.plan.others),
            isolated=options.isolated,
            timeout_s=options.timeout_s,
            dimensions=options.dimensions,
            not_judged=self.plan.not_judged,
        )


def opened(options: CheckOptions) -> OpenedCheck:
    """Open and compile the file, and plan the check. Raises UsageError."""
    candidate, installed, mine = _loaded(options)
    made = planned(
        installed,
        mine,
        installed.suite(options.suite),
        options.op,
        options.device,
        options.dimensions,
        scored=options.scored,
    )
    return OpenedCheck(options, candidate, installed, made)


def _loaded(options: CheckOptions) -> tuple[Candidate, Installed, list[Variant]]:
    candidate = open_candidate(options.file)
    builtin = load()
    builtin.choose(options.device)
    known = {variant.id for variant in builtin.registry.variants}
    if isinstance(candidate, NativeFile):
        candidate = candidate.compiled(builtin)
    installed = load((candidate,))
    installed.choose(options.device)
    return candidate, installed, [each for each in installed.registry.variants if each.id not in known]


def own_record(record: Record, check: OpenedCheck) -> Record:
    """The Record that decides: the user's kernels, or everything if a kernel beside them failed. Raises UsageError if
    none of the user's kernels ran."""
    ids = {variant.id for variant in check.plan.mine}
    own = [run for run in record.runs if run.kernel in ids]
    if all(run.accuracy.status is Status.NOT_RUN for run in own):
        reasons = "; ".join(dict.fromkeys(run.accuracy.reason for run in own))
        raise UsageError(f"{check.options.file}: no workload ran: {reasons}")
    return deciding(record.model_copy(update={"runs": tuple(own)}), record)


def verdict_of(check: OpenedCheck, record: Record, store: Store, began: float) -> CheckVerdict:
    """The verdict from the Record. For each kernel with incorrect outputs, look for its smallest failing input and
    write it beside the Record."""
    mine, path = check.plan.mine, str(store.path(record.id))
    found = check_verdict(record, mine, check.plan.rivals, check.plan.baselines, seconds=0.0, path=path)
    kernels = tuple(
        _with_input(check, record, store, variant, each) for variant, each in zip(mine, found.kernels, strict=True)
    )
    return found.model_copy(update={"kernels": kernels, "seconds": round(monotonic() - began, 3)})


def _with_input(
    check: OpenedCheck, record: Record, store: Store, variant: Variant, verdict: KernelVerdict
) -> KernelVerdict:
    failed = [run for run in record.runs if run.kernel == variant.id and run.accuracy.failed]
    if not failed:
        return verdict
    with _workers(check) as workers:
        found = FailureSearch(workers, variant).smallest([*_starts(check, record, variant, failed)])
    if found is None:
        return verdict
    path = store.out / "failing" / f"{record.id}-{verdict.kernel.replace('/', '.').replace(':', '.')}.npz"
    failing = _written(check.options.file, variant, found, path, workers.installed)
    return verdict.model_copy(update={"failing": failing, "first": failing.difference or verdict.first})


def _workers(check: OpenedCheck) -> Workers:
    options = check.options
    return Workers(
        check.installed,
        (check.candidate,),
        isolated=options.isolated,
        timeout_s=min(options.timeout_s, _TIMEOUT_S),
        memory_bytes=_MEMORY,
    )


def _written(file: Path, variant: Variant, found: FoundFailure, path: Path, installed: Installed) -> FailingInput:
    point = found.point
    about = inputs_file.KeptInput(
        kernel=variant.id,
        axes=dict(point.axes),
        family=point.family,
        layout=point.layout,
        threads=point.threads,
        seed=point.seed,
    )
    inputs_file.write(path, about, found.case)
    return FailingInput(
        file=str(path),
        axes=dict(point.axes),
        family=point.family,
        layout=point.layout,
        threads=point.threads,
        nbytes=found.nbytes,
        guards=found.accuracy.caught_by,
        reason=found.accuracy.reason,
        difference=found.difference(installed.ops[variant.key.op]),
        command=shlex.join(["tritmark", "check", str(file), "--inputs", str(path)]),
    )


def _starts(check: OpenedCheck, record: Record, variant: Variant, failed: list[Run]) -> Iterator[DataPoint]:
    """Points like those of the failed Runs: what a suite lists first, the smallest first, then drawn cases."""
    device = check.installed.registry.devices[variant.key.device]
    for run in sorted((run for run in failed if run.workload.axes), key=lambda run: prod(run.workload.axes.values())):
        facts = run.workload
        yield DataPoint(
            axes=dict(facts.axes), family=facts.family, layout=facts.layout, threads=run.threads, seed=facts.seed
        )
    wanted = {run.accuracy.failed_case for run in failed if run.accuracy.failed_case}
    if not wanted:
        return
    count, corners = _drawn(check, record, variant)
    drawer = Drawer(
        check.installed.ops[variant.key.op],
        variant,
        cores=check.options.threads or device.cores(),
        threaded=device.memory is None and not variant.packs,
        seed=record.environment.seed,
    )
    for drawn in (*drawer.draw(count, corners), *drawer.far()):
        if str(drawn) in wanted:
            for salts in (*drawn.salts, {}):
                yield DataPoint(
                    axes=dict(drawn.axes),
                    family=drawn.family,
                    threads=drawn.threads,
                    seed=drawn.seed,
                    salts=dict(salts) or None,
                )


def _drawn(check: OpenedCheck, record: Record, variant: Variant) -> tuple[int, tuple[Workload, ...]]:
    """Number of cases that were drawn for the variant, and the workloads among them."""
    for group in plan(check.installed, check.request(record.environment.seed, ())):
        if group.workload.drawn and variant in group.variants:
            simulated = check.installed.registry.devices[group.key.device].simulated()
            return -(-group.workload.drawn // (SIMULATED_SHARE if simulated else 1)), group.corners
    return 0, ()


def replay(options: CheckOptions, inputs: Path, began: float) -> CheckVerdict:
    """Judge the kernel of a file on the inputs of a `.npz` alone. Raises UsageError for a file without that kernel's
    op, format and dtype."""
    about, logical = inputs_file.read(inputs)
    key = about.kernel.rpartition("/")[0]
    candidate, installed, mine = _loaded(options)
    same = [each for each in mine if str(each.key) == key]
    named = [each for each in same if each.id == about.kernel] or same
    if not named:
        offer = nearest(key, [str(each.key) for each in mine])
        raise UsageError(f"{inputs}: inputs of {key}, and {options.file} has no kernel for it; {offer}")
    variant = named[0]
    point = DataPoint(axes=about.axes, family=about.family, layout=about.layout, threads=about.threads, seed=about.seed)
    with Workers(
        installed, (candidate,), isolated=options.isolated, timeout_s=options.timeout_s, memory_bytes=_MEMORY
    ) as workers:
        found = replayed(workers, variant, point, logical)
    accuracy = found.accuracy
    difference = found.difference(installed.ops[variant.key.op])
    place = ", ".join(f"{axis}={size}" for axis, size in about.axes.items())
    dimension = CheckedDimension(
        status=accuracy.status,
        runs=1,
        guards=accuracy.caught_by,
        workload=place if accuracy.failed else "",
        reason=accuracy.reason,
    )
    guard = next(iter(accuracy.caught_by), "")
    code = "pass" if accuracy.status is Status.PASS else f"accuracy.{guard or accuracy.status.value}"
    kernel = KernelVerdict(
        kernel=variant.id,
        code=code,
        status=accuracy.status,
        dimensions={"accuracy": dimension},
        guard=guard,
        first=difference,
    )
    return CheckVerdict(
        code=code,
        status=accuracy.status,
        passed=not accuracy.failed,
        kernels=(kernel,),
        seed=about.seed,
        seconds=round(monotonic() - began, 3),
    )
