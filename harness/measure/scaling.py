"""Two ratios for advice, both hot and interleaved: a kernel on several threads against one, and single launches against
a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter

import numpy as np

from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.clocks import clock_for, own_clock
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.record import Ratio, Scaled
from tritmark.harness.spec import Clock, Device, Launch, ThreadTimes

BUDGET_S = 0.05
"""The most seconds to sample a pair of sides after LEAST_SAMPLES. A single call that takes longer is not sampled."""

FINE = 0.01
"""Sampling ends at this width of the 95 % interval: no advice needs a finer one."""


def counts(threads: int, physical: int) -> tuple[int, ...]:
    """Thread counts to try, 2 or more: powers of two, the physical cores, and all `threads`."""
    doubled = (1 << power for power in range(1, threads.bit_length()))
    return tuple(sorted({*doubled, min(physical, threads), threads} - {1}))


def scaled(
    bind: Callable[[int], Launch], device: Device, threads: Iterable[int], rng: np.random.Generator
) -> tuple[Scaled, ...]:
    """The speedup of a kernel for each thread count over one thread, and how its threads share the work.

    `bind(threads)` binds it to the same arrays each time. Returns () if a call takes longer than BUDGET_S on one
    thread. Exceptions of the kernel are passed on.
    """
    one = bind(1)
    begun = perf_counter()
    one.run()
    if perf_counter() - begun > BUDGET_S:
        return ()
    return tuple(_scaled(device, count, bind(count), one, rng) for count in threads)


def plain(launch: Launch, device: Device, rng: np.random.Generator) -> Ratio | None:
    """The time of single launches over launches in a graph; None for a device without graphs, and for calls that are
    not recorded in one."""
    if device.plain_clock is None:
        return None
    graph = _timed(launch, own_clock(device))
    if not getattr(graph.clock, "recorded", True):
        return None
    return _ratio(graph, _timed(launch, device.plain_clock()), rng)


def _scaled(device: Device, count: int, many: Launch, one: Launch, rng: np.random.Generator) -> Scaled:
    sides = _sides(device, many, one)
    speedup = _ratio(*sides, rng)
    times = _thread_times(device, sides[0])
    shares = [each.mean_ns / each.most_ns for each in times if each.shared and each.most_ns]
    return Scaled(
        threads=count,
        speedup=speedup,
        efficiency=speedup.median / count,
        balance=median(shares) if shares else None,
        utilization=median(each.busy_ns / (count * each.wall_ns) for each in times) if times else None,
    )


def _thread_times(device: Device, side: Timed) -> list[ThreadTimes]:
    """Times of the threads in separate samples, since counting takes time."""
    found: list[ThreadTimes] = []
    if device.thread_times is None:
        return found
    end = perf_counter() + BUDGET_S
    while len(found) < ENOUGH_SAMPLES and (len(found) < LEAST_SAMPLES or perf_counter() < end):
        reported = device.thread_times(side.sample)
        if reported is None:
            break
        found.append(reported)
    return found


def _sides(device: Device, many: Launch, one: Launch) -> tuple[Timed, Timed]:
    return _timed(many, clock_for(device, [many])), _timed(one, clock_for(device, [one]))


def _timed(launch: Launch, clock: Clock) -> Timed:
    side = Timed([launch], clock, warm=True)
    calibrate(side)
    return side


def _ratio(a: Timed, b: Timed, rng: np.random.Generator) -> Ratio:
    """The time of `b` over that of `a`."""
    stop = First(MinimumSamples(ENOUGH_SAMPLES, Interval(FINE)), MinimumSamples(LEAST_SAMPLES, TimeLimit(BUDGET_S)))
    return alternate(a, b, rng, stop).ratio()
