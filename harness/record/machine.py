"""The machine that a Record was made on."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.machine.gpu import GpuFacts
from tritmark.harness.machine.nvml import Health
from tritmark.harness.record.model import Model, Ratio


class CeilingFacts(Model):
    """A ceiling as measured in this session."""

    device: str
    name: str
    level: str
    """L1, L2, L3, memory, or registers."""
    threads: int
    nbytes: int
    rate: float
    unit: str
    repeats: int = 0
    """How often it was measured again because it contradicted another ceiling."""


class NumaNode(Model):
    """A NUMA node of the host that is on."""

    number: int
    cores: tuple[int, ...]
    """Logical cores that are on; none where it has memory alone."""
    memory: int
    """Bytes; 0 where it has cores alone."""
    distances: tuple[int, ...]
    """To each node that is on, in the order of their numbers, as the firmware tells them: 10 is its own."""


class NodeBandwidth(Model):
    """Reading of one node's memory by all physical cores of a node that the process may run on."""

    cores: int
    """The node of the cores."""
    memory: int
    """The node of the memory."""
    threads: int
    nbytes: int
    rate: float
    """Bytes a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(GpuFacts):
    """A GPU of the machine; 0 and None where the driver does not tell."""

    __pydantic_config__ = Model.model_config

    peak_bandwidth: float | None = None
    """Bytes a second that the memory's clock and width allow."""
    health: Health | None = None
    """When the invocation began."""
    faked: bool = False
    """An environment variable for tests decided that it can be used, not the machine."""
    reaches: tuple[int, ...] = ()
    """Indices of the other GPUs whose memory it can have without the host between."""


class PrefetchFigure(Model):
    """What a way of fetching ahead buys, over all shapes that were timed."""

    strategy: str
    """"none", which leaves it to the hardware, or a cache and a distance: "L2 8192", bytes."""
    cold: Ratio
    """Weights in memory: its time over that of "none", by turns."""
    hot: Ratio
    """The same with everything in the caches."""


class TunedPrefetch(Model):
    """What `tritmark tune prefetch` found about an op's kernels on this machine, and what they do since."""

    device: str
    op: str
    identity: dict[str, str]
    """The device and the code that it holds for."""
    builtin: str
    """What the kernels do unless told."""
    chosen: str
    """What beat that twice; "" for none."""
    confirmed: Ratio | None
    """The best one's time over the built-in one's once more, cold; None where none was faster at first."""
    note: str
    """Why nothing was chosen, where something was faster cold."""
    shapes: tuple[str, ...]
    threads: int
    created: str
    figures: tuple[PrefetchFigure, ...]
    used: str = ""
    """What the kernels of this Record did, where it is of a Record."""


class Machine(Model):
    """Facts of the host and its GPUs; None where this machine does not tell."""

    id: str
    """Hash of what makes two machines comparable: CPU, cores, caches, memory."""
    hostname: str
    cpu: str
    vendor: str
    architecture: str
    features: tuple[str, ...]
    logical_cores: int
    physical_cores: int
    usable_cores: int
    caches: dict[str, int]
    """Bytes: L1d, L1i and L2 of one core, L3 as seen by one core."""
    memory: int
    page_size: int
    huge_pages: str | None
    governor: str | None
    numa_nodes: int
    hypervisor: str | None
    kernel: str
    ceilings: tuple[CeilingFacts, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    prefetch: tuple[TunedPrefetch, ...] = ()
    """What `tritmark tune prefetch` found here before."""
    nodes: tuple[NumaNode, ...] = ()
    """The NUMA nodes that are on; none where the kernel has no NUMA, and before there was this field."""
    node_bandwidths: tuple[NodeBandwidth, ...] = ()
    """As measured in this session, for each node's cores and each node's memory; none where it is one node."""
