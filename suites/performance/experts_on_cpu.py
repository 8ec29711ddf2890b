"""One call of ternary_matmul_experts beside a call of ternary_matmul for each expert, interleaved in one process.

    python suites/performance/experts_on_cpu.py [--shapes 512x2048 2048x512] [--rows 8 64 512 4096] [--experts 256]
                                                [--formats tile64 tile64_g128] [--threads N] [--rounds 15]

Calls follow each other through all experts, so the weights of those with rows are not in the caches. For each N x K and
number of rows (pairs of a token and an expert): the least time of a call in us, and those of the loop of kernels and of
the loop of public calls in its place, relative to it; the share of the measured reading rate for the bytes of the
experts that have rows; and products in 10^9 a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tritmark.harness.spec import Launch, Variant
from tritmark.kernels import FORMATS, PackedWeights, pack_weights, ternary_matmul
from tritmark.kernels.native import cpu
from tritmark.kernels.ternary_matmul_experts.offsets import touched
from tritmark.kernels.weights.packed import axes_of, product_with

DTYPE = "float32"


def made(E: int, N: int, K: int, format: str, rng: np.random.Generator) -> PackedWeights:
    """Weights of experts, every matrix one of four, with bytes of its own."""
    form = FORMATS[format]
    four = pack_weights(
        rng.integers(-1, 2, (4, N, K), dtype=np.int8),
        np.ones((4, *form.scale_shape((N, K))), np.float32),
        format=format,
    )
    which = np.arange(E) % 4
    return PackedWeights(four.data[which], format, (E, N, K), four.scale[which])


class Bench:
    """The launches of one size."""

    def __init__(self, weights: PackedWeights, M: int, threads: int, rng: np.random.Generator) -> None:
        self.weights, self.M, self.threads, self.axes = weights, M, threads, axes_of(weights, M)
        E, (N, K) = weights.shape[0], weights.matrix
        self.busy = touched(M, E)
        self.x = rng.integers(-128, 128, (M, K), dtype=np.int8)
        self.scale, self.out = np.ones(M, np.float32), np.empty((M, N), np.float32)
        order = rng.permutation(E)
        self.parts = [PackedWeights(weights.data[e], weights.format, (N, K), weights.scale[e]) for e in range(E)]
        self.chosen = [np.sort(order[at : at + self.busy]) for at in range(0, E - self.busy + 1, self.busy)]
        self.counts = M // self.busy + (np.arange(self.busy) < M % self.busy)
        self.begins = np.concatenate([[0], np.cumsum(self.counts)])

    def together(self) -> list[Launch]:
        """A launch for each choice of experts."""
        variant = self._variant(self.weights, self.M)
        return [self._bound(variant, self._offsets(experts)) for experts in self.chosen]

    def apart(self) -> list[Launch]:
        """The launches of each expert, choice by choice."""
        found = []
        for experts in self.chosen:
            for nth, expert in enumerate(experts):
                part, rows = self.parts[expert], slice(self.begins[nth], self.begins[nth + 1])
                inputs = {
                    "activations": self.x[rows],
                    "weights": part.data,
                    "weight_scale": part.weight_scale,
                    "act_scale": self.scale[rows],
                }
                axes = axes_of(part, int(self.counts[nth]))
                variant = self._variant(part, axes["M"])
                found.append(variant.bind(inputs, {"out": self.out[rows]}, axes, self.threads))
        return found

    def in_python(self) -> None:
        """Public calls for each expert of each choice."""
        for experts in self.chosen:
            for nth, expert in enumerate(experts):
                rows = slice(self.begins[nth], self.begins[nth + 1])
                asked: dict[str, Any] = {"act_scale": self.scale[rows], "out": self.out[rows], "threads": self.threads}
                ternary_matmul(self.x[rows], self.parts[expert], **asked)

    def _offsets(self, experts: Any) -> Any:
        rows = np.zeros(self.weights.shape[0], np.int64)
        rows[experts] = self.counts
        return np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)

    def _variant(self, weights: PackedWeights, M: int) -> Variant:
        return product_with(weights, "cpu", DTYPE, axes_of(weights, M), None, self.threads)

    def _bound(self, variant: Variant, offsets: Any) -> Launch:
        inputs = {
            "activations": self.x,
            "weights": self.weights.data,
            "weight_scale": self.weights.expert_scales,
            "act_scale": self.scale,
            "offsets": offsets,
        }
        return variant.bind(inputs, {"out": self.out}, self.axes, self.threads)


def least(samples: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """The least time of each in us, interleaved."""
    found = dict.fromkeys(samples, float("inf"))
    for _ in range(rounds):
        for name, sample in samples.items():
            found[name] = min(found[name], sample() / 1e3)
    return found


def in_a_row(launches: Sequence[Launch]) -> Callable[[], int]:
    """The time of all launches, one after the other, in ns."""
    assert cpu.DEVICE.clock is not None
    clock = cpu.DEVICE.clock()
    return lambda: clock.sample(launches, 0, len(launches))


def by_python(call: Callable[[], None]) -> Callable[[], int]:
    """Its time in ns."""

    def sample() -> int:
        begin = time.perf_counter_ns()
        call()
        return time.perf_counter_ns() - begin

    return sample


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=("512x2048", "2048x512"), metavar="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=(8, 64, 512, 4096), metavar="M")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--formats", nargs="+", default=("tile64", "tile64_g128"))
    parser.add_argument("--threads", type=int, default=cpu.cores())
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    rng, reading = np.random.default_rng(0), cpu.DEVICE.ceilings()["read"]
    for format in options.formats:
        for N, K in (map(int, shape.split("x")) for shape in options.shapes):
            weights = made(options.experts, N, K, format, rng)
            room = np.empty(weights.data.nbytes + 64, np.uint8)
            begin = -room.ctypes.data % 64
            read = reading.bind(room[begin : begin + weights.data.nbytes // 64 * 64], options.threads)
            for M in options.rows:
                bench = Bench(weights, M, options.threads, rng)
                calls = len(bench.chosen)
                samples = {"call": in_a_row(bench.together()), "kernels": in_a_row(bench.apart())}
                samples |= {"python": by_python(bench.in_python), "read": in_a_row([read])}
                us = least(samples, options.rounds)
                call, nbytes = us["call"] / calls, bench.busy * weights.data[0].nbytes
                share = nbytes / call / (weights.data.nbytes / us["read"])
                rate = M * N * K / call / 1e3
                print(
                    f"{format} {N} x {K}, {M:4} rows of {bench.busy:3} experts: {call:8.1f} us; "
                    f"loop of kernels {us['kernels'] / calls / call:.2f}, of public calls "
                    f"{us['python'] / calls / call:.2f}; {100 * share:.0f} % of the reading rate; {rate:.0f} G/s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
