"""What all criteria share: the device under judgement, the baseline, their kernels, and the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritmark.harness.criteria.model import Crossover, MeasuredFigure, SizePoint
from tritmark.harness.criteria.plan import CriteriaPlan, KernelTable
from tritmark.harness.machine import memory as main_memory
from tritmark.harness.record import MemoryUse, Status
from tritmark.harness.spec import Device, KernelKey, Op, Requirement, Variant, Workload
from tritmark.harness.text.units import count, counted
from tritmark.harness.validate.cases import Case, Material
from tritmark.harness.validate.compare import Expected, compare

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed
    from tritmark.harness.worker import Workers

COPIES = 8
"""Arrays of one size that exist at a time: in this process, in the worker, and between them."""

SIMULATED = "a simulator has no speed; next: judge it on a machine with the device"


@dataclass(frozen=True, slots=True)
class CriterionFinding:
    """What a judge found, see CriterionResult."""

    status: Status
    reason: str = ""
    figures: tuple[MeasuredFigure, ...] = ()
    kernel: str = ""
    baseline: str = ""
    points: tuple[SizePoint, ...] = ()
    crossover: Crossover | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


@dataclass(slots=True)
class CriteriaBench:
    """The device under judgement, and processes for its kernels."""

    installed: Installed
    plan: CriteriaPlan
    kernel: KernelTable
    """The op and its kernels."""
    workers: Workers
    device: Device
    seed: int
    memory_uses: dict[int, MemoryUse] = field(default_factory=dict)
    """By size: two criteria read the same observation."""
    _last: tuple[tuple[int, str], Material] | None = None

    @property
    def op(self) -> Op:
        """The contract."""
        return self.installed.ops[self.kernel.op]

    @property
    def key(self) -> KernelKey:
        """The key of the kernels under judgement."""
        return self.kernel.key(self.device.type)

    @property
    def threads(self) -> int:
        """All cores of the device."""
        return self.device.cores()

    @property
    def baseline(self) -> Device:
        """The device that an accelerator is compared with."""
        return self.installed.registry.devices[self.plan.baseline.device]

    @property
    def accelerated(self) -> bool:
        """Whether the device is not the baseline itself."""
        return self.device.type != self.baseline.type

    @property
    def simulated(self) -> bool:
        """Whether a simulator replaces the device."""
        return self.device.simulated()

    def best(self, size: int, device: Device | None = None, *, threads: int | None = None) -> Variant:
        """The kernel that public functions take for that size. Raises NoCompatibleKernelError if there is none."""
        where = self.device if device is None else device
        return self.installed.registry.select_best(
            self.kernel.key(where.type),
            self.kernel.at(size),
            requirement=Requirement.LATENCY,
            threads=where.cores() if threads is None else threads,
        )

    def material(self, size: int) -> Material:
        """Data of the plan's family for that size; only the last one is kept."""
        wanted = size, self.kernel.family
        if self._last is None or self._last[0] != wanted:
            self._last = None  # freed before the next one is made
            workload = Workload(op=self.op.name, axes=self.kernel.at(size), family=self.kernel.family)
            made = Material(self.op, workload, self.seed)
            made.forget_second()
            self._last = wanted, made
        return self._last[1]

    def case(self, size: int, device: Device | None = None) -> Case:
        """Inputs and expected outputs for that size."""
        return self.material(size).cases(self.kernel.key((device or self.device).type)).first

    def fits(self, size: int) -> str:
        """Why measurements of that size do not fit into memory; "" if they do."""
        axes = self.kernel.at(size)
        traffic = self.op.traffic(axes, self.key)
        nbytes = traffic.read + traffic.written
        free = main_memory.available()
        if COPIES * nbytes > free:
            return f"{count(size)} elements need about {COPIES * nbytes} bytes of memory; {free} are free"
        if self.device.memory is not None and 2 * nbytes > (there := self.device.memory().available()):
            return f"{count(size)} elements need about {2 * nbytes} bytes of {self.device.type}; {there} are free"
        return ""


def named(variant: Variant, threads: int, device: Device) -> str:
    """A kernel with its thread count, for reports."""
    return variant.id if device.memory is not None else f"{variant.id}, {counted(threads, 'thread')}"


def difference(expected: Sequence[Expected], found: Mapping[str, Any]) -> tuple[int, str]:
    """The number of incorrect elements, and the first one in words."""
    wrong, first = 0, ""
    for each in expected:
        array = found.get(each.name)
        if array is None or array.shape != each.values.shape or array.dtype != each.values.dtype:
            return wrong + each.values.size, f"{each.name} is not {each.values.dtype} of shape {each.values.shape}"
        compared = compare(each, array)
        wrong += compared.wrong.size
        if compared.first is not None and not first:
            at = compared.first
            first = f"{at.output}{list(at.index)} is {at.found}, expected {at.expected}"
    return wrong, first


def missing_accelerators(bench: CriteriaBench) -> str:
    """Why no accelerator can be judged here."""
    found = []
    for key in dict.fromkeys(bench.installed.keys(bench.op.name)):
        if key != bench.kernel.key(key.device) or key.device == bench.baseline.type:
            continue
        device = bench.installed.registry.devices[key.device]
        why = device.missing()
        if why is None:
            why = "a simulator has no speed" if device.simulated() else f"next: --device {key.device}"
        found.append(f"{key.device}: {why}")
    return "; ".join(found) or "no installed package brings one"
