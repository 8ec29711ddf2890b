"""What the process of a candidate is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tritmark.harness.measure.alternate import Timed, calibrate
from tritmark.harness.measure.buffers import Rotation, memory_of
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.spec import Arrays, Axes
from tritmark.harness.validate.sets import Sets

if TYPE_CHECKING:
    from tritmark.harness.worker.site import Site

_ONE = Rotation(nbytes=0, wanted=0)
"""No more than one set of arrays."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """A candidate's first run, and about how long others take."""

    outputs: dict[str, npt.NDArray[np.uint8]]
    """The bytes that it wrote into poisoned outputs."""
    call_ns: float
    """The least of a few calls right after each other; 0 where that was not asked."""


def trial_task(site: Site, inputs: Arrays, axes: Axes, threads: int, paced: bool) -> FirstRun:
    """Run the site's variant once on fresh arrays, and where `paced` some more times."""
    sets = Sets(site.op, site.variant.key, axes, (inputs,), memory_of(site.device), "aligned", _ONE)
    sets.poison(0)
    launch = site.variant.bind(sets.each[0].inputs, sets.each[0].outputs, axes, threads)
    launch.run()
    if launch.bad >= 0:
        raise ValueError(f"it finds fault with element {launch.bad} of inputs that are within the contract")
    written = sets.written(0)
    call_ns = calibrate(Timed([launch], clock_for(site.device, [launch]), warm=True)) if paced else 0.0
    return FirstRun(written, call_ns)
