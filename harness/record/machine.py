"""The machine of a Record."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.harness.machine.gpu import GpuFacts
from tritmark.harness.machine.nvml import Health
from tritmark.harness.record.model import Model, Ratio


class CeilingFacts(Model):
    """A ceiling that was measured in this session."""

    device: str
    name: str
    """The probe, such as read, write, copy, compute, dot or launch."""
    level: str
    """L1, L2, L3, memory, or registers."""
    threads: int
    nbytes: int
    """Footprint of the probe."""
    rate: float
    """In `unit`."""
    unit: str
    repeats: int = 0
    """Number of repetitions because the rate contradicted another ceiling."""


class NumaNode(Model):
    """A NUMA node of the host that is online."""

    number: int
    cores: tuple[int, ...]
    """Logical cores that are online; empty for a node with memory only."""
    memory: int
    """Bytes; 0 for a node with cores only."""
    distances: tuple[int, ...]
    """To each online node in the order of their numbers, as the firmware reports them; 10 is the node itself."""


class NodeBandwidth(Model):
    """Rate at which all physical cores of one node read the memory of a node."""

    cores: int
    """Node of the cores."""
    memory: int
    """Node of the memory."""
    threads: int
    nbytes: int
    """Footprint of the probe."""
    rate: float
    """Bytes per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(GpuFacts):
    """A GPU of the machine; 0 or None if the driver does not report the value."""

    __pydantic_config__ = Model.model_config

    peak_bandwidth: float | None = None
    """Bytes per second that the clock and the width of the memory bus allow."""
    health: Health | None = None
    """State at the start of the invocation."""
    faked: bool = False
    """An environment variable for tests declared it usable, instead of the machine."""
    reaches: tuple[int, ...] = ()
    """Indices of the other GPUs whose memory it can access directly, without a copy through the host."""


class PrefetchFigure(Model):
    """Effect of a software prefetch strategy over all shapes that were timed."""

    strategy: str
    """"none" for the hardware prefetcher alone, or a cache and a distance in bytes: "L2 8192"."""
    cold: Ratio
    """Its time over the time of "none", interleaved, with the weights in memory."""
    hot: Ratio
    """Its time over the time of "none", interleaved, with all data in the caches."""


class TunedPrefetch(Model):
    """Result of `tritmark tune prefetch` for an op's kernels on this machine."""

    device: str
    op: str
    identity: dict[str, str]
    """The device and the code for which the result is valid."""
    builtin: str
    """The strategy that the kernels use by default."""
    chosen: str
    """The strategy that was faster than `builtin` in two measurements; "" if there was none."""
    confirmed: Ratio | None
    """Cold time of the best strategy over the time of `builtin` in the second measurement; None if no strategy was
    faster in the first."""
    note: str
    """Why no strategy was chosen although one was faster cold."""
    shapes: tuple[str, ...]
    threads: int
    created: str
    """UTC, ISO 8601."""
    figures: tuple[PrefetchFigure, ...]
    used: str = ""
    """The strategy that the kernels of this Record used; "" outside a Record."""


class Machine(Model):
    """Facts of the host and its GPUs; None if this machine does not report the value."""

    id: str
    """Hash of CPU, cores, caches, memory and GPUs. Figures of machines with the same hash are comparable."""
    hostname: str
    cpu: str
    vendor: str
    architecture: str
    features: tuple[str, ...]
    logical_cores: int
    physical_cores: int
    usable_cores: int
    caches: dict[str, int]
    """Bytes: L1d, L1i and L2 of one core, and the L3 that one core can use."""
    memory: int
    """Bytes."""
    page_size: int
    """Bytes."""
    huge_pages: str | None
    governor: str | None
    numa_nodes: int
    hypervisor: str | None
    kernel: str
    """Release of Linux."""
    ceilings: tuple[CeilingFacts, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    prefetch: tuple[TunedPrefetch, ...] = ()
    """Earlier results of `tritmark tune prefetch` on this machine."""
    nodes: tuple[NumaNode, ...] = ()
    """The NUMA nodes that are online; empty if Linux has no NUMA support, and in old Records."""
    node_bandwidths: tuple[NodeBandwidth, ...] = ()
    """Measured in this session, for the cores of each node and the memory of each node; empty with one node."""
