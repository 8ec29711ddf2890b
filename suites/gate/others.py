"""Decisions of other tools about the same two kernels, by their own code: pytest-benchmark's `mean:5%`, and asv's
compare.

In blocks, as in two CI runs: BASE's samples, then HEAD's, each taken as the tool does. Interleaved: from the
alternating samples of the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from asv.commands.compare import _is_result_better
from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.statistics import compute_stats
from loads import Pair
from pytest_benchmark.stats import Stats
from pytest_benchmark.utils import parse_compare_fail

Function = Callable[[], None]
FACTORS = (1.05, 1.1)
"""asv compare's `--factor`; 1.1 is its default."""
_ROUNDS = 2
"""asv's default number of processes for a benchmark."""
_WARM_S = 0.02
"""asv warms up for 0.1 s in each fresh process; this process is warm."""


def blocks(pair: Pair, seconds: float) -> dict[str, bool]:
    """Whether each tool calls HEAD slower; pytest-benchmark has `seconds` for each side."""
    base, head = pair.base.launches[0].run, pair.head.launches[0].run
    said = _pytest_benchmark(_rounds(base, seconds), _rounds(head, seconds))
    sides = [[_asv_run(side) for _ in range(_ROUNDS)] for side in (base, head)]
    numbers = [runs[0]["number"] for runs in sides]
    asv = _asv(*([sample for run in runs for sample in run["samples"]] for runs in sides), *numbers)  # type: ignore[arg-type]
    return {f"{tool}, two blocks": alarm for tool, alarm in (said | asv).items()}


def interleaved(pair: Pair) -> dict[str, bool]:
    """The same from the alternating samples of the pair; for asv they are joined to samples of asv's length."""
    base, head = (np.asarray(side) / 1e9 for side in (pair.base_ns, pair.head_ns))
    calls = pair.base.calls
    joined = max(1, round(TimeBenchmark("time", lambda: None, []).sample_time / (calls * float(np.median(base)))))
    while len(base) // joined < 2 * _ROUNDS:  # a few pairs of a short trial
        joined = max(1, joined // 2)
    asv = _asv(
        *(side[: len(side) // joined * joined].reshape(-1, joined).mean(axis=1).tolist() for side in (base, head)),
        *[calls * joined] * 2,
    )
    return {
        f"{tool}, interleaved": alarm for tool, alarm in (_pytest_benchmark(base.tolist(), head.tolist()) | asv).items()
    }


def _rounds(function: Function, seconds: float) -> list[float]:
    """Times of single calls for that many seconds, as pytest-benchmark takes them for calls well above the clock's
    precision."""
    taken, end = [], perf_counter() + seconds
    while True:
        start = perf_counter()
        function()
        stop = perf_counter()
        taken.append(stop - start)
        if stop >= end:
            return taken


def _pytest_benchmark(base: Sequence[float], head: Sequence[float]) -> dict[str, bool]:
    found = []
    for side in (base, head):
        stats = Stats()  # type: ignore[no-untyped-call]
        stats.data.extend(side)
        found.append({"mean": stats.mean})
    return {"pytest-benchmark mean:5%": parse_compare_fail("mean:5%").fails(found[1], found[0]) is not None}  # type: ignore[no-untyped-call]


def _asv_run(function: Function) -> dict[str, Any]:
    benchmark: Any = TimeBenchmark("time", function, [])
    benchmark.warmup_time = _WARM_S
    benchmark.redo_setup = lambda: None
    return benchmark.run()  # type: ignore[no-any-return]


def _asv(base: Sequence[float], head: Sequence[float], base_number: int, head_number: int) -> dict[str, bool]:
    (base_s, base_stats), (head_s, head_stats) = compute_stats(base, base_number), compute_stats(head, head_number)
    return {
        f"asv compare, factor {factor:g}": bool(
            _is_result_better(base_s, head_s, (base_stats, base), (head_stats, head), factor)
        )
        for factor in FACTORS
    }
