"""One key on one workload: its variants are judged one after the other, each where it runs.

What a candidate may know (its inputs, what it is called with) goes to its worker; what it must not know (the expected values) stays here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tritmark.harness.advise.code import code_of
from tritmark.harness.errors import CandidateError, InvalidArgumentError, WorkerError
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.record import DIMENSIONS, Accuracy, Cross, MemoryUse, Performance, Run, Status, Verdict, WorkloadFacts
from tritmark.harness.spec import Device, KernelKey, Op, Peer, Receipt, Variant, Workload
from tritmark.harness.validate.accuracy import Judged, judge, misfit
from tritmark.harness.validate.cases import Cases, Material
from tritmark.harness.validate.collect import Collected, collect_task
from tritmark.harness.validate.compare import BrokenReferenceError
from tritmark.harness.validate.confirm import confirmed, statistical
from tritmark.harness.validate.measured import Measured
from tritmark.harness.validate.memory import bits_per_weight, confirmed_use, watched
from tritmark.harness.validate.pieces import NOTHING, Exchangeable, exchangeable
from tritmark.harness.validate.timed import timed
from tritmark.harness.validate.usage import Usage
from tritmark.harness.worker import Workers

if TYPE_CHECKING:
    from tritmark.harness.cross import CppLibrary
    from tritmark.harness.runner import Request
    from tritmark.harness.validate.cross import Crossing

SIMULATED = "simulated: it has no speed"
NOT_MEASURED = "the suite asks for accuracy only here"
DRAWN = "accuracy is judged here"
"""Why Runs of drawn cases have nothing but accuracy."""
NOT_ASKED = "not asked for: "
FORCED = "the environment allows only "
NOT_RIGHT = "only a kernel that is right is measured"
_SPEEDS = frozenset({Status.PASS, Status.AMBIGUOUS})


@dataclass(frozen=True, slots=True)
class Group:
    """Variants that share inputs, reference and buffers: one key on one workload."""

    op: Op
    key: KernelKey
    workload: Workload
    variants: tuple[Variant, ...]
    corners: tuple[Workload, ...] = ()
    """Of drawn cases: workloads of the suite that are judged among them."""

    def run_id(self, variant: Variant) -> str:
        """A Run's name within its Record."""
        return f"{variant.id} {self.workload.id}"

    def identity(self, variant: Variant, seed: int) -> dict[str, Any]:
        """The fields of a Run that say of what it is."""
        work = self.workload
        return {
            "id": self.run_id(variant),
            "op": self.op.name,
            "format": self.key.format,
            "dtype": self.key.dtype,
            "device": self.key.device,
            "variant": variant.name,
            "kernel": variant.id,
            "workload": WorkloadFacts(
                id=work.id, axes=dict(work.axes), family=work.family, layout=work.layout, title=work.title, seed=seed
            ),
        }


class Judging:
    """One group at work: data and reference are made when the first variant needs them.

    `threads`: None for every physical core of the device. `roofs`: what is known of each device's ceilings, added to here. `peers` are all
    that there are, those of `libraries` among them. `wrong`: ids of variants that failed elsewhere, which are not measured.
    """

    def __init__(
        self,
        workers: Workers,
        group: Group,
        material: Material,
        *,
        seed: int,
        threads: int | None,
        roofs: dict[str, Roofs],
        peers: Sequence[Peer] = (),
        libraries: tuple[CppLibrary, ...] = (),
        wrong: Collection[str] = (),
        dimensions: frozenset[str] = frozenset(DIMENSIONS),
    ) -> None:
        self._wrong = wrong
        self._dimensions = dimensions
        self._peers, self._libraries = peers, libraries
        self._crossing: Crossing | None = None
        self._workers = workers
        self._group = group
        self._material = material
        self._seed = seed
        self._roofs = roofs
        installed = workers.installed
        self._device = installed.registry.devices[group.key.device]
        # How many threads of the host there are says nothing about a device that works by itself.
        wanted = None if self._device.memory is not None else threads
        self._threads = wanted or self._device.cores()
        self._refusals = {variant.id: why for variant, why in installed.registry.candidates(group.key, group.workload.axes)}
        self._cases: Cases | Verdict | None = None
        self._exchangeable: Exchangeable | None = None

    @property
    def simulated(self) -> bool:
        """Whether a simulator stands in for the device."""
        return self._device.simulated()

    def run(self, variant: Variant) -> Run:
        """Judge one variant, and measure it where the workload asks for that and it is right."""
        group = self._group
        start = perf_counter()
        receipt = found = None
        refusal = self._refusal(variant)
        if refusal is not None:
            accuracy = Accuracy(status=Status.NOT_RUN, reason=refusal)
        else:
            accuracy, receipt = self._judge(variant)
        left_out = refusal or self._left_out(variant, accuracy)
        untimed = left_out or self._unasked("performance")
        if untimed is not None:
            performance = Performance(status=Status.NOT_RUN, reason=untimed)
        else:
            performance, receipt, found = self._measure(variant, receipt)
        used = Usage() if found is None else found.usage
        unseen = left_out if left_out != SIMULATED else None
        unwatched, uncrossed = (unseen or self._unasked(each) for each in ("memory", "cross"))
        memory = self._memory(variant) if unwatched is None else MemoryUse(status=Status.NOT_RUN, reason=unwatched)
        timed = performance.status in _SPEEDS
        cross = self._cross(variant, timed) if uncrossed is None else Cross(status=Status.NOT_RUN, reason=uncrossed)
        return Run(
            **group.identity(variant, self._seed),
            threads=self._threads,
            accuracy=accuracy,
            performance=performance,
            memory=memory,
            cross=cross,
            receipt=receipt,
            seconds=perf_counter() - start,
            device_memory=used.memory,
            upload=used.upload,
            download=used.download,
            scaling=() if found is None else found.scaling,
            plain=None if found is None else found.plain,
            code=code_of(variant, receipt) if found is not None else None,
        )

    def _unasked(self, dimension: str) -> str | None:
        return None if dimension in self._dimensions else NOT_ASKED + " ".join(f"--dimension {each}" for each in sorted(self._dimensions))

    def _refusal(self, variant: Variant) -> str | None:
        return refused(self._device, variant, self._refusals)

    def _left_out(self, variant: Variant, accuracy: Accuracy) -> str | None:
        if not self._group.workload.measure:
            return NOT_MEASURED
        if self._device.simulated():
            return SIMULATED
        return NOT_RIGHT if accuracy.status is not Status.PASS or variant.id in self._wrong else None

    def _judge(self, variant: Variant) -> tuple[Accuracy, Receipt | None]:
        group = self._group
        if self._cases is None:
            self._cases = _cases(self._material, group.key)
        if isinstance(self._cases, Verdict):
            return Accuracy(status=self._cases.status, reason=self._cases.reason), None
        unfit = misfit(variant, self._cases.first.inputs, group.workload.layout, self._device)
        if unfit is not None:
            return Accuracy(status=Status.NOT_RUN, reason=unfit), None
        worker = self._workers.of(variant)
        found = judge(
            group.op,
            worker.variant,
            self._cases,
            group.workload.axes,
            layout=group.workload.layout,
            threads=self._threads,
            seed=self._seed,
            device=worker.device,
        )
        if found.accuracy.status in {Status.ERROR, Status.FAIL}:  # it may have left its process in any state
            self._workers.renew(variant)
        return _completed(found, variant, self._device, isolated=self._workers.isolated)

    def _measure(self, variant: Variant, receipt: Receipt | None) -> tuple[Performance, Receipt | None, Measured | None]:
        performance, receipt, found = self._measured(variant, receipt)
        if not statistical(performance):
            return performance, receipt, found

        def again() -> Performance:
            nonlocal receipt, found
            self._workers.renew(variant)
            second, receipt, found = self._measured(variant, receipt)
            return second

        return confirmed(performance, again), receipt, found

    def _measured(self, variant: Variant, receipt: Receipt | None) -> tuple[Performance, Receipt | None, Measured | None]:
        group, device = self._group, self._group.key.device
        assert isinstance(self._cases, Cases)
        encoded = tuple(self._material.encoded(group.key.format))
        try:
            performance, found = timed(
                self._workers.of(variant),
                self._cases,
                encoded,
                group.workload.axes,
                self._changes(),
                layout=group.workload.layout,
                seed=self._seed,
                threads=self._threads,
                roofs=self._roofs.get(device, {}),
            )
        except Exception as error:
            return Performance(status=Status.ERROR, reason=self._broke(variant, error)), receipt, None
        if variant.id not in self._workers.installed.added:  # whose process could say of the ceilings what it likes
            self._roofs[device] = found.roofs
        return performance, found.evidence.added_to(receipt) if receipt is not None else None, found

    def _changes(self) -> Exchangeable:
        """What is exchanged before samples, the same for every variant."""
        group, material = self._group, self._material
        if self._exchangeable is None:
            assert isinstance(self._cases, Cases)
            rng = np.random.default_rng([self._seed, *group.run_id(group.variants[0]).encode()])
            encoded = tuple(material.encoded(group.key.format))
            one = not self._cases.in_place
            self._exchangeable = NOTHING if one else exchangeable(group.op, group.key, group.workload.axes, material.logical, encoded, rng)
        return self._exchangeable

    def _memory(self, variant: Variant) -> MemoryUse:
        group = self._group
        inputs = self._material.encoded(group.key.format)[0]
        try:
            return confirmed_use(
                lambda again: watched(self._workers, variant, again),
                inputs,
                group.workload.axes,
                threads=self._threads,
                bits_per_weight=bits_per_weight(group.op, group.key, group.workload.axes, inputs),
            )
        except Exception as error:
            return MemoryUse(status=Status.ERROR, reason=self._broke(variant, error))

    def _cross(self, variant: Variant, measured: bool) -> Cross:
        """Beside every peer there is; by turns with it where that makes sense."""
        from tritmark.harness.validate.cross import Crossing

        group, material = self._group, self._material
        assert isinstance(self._cases, Cases)
        axes = dict(group.workload.axes)
        if self._crossing is None:
            expected = self._cases.first.expected
            self._crossing = Crossing(group.op, group.key, self._peers, expected, material.logical[0], group.workload.axes)

        def collected(peer: Peer) -> Collected:
            worker = self._workers.of(variant)
            inputs = material.logical[0], material.encoded(group.key.format)[0]
            try:
                found: Collected = worker.call(
                    f"cross-validating with {peer.name}",
                    collect_task,
                    peer.name,
                    self._libraries,
                    *inputs,
                    axes,
                    self._threads,
                    self._seed,
                    measured,
                )
            except Exception:
                self._workers.renew(variant)
                raise
            return found

        return self._crossing.judge(collected)

    def _broke(self, variant: Variant, error: Exception) -> str:
        """What an exception says; whatever state the candidate's process is in, the next Run has a new one."""
        self._workers.renew(variant)
        return str(error) if isinstance(error, CandidateError | WorkerError) else f"{type(error).__name__}: {error}"


def refused(device: Device, variant: Variant, refusals: Mapping[str, str | None]) -> str | None:
    """Why a variant is not run, or None. `refusals` are those of its key's variants, by id."""
    forced = device.forced()
    if forced is not None and variant.name != forced:
        return f"{FORCED}{forced} on this {device.type}"
    return refusals[variant.id]


def _completed(found: Judged, variant: Variant, device: Device, *, isolated: bool) -> tuple[Accuracy, Receipt | None]:
    """The judgement with what is known here: the code's hash, and that the candidate had a process of its own."""
    receipt = found.receipt
    if receipt is not None and not receipt.code_hash:
        receipt = replace(receipt, code_hash=variant.code_hash or device.code_hash(variant.id))
    if not isolated:
        return found.accuracy, receipt
    return found.accuracy.model_copy(update={"guards": (*found.accuracy.guards, "process")}), receipt


def drawn_run(group: Group, variant: Variant, found: Judged, device: Device, request: Request) -> Run:
    """The Run of a variant on drawn cases."""
    accuracy, receipt = found.accuracy, found.receipt
    if accuracy.status is not Status.NOT_RUN:
        accuracy, receipt = _completed(found, variant, device, isolated=request.isolated)
    return Run(
        **group.identity(variant, request.seed),
        threads=request.threads or device.cores(),
        accuracy=accuracy,
        performance=Performance(status=Status.NOT_RUN, reason=DRAWN),
        memory=MemoryUse(status=Status.NOT_RUN, reason=DRAWN),
        cross=Cross(status=Status.NOT_RUN, reason=DRAWN),
        receipt=receipt,
        seconds=found.seconds,
    )


def _cases(material: Material, key: KernelKey) -> Cases | Verdict:
    try:
        return material.cases(key)
    except InvalidArgumentError as error:
        return Verdict(status=Status.NOT_RUN, reason=f"the workload cannot be encoded: {error}")
    except BrokenReferenceError as error:
        return Verdict(status=Status.ERROR, reason=str(error))
    except Exception as error:
        return Verdict(status=Status.ERROR, reason=f"data or reference could not be made: {type(error).__name__}: {error}")
