"""Times of contenders, interleaved in one process: what changes with the moment, such as clock rates, concerns all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from tritmark.harness.spec import Launch
from tritmark.kernels.cuda.measure.clock import GraphClock

COLD = 120 << 20
"""Bytes of weights that a CUDA graph reads before it reads the same again: more than the L2 holds."""
CALLS = 24
"""The least number of calls in a graph."""
WARM_UP = 2
"""Rounds before those that count."""


class Sample(NamedTuple):
    """What is timed of a contender."""

    take: Callable[[], float]
    """Makes the calls once, and returns their ns."""
    calls: int
    """How many these are."""


def cold_copies(nbytes: int) -> int:
    """The number of copies of so many bytes of weights that exceed the L2; two or more."""
    return max(2, -(-COLD // nbytes))


def graph_sample(launches: Sequence[Launch]) -> Sample:
    """A CUDA graph of CALLS calls or more that cycles through these launches, all of them at least once."""
    calls = max(CALLS, len(launches))
    return Sample(partial(GraphClock().sample, launches, 0, calls), calls)


def interleaved_us(
    samples: Mapping[str, Sample], rounds: int, figure: Callable[[Iterable[float]], float] = median
) -> dict[str, float]:
    """The time of a call of each contender in us, in the order of `samples`: in each round a sample of each, in an
    order of its own, and of the rounds the median or another `figure`."""
    times: dict[str, list[float]] = {name: [] for name in samples}
    rng, names = np.random.default_rng(1), list(samples)
    for turn in range(WARM_UP + rounds):
        for at in rng.permutation(len(names)):
            sample = samples[names[at]]
            taken = sample.take() / sample.calls / 1e3
            if turn >= WARM_UP:
                times[names[at]].append(taken)
    return {name: figure(each) for name, each in times.items()}
