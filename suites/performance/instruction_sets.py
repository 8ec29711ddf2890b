"""The rate of each instruction set for the product of a layer on this CPU, interleaved.

    python suites/performance/instruction_sets.py [--shapes 2560x6912 2560x2560] [--rows 1 16 64 512] [--threads 1]
                                                  [--format i2_s_x86]

For each N x K and each M a line with the rate of every set in Gop/s (a multiply-add is two operations), with weights
in tile64 or the given format. Outputs are float32 and must have the same bits for all sets. A time is the median of
samples of calls on hot arrays; samples of the sets are interleaved, so that other load affects all of them. The last
column is the rate of the last set in percent of the ceiling that its probe measures.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import numpy as np

from tritmark.kernels import OPS, PROVIDER
from tritmark.kernels.native import cpu

SHAPES = ("2560x6912", "2560x2560")
ROWS = (1, 8, 15, 16, 17, 32, 64, 128, 512)
SAMPLES, SAMPLE_S = 9, 0.01


def bound(format: str, M: int, N: int, K: int, threads: int) -> dict[str, tuple[Any, np.ndarray]]:
    """Each set's call and output, on the same inputs."""
    (op,) = (each for each in OPS if each.name == "ternary_matmul")
    axes = {"M": M, "N": N, "K": K}
    inputs = op.encode(op.generate(axes, op.input_families[0], np.random.default_rng(0)), axes, format)
    made = {}
    for variant in PROVIDER.variants:
        key = variant.key
        if (key.device, key.op, key.format, key.dtype) == ("cpu", "ternary_matmul", format, "float32"):
            out = np.zeros((M, N), np.float32)
            if variant.features <= cpu.features():
                made[variant.name] = (variant.bind(inputs, {"out": out}, axes, threads), out)
    return made


def medians(clock: Any, rows: dict[str, list[Any]]) -> dict[str, float]:
    """Seconds of one call of each set, from interleaved samples."""
    counts = {name: max(1, int(SAMPLE_S * 1e9 / clock.sample(row, 0, 1))) for name, row in rows.items()}
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(SAMPLES):
        for name, row in rows.items():
            times[name].append(clock.sample(row, 0, counts[name]) / counts[name] / 1e9)
    return {name: median(found) for name, found in times.items()}


def ceiling(clock: Any, isa: str, threads: int) -> float:
    """Operations per second of the set's probe on registers."""
    ceilings = cpu.native("ceilings")
    whole = np.ones(64 * 1024 + 64, np.uint8)
    data = whole[-whole.ctypes.data % 64 :][: 64 * 1024]
    seconds = medians(clock, {isa: [ceilings.Probe(isa, "compute", data, threads)]})[isa]
    return float(data.nbytes * ceilings.DOT_OPERATIONS / seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="N x K of the weights")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="M")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--format", default="tile64", help="format of the weights")
    parser.add_argument("--sets", nargs="+", default=["avx2", "avxvnni", "avx512", "amx"], help="sets to time")
    told = parser.parse_args()
    clock = cpu.native("clock").NativeClock()
    limits: dict[str, float] = {}
    for shape in told.shapes:
        N, K = map(int, shape.split("x"))
        for M in told.rows:
            calls = {
                name: each for name, each in bound(told.format, M, N, K, told.threads).items() if name in told.sets
            }
            found = medians(clock, {name: [launch] for name, (launch, _) in calls.items()})
            first = next(iter(calls.values()))[1]
            for name, (launch, out) in calls.items():
                assert launch.ran == name, f"{launch.ran} ran for {name}"
                assert np.array_equal(out.view(np.uint32), first.view(np.uint32)), f"{name}: output bits differ"
            rates = {name: 2 * M * N * K / seconds for name, seconds in found.items()}
            last = list(rates)[-1]
            limits.setdefault(last, ceiling(clock, last, told.threads))
            line = "  ".join(f"{name} {rate / 1e9:8.1f}" for name, rate in rates.items())
            print(f"N x K = {N:5} x {K:5}  M = {M:4}  {line}  {100 * rates[last] / limits[last]:5.1f} %", flush=True)


if __name__ == "__main__":
    main()
