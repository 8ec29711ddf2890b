"""Time of a call directly after a PyTorch call, while PyTorch's threads still spin on all cores.

    python suites/performance/behind_pytorch.py [--rows 1 16 64] [--shape 2560x2560] [--threads N] [--rounds 300]

For each number of rows of activations, in us, a bound QuantizedLinear: consecutive calls without PyTorch between them,
then each call after an int8 product of PyTorch with as many rows (at least 16), with the time of that product. Both are
measured twice: with PyTorch's threads joined, as by `import tritmark.torch`, and with only the pool's own threads. The
figures are medians of single calls of the four interleaved kinds; calls without PyTorch begin after its threads sleep.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch

from tritmark.kernels import QuantizedLinear, pack_weights
from tritmark.kernels.native import cpu, threads

BURST = 20
"""Calls of one kind before the next kind; the first quarter of them is not counted."""
ASLEEP_S = 0.02


def us(call: Any) -> float:
    """Of one call."""
    begin = perf_counter()
    call()
    return (perf_counter() - begin) * 1e6


def row(M: int, N: int, K: int, count: int, rounds: int) -> list[float]:
    """Medians: joined alone and behind, own alone and behind, and PyTorch's product."""
    rng, pool = np.random.default_rng(0), cpu.native("pool")
    layer = QuantizedLinear(pack_weights(rng.integers(-1, 2, (N, K), dtype=np.int8), 0.5), threads=count)
    call = layer.bind(rng.standard_normal((M, K), dtype=np.float32)).run
    left = torch.ones((max(M, 16), K), dtype=torch.int8)
    right = torch.ones((N, K), dtype=torch.int8).t()
    found: list[list[float]] = [[] for _ in range(5)]
    for _ in range(max(1, rounds // (BURST * 3 // 4))):
        for joined in (True, False):
            threads.join_pytorch(pool)
            if not joined:
                pool.set_team(0, 0, 0)
            for behind in (False, True):
                sleep(ASLEEP_S)
                for nth in range(BURST):
                    product = us(lambda: torch._int_mm(left, right)) if behind else 0.0
                    taken = us(call)
                    if nth >= BURST // 4:
                        found[2 * (not joined) + behind].append(taken)
                        if behind:
                            found[4].append(product)
    return [median(each) for each in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 64, 128, 512])
    parser.add_argument("--shape", default="2560x2560")
    parser.add_argument("--threads", type=int, default=cpu.cores())
    parser.add_argument("--rounds", type=int, default=300)
    told = parser.parse_args()
    N, K = map(int, told.shape.split("x"))
    torch.set_num_threads(told.threads)
    print(f"{told.shape}, {told.threads} threads, us{'joined':>14}{'':20}its own threads")
    print(f"{'rows':>6}{'alone':>12}{'behind':>10}{'ratio':>8}{'alone':>12}{'behind':>10}{'ratio':>8}{'PyTorch':>12}")
    for M in told.rows:
        alone, behind, own_alone, own_behind, product = row(M, N, K, told.threads, told.rounds)
        least = min(alone, own_alone)
        print(
            f"{M:6}{alone:12.1f}{behind:10.1f}{behind / least:8.2f}"
            f"{own_alone:12.1f}{own_behind:10.1f}{own_behind / least:8.2f}{product:12.1f}"
        )


if __name__ == "__main__":
    main()
