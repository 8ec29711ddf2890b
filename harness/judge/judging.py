"""Judges the variants of one key on one workload, one after the other, by everything that needs no clock.

A candidate's worker gets its inputs and arguments. The expected values stay in this process. Timing is in
judge.timing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from tritmark.harness.disassembly import code_of
from tritmark.harness.errors import CandidateError, DeviceUnavailableError, InvalidArgumentError, WorkerError
from tritmark.harness.judge.limits import accuracy_limits
from tritmark.harness.judge.paths import decided, paths
from tritmark.harness.record import (
    Accuracy,
    Cause,
    Code,
    Cross,
    Guarded,
    MemoryUse,
    Performance,
    Run,
    Status,
    Verdict,
    WorkloadFacts,
)
from tritmark.harness.spec import Device, DeviceStats, KernelKey, Op, Receipt, Tier, Variant, Workload
from tritmark.harness.validate.accuracy import Judged, judge, misfit
from tritmark.harness.validate.borrowed import borrowed
from tritmark.harness.validate.cases import Cases, Material, admitted
from tritmark.harness.validate.compare import BrokenReferenceError
from tritmark.harness.validate.guard_names import guard_of, in_order
from tritmark.harness.validate.memory import bits_per_weight, confirmed_use, watched
from tritmark.harness.validate.trial import error_text
from tritmark.harness.worker import Workers, tasks

if TYPE_CHECKING:
    from tritmark.harness.judge.request import Request
    from tritmark.harness.worker.workers import Worker

_Guarded = TypeVar("_Guarded", bound=Guarded)
_Verdict = TypeVar("_Verdict", bound=Verdict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why something is NOT RUN. Can be pickled."""

    reason: str
    cause: Cause | None = None
    untimed: bool = False
    """The suite asks for everything that needs no clock."""

    @property
    def slow(self) -> bool:
        """Whether only speed is left out (simulator, device without a clock, untimed workload). Everything else is
        judged."""
        return self.untimed or self.cause in {Cause.SIMULATOR, Cause.DEVICE}

    def verdict(self, kind: type[_Verdict]) -> _Verdict:
        """The verdict of a dimension."""
        return kind(status=Status.NOT_RUN, reason=self.reason, cause=self.cause)


SIMULATED = LeftOut("simulated: it has no speed", Cause.SIMULATOR)
NO_CLOCK = LeftOut("the device brings no clock", Cause.DEVICE)
NOT_MEASURED = LeftOut("the suite asks for accuracy only here", Cause.SUITE)
UNTIMED = LeftOut("the suite does not time it here", Cause.SUITE, untimed=True)
DRAWN = LeftOut("accuracy is judged here", Cause.SUITE)
"""Why Runs of drawn cases have only an accuracy verdict."""
NOT_RIGHT = LeftOut("only a correct kernel is measured")
RIVAL_OF_NONE = LeftOut("no kernel of the file is correct here, so there is no time to compare with")
"""Why a built-in kernel that only serves for comparison is not timed."""
LATER = LeftOut("it was not timed")
"""Of a Run before its kernel is timed together with others."""
PEER = LeftOut("it is a peer itself", Cause.SUITE)
"""Why a peer is not cross-validated."""


@dataclass(frozen=True, slots=True)
class Group:
    """Variants that share inputs, reference and buffers: one key on one workload."""

    op: Op
    key: KernelKey
    workload: Workload
    variants: tuple[Variant, ...]
    corners: tuple[Workload, ...] = ()
    """For drawn cases: workloads of the suite that are judged among them."""

    def run_id(self, variant: Variant) -> str:
        """A Run's name within its Record."""
        return run_id(variant, self.workload)

    def identity(self, variant: Variant, seed: int) -> dict[str, Any]:
        """The fields of a Run that identify it."""
        work = self.workload
        return {
            "id": self.run_id(variant),
            "op": self.op.name,
            "format": self.key.format,
            "dtype": self.key.dtype,
            "device": self.key.device,
            "variant": variant.name,
            "kernel": variant.id,
            "peer": variant.tier is Tier.PEER,
            "peer_version": variant.version() if variant.tier is Tier.PEER and variant.missing() is None else "",
            "workload": WorkloadFacts(
                id=work.id, axes=dict(work.axes), family=work.family, layout=work.layout, title=work.title, seed=seed
            ),
        }


@dataclass(frozen=True, slots=True)
class ListedWorkload:
    """A workload as the suite lists it, for one key. Can be pickled."""

    key: KernelKey
    workload: Workload
    seed: int
    threads: int
    dimensions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a variant without a clock. Can be pickled."""

    accuracy: Accuracy
    receipt: Receipt | None
    memory: MemoryUse
    code: Code | None
    left_out: LeftOut | None
    """Why it is not measured, or None."""
    seconds: float
    device_stats: DeviceStats | None = None
    """Of a simulator, which nothing is timed on."""

    @property
    def whole(self) -> bool:
        """Whether the Run is complete. A simulated variant is not: it is still compared with peers."""
        return self.left_out is not None and not self.left_out.slow

    @classmethod
    def refusing(cls, refusal: LeftOut) -> Judgement:
        """The judgement of a variant that is not run."""
        return cls(refusal.verdict(Accuracy), None, refusal.verdict(MemoryUse), None, refusal, 0.0)


class Judging:
    """Variants of one key on one workload. The first variant that needs data and reference makes them."""

    def __init__(self, workers: Workers, listed: ListedWorkload) -> None:
        self._workers = workers
        self._listed = listed
        installed = workers.installed
        self._op = installed.ops[listed.key.op]
        self._device = installed.registry.devices[listed.key.device]
        self._material: Material | None = None
        self._cases: Cases | Verdict | None = None

    def judge(self, variant: Variant) -> Judgement:
        """Judge accuracy. For a correct kernel that will be measured, also judge memory and read its code."""
        start = perf_counter()
        accuracy, receipt = self._accuracy(variant)
        left_out = self._left_out(accuracy)
        unwatched = (None if left_out is None or left_out.slow else left_out) or unasked(
            "memory", self._listed.dimensions
        )
        memory = self._memory(variant) if unwatched is None else unwatched.verdict(MemoryUse)
        code = (
            code_of(variant, receipt)
            if left_out is None and unasked("performance", self._listed.dimensions) is None
            else None
        )
        simulated = accuracy.status is Status.PASS and self._device.simulated()
        stats = self._device_stats(variant) if simulated else None
        return Judgement(accuracy, receipt, memory, code, left_out, perf_counter() - start, stats)

    def _device_stats(self, variant: Variant) -> DeviceStats | None:
        try:
            found: DeviceStats | None = self._workers.of(variant).call("counting its work", tasks.device_stats)
        except (WorkerError, CandidateError):
            self._workers.renew(variant)
            return None
        return found

    def _left_out(self, accuracy: Accuracy) -> LeftOut | None:
        if not self._listed.workload.measure:
            return NOT_MEASURED
        if not self._listed.workload.timed:
            return UNTIMED
        if self._device.simulated():
            return SIMULATED
        if self._device.clock is None:
            return NO_CLOCK
        return NOT_RIGHT if accuracy.status is not Status.PASS else None

    def _accuracy(self, variant: Variant) -> tuple[Accuracy, Receipt | None]:
        listed = self._listed
        if self._material is None:
            self._material = Material(self._op, listed.workload, listed.seed)
            self._cases = cases_of(self._material, listed.key)
        if isinstance(self._cases, Verdict):
            return Accuracy(status=self._cases.status, reason=self._cases.reason), None
        assert self._cases is not None
        unfit = misfit(variant, self._cases.first.inputs, listed.workload.layout, self._device)
        if unfit is not None:
            return Accuracy(status=Status.NOT_RUN, reason=unfit), None
        try:
            cases = admitted(self._cases, variant, listed.workload.axes)
        except InvalidArgumentError as error:
            return Accuracy(status=Status.NOT_RUN, reason=f"it does not take these inputs: {error}"), None
        except (BrokenReferenceError, DeviceUnavailableError) as error:  # the second: a peer whose package is broken
            return Accuracy(status=Status.ERROR, reason=str(error)), None
        found = self._judged(self._workers.of(variant), cases)
        if found.accuracy.status is Status.PASS:
            with paths(self._workers, variant) as (others, kept):
                once = replace(cases, second=None)
                elsewhere = [(path, self._judged(path.worker, once).accuracy) for path in others]
                found = replace(found, accuracy=decided(found.accuracy, elsewhere, kept)[0])
        if found.accuracy.status in {Status.ERROR, Status.FAIL}:  # it may have left its process in any state
            self._workers.renew(variant)
        installed = self._workers.installed.registry.variants
        return _completed(found, self._op, variant, self._device, installed, isolated=self._workers.isolated)

    def _judged(self, worker: Worker, cases: Cases) -> Judged:
        listed = self._listed
        return judge(
            self._op,
            worker.variant,
            cases,
            listed.workload.axes,
            layout=listed.workload.layout,
            threads=listed.threads,
            seed=listed.seed,
            device=worker.device,
        )

    def _memory(self, variant: Variant) -> MemoryUse:
        key, axes = self._listed.key, self._listed.workload.axes
        assert self._material is not None
        inputs = self._material.encoded(key.format)[0]
        try:
            return confirmed_use(
                lambda again: watched(self._workers, variant, again),
                inputs,
                axes,
                threads=self._listed.threads,
                bits_per_weight=bits_per_weight(self._op, key, axes, inputs),
                packs=variant.packs,
            )
        except Exception as error:
            return broke(MemoryUse, self._workers, variant, error)


def run_id(variant: Variant, workload: Workload) -> str:
    """A Run's name within its Record."""
    return f"{variant.id} {workload.id}"


def threads_of(device: Device, asked: int | None) -> int:
    """The thread count for a kernel of that device. `asked`: host threads, which a device with its own memory ignores;
    None: every physical core."""
    return (asked if device.memory is None else None) or device.cores()


def unasked(dimension: str, dimensions: frozenset[str]) -> LeftOut | None:
    """Why a dimension is not judged, or None if it was requested."""
    if dimension in dimensions:
        return None
    return LeftOut(f"not requested: {' '.join(f'--dimension {each}' for each in sorted(dimensions))}", Cause.COMMAND)


def broke(kind: type[_Guarded], workers: Workers, variant: Variant, error: Exception) -> _Guarded:
    """The verdict after an exception. The next Run gets a new process, since the state of this one is unknown."""
    workers.renew(variant)
    return kind(status=Status.ERROR, reason=error_text(error), caught_by=in_order([guard_of(error)]))


def refused(device: Device, variant: Variant, refusals: Mapping[str, str | None]) -> LeftOut | None:
    """Why a variant is not run, or None. `refusals` are those of its key's variants, by id."""
    forced = device.forced()
    if forced is not None and variant.name != forced:
        return LeftOut(f"the environment allows only {forced} on this {device.type}", Cause.ENVIRONMENT)
    refusal = refusals[variant.id]
    if refusal is None:
        return None
    lacking = device.missing() is None and not variant.features <= device.features()
    return LeftOut(refusal, Cause.MACHINE if lacking else None)


def _completed(
    found: Judged, op: Op, variant: Variant, device: Device, installed: Iterable[Variant], *, isolated: bool
) -> tuple[Accuracy, Receipt | None]:
    """Complete the judgement with the code's hash, the guard of the candidate's own process, and the limits."""
    receipt = found.receipt
    if receipt is not None and not receipt.code_hash:
        receipt = replace(receipt, code_hash=variant.code_hash or device.code_hash(variant.id))
    calls: tuple[str, ...] = ()
    if variant.tier is Tier.CANDIDATE and device.memory is None:
        calls = borrowed(found.code, [each for each in installed if each.key.device == variant.key.device])
    limits = accuracy_limits(found.accuracy, op, variant, device, calls, isolated=isolated)
    known: dict[str, Any] = {"limits": limits, "borrowed": calls}
    if isolated:
        known["guards"] = (*found.accuracy.guards, "process")
    return found.accuracy.model_copy(update=known), receipt


def drawn_run(
    group: Group, variant: Variant, found: Judged, device: Device, request: Request, installed: Iterable[Variant]
) -> Run:
    """The Run of a variant on drawn cases; `installed`: all variants."""
    accuracy, receipt = found.accuracy, found.receipt
    if accuracy.status is not Status.NOT_RUN:
        accuracy, receipt = _completed(found, group.op, variant, device, installed, isolated=request.isolated)
    return _untimed(
        group, variant, request.seed, request.threads or device.cores(), accuracy, receipt, found.seconds, DRAWN
    )


def listed_run(group: Group, variant: Variant, listed: ListedWorkload, found: Judgement) -> Run:
    """The Run of a variant without figures: it is not measured, or measured later with others."""
    why = found.left_out or LATER
    run = _untimed(group, variant, listed.seed, listed.threads, found.accuracy, found.receipt, found.seconds, why)
    return run if found.device_stats is None else run.model_copy(update={"device_stats": found.device_stats})


def _untimed(
    group: Group,
    variant: Variant,
    seed: int,
    threads: int,
    accuracy: Accuracy,
    receipt: Receipt | None,
    seconds: float,
    why: LeftOut,
) -> Run:
    return Run(
        **group.identity(variant, seed),
        threads=threads,
        accuracy=accuracy,
        performance=why.verdict(Performance),
        memory=why.verdict(MemoryUse),
        cross=why.verdict(Cross),
        receipt=receipt,
        seconds=seconds,
    )


def cases_of(material: Material, key: KernelKey, *, by_turns: bool = False) -> Cases | Verdict:
    """The cases of a key, or why there are none; see Material.cases."""
    try:
        return material.cases(key, by_turns=by_turns)
    except InvalidArgumentError as error:
        return Verdict(status=Status.NOT_RUN, reason=f"the workload cannot be encoded: {error}")
    except BrokenReferenceError as error:
        return Verdict(status=Status.ERROR, reason=str(error))
    except Exception as error:
        return Verdict(
            status=Status.ERROR, reason=f"data or reference could not be computed: {type(error).__name__}: {error}"
        )
