"""The cost of a monitor for one call: small calls with and without it, interleaved in short batches.

    python suites/performance/monitor_cost.py [--batches N]

Prints for each function the median time of a call without a monitor, and the median of the differences with it: while
every call is timed, and while one of sixteen is.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

from tritmark.harness.monitor import hook
from tritmark.harness.monitor.counters import Counters
from tritmark.kernels import QuantizedLinear, activation_quantize, pack_weights, ternary_matmul

CALLS = 200
"""In a batch."""


def functions() -> dict[str, Callable[[], Any]]:
    """The shortest calls, with plans."""
    rng = np.random.default_rng(0)
    weights = pack_weights(rng.integers(-1, 2, (64, 256)).astype(np.int8), 1.0)
    x = rng.standard_normal((1, 256)).astype(np.float32)
    quantized, out = activation_quantize(x), np.empty((1, 64), np.float32)
    layer = QuantizedLinear(weights, threads=1)
    return {
        "QuantizedLinear": lambda: layer(x),
        "QuantizedLinear.bind": layer.bind(x).run,
        "ternary_matmul": lambda: ternary_matmul(quantized.q, weights, act_scale=quantized.scale, out=out, threads=1),
        "activation_quantize": lambda: activation_quantize(x, threads=1),
    }


def cost(call: Callable[[], Any], batches: int = 200) -> tuple[float, float, float]:
    """Nanoseconds: a call alone, and what a monitor adds if every call is timed, and if one of sixteen is."""
    watches = [None, Counters(hook.recorders[0]).watch, Counters(hook.recorders[0]).watch]
    assert watches[2] is not None
    watches[2].every = 16
    times: list[list[float]] = [[], [], []]
    order = [0, 1, 2]
    try:
        for _ in range(batches):
            random.shuffle(order)
            for number in order:
                hook.active = watches[number]
                call()
                begun = perf_counter_ns()
                for _ in range(CALLS):
                    call()
                times[number].append((perf_counter_ns() - begun) / CALLS)
    finally:
        hook.active = None
    alone, *others = times
    first, second = (median(b - a for a, b in zip(alone, each, strict=True)) for each in others)
    return median(alone), first, second


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=400)
    batches = parser.parse_args().batches
    print(f"{'function':<22}{'alone':>10}{'every call':>14}{'one of 16':>14}")
    for name, call in functions().items():
        call()
        alone, every, some = cost(call, batches)
        print(f"{name:<22}{alone:>7.0f} ns{every:>+11.0f} ns{some:>+11.0f} ns")


if __name__ == "__main__":
    main()
