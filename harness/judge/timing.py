"""Times one key on one workload: performance, and interleaved cross-validation. Nothing else may run meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from tritmark.harness.judge.judging import (
    NOT_RIGHT,
    PEER,
    Group,
    Judgement,
    LeftOut,
    ListedWorkload,
    broke,
    cases_of,
    unasked,
)
from tritmark.harness.judge.throttled import doubted
from tritmark.harness.measure.surroundings import MachineWatch
from tritmark.harness.measure.survey import Roofs
from tritmark.harness.record import Cross, MachineLoad, MemoryUse, Performance, Run, Status
from tritmark.harness.spec import Peer, Receipt, Tier, Variant
from tritmark.harness.validate.cases import Cases, Material, admitted
from tritmark.harness.validate.collect import Collected, collect_task
from tritmark.harness.validate.confirm import confirmed, statistical
from tritmark.harness.validate.measured import Measured
from tritmark.harness.validate.pieces import NOTHING, Exchangeable, exchangeable
from tritmark.harness.validate.state import others_start_threads
from tritmark.harness.validate.timed import timed
from tritmark.harness.validate.usage import Usage
from tritmark.harness.worker import Workers

if TYPE_CHECKING:
    from tritmark.harness.providers import PeerLibrary
    from tritmark.harness.validate.cross import CrossTask

_SPEEDS = frozenset({Status.PASS, Status.AMBIGUOUS})


class GroupTiming:
    """The variants of one group. The first variant that needs data and reference makes them.

    `roofs`: the known ceilings of each device; this class adds to them. `peers`: all peers, including those of
    `libraries`.
    """

    def __init__(
        self,
        workers: Workers,
        group: Group,
        material: Material,
        listed: ListedWorkload,
        *,
        roofs: dict[str, Roofs],
        peers: Sequence[Peer] = (),
        libraries: tuple[PeerLibrary, ...] = (),
    ) -> None:
        self._peers, self._libraries = peers, libraries
        self._crossing: CrossTask | None = None
        self._workers = workers
        self._group = group
        self._material = material
        self._listed = listed
        self._roofs = roofs
        self._known: Cases | None = None
        self._exchangeable: Exchangeable | None = None
        self._load: MachineLoad | None = None

    def run(self, variant: Variant, judgement: Judgement, unmeasured: LeftOut | None) -> Run:
        """Measure a variant that is already judged, and return its complete Run. `unmeasured`: why it is not measured,
        such as a failure on another workload."""
        group, listed = self._group, self._listed
        start = perf_counter()
        accuracy, receipt, memory, found = judgement.accuracy, judgement.receipt, judgement.memory, None
        left_out = judgement.left_out
        if left_out is None and unmeasured is not None:
            left_out = unmeasured
        if left_out is NOT_RIGHT:
            memory = memory if memory.status is Status.NOT_RUN else NOT_RIGHT.verdict(MemoryUse)
        untimed = left_out or unasked("performance", listed.dimensions)
        self._load = None
        if untimed is not None:
            performance = untimed.verdict(Performance)
        else:
            performance, receipt, found = self._measure(variant, receipt)
        used = Usage() if found is None else found.usage
        uncrossed = (
            (None if left_out is None or left_out.slow else left_out)
            or unasked("cross", listed.dimensions)
            or (PEER if variant.tier is Tier.PEER else None)
        )
        self._let_go()
        timed = performance.status in _SPEEDS
        cross = self._cross(variant, timed) if uncrossed is None else uncrossed.verdict(Cross)
        return Run(
            **group.identity(variant, listed.seed),
            threads=listed.threads,
            accuracy=accuracy,
            performance=performance,
            memory=memory,
            cross=cross,
            receipt=receipt,
            seconds=judgement.seconds + perf_counter() - start,
            device_memory=used.memory,
            upload=used.upload,
            download=used.download,
            scaling=() if found is None else found.scaling,
            plain=None if found is None else found.plain,
            node_use=None if found is None else found.node_use,
            code=judgement.code if found is not None else None,
            load=self._load,
            device_stats=judgement.device_stats if found is None else found.device_stats,
        )

    @property
    def _cases(self) -> Cases:
        if self._known is None:
            known = cases_of(self._material, self._group.key, by_turns=self._alone)
            assert isinstance(known, Cases)  # the judgement used the same cases
            self._known = known
        return self._known

    def _measure(
        self, variant: Variant, receipt: Receipt | None
    ) -> tuple[Performance, Receipt | None, Measured | None]:
        performance, receipt, found = self._measured(variant, receipt)
        if not statistical(performance):
            return performance, receipt, found

        def again() -> Performance:
            nonlocal receipt, found
            self._workers.renew(variant)
            second, receipt, found = self._measured(variant, receipt)
            return second

        return confirmed(performance, again), receipt, found

    def _measured(
        self, variant: Variant, receipt: Receipt | None
    ) -> tuple[Performance, Receipt | None, Measured | None]:
        group, device = self._group, self._group.key.device
        encoded = tuple(self._material.encoded(group.key.format))
        try:
            cases = admitted(self._cases, variant, group.workload.axes)
            worker = self._workers.of(variant)
            worker.begin()
            changes = self._changes() if cases.in_place else NOTHING
            with MachineWatch(*_gpus(receipt)) as surroundings:
                performance, found = timed(
                    worker,
                    cases,
                    encoded,
                    group.workload.axes,
                    changes,
                    layout=group.workload.layout,
                    seed=self._listed.seed,
                    threads=self._listed.threads,
                    roofs=self._roofs.get(device, {}),
                )
        except Exception as error:
            return broke(Performance, self._workers, variant, error), receipt, None
        self._load = surroundings.load()
        if variant.id not in self._workers.installed.added:  # a candidate's process could report false ceilings
            self._roofs[device] = found.roofs
        performance = doubted(performance, self._load)
        return performance, found.evidence.added_to(receipt) if receipt is not None else None, found

    def _let_go(self) -> None:
        """Free data that only this variant's measurement needs."""
        if self._known is not None and self._alone:
            self._known, self._exchangeable = replace(self._known, second=None), None
            self._material.forget_second()

    @property
    def _alone(self) -> bool:
        """Whether only one variant is judged on this data."""
        return len(self._group.variants) == 1 and self._group.workload.stored is not None

    def _changes(self) -> Exchangeable:
        """The pieces that are exchanged before samples, the same for every variant."""
        group, material = self._group, self._material
        if self._exchangeable is None:
            rng = np.random.default_rng([self._listed.seed, *group.run_id(group.variants[0]).encode()])
            encoded = tuple(material.encoded(group.key.format))
            one = not self._cases.in_place
            self._exchangeable = (
                NOTHING
                if one
                else exchangeable(group.op, group.key, group.workload.axes, material.logical, encoded, rng)
            )
        return self._exchangeable

    def _cross(self, variant: Variant, measured: bool) -> Cross:
        """Cross-validate with every peer. If the variant is `measured`, time both interleaved."""
        from tritmark.harness.validate.cross import CrossTask

        group, material = self._group, self._material
        axes = dict(group.workload.axes)
        if self._crossing is None:
            expected = self._cases.first.expected
            self._crossing = CrossTask(
                group.op,
                group.key,
                self._peers,
                expected,
                material.logical[0],
                group.workload.axes,
                len(group.variants),
            )

        def collected(peer: Peer) -> Collected:
            worker = self._workers.of(variant)
            inputs = material.logical[0], material.encoded(group.key.format)[0]
            try:
                with others_start_threads(worker):
                    found: Collected = worker.call(
                        f"cross-validating with {peer.name}",
                        collect_task,
                        peer.name,
                        self._libraries,
                        *inputs,
                        axes,
                        self._listed.threads,
                        self._listed.seed,
                        measured,
                    )
            except Exception:
                self._workers.renew(variant)
                raise
            return found

        return self._crossing.judge(collected)


def _gpus(receipt: Receipt | None) -> list[str]:
    """The UUIDs of the devices that a receipt names; empty on the host."""
    if receipt is None or receipt.simulated or not receipt.uuid:
        return []
    return receipt.uuid.split(", ")
