"""The clock of a caller without graphs: Python puts launches into the stream one by one, and nothing delays the
device meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from tritmark.harness.spec import Launch
from tritmark.kernels.cuda.context import current_gpu
from tritmark.kernels.cuda.measure.clock import count, timeable, turn_of


class PlainClock:
    """Times launches between two events, as fast as Python queues them; for a short kernel this is the time of
    queueing."""

    name = "CUDA events, one by one"

    def __init__(self) -> None:
        self._index = current_gpu()

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`. Returns nanoseconds between the
        events around them.

        Raises DeviceError in the simulator, which has no speed, and DeviceFaultError if a kernel failed.
        """
        here, turn = timeable(self._index), turn_of(launches, first, calls)
        stream = here.backend.stream
        begin, end = here.backend.new_event(), here.backend.new_event()
        begin.record(stream)
        for call in range(calls):
            turn[call % len(turn)].put(stream)
        end.record(stream)
        stream.synchronize()
        taken = end.since(begin)
        count(turn, calls, taken)
        return round(taken)
