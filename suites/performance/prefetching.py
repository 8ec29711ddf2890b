"""Products of one row of activations under each strategy of fetching weights ahead, for each format that obeys one,
cold and hot: what ternary_matmul.h and the heads of its kernels choose from.

    python suites/performance/prefetching.py [--formats tile64 i2_s_x86] [--variants avx512 avx2] [--shapes 2560x6912]
                                             [--threads 1 2] [--rounds 20] [--strategies none 'L1 2048' 'L2 8192']

A line for each: us of a call under the first strategy, and the time of each other over that, the median over rounds, in
each of which every strategy has its turn. Cold, the weights of each call come from memory; hot, they are those of the
call before. `tritmark tune cpu` chooses for tile64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter_ns

import numpy as np
from gemv import DEVICE, DTYPE, OP, best

from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.measure.buffers import HOST, rotation
from tritmark.harness.measure.statistics import median
from tritmark.harness.spec import KernelKey
from tritmark.harness.validate.sets import Sets
from tritmark.kernels import OPS
from tritmark.kernels.prefetch import OBEYING, set_prefetch
from tritmark.kernels.ternary_matmul.cpu import FORMATS

HOT_CALLS = 20


def tell(strategy: str) -> None:
    """Have products follow it."""
    level, _, distance = strategy.partition(" ")
    set_prefetch(level, int(distance or 0))


def taken(
    calls: list[Callable[[], object]], told: argparse.Namespace, rng: np.random.Generator
) -> dict[str, list[float]]:
    """Us of a call, for each strategy, round by round."""
    us: dict[str, list[float]] = {each: [] for each in told.strategies}
    for _ in range(told.rounds):
        for strategy in rng.permutation(told.strategies):
            tell(str(strategy))
            calls[-1]()
            begun = perf_counter_ns()
            for call in calls:
                call()
            us[str(strategy)].append((perf_counter_ns() - begun) / len(calls) / 1e3)
    return us


def main() -> None:
    """What the module says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=[f for f in FORMATS if not f.startswith("tl")])
    parser.add_argument("--variants", nargs="+", choices=OBEYING, default=["avx2"])
    parser.add_argument("--shapes", nargs="+", default=["2560x2560", "2560x6912"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--strategies", nargs="+", default=["none", "L1 512", "L1 2048", "L1 4096", "L2 8192", "L2 16384"]
    )
    told = parser.parse_args()
    bind_threads()
    (op,) = (each for each in OPS if each.name == OP)
    print(f"{'':44}", *(f"{each:>9}" for each in told.strategies))
    for shape in told.shapes:
        N, K = map(int, shape.split("x"))
        axes, rng = {"M": 1, "N": N, "K": K}, np.random.default_rng([N, K])
        drawn = op.generate(axes, "uniform", rng)
        for format in told.formats:
            key = KernelKey(DEVICE, OP, format, DTYPE)
            sets = Sets(op, key, axes, (op.encode(drawn, axes, format),), HOST, "aligned", rotation())
            for name in told.variants:
                for threads in told.threads:
                    for cold in (True, False):
                        each = sets.each if cold else sets.each[:1] * HOT_CALLS
                        made = [best(name, key).bind(one.inputs, one.outputs, axes, threads) for one in each]
                        us = taken([one.run for one in made], told, rng)
                        first = us[told.strategies[0]]
                        over = (median([a / b for a, b in zip(us[other], first, strict=True)]) for other in us)
                        where = f"{format} {name} {shape} threads {threads} {'cold' if cold else 'hot'}"
                        print(f"{where:44}", f"{median(first):6.1f} us", *(f"{each:9.2f}" for each in list(over)[1:]))


if __name__ == "__main__":
    main()
