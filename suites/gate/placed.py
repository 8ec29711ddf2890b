"""Differences of time between bindings of one kernel on the same arrays, caused only by the addresses of their
arguments; see README.md in this folder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import expm1

import numpy as np
from loads import LOADS, Load, Pair
from rich.console import Console
from rich.table import Table

from tritmark.harness.spec import Launch
from tritmark.kernels.native import cpu

_PAIRS = 250


def _dequantize(rng: np.random.Generator, sizes: Sequence[int]) -> list[Launch]:
    """`sizes` counts elements."""
    q = rng.integers(-1, 2, max(sizes), dtype=np.int8)
    x = np.empty(len(q), np.float32)
    kernel = cpu.native("i2s_dequantize").I2SDequantize
    return [kernel(cpu.best("i2s_dequantize"), q[:n], 0.7, x[:n], False, 1) for n in sizes]


PLACED: Mapping[str, Load] = {
    **{name: LOADS[name] for name in ("gemv", "quantize", "small")},
    "dequantize": Load("native dequantize", 16384, _dequantize),
}


def main() -> None:
    """Print the range of the medians of bindings, each interleaved with the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bindings", type=int, default=28, help="bindings of each kernel (default 28: their arguments cover 4 KiB)"
    )
    bindings = parser.parse_args().bindings
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("kernel", "from", "to"):
        table.add_column(column)
    rng = np.random.default_rng()
    for load in PLACED.values():
        medians = _medians(load, bindings, rng)
        table.add_row(load.title, f"{min(medians):+.2%}", f"{max(medians):+.2%}")
    Console(width=100, highlight=False).print(table)


def _medians(load: Load, bindings: int, rng: np.random.Generator) -> list[float]:
    first, *others = load.make(rng, [load.base] * bindings)
    return [expm1(np.median(Pair(first, other, rng).take(_PAIRS))) for other in others]


if __name__ == "__main__":
    main()
