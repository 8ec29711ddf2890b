"""The workloads on which the gate is measured: each a kernel, and the same kernel with a known share of extra work.

Extra work is more rows or more elements of the same buffers, so that both sides read the same memory and run the same
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from tritmark.harness.measure.alternate import Timed, calibrate
from tritmark.harness.measure.clocks import clock_for
from tritmark.harness.spec import Launch
from tritmark.kernels.native import cpu

Make = Callable[[np.random.Generator, Sequence[int]], list[Launch]]


@dataclass(frozen=True)
class Load:
    """A workload. `make` binds it for each of the sizes, in units of `base` for the unchanged kernel, on the same
    fresh buffers."""

    title: str
    base: int
    make: Make

    def pair(self, size: int, rng: np.random.Generator) -> Pair:
        """The kernel, and the same kernel on `size`, newly bound and calibrated."""
        base, head = self.make(rng, (self.base, size))
        return Pair(base, head, rng)


class Pair:
    """Two bindings with interleaved times: the source of pairs for the gate, and two functions for other tools."""

    def __init__(self, base: Launch, head: Launch, rng: np.random.Generator) -> None:
        clock = clock_for(cpu.DEVICE, (base, head))
        self.base, self.head = Timed((base,), clock), Timed((head,), clock)
        self.call_ns = calibrate(self.base)
        self.head.calls = self.base.calls
        self.base_ns: list[float] = []
        self.head_ns: list[float] = []
        self._rng = rng

    def take(self, pairs: int) -> list[float]:
        """log(head/base) of `pairs` further adjacent pairs."""
        for first in self._rng.random(pairs) < 0.5:
            if first:
                self.base_ns.append(self.base.sample())
                self.head_ns.append(self.head.sample())
            else:
                self.head_ns.append(self.head.sample())
                self.base_ns.append(self.base.sample())
        return self.logs()[-pairs:]

    def logs(self) -> list[float]:
        """log(head/base) of every pair so far."""
        return np.log(np.asarray(self.head_ns) / np.asarray(self.base_ns)).tolist()  # type: ignore[no-any-return]

    def take_for(self, seconds: float) -> None:
        """Take pairs for `seconds`."""
        end = perf_counter() + seconds
        while perf_counter() < end:
            self.take(10)


class _NumPy:
    """A NumPy call in place of a kernel."""

    pointer = None

    def __init__(self, call: np.ufunc, x: np.ndarray, out: np.ndarray) -> None:
        self._call, self._x, self._out = call, x, out

    def run(self) -> None:
        self._call(self._x, out=self._out)


def _weights(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    weights = rng.integers(0, 256, n * k // 4, dtype=np.uint8)
    weights &= ~((weights & 0x55) & (weights >> 1 & 0x55)) & 0xFF  # no field is 3, which is no code
    return weights


def _gemv(rng: np.random.Generator, sizes: Sequence[int]) -> list[Launch]:
    """`sizes` counts tiles of 64 rows."""
    k, tiles = 2560, max(sizes)
    weights = _weights(rng, tiles * 64, k)
    activations = rng.integers(-127, 128, (1, k), dtype=np.int8)
    scale, out = np.ones(1, np.float32), np.empty(tiles * 64, np.float32)
    kernel = cpu.native("ternary_matmul").TernaryMatmul
    return [
        kernel(
            "tile64",
            cpu.best("ternary_matmul"),
            activations,
            weights,
            n * 64,
            1.0,
            scale,
            out[: n * 64].reshape(1, -1),
            1,
        )
        for n in sizes
    ]


def _gemm(rng: np.random.Generator, sizes: Sequence[int]) -> list[Launch]:
    """`sizes` counts rows of activations; the weights stay in the L2."""
    n, k = 640, 2560
    activations = rng.integers(-127, 128, (max(sizes), k), dtype=np.int8)
    scale, out = np.ones(max(sizes), np.float32), np.empty((max(sizes), n), np.float32)
    kernel = cpu.native("ternary_matmul").TernaryMatmul
    weights = _weights(rng, n, k)
    return [
        kernel("tile64", cpu.best("ternary_matmul"), activations[:m], weights, n, 1.0, scale[:m], out[:m], 1)
        for m in sizes
    ]


def _quantize(rng: np.random.Generator, sizes: Sequence[int]) -> list[Launch]:
    """`sizes` counts 64 elements."""
    x = rng.standard_normal(max(sizes) * 64, np.float32)
    q = np.empty(len(x), np.int8)
    kernel = cpu.native("i2s_quantize").I2SQuantize
    return [kernel(cpu.best("i2s_quantize"), x[: n * 64], 0.7, q[: n * 64], False, 1) for n in sizes]


def _activations(rng: np.random.Generator, sizes: Sequence[int]) -> list[Launch]:
    """`sizes` counts rows of 64."""
    x = rng.standard_normal((max(sizes), 64), np.float32)
    q, scale, total = np.empty(x.shape, np.int8), np.empty(len(x), np.float32), np.empty(len(x), np.int32)
    kernel = cpu.native("activation_quantize").ActivationQuantize
    return [kernel(cpu.best("activation_quantize"), "none", x[:n], q[:n], scale[:n], total[:n], 1) for n in sizes]


def _numpy(call: np.ufunc) -> Make:
    def make(rng: np.random.Generator, sizes: Sequence[int]) -> list[Launch]:
        """`sizes` counts elements."""
        x = rng.standard_normal(max(sizes), np.float32)
        out = np.empty_like(x)
        return [_NumPy(call, x[:n], out[:n]) for n in sizes]  # type: ignore[misc]

    return make


LOADS: Mapping[str, Load] = {
    "gemv": Load("native GEMV, rows of 2560", 200, _gemv),
    "quantize": Load("native quantize", 1600, _quantize),
    "small": Load("native quantize of activations, rows of 64", 200, _activations),
    "numpy": Load("NumPy exp", 160_000, _numpy(np.exp)),
}
LONG: Mapping[str, Load] = {
    "long gemv": Load("native GEMV, rows of 2560, from memory", 2400, _gemv),
    "long gemm": Load("native product with 640 x 2560 weights", 400, _gemm),
    "long numpy": Load("NumPy spacing", 640_000, _numpy(np.spacing)),
}
"""Workloads with calls of a millisecond or more."""
EVERY = {**LOADS, **LONG}
