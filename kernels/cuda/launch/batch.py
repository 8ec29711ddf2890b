"""Run many launches together: sorted by size, spread over several streams, joined once (specification, 3.6)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tritmark.harness.errors import DeviceFaultError, LaunchError
from tritmark.kernels.cuda.backend import Event, Stream
from tritmark.kernels.cuda.context import CudaContext, cuda_context
from tritmark.kernels.cuda.launch.launch import CudaLaunch

BLOCKING = "CUDA_LAUNCH_BLOCKING"
"""Environment variable of CUDA: with 1, a launch returns after the kernel ended, with the kernel's errors."""
STREAMS = 4
"""Maximum number of streams of a batch."""


@dataclass(frozen=True, slots=True)
class Item:
    """One launch of a batch."""

    launch: CudaLaunch
    work: int
    """Amount of work, in any unit that the batch shares, such as bytes or operations."""
    label: str
    """Name in errors."""


class Batch:
    """Independent launches: none reads the output of another."""

    def __init__(self, streams: int = STREAMS) -> None:
        self._most = streams
        self._streams: list[Stream] = []
        self._order: list[Item] = []
        self.items: list[Item] = []
        """Launches in the order in which they were added."""

    def add(self, launch: CudaLaunch, work: int, label: str = "") -> None:
        """Add a launch whose arrays are bound."""
        self.items.append(Item(launch, work, label or f"item {len(self.items)}"))
        self._order = []

    def order(self) -> list[Item]:
        """Order of the launches in the streams: largest first, so that no large one is left at the end, with equal
        kernels together."""
        return sorted(
            self.items, key=lambda item: (-item.work, [(step.kernel.name, step.grid) for step in item.launch.steps])
        )

    def run(self) -> None:
        """Run all launches and wait once. The first run also records the device time of each. An empty batch returns
        immediately.

        Raises LaunchError or DeviceFaultError with the item. If a GPU fails while several items run, the failing one is
        unknown, and the error names all of them.
        """
        if not self.items:
            return
        here = cuda_context()
        timed = not self._order
        order = self._order = self._order or self.order()
        while len(self._streams) < min(self._most, len(order)):
            self._streams.append(here.backend.new_stream())
        streams = self._streams
        times: list[tuple[CudaLaunch, Event, Event]] = []
        ends: list[Event] = []
        begin = here.backend.new_event()
        begin.record(here.backend.stream)
        try:
            for stream in streams:
                stream.wait(begin)
            for number, (item, stream) in enumerate(zip(order, _spread(order, streams), strict=True)):
                try:
                    if timed:
                        times.append(_timed(here, item.launch, stream))
                    else:
                        item.launch.enqueue(stream)
                except LaunchError as problem:
                    raise LaunchError(f"{item.label}: {problem.found}", next_step=problem.next_step) from problem
                except DeviceFaultError as problem:
                    raise _fault(here, order[: number + 1], problem) from problem
            for stream in streams:
                ends.append(here.backend.new_event())
                ends[-1].record(stream)
                here.backend.stream.wait(ends[-1])
        except BaseException:
            for stream in streams:  # their arrays are still in use
                with suppress(DeviceFaultError):  # only the first error is reported
                    stream.synchronize()
            raise
        try:
            here.backend.stream.synchronize()
        except DeviceFaultError as problem:
            raise _fault(here, order, problem) from problem
        for launch, before, after in times:
            launch.timed(1, after.since(before))


def _timed(here: CudaContext, launch: CudaLaunch, stream: Stream) -> tuple[CudaLaunch, Event, Event]:
    before, after = here.backend.new_event(), here.backend.new_event()
    before.record(stream)
    launch.enqueue(stream)
    after.record(stream)
    return launch, before, after


def _fault(here: CudaContext, given: Sequence[Item], problem: DeviceFaultError) -> DeviceFaultError:
    """Build the error: about the last item if each is waited for, otherwise about all items so far."""
    if here.backend.simulated or os.environ.get(BLOCKING) == "1":
        return DeviceFaultError(f"{given[-1].label}: {problem.found}", next_step=problem.next_step)
    names = ", ".join(item.label for item in given)
    return DeviceFaultError(
        f"one of {names}: {problem.found}", next_step=f"set {BLOCKING}=1 to learn which; {problem.next_step}"
    )


def _spread(order: Sequence[Item], streams: Sequence[Stream]) -> list[Stream]:
    """For each item, the stream with the least work so far."""
    load = [0] * len(streams)
    chosen = []
    for item in order:
        least = load.index(min(load))
        load[least] += item.work
        chosen.append(streams[least])
    return chosen
