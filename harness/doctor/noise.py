"""Noise of this machine now: the same code interleaved with itself for about a second."""

from __future__ import annotations

import numpy as np

from tritmark.harness.doctor.check import Check, State
from tritmark.harness.machine.cpu import affinity
from tritmark.harness.measure.alternate import Alternation, Timed, alternate, calibrate
from tritmark.harness.measure.buffers import memory_of
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.measure.stopping import MinimumSamples, TimeLimit
from tritmark.harness.measure.survey import COMPUTE_BYTES
from tritmark.harness.measure.system_load import SystemLoad, crowded
from tritmark.harness.spec import Device
from tritmark.harness.validate.ceiling import LAYOUT_NOISE, TELLING

SECONDS = 1.0
_LEAST_PAIRS = 30


def noise(device: Device) -> list[Check]:
    """The noise of a comparison, and the load by other processes meanwhile. Takes about 1.5 seconds."""
    threads = device.cores()
    others = SystemLoad()
    found = against_itself(device, threads)
    return [judged(found), load(others.cores(), threads, len(affinity()))]


def against_itself(device: Device, threads: int) -> Alternation:
    """A probe of the device, interleaved with itself."""
    rng = np.random.default_rng(0)
    probe = next(each for each in device.ceilings().values() if each.name == "read")
    launches = [probe.bind(memory_of(device).allocate(COMPUTE_BYTES), threads)]
    a, b = (Timed(launches, clock_for(device, launches), warm=True) for _ in range(2))
    calibrate(a)
    b.calls = a.calls
    return alternate(a, b, rng, MinimumSamples(_LEAST_PAIRS, TimeLimit(SECONDS)))


def judged(found: Alternation) -> Check:
    """The check of noise, from the pairs of samples."""
    ratio = found.ratio()
    wide = ratio.high / ratio.low - 1
    low, middle, high = np.quantile(found.a_ns, (0.25, 0.5, 0.75))
    text = f"{wide:.2%} in {len(found.a_ns)} pairs; half of single times within {(high - low) / middle:.1%}"
    means = (
        f"interval width for the same code interleaved with itself for {SECONDS:.0f} s: smaller differences cannot be "
        "detected"
    )
    if wide > TELLING:
        mend = "stop other programs, wait, or use a dedicated machine: above 5 % performance verdicts are ambiguous"
        return Check("noise", State.MEND, text, means, mend)
    if wide > 2 * LAYOUT_NOISE:
        return Check("noise", State.BETTER, text, means, "stop other programs, or measure for longer")
    return Check("noise", State.OK, text, means)


def load(taken: float | None, threads: int, cores: int) -> Check:
    """The check of the load by other processes and the hypervisor."""
    means = f"threads that share a core wait for whole time slices; a default run has {threads}"
    text = "unknown" if taken is None else f"others use {taken:.1f} of {cores} cores"
    if crowded(taken, threads, cores, TELLING):
        mend = (
            "stop other programs (see top; steal time is that of another guest), or measure on fewer cores: --threads N"
        )
        return Check("other load", State.MEND, text, means, mend)
    return Check("other load", State.OK, text, means)
