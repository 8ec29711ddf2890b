"""Tasks of the criteria, for a candidate's process: run calls, and time kernels and whole calls of any device
interleaved. The expected values stay in the parent process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import UsageError
from tritmark.harness.league.turns import CalledFunction
from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.buffers import HOST, Rotation, fill, memory_of, rotation
from tritmark.harness.measure.clocks import PythonClock, clock_for
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.record import Ratio
from tritmark.harness.spec import Arrays, Axes, Memory, PublicCall, Variant
from tritmark.harness.validate.cases import is_array
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.validate.collect import POISON
from tritmark.harness.validate.sets import Sets

if TYPE_CHECKING:
    from tritmark.harness.worker.site import Site

MARGIN = 256
"""Bytes on either side of an output that a call must not change."""

_SIDES = "sides of the criteria"
_PATIENCE = 8
_HOT = Rotation(nbytes=0, wanted=0)
"""One set of arrays, which every call uses again."""


@dataclass(frozen=True, slots=True)
class CallInputs:
    """One call."""

    inputs: Arrays
    """Encoded for the variant's format."""
    axes: Axes
    threads: int
    offset: int
    """Bytes past MARGIN at which each array begins, a multiple of its alignment."""


@dataclass(frozen=True, slots=True)
class CallReply:
    """What one call left."""

    outputs: dict[str, npt.NDArray[Any]]
    bad: int
    """Launch.bad: the index of an element that the kernel rejects; -1 if none."""
    outside: tuple[str, ...]
    """Outputs around which bytes changed."""
    threads_used: int
    unit: str
    """UUID of the device that ran it; "" if the device reports none."""


@dataclass(frozen=True, slots=True)
class RaceResult:
    """Two sides, interleaved."""

    a_ns: float
    b_ns: float
    ratio: Ratio
    """The time of b over the time of a."""


@dataclass(slots=True)
class _Side:
    timed: Timed
    sets: Sets | None
    """None for a whole call."""


def run_calls(site: Site, calls: Sequence[CallInputs]) -> list[CallReply]:
    """Make each call once, on new arrays with poisoned outputs."""
    return [_run(site, each) for each in calls]


def _run(site: Site, call: CallInputs) -> CallReply:
    memory = memory_of(site.device)
    inputs = {
        name: _placed(memory, each, call.offset) if is_array(each) else each for name, each in call.inputs.items()
    }
    like = {
        name: (shape, named_dtype(dtype))
        for name, (shape, dtype) in site.op.outputs_like(call.axes, site.variant.key).items()
    }
    buffers: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for name, (shape, dtype) in like.items():
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        buffers[name], outputs[name] = _room(memory, nbytes, shape, dtype, call.offset)
        fill(memory, buffers[name], nbytes + 2 * MARGIN + call.offset, POISON)
    launch = site.variant.bind(inputs, outputs, call.axes, call.threads)
    launch.run()
    found, outside = {}, []
    for name, (shape, dtype) in like.items():
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        whole = np.empty(nbytes + 2 * MARGIN + call.offset, np.uint8)
        memory.read(memory.view(buffers[name], 0, whole.shape, np.uint8), whole)
        begin = MARGIN + call.offset
        found[name] = np.ndarray(shape, dtype, whole[begin : begin + nbytes].tobytes())
        if (whole[:begin] != POISON).any() or (whole[begin + nbytes :] != POISON).any():
            outside.append(name)
    proof = site.device.proof(launch)
    return CallReply(
        found, int(launch.bad), tuple(outside), int(launch.threads_used), proof.uuid if proof is not None else ""
    )


def _room(memory: Memory, nbytes: int, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> tuple[Any, Any]:
    """A buffer with margins, and the array within it."""
    size = nbytes + 2 * MARGIN + offset
    if memory is HOST:  # its own memory is mapped in huge pages, which costs more than a small call
        raw = np.empty(size + MARGIN, np.uint8)
        begin = -raw.ctypes.data % MARGIN
        buffer: Any = raw[begin : begin + size]
    else:
        buffer = memory.allocate(size)
    return buffer, memory.view(buffer, MARGIN + offset, shape, dtype)


def _placed(memory: Memory, values: npt.NDArray[Any], offset: int) -> Any:
    _, array = _room(memory, values.nbytes, values.shape, values.dtype, offset)
    memory.write(array, np.ascontiguousarray(values))
    return array


def add_kernel(
    site: Site, name: str, variant: str, inputs: Arrays, axes: Axes, threads: int, cold: bool = False
) -> bool:
    """Keep a kernel of any device as a side for `race`, with its own arrays; `inputs` are encoded for it. Returns
    whether each call takes its arrays from memory: with `cold`, if there are enough of them."""
    found: Variant = next(each for each in site.installed.registry.variants if each.id == variant)
    found.load()
    device = site.installed.registry.devices[found.key.device]
    memory = memory_of(device)
    turn = rotation(memory) if cold else _HOT
    sets = Sets(site.op, found.key, axes, (inputs,), memory, "aligned", turn)
    launches = [found.bind(each.inputs, each.outputs, axes, threads) for each in sets.each]
    timed = Timed(launches, clock_for(device, launches), warm=not cold)
    _sides(site)[name] = _Side(timed, sets)
    calibrate(timed)
    return cold and sets.cold and turn.nbytes >= turn.wanted


def add_call(site: Site, name: str, call: str, device: str, inputs: Arrays, axes: Axes, threads: int) -> float:
    """Keep a whole call from Python as a side for `race`; `inputs` are logical. Returns the nanoseconds of the first
    call. Raises UsageError if it cannot be called here."""
    called = public_call(site.installed, call, site.op.name, device)
    why = called.missing()
    if why is not None:
        raise UsageError(why)
    function = CalledFunction(called.prepare(inputs, axes, threads))
    begun = perf_counter_ns()
    function.run()
    first = perf_counter_ns() - begun
    timed = Timed([function], PythonClock(), warm=True)
    _sides(site)[name] = _Side(timed, None)
    calibrate(timed)
    return float(first)


def public_call(installed: Any, name: str, op: str, device: str) -> PublicCall:
    """The public call of that name for an op on a device. Raises UsageError if no provider brings it."""
    for provider in installed.providers.values():
        for each in provider.calls():
            if (each.name, each.op, each.device) == (name, op, device):
                found: PublicCall = each
                return found
    raise UsageError(f"no installed package brings the call {name!r} of {op} on {device}")


def race(site: Site, a: str, b: str, seed: int, seconds: float, work: int = 1) -> RaceResult:
    """Time two sides interleaved, over poisoned outputs: until the interval is narrow, or for about `seconds`.

    `work`: how many calls of `a` do the work of one call of `b`. Then a sample of `a` has as many more calls, so that
    samples of both take about as long. Other programs interrupt long samples more often than short ones, and the ratio
    of a long to a short sample would show that load.
    """
    one, other = _sides(site)[a], _sides(site)[b]
    if work > 1:
        one.timed.calls = work * other.timed.calls
        one.timed.fit()
    for side in (one, other):
        if side.sets is not None:
            side.sets.poison_all()
    enough = First(
        MinimumSamples(ENOUGH_SAMPLES, Interval(2 * LAYOUT_NOISE)),
        MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds)),
        TimeLimit(_PATIENCE * seconds),
    )
    found = alternate(one.timed, other.timed, np.random.default_rng(seed), enough)
    return RaceResult(median(found.a_ns), median(found.b_ns), found.ratio())


def single_calls(site: Site, name: str, seconds: float) -> list[float]:
    """Nanoseconds of each of some calls of a side, for about `seconds`, at least LEAST_SAMPLES."""
    timed = _sides(site)[name].timed
    taken: list[float] = []
    end = perf_counter() + seconds
    while len(taken) < LEAST_SAMPLES or perf_counter() < end:
        taken.append(float(timed.take(1)))
    return taken


def written(site: Site, name: str) -> dict[str, npt.NDArray[Any]]:
    """The outputs that the last timed call of a side wrote. A whole call's are its result, if the op has one output."""
    side = _sides(site)[name]
    if side.sets is not None:
        raw = side.sets.written(side.timed.last)
        return {output: raw[output].view(dtype).reshape(shape) for output, (shape, dtype) in side.sets.like.items()}
    (function,) = side.timed.launches
    assert isinstance(function, CalledFunction)
    (output,) = site.op.outputs
    return {output.name: np.array(function.result)}


def drop(site: Site, *names: str) -> None:
    """Free sides."""
    for name in names:
        _sides(site).pop(name, None)


def busy_share(site: Site, name: str) -> float | None:
    """Processor time of a side's calls over their duration times the cores of the device; None if the device does not
    report it."""
    side = _sides(site)[name]
    ask = site.device.thread_times
    if ask is None:
        return None
    times = ask(lambda: side.timed.take(max(1, side.timed.calls)))
    return None if times is None or not times.wall_ns else times.busy_ns / (times.wall_ns * site.device.cores())


def _sides(site: Site) -> dict[str, _Side]:
    found: dict[str, _Side] = site.kept.setdefault(_SIDES, {})
    return found
