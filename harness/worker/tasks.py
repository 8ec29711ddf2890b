"""The tasks of judging: memory, binding and running. The first argument is the Site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, DeviceStats, KernelAccesses, Proof
from tritmark.harness.worker.inside import bound, ran
from tritmark.harness.worker.shared import SharedBlock, view
from tritmark.harness.worker.site import Site


@dataclass(frozen=True, slots=True)
class Handle:
    """The parent's reference to an array in one of the worker's buffers. `strides` are in bytes; None: C-contiguous."""

    buffer: Any
    """The parent's object for the buffer, which keeps it alive; pickled as its number."""
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (
            int(self.buffer),
            self.offset + getattr(self.buffer, "start", 0),
            self.shape,
            self.dtype,
            self.strides,
        )


class RunReply(NamedTuple):
    """The report of a launch after a run. A NamedTuple, since thousands are sent and dataclasses pickle slowly."""

    ran: str
    runs: int
    threads_used: int
    bad: int


def device_stats(site: Site) -> DeviceStats | None:
    """Counts of the device since the last such request, or since the start of this process; None if it counts
    nothing."""
    ask = site.device.stats
    if ask is None:
        return None
    now, before = ask(), site.kept.get("device stats")
    site.kept["device stats"] = now
    return now if before is None else now.since(before)


def traced_accesses(site: Site) -> str:
    """The access patterns of the variant, as JSON of KernelAccesses, which the parent can check; see
    AccessTracing.trace."""
    from pydantic import TypeAdapter

    tracing = site.device.tracing
    assert tracing is not None
    return TypeAdapter(KernelAccesses).dump_json(tracing.trace(site.op, site.variant)).decode()


def attach(site: Site, number: int, block: SharedBlock) -> None:
    """Take a block of shared memory as the buffer of that number."""
    site.buffers[number] = block.bytes


def allocate(site: Site, number: int, nbytes: int) -> None:
    """Make a buffer in the device's own memory."""
    site.buffers[number] = _memory(site).allocate(nbytes)


def write(site: Site, handle: Handle, values: npt.NDArray[Any]) -> None:
    """Copy into the device's own memory."""
    _memory(site).write(resolve(site, handle), values)


def read(site: Site, handle: Handle, into: npt.NDArray[Any]) -> None:
    """Copy from the device's own memory; `into` is in shared memory."""
    _memory(site).read(resolve(site, handle), into)


def describe(site: Site) -> tuple[int | None, int]:
    """Bytes of the last cache before the device's own memory, and free bytes of that memory."""
    memory = _memory(site)
    return memory.cache, memory.available()


def bind(site: Site, number: int, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int) -> None:
    """Bind the variant to arrays in the worker's buffers."""
    site.launches[number] = site.variant.bind(_resolved(site, inputs), _resolved(site, outputs), axes, threads)
    bound(site)


def bind_first(
    site: Site, number: int, binding: tuple[Any, ...], task: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Bind, and execute a task with the launch, in one message."""
    bind(site, number, *binding)
    return task(site, number, *args)


def run(site: Site, number: int) -> RunReply:
    """Run a launch once."""
    launch = site.launches[number]
    launch.run()
    ran(site)
    return last_reply(site, number)


def run_many(
    site: Site, number: int, runs: int, copied: tuple[tuple[Handle, Handle, Handle], ...]
) -> tuple[RunReply, ...]:
    """Run a launch `runs` times. After each run, for every (output, kept, poison): append the output's bytes to `kept`,
    and fill the output with `poison`. `kept` and `poison` are in shared memory."""
    launch, found = site.launches[number], []
    places = [
        (resolve(site, output), resolve(site, kept).reshape(runs, -1), resolve(site, poison))
        for output, kept, poison in copied
    ]
    for index in range(runs):
        launch.run()
        ran(site)
        found.append(last_reply(site, number))
        for output, kept, poison in places:
            if isinstance(output, np.ndarray):
                flat = output.reshape(-1).view(np.uint8)
                kept[index] = flat
                flat[...] = poison
            else:
                _memory(site).read(output, kept[index])
                _memory(site).write(output, poison)
    return tuple(found)


_ROW = "a row of launches"


def bind_row(site: Site, given: tuple[tuple[Arrays, Arrays], ...], axes: Axes, threads: int) -> None:
    """Bind the variant to each of those inputs and outputs, for run_row."""
    from tritmark.harness.measure.clocks import clock_for

    row = [site.variant.bind(_resolved(site, each), _resolved(site, out), axes, threads) for each, out in given]
    site.kept[_ROW] = row, clock_for(site.device, row)


def run_row(site: Site, calls: int) -> int:
    """Call the first `calls` launches of bind_row, in order. Returns their nanoseconds by the device's clock in this
    process."""
    row, clock = site.kept[_ROW]
    return int(clock.sample(row, 0, calls)) if calls else 0


def drop_row(site: Site) -> None:
    """Delete the launches of bind_row."""
    site.kept.pop(_ROW, None)


def start_threads(site: Site, threads: int) -> None:
    """Start the threads of probes that run beside the kernel; see measure.ceilings."""
    from tritmark.harness.measure.ceilings import start_threads

    start_threads(site.device, threads)


def last_reply(site: Site, number: int) -> RunReply:
    """The report of a launch's last run."""
    launch = site.launches[number]
    return RunReply(str(launch.ran), int(launch.runs), int(launch.threads_used), int(launch.bad))


def proof(site: Site, number: int) -> Proof | None:
    """The facts that the device's launcher collected about a launch."""
    return site.device.proof(site.launches[number])


def resolve(site: Site, handle: Handle) -> Any:
    """The array that a handle names."""
    buffer = site.buffers[handle.buffer]
    if isinstance(buffer, np.ndarray):
        return view(buffer, handle.offset, handle.shape, handle.dtype, handle.strides)
    return _memory(site).view(buffer, handle.offset, handle.shape, handle.dtype, handle.strides)


def _resolved(site: Site, arrays: Arrays) -> Mapping[str, Any]:
    return {name: resolve(site, value) if isinstance(value, Handle) else value for name, value in arrays.items()}


def _memory(site: Site) -> Any:
    assert site.device.memory is not None
    return site.device.memory()
