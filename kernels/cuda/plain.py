"""The clock of a caller without graphs: launches that Python puts into the stream one by one, nothing holding the
device back meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from tritmark.harness.spec import Launch
from tritmark.kernels.cuda.clock import count, timeable, turn_of
from tritmark.kernels.cuda.context import current_gpu


class PlainClock:
    """Times launches between two events, as fast as Python hands them over: for a short kernel that is the time of
    handing over."""

    name = "CUDA events, one by one"

    def __init__(self) -> None:
        self._index = current_gpu()

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`; nanoseconds between the events
        around them.

        Raises DeviceError in the simulator, which has no speed, and DeviceFaultError where a kernel broke.
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
