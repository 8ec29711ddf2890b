"""Tasks of the selection, for a candidate's process."""

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
"""One set of arrays."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """Outputs of a candidate's first run, and the approximate time of a call."""

    outputs: dict[str, npt.NDArray[np.uint8]]
    """The bytes that it wrote into poisoned outputs."""
    call_ns: float
    """The minimum of a few consecutive calls, ns; 0 if not requested."""


def trial_task(site: Site, inputs: Arrays, axes: Axes, threads: int, paced: bool) -> FirstRun:
    """Run the site's variant once on new arrays; with `paced`, also time a few calls."""
    sets = Sets(site.op, site.variant.key, axes, (inputs,), memory_of(site.device), "aligned", _ONE)
    sets.poison(0)
    launch = site.variant.bind(sets.each[0].inputs, sets.each[0].outputs, axes, threads)
    launch.run()
    if launch.bad >= 0:
        raise ValueError(f"it rejects element {launch.bad} of inputs that the contract admits")
    written = sets.written(0)
    call_ns = calibrate(Timed([launch], clock_for(site.device, [launch]), warm=True)) if paced else 0.0
    return FirstRun(written, call_ns)
