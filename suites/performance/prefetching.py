"""Products of one row of activations with each prefetch strategy, for each format that supports them, cold and hot: the
measurements behind the defaults in ternary_matmul.h and the header comments of its kernels.

    python suites/performance/prefetching.py [--formats tile64 i2_s_x86] [--shapes 2560x6912] [--threads 1 2]
                                             [--seconds 4] [--strategies none 'L1 2048' 'L2 8192']

A line for each: us of a call with the first strategy, and the time of each other strategy over it, interleaved for
about `--seconds`. Cold, the weights of each call come from memory; hot, they are those of the previous call. The kernel
is the best of this machine, or that of TRITMARK_FORCE_ISA. `tritmark tune prefetch` does the same with tile64, and
keeps the choice.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from tritmark.harness.autotune.prefetch import COLD, HOT, over, timed_strategies
from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.measure.statistics import median
from tritmark.harness.providers import load
from tritmark.kernels.native import cpu
from tritmark.kernels.native.prefetch import PREFETCHING
from tritmark.kernels.ternary_matmul.cpu import FORMATS


def main() -> None:
    """Run the module's description."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=[f for f in FORMATS if not f.startswith("tl")])
    parser.add_argument("--shapes", nargs="+", default=["2560x2560", "6912x2560", "2560x6912"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument(
        "--strategies", nargs="+", default=["none", "L1 512", "L1 2048", "L1 4096", "L2 8192", "L2 16384"]
    )
    told = parser.parse_args()
    bind_threads()
    installed, rng = load(), np.random.default_rng()
    first, *others = told.strategies
    print(f"{'':40} {first:>12}", *(f"{each:>9}" for each in others))
    for shape in told.shapes:
        N, K = map(int, shape.split("x"))
        for format in told.formats:
            asked = replace(PREFETCHING, key=replace(PREFETCHING.key, format=format), shapes=[{"M": 1, "N": N, "K": K}])
            for threads in told.threads:
                (timed,) = timed_strategies(
                    installed, cpu.DEVICE, asked, told.strategies, rng, threads=threads, seconds=told.seconds, seed=0
                )
                for temperature in (COLD, HOT):
                    ratios = (over([timed], temperature, each, first).median for each in others)
                    us = median(timed.ns[temperature, first]) / 1e3
                    where = f"{format} {shape} threads {threads} {temperature}"
                    print(f"{where:40} {us:9.1f} us", *(f"{each:9.2f}" for each in ratios), flush=True)


if __name__ == "__main__":
    main()
