"""Tasks on a variant's instances, for the variant's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.alternate import Timed, alternate, calibrate
from tritmark.harness.measure.buffers import Rotation, memory_of, rotation
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.statistics import ENOUGH_SAMPLES, LEAST_SAMPLES, median
from tritmark.harness.measure.stopping import First, Interval, MinimumSamples, TimeLimit
from tritmark.harness.record import Ratio
from tritmark.harness.spec import Arrays, Axes, Instances, Launch, Variant
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.harness.validate.sets import Sets

if TYPE_CHECKING:
    from tritmark.harness.worker.site import Site

_ONE = Rotation(nbytes=0, wanted=0)
"""One set of arrays."""


@dataclass(frozen=True, slots=True)
class Named:
    """The instances of a variant for some axes, the built-in choice first, and the conditions of a choice."""

    names: tuple[str, ...]
    identity: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Raced:
    """An instance timed interleaved with the built-in choice."""

    ratio: Ratio
    """Its time over the built-in choice's."""
    builtin_ns: float
    """Median time of a call of the built-in choice."""
    cold: bool
    """Whether the calls were cold; False if the arrays are too small to be cold."""


def names_task(site: Site, axes: Axes) -> Named:
    """The instances of the site's variant."""
    found = _instances(site, axes)
    return Named(tuple(found.each), dict(found.identity))


def outputs_task(site: Site, name: str, inputs: Arrays, axes: Axes, threads: int) -> dict[str, npt.NDArray[np.uint8]]:
    """The bytes that an instance writes into poisoned outputs."""
    variant = _instances(site, axes).each[name]
    sets = Sets(site.op, variant.key, axes, (inputs,), memory_of(site.device), "aligned", _ONE)
    sets.poison(0)
    launch = _bound(variant, sets, axes, threads, cold=False)[0]
    launch.run()
    if launch.bad >= 0:
        raise ValueError(f"{name} rejects element {launch.bad} of inputs that the contract admits")
    return sets.written(0)


def race_task(site: Site, name: str, inputs: Arrays, axes: Axes, threads: int, seed: int, seconds: float) -> Raced:
    """Time an instance and the built-in choice interleaved, on the same arrays, for at most `seconds`."""
    found = _instances(site, axes)
    builtin, rival = next(iter(found.each.values())), found.each[name]
    memory = memory_of(site.device)
    sets = Sets(site.op, builtin.key, axes, (inputs,), memory, "aligned", rotation(memory))

    def side(variant: Variant) -> Timed:
        launches = _bound(variant, sets, axes, threads, cold=sets.cold)
        made = Timed(launches, clock_for(site.device, launches), warm=not sets.cold)
        calibrate(made)
        return made

    first, second = side(builtin), side(rival)
    enough = First(
        MinimumSamples(ENOUGH_SAMPLES, Interval(LAYOUT_NOISE)),
        MinimumSamples(LEAST_SAMPLES, TimeLimit(seconds)),
    )
    raced = alternate(first, second, np.random.default_rng([seed, *name.encode()]), enough)
    return Raced(raced.ratio(), median(raced.a_ns), sets.cold)


def _instances(site: Site, axes: Axes) -> Instances:
    assert site.variant.instances is not None  # the caller checks
    return site.variant.instances(axes)


def _bound(variant: Variant, sets: Sets, axes: Axes, threads: int, *, cold: bool) -> Sequence[Launch]:
    each: Sequence[Any] = sets.each if cold else sets.each[:1]
    return [variant.bind(one.inputs, one.outputs, axes, threads) for one in each]
