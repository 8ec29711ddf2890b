"""A Run, and a layer of real weights."""

from __future__ import annotations

from tritmark.harness.record.code import Code
from tritmark.harness.record.load import MachineLoad
from tritmark.harness.record.model import Model, Ratio, Verdict
from tritmark.harness.record.verdicts import Accuracy, Cross, DeviceMemory, MemoryUse, Performance, Transfer
from tritmark.harness.spec import Receipt

DIMENSIONS = ("accuracy", "performance", "memory", "cross")
"""What a Run is judged in; the fields of that name hold the verdicts."""


class WorkloadFacts(Model):
    """The workload as the Run met it."""

    id: str
    axes: dict[str, int]
    family: str
    layout: str
    title: str = ""
    seed: int


class Scaled(Model):
    """A kernel on several threads, hot, by turns with the same on one."""

    threads: int
    speedup: Ratio
    """The time on one thread over the time on `threads`."""
    efficiency: float | None = None
    """The speed-up over `threads`: 1 where p threads take a p-th of the time of one. None in Records of before."""
    balance: float | None = None
    """Of the threads that took part, the mean of the times that they were busy over the largest: 1 where all had the
    same to do. Processor time, hot, of calls in which several took part; None where none did, and for kernels with
    threads of their own, of which nobody can tell."""
    utilization: float | None = None
    """The time that all threads together were busy over `threads` times the time from the calls' begin to their end.
    Waiting for each other is not busy, waiting for memory is. None as for `balance`, but told where one took part."""


class NodeUse(Model):
    """On a host of several NUMA nodes: where a Run's arrays lay while it was timed, and what was moved meanwhile."""

    nbytes: dict[int, int]
    """By node: bytes of the mappings that hold the arrays of its hot figure; empty where the kernel does not tell."""
    pages_moved: int | None = None
    """Pages that the whole system moved from node to node; None where it does not count them."""
    threads_moved: int | None = None
    """How often a thread of the process was put on another core; None where the kernel does not tell."""


class Run(Model):
    """Variant x Workload: a verdict in each dimension."""

    id: str
    op: str
    format: str
    dtype: str
    device: str
    variant: str
    kernel: str
    workload: WorkloadFacts
    threads: int
    accuracy: Accuracy
    performance: Performance
    memory: MemoryUse
    cross: Cross
    receipt: Receipt | None
    seconds: float
    """How long the Run took, in seconds."""
    device_memory: DeviceMemory | None = None
    """None on the host."""
    upload: Transfer | None = None
    """The inputs' way to the device; None on the host, and where it was not timed."""
    download: Transfer | None = None
    """The outputs' way back."""
    scaling: tuple[Scaled, ...] = ()
    """On the host, for a kernel that is given more than one thread; in rising order of threads."""
    plain: Ratio | None = None
    """On a device: the time of launches handed over one by one over that in a graph, by turns. None too for calls
    that need no graph."""
    code: Code | None = None
    """None where nobody looked."""
    peer: bool = False
    """Whether the kernel is somebody else's: its verdicts are told, and the Record passes without it."""
    node_use: NodeUse | None = None
    """None where the host has one node, on a device with a memory of its own, and where nothing was timed."""
    load: MachineLoad | None = None
    """None where nothing was timed, and before version 9."""

    def verdict(self, dimension: str) -> Verdict:
        """The verdict of one of DIMENSIONS."""
        found: Verdict = getattr(self, dimension)
        return found

    @property
    def place(self) -> tuple[str, str, int]:
        """What Runs of two Records have to share to be compared: kernel, workload, threads."""
        return self.kernel, self.workload.id, self.threads

    @property
    def passed(self) -> bool:
        """No dimension failed or broke."""
        return not any(self.verdict(dimension).failed for dimension in DIMENSIONS)


class LayerScheme(Model):
    """One way of quantizing a weight matrix: absmean for the tensor, or absmax for each block."""

    scheme: str
    format: str
    zeros: float
    """Share of codes that are 0."""
    snr_db: float | None
    """Signal over quantization noise in decibel; None where there is no noise."""
    cosine: float | None
    """Cosine between the float weights and the dequantized ones; None where one of them is all zero."""
    output_cosine: float | None
    """Cosine between the layer's output with float32 weights and with quantized ones."""
    output_snr_db: float | None
    packed_bytes: int
    largest_error: float
    """Largest difference of the product from the same in float64, over the bound that was computed beforehand."""
    quantize_ns: float | None
    """None where nothing was quantized."""
    near_ties: float | None = None
    """Share of codes that another rounding of the stored float by one unit in its last place could change; None where
    nothing was quantized, and before it was counted."""


class Layer(Verdict):
    """One weight matrix, multiplied, checked against float64 and measured. One of floats was quantized and packed for
    that; one of codes is taken as it is."""

    name: str
    shape: tuple[int, int]
    dtype: str
    bytes: int
    """Size in the file."""
    schemes: tuple[LayerScheme, ...] = ()
    kernel: str = ""
    """What multiplied with it; of one of codes all kernels that did, with commas between them, or the wrong one."""
    matmul_ns: float | None = None
    """Median time of one token through activation quantization and the ternary kernel, on one thread."""
    float32_ns: float | None = None
    """Median time of NumPy's float32 product of the same shapes, on one thread."""
    speedup: Ratio | None = None
    """float32 NumPy over the ternary kernel (activation quantization included)."""
    format: str = ""
    """What its codes lie in, in the file; "" for floats, and before version 7."""
    runs: tuple[str, ...] = ()
    """Ids of the Runs that say how long it takes: of this matrix or another of its shape and format."""


class LinearLayers(Model):
    """All linear layers of a model for one pass, one after the other, with nothing between them: what the products
    alone leave of the time. The sum of the cold medians of their Runs, in which the weights come from memory, as
    they do in a model that is larger than the caches."""

    device: str
    tokens: int
    """1, or those of a prompt."""
    layers: int
    """How many were added."""
    hot: int = 0
    """How many of them are so small that nothing of theirs gets cold: their hot medians were added."""
    unmeasured: int = 0
    """Linear layers that have no figure; where there are any, there is no sum."""
    uncertain: int = 0
    """How many of those added have figures that are AMBIGUOUS: a guard on the clock was not sure of them, as where
    others kept the machine busy."""
    total_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    """The sum of the low ends of their intervals, and of the high ends."""
    tokens_per_second: float | None = None
    """The most that these products allow; everything else in a model takes time too."""
    clock: str = ""
    """Which clock took the times."""
    threads: int = 0
