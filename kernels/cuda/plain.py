"""The clock of a caller without graphs: launches that Python puts into the stream one by one, nothing holding the device back meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tritmark.harness.errors import DeviceError
from tritmark.harness.spec import Launch
from tritmark.kernels.cuda.launch import CudaLaunch
from tritmark.kernels.cuda.room import room


class PlainClock:
    """Times launches between two events, as fast as Python hands them over: for a short kernel that is the time of handing over."""

    name = "CUDA events, one by one"

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        """Run `calls` launches in a row, cycling through `launches` from index `first`; nanoseconds between the events around them.

        Raises DeviceError in the simulator, which has no speed, and DeviceFaultError where a kernel broke.
        """
        here = room()
        if here.backend.simulated:
            raise DeviceError("a simulated device has no speed", next_step="unset TRITMARK_CUDA on a machine with a GPU")
        turn = cast("list[CudaLaunch]", [launches[(first + call) % len(launches)] for call in range(min(calls, len(launches)))])
        stream = here.backend.stream
        begin, end = here.backend.new_event(), here.backend.new_event()
        begin.record(stream)
        for call in range(calls):
            turn[call % len(turn)].put(stream)
        end.record(stream)
        stream.synchronize()
        taken = end.since(begin)
        rounds, rest = divmod(calls, len(turn))
        for index, launch in enumerate(turn):
            runs = rounds + (index < rest)
            launch.count(runs)
            launch.timed(runs, taken * runs / calls)
        return round(taken)
