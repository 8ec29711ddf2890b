"""A Run, and a layer of real weights."""

from __future__ import annotations

from tritmark.harness.record.code import Code
from tritmark.harness.record.load import MachineLoad
from tritmark.harness.record.model import Model, Ratio, Verdict
from tritmark.harness.record.verdicts import Accuracy, Cross, DeviceMemory, MemoryUse, Performance, Transfer
from tritmark.harness.spec import DeviceStats, Receipt

DIMENSIONS = ("accuracy", "performance", "memory", "cross")
"""The dimensions of a Run. The field of that name holds the verdict."""


class WorkloadFacts(Model):
    """The workload of a Run."""

    id: str
    axes: dict[str, int]
    family: str
    layout: str
    title: str = ""
    seed: int


class Scaled(Model):
    """A kernel on several threads, hot, interleaved with the same kernel on one thread."""

    threads: int
    speedup: Ratio
    """The time on one thread over the time on `threads`."""
    efficiency: float | None = None
    """`speedup` / `threads`; 1 is perfect scaling. None in old Records."""
    balance: float | None = None
    """Mean busy time / largest busy time of the participating threads; 1 is equal work. Processor time of hot calls in
    which several threads took part. None if there were none, or if the kernel starts its own threads."""
    utilization: float | None = None
    """Busy time of all threads / (`threads` x wall time of the calls). Waiting for memory counts as busy, waiting for
    other threads does not. None if the kernel starts its own threads."""


class NodeUse(Model):
    """On a host with several NUMA nodes: where the arrays of a Run were, and what moved while it was timed."""

    nbytes: dict[int, int]
    """By node: bytes of the mappings that hold the arrays of the hot figure; empty if Linux does not report them."""
    pages_moved: int | None = None
    """Pages that the whole system moved between nodes; None if Linux does not count them."""
    threads_moved: int | None = None
    """How often a thread of the process moved to another core; None if Linux does not report it."""


class Run(Model):
    """One variant on one workload, with a verdict in each dimension."""

    id: str
    op: str
    format: str
    dtype: str
    """Of the output."""
    device: str
    variant: str
    kernel: str
    """device/op/format/dtype/variant."""
    workload: WorkloadFacts
    threads: int
    accuracy: Accuracy
    performance: Performance
    memory: MemoryUse
    cross: Cross
    receipt: Receipt | None
    seconds: float
    """Duration of the Run in seconds."""
    device_memory: DeviceMemory | None = None
    """None on the host."""
    upload: Transfer | None = None
    """Copy of the inputs to the device; None on the host, and if it was not timed."""
    download: Transfer | None = None
    """Copy of the outputs to the host; None on the host, and if it was not timed."""
    scaling: tuple[Scaled, ...] = ()
    """On the host, for a kernel with more than one thread, in ascending order of threads."""
    plain: Ratio | None = None
    """On a device: the time of individual launches over the time of the same launches in a graph, interleaved. None
    for calls that need no graph."""
    code: Code | None = None
    """None if the code was not inspected."""
    peer: bool = False
    """The kernel is a peer's. Its verdicts are reported and do not decide the verdict of the Record."""
    peer_version: str = ""
    """Of a peer: its version, and the instruction sets of its build. "" if it is not a peer or not installed, and in
    old Records."""
    node_use: NodeUse | None = None
    """None on a host with one node, on a device with its own memory, and if nothing was timed."""
    load: MachineLoad | None = None
    """None if nothing was timed, and before version 9."""
    device_stats: DeviceStats | None = None
    """Work on the device and its memory pool while the Run was timed, in the process of the kernel; on a simulator,
    while it was judged. None on the host, if neither happened, and before version 10."""

    def verdict(self, dimension: str) -> Verdict:
        """The verdict of one of DIMENSIONS."""
        found: Verdict = getattr(self, dimension)
        return found

    @property
    def place(self) -> tuple[str, str, int]:
        """Kernel, workload and threads. Runs of two Records are compared if all three are equal."""
        return self.kernel, self.workload.id, self.threads

    @property
    def passed(self) -> bool:
        """No dimension is FAIL or ERROR."""
        return not any(self.verdict(dimension).failed for dimension in DIMENSIONS)


class LayerScheme(Model):
    """One quantization scheme of a weight matrix: absmean over the tensor, or absmax over each block."""

    scheme: str
    format: str
    zeros: float
    """Share of codes that are 0."""
    snr_db: float | None
    """Signal over quantization noise in decibel; None if there is no noise."""
    cosine: float | None
    """Cosine between the float weights and the dequantized ones; None if one of them is all zero."""
    output_cosine: float | None
    """Cosine between the layer's output with float32 weights and with quantized ones."""
    output_snr_db: float | None
    """Signal of the layer's output over its quantization noise, in decibel."""
    packed_bytes: int
    largest_error: float
    """Largest difference from the float64 product / the bound that was computed in advance."""
    quantize_ns: float | None
    """None if nothing was quantized."""
    near_ties: float | None = None
    """Share of codes that change if the stored float changes by one unit in the last place. None if nothing was
    quantized, and in old Records."""


class Layer(Verdict):
    """One weight matrix: multiplied, compared with float64, and timed. A matrix of floats is quantized and packed
    first. A matrix of codes is used as it is stored."""

    name: str
    shape: tuple[int, int]
    dtype: str
    bytes: int
    """Size in the file."""
    schemes: tuple[LayerScheme, ...] = ()
    kernel: str = ""
    """The kernel that multiplied. For a matrix of codes: all kernels, separated by commas, or the incorrect one."""
    matmul_ns: float | None = None
    """Median time of one token through activation quantization and the ternary kernel, on one thread."""
    float32_ns: float | None = None
    """Median time of NumPy's float32 product of the same shapes, on one thread."""
    speedup: Ratio | None = None
    """float32 NumPy over the ternary kernel (activation quantization included)."""
    format: str = ""
    """The format of its codes in the file; "" for floats, and before version 7."""
    runs: tuple[str, ...] = ()
    """Ids of the Runs that time this matrix, or another one of the same shape and format."""
    reads: float = 1
    """How many products with matrices of this shape a token needs: of experts, those that it uses; a share of 1 for an
    expert that is a tensor of its own."""


class LinearLayers(Model):
    """All linear layers of a model for one pass: the sum of the cold medians of their Runs. The sum is the time of the
    products alone. The weights come from memory, as in a model larger than the caches."""

    device: str
    tokens: int
    """1, or the number of tokens of a prompt."""
    layers: int
    """Number of layers in the sum."""
    hot: int = 0
    """Number of them too small to be cold. Their hot medians are in the sum."""
    unmeasured: int = 0
    """Linear layers without a figure. If there are any, there is no sum."""
    uncertain: int = 0
    """Number of layers in the sum whose figures are AMBIGUOUS, for example because other processes kept the machine
    busy."""
    total_ns: float | None = None
    low_ns: float | None = None
    """Sum of the lower ends of the 95 % intervals."""
    high_ns: float | None = None
    """Sum of the upper ends."""
    tokens_per_second: float | None = None
    """Upper limit that these products set. The rest of the model takes time too."""
    clock: str = ""
    """The clock that was used."""
    threads: int = 0
