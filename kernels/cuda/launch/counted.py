"""A launch on the GPU by any code: the parts that the device's clock needs, and counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tritmark.harness.spec import Proof
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.dispatch.offload import runs_apart

if TYPE_CHECKING:
    from tritmark.kernels.cuda.context import CudaContext


class CountedLaunch(ABC):
    """Counts its launches, and times its first run with events. One run launches `kernels` functions and puts that many
    nodes into a graph, plus `others` that are no kernels."""

    def __init__(self, name: str, context: CudaContext, kernels: int, others: int = 0) -> None:
        self._name = name
        self._context = context
        self.kernels = kernels
        self.others = others
        self.ran = ""
        self.runs = 0
        self.threads_used = 1
        """Threads of the host."""
        self.foreign = False
        """Whether it uses memory of another library, which may reuse memory in the order of the default stream. Then it
        runs in a stream that waits for that one, also inside offload.apart."""
        self._launches = 0
        self._device_ns = 0.0
        self._timed = 0

    @abstractmethod
    def put(self, stream: Stream) -> None:
        """Put it into a stream, which may be capturing, without waiting or counting."""

    @property
    @abstractmethod
    def bad(self) -> int:
        """See Launch."""

    @property
    @abstractmethod
    def pointer(self) -> int | None:
        """See Launch."""

    @property
    @abstractmethod
    def proof(self) -> Proof:
        """Evidence of the runs so far."""

    def run(self) -> None:
        """Run once and wait. Raises LaunchError or DeviceFaultError."""
        if runs_apart() and not self.foreign:
            with self._context.transfers.stream() as stream:
                self._run(stream)
        else:
            self._run(self._context.backend.stream)

    def _run(self, stream: Stream) -> None:
        if self._timed:
            self.enqueue(stream)
            stream.synchronize()
            return
        begin, end = self._context.backend.new_event(), self._context.backend.new_event()
        begin.record(stream)
        self.enqueue(stream)
        end.record(stream)
        stream.synchronize()
        self.timed(1, end.since(begin))

    def enqueue(self, stream: Stream) -> None:
        """Put it into a stream without waiting, and count it."""
        self.put(stream)
        self.count(1)

    def count(self, runs: int) -> None:
        """Count runs on the device, by `enqueue` or by replay of a captured `put`."""
        self.runs += runs
        self._launches += runs * self.kernels
        self._context.stats.launches += runs * self.kernels
        self.ran = self._name

    def timed(self, runs: int, device_ns: float) -> None:
        """Record the time of runs that the device measured with events."""
        self._timed += runs
        self._device_ns += device_ns
        self._context.stats.kernel_ns += device_ns
