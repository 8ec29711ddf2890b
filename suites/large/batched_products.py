"""Speed-up of `ternary_matmul_batch` over `ternary_matmul` one after the other, interleaved.

    python suites/large/batched_products.py [--device cuda] [--rows 1 16] [--turns 15] [--divide 1]

The pairs are the linear layers of one block of llama3-8B-1.58 (suites/workloads/models.toml), made up; `--divide`
makes N and K smaller. Exits with status 1 if the bits differ.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tritmark.kernels import PackedWeights, pack_weights, ternary_matmul, ternary_matmul_batch

MODEL = "llama3-8B-1.58-100B-tokens"


def pairs(rows: int, divide: int, device: str) -> list[tuple[Any, PackedWeights]]:
    """One pair for each linear layer of a block."""
    path = Path(__file__).parents[1] / "workloads" / "models.toml"
    linears = tomllib.loads(path.read_text(encoding="utf-8"))[MODEL]["linears"]
    rng = np.random.default_rng(8)
    return [
        (
            rng.integers(-127, 128, (rows, K // divide), dtype=np.int8),
            pack_weights(rng.integers(-1, 2, (N // divide, K // divide), dtype=np.int8), 0.5, device=device),
        )
        for N, K, count in linears
        for _ in range(count)
    ]


def compared(rows: int, turns: int, divide: int, device: str) -> bool:
    """Print the times; return whether the bits are equal."""
    given = pairs(rows, divide, device)
    times: list[tuple[float, float]] = []
    equal = True
    for _ in range(turns + 1):
        began = perf_counter()
        alone = [ternary_matmul(*each, device=device) for each in given]
        between = perf_counter()
        batch = ternary_matmul_batch(given, device=device)
        times.append((between - began, perf_counter() - between))
        equal &= all(np.array_equal(mine, theirs) for mine, theirs in zip(batch, alone, strict=True))
    one, together = (1e3 * median(each) for each in zip(*times[1:], strict=True))
    ratio = median(first / second for first, second in times[1:])
    print(
        f"{rows} rows, {len(given)} pairs on {device}: {one:.3f} ms one by one, {together:.3f} ms as a batch, ", end=""
    )
    print(f"{ratio:.2f} times as fast; bits {'equal' if equal else 'DIFFER'}")
    return equal


def main(arguments: Sequence[str] | None = None) -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--divide", type=int, default=1, help="N and K are divided by it")
    asked = parser.parse_args(arguments)
    equal = [compared(rows, asked.turns, asked.divide, asked.device) for rows in asked.rows]
    sys.exit(int(not all(equal)))


if __name__ == "__main__":
    main()
