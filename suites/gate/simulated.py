"""The gate on synthetic noise: finds the limits of its statistics before a machine shows them; see README.md in this
folder."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from math import log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.signal import lfilter
from shown import Stored

from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.verdict import Decision, GateLimits, decide

Logs = NDArray[np.float64]
Noise = Callable[[np.random.Generator], Logs]

PAIRS = 2500
"""Pairs in the gate's second: two samples of 0.2 ms each."""
UNCHANGED = (0.0, 0.004, 0.01)
"""No change, the effect of code layout, and the edge of the dead band."""
SLOWED = (0.02, 0.05)


def _normal(rng: np.random.Generator) -> Logs:
    return rng.normal(0, 0.03, PAIRS)


def _heavy(rng: np.random.Generator) -> Logs:
    return 0.01 * rng.standard_cauchy(PAIRS)


def _bimodal(rng: np.random.Generator) -> Logs:
    fast = np.cumsum(rng.random(2 * PAIRS) < 0.1) % 2
    return rng.choice((-1.0, 1.0), PAIRS) * (fast[1::2] - fast[::2]) * log(2) + rng.normal(0, 0.01, PAIRS)


def _wide(rng: np.random.Generator) -> Logs:
    return rng.normal(0, 1, PAIRS) * np.where(np.cumsum(rng.random(PAIRS) < 0.01) % 2, 0.1, 0.005)


def _jumping(rng: np.random.Generator) -> Logs:
    return rng.normal(0, 0.02, PAIRS) + np.where(np.cumsum(rng.random(PAIRS) < 0.02) % 2, 0.005, -0.005)


def _tied(by: float) -> Noise:
    def noise(rng: np.random.Generator) -> Logs:
        run_in = 500
        steps = rng.normal(0, 0.02 * sqrt(1 - by * by), PAIRS + run_in)
        tied: Logs = lfilter([1], [1, -by], steps)[run_in:]
        return tied

    return noise


def _waves(rng: np.random.Generator) -> Logs:
    waves: Logs = 0.01 * np.sin(np.arange(PAIRS) * 2 * pi / rng.uniform(100, 1000) + rng.uniform(0, 2 * pi))
    return waves + rng.normal(0, 0.02, PAIRS)


NOISES: Mapping[str, Noise] = {
    "normal": _normal,
    "Cauchy": _heavy,
    "the speed doubles within pairs": _bimodal,
    "the width jumps twentyfold": _wide,
    "the middle jumps by 1 %": _jumping,
    "autocorrelated by 0.5": _tied(0.5),
    "autocorrelated by 0.9": _tied(0.9),
    "autocorrelated by 0.97": _tied(0.97),
    "swings by 1 % in 100 to 1000 pairs": _waves,
}


def main() -> None:
    """Print how often each noise is called SLOWER, and when."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500, help="trials of each noise and slow-down (default 500)")
    trials = parser.parse_args().trials
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in (
        "noise",
        *(f"SLOWER at {change:.1%}" for change in UNCHANGED),
        *(f"found at {change:.0%}, within" for change in SLOWED),
    ):
        table.add_column(column)
    rng = np.random.default_rng(0)
    for name, noise in NOISES.items():
        unchanged = (f"{_alarms(_decided(noise, change, trials, rng)):.1%}" for change in UNCHANGED)
        slowed = [_decided(noise, change, trials, rng) for change in SLOWED]
        found = (f"{_alarms(each):.1%}, {np.quantile([one.seconds for one in each], 0.95):.2f} s" for each in slowed)
        table.add_row(name, *unchanged, *found)
    Console(width=160, highlight=False).print(table)


def _decided(noise: Noise, change: float, trials: int, rng: np.random.Generator) -> list[Decision]:
    limits = GateLimits()
    streams = (Stored(noise(rng) + log1p(change), limits.seconds) for _ in range(trials))
    return [decide(stream.take, limits, now=stream.now) for stream in streams]


def _alarms(decisions: list[Decision]) -> float:
    return sum(each.verdict is Outcome.SLOWER for each in decisions) / len(decisions)


if __name__ == "__main__":
    main()
