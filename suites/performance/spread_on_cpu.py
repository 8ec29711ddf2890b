"""`spread` on the CPU, its calls at the same time and one after the other, interleaved.

    python suites/performance/spread_on_cpu.py [--turns 15]

For each size of tensor, 4 tensors a thread: quantized one at a time with all threads (LEAST_S without limit), at the
same time with one thread each (LEAST_S of 0), and as on_cpu.py chooses. A ratio is the median over the turns.
LEAST_S there is right where the first two are equally fast: compare it with the time of one call.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tritmark.kernels import absmean_quantize, i2s_quantize, spread, ternary_quantize
from tritmark.kernels.native import cpu
from tritmark.kernels.native.threads import allowed
from tritmark.kernels.spreading import on_cpu

FUNCTIONS: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "i2s_quantize": (i2s_quantize, (0.5,), {}),
    "ternary_quantize": (ternary_quantize, (), {"packed": True}),
    "absmean_quantize": (absmean_quantize, (), {}),
}
SIZES = [1 << power for power in range(12, 24, 2)]
CHOICES = {"one by one": math.inf, "at once": 0.0, "chosen": on_cpu.LEAST_S}


def seconds(function: Callable[..., Any], tensors: list[Any], options: dict[str, Any], least_s: float) -> float:
    """Seconds of one `spread`."""
    on_cpu.LEAST_S = least_s
    began = perf_counter()
    spread(function, tensors, devices="cpu", **options)
    return perf_counter() - began


def compared(name: str, size: int, turns: int, threads: int) -> tuple[float, float, float]:
    """Median seconds of a call one by one, and the median speed-up over it of calls at the same time and as chosen."""
    function, more, options = FUNCTIONS[name]
    rng = np.random.default_rng(size)
    tensors = [(rng.standard_normal((16, size // 16), np.float32), *more) for _ in range(4 * threads)]
    times = [[seconds(function, tensors, options, least_s) for least_s in CHOICES.values()] for _ in range(turns + 1)][
        1:
    ]
    alone = median(each[0] for each in times) / len(tensors)
    return alone, median(each[0] / each[1] for each in times), median(each[0] / each[2] for each in times)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    turns = parser.parse_args().turns
    threads = allowed(cpu.native("pool"), cpu.cores())
    print(f"{threads} threads; LEAST_S is {1e6 * on_cpu.LEAST_S:.0f} us")
    print(f"{'function':18}{'elements':>10}{'us a call':>11}{'at once':>9}{'chosen':>8}")
    for name in FUNCTIONS:
        for size in SIZES:
            alone, at_once, chosen = compared(name, size, turns, threads)
            print(f"{name:18}{size:10}{1e6 * alone:11.1f}{at_once:8.2f}x{chosen:7.2f}x", flush=True)


if __name__ == "__main__":
    main()
