"""Error rates of `tritmark history` on synthetic histories drawn from real noise: python suites/gate/histories.py
--noise power.json

power.json is the output of `power.py` in this folder: log ratios of adjacent pairs of one unchanged kernel with itself.
A commit's ratio to the anchor is the median of one such launch, drawn at random, with its pairs resampled, shifted by
up to 0.4 % in either direction, like the effect of other code around a kernel. A history has 60 commits. Half of the
histories have no change: they are checked after each commit, as in CI, and a single alarm counts as a false alarm. The
other half have one step of 5 %. It is found if the detector names that commit or an adjacent one after two commits with
the step are measured.

The same is done with absolute times: medians of 0.1 s of an unchanged NumPy call, measured now in sequence. They
therefore lack the variation between days and between builds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import exp, log1p
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import numpy as np

from tritmark.harness.history.steps import THRESHOLD, rises

COMMITS = 60
STEP = 0.05
LAYOUT = 0.004
FIRST = 8
"""The fewest commits before a step: they define the level before it."""
_P_VALUE = 0.001
_BLOCKS, _BLOCK_NS = 150, 100_000_000

Detector = Callable[[Sequence[float]], list[int]]


def by_asv(values: Sequence[float]) -> list[int]:
    """First positions of the new levels, as `tritmark history` finds them."""
    return [step.after for step in rises(values)]


def by_otava(values: Sequence[float]) -> list[int]:
    """The same by Apache Otava, which takes lists; only rises of the same size and duration."""
    from otava.analysis import compute_change_points

    points, _ = compute_change_points(list(values), max_pvalue=_P_VALUE)
    return [point.index for point in points if point.stats.forward_rel_change() > THRESHOLD]


DETECTORS: dict[str, Detector] = {"asv step detection, 3 %": by_asv, "Apache Otava, p = 0.001": by_otava}


def launches(noise: dict[str, dict[str, list[list[float]]]], count: int, rng: np.random.Generator) -> list[float]:
    """Log ratios of `count` launches of one kernel with itself."""
    trials = noise[rng.choice(sorted(noise))]["aa"]
    said = []
    for _ in range(count):
        pairs = np.asarray(trials[rng.integers(len(trials))])
        said.append(float(np.median(rng.choice(pairs, len(pairs)))) + rng.uniform(-LAYOUT, LAYOUT))
    return said


def drawn(times: Sequence[float], count: int, rng: np.random.Generator) -> list[float]:
    """Logarithms of `count` times."""
    return np.log(rng.choice(times, count)).tolist()  # type: ignore[no-any-return]


def stepped(logs: Sequence[float], at: int) -> list[float]:
    """Ratios that are STEP larger from position `at` on."""
    return [exp(each + (log1p(STEP) if position >= at else 0.0)) for position, each in enumerate(logs)]


def told(detector: str, make: Callable[[int, np.random.Generator], list[float]], seed: int) -> tuple[bool, bool]:
    """For one history without a step and one with a step: whether there was a false alarm, and whether the step was
    found in time."""
    rng = np.random.default_rng([20, seed])
    find = DETECTORS[detector]
    still = [exp(each) for each in make(COMMITS, rng)]
    alarm = any(find(still[:seen]) for seen in range(4, COMMITS + 1))
    at = int(rng.integers(FIRST, COMMITS - 1))
    values = stepped(make(COMMITS, rng), at)
    return alarm, any(abs(position - at) <= 1 for position in find(values[: at + 2]))


def measured() -> list[float]:
    """Nanoseconds of an unchanged NumPy call, the median of each of many blocks."""
    a = np.random.default_rng(0).standard_normal((192, 192), dtype=np.float32)
    blocks = []
    for _ in range(_BLOCKS):
        end, times = perf_counter_ns() + _BLOCK_NS, []
        while (start := perf_counter_ns()) < end:
            a @ a
            times.append(perf_counter_ns() - start)
        blocks.append(float(median(times)))
    return blocks


def main() -> None:
    """Print the table; status 1 if `tritmark history` misses its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=Path, required=True, help="the output of power.py")
    parser.add_argument("--histories", type=int, default=300, help="number of each kind (default 300)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    given = parser.parse_args()
    noise = json.loads(given.noise.read_text(encoding="utf-8"))["noise"]
    lengths = {name: len(trials["aa"]) for name, trials in noise.items()}
    print("A/A launches to draw from:", ", ".join(f"{name} {count}" for name, count in lengths.items()))
    sources = {"ratios to the anchor": partial(launches, noise), "absolute times": partial(drawn, measured())}
    failed = False
    print(
        f"{given.histories} histories of {COMMITS} commits  |  with a false alarm  |  steps of {STEP:.0%} "
        "found within 2 commits"
    )
    with ProcessPoolExecutor(given.workers) as pool:
        for source, make in sources.items():
            for detector in DETECTORS:
                try:
                    found = list(pool.map(partial(told, detector, make), range(given.histories), chunksize=10))
                except ImportError as why:
                    print(f"{detector}, {source}: not run: {why} (pip install --no-deps apache-otava)")
                    continue
                alarms, hits = (sum(each) for each in zip(*found, strict=True))
                print(
                    f"{detector}, {source}  |  {alarms} of {given.histories}  |  {100 * hits / given.histories:.1f} %",
                    flush=True,
                )
                if detector == next(iter(DETECTORS)) and source == next(iter(sources)):
                    failed = alarms > 0 or hits < 0.95 * given.histories
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
