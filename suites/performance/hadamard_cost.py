"""What rotating activations adds to a product of one token.

    python suites/performance/hadamard_cost.py [--device cuda] [--shapes 5120x5120 17408x5120] [--block 1024]
                                               [--rows 1] [--format NAME] [--threads N] [--rounds 31]

For each N x K the time in us of activation_quantize, of hadamard_quantize and of the product of the codes with cold
weights; on a GPU also of both chains, quantize and then multiply, since launches overlap. The last figures are what the
rotation adds, the difference of the chains or of the quantizers, in percent of the product. Activations are float32 on
the CPU and bfloat16 on a GPU, where each contender is a CUDA graph. All are interleaved in one process, in another
order each round; a time is the least of the rounds on the CPU, and the median on a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
from interleaved_timing import CALLS, COLD, Sample, interleaved_us

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey, Launch
from tritmark.kernels import pack_weights
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.weights.packed import preferred_format

BYTES = {"cpu": 256 << 20, "cuda": COLD}
"""Of weights that a contender goes through: more than the caches hold."""
PLAIN, ROTATED, PRODUCT = "activation_quantize", "hadamard_quantize", "product"
CHAINS = {f"{PLAIN} + {PRODUCT}": PLAIN, f"{ROTATED} + {PRODUCT}": ROTATED}


@dataclass(frozen=True)
class Arrays:
    """Arrays on the device."""

    put: Callable[[Any], Any]
    """Of host arrays."""
    new: Callable[[tuple[int, ...], Any], Any]


def on_device(device: str) -> Arrays:
    """The arrays of a device."""
    if device == "cpu":
        return Arrays(lambda array: array, np.zeros)
    from tritmark.kernels.cuda.measure.clock import timeable

    here = timeable(0)
    return Arrays(here.upload, here.array)


def contenders(device: str, shape: tuple[int, int, int], block: int, format: str, threads: int) -> dict[str, list[Any]]:
    """The launches of each contender; chains alternate both launches."""
    (M, N, K), rng, there = shape, np.random.default_rng(0), on_device(device)
    dtype = "float32" if device == "cpu" else "bfloat16"
    inputs = "none" if device == "cpu" else dtype
    x = there.put(rng.standard_normal((M, K), np.float32).astype(named_dtype(dtype)))
    signs = there.put(rng.choice(np.array([-1, 1], np.int8), K))

    def bound(key: KernelKey, given: dict[str, Any], outputs: dict[str, Any], axes: Axes) -> Launch:
        return dispatch.select(key, axes, None).bind(given, outputs, axes, threads)

    quantized, rows = {}, {"M": M, "K": K}
    made = {}
    for name, given, axes in ((PLAIN, {"x": x}, rows), (ROTATED, {"x": x, "signs": signs}, {**rows, "block": block})):
        outputs = {
            "q": there.new((M, K), np.int8),
            "scale": there.new((M,), np.float32),
            "sum": there.new((M,), np.int32),
        }
        made[name] = bound(KernelKey(device, name, inputs, "int8"), given, outputs, axes)
        made[name].run()
        quantized[name] = outputs
    weights = pack_weights(rng.integers(-1, 2, (N, K), dtype=np.int8), np.float32(0.5), format=format)
    copies = max(2, -(-BYTES[device] // weights.data.nbytes))
    stored = [there.put(weights.data.copy()) for _ in range(copies)]
    key = KernelKey(device, "ternary_matmul", format, dtype)
    out = {"out": there.new((M, N), named_dtype(dtype))}

    def product(name: str, data: Any) -> Launch:
        codes = {"activations": quantized[name]["q"], "act_scale": quantized[name]["scale"]}
        given = {**codes, "weights": data, "weight_scale": weights.weight_scale}
        return bound(key, given, out, {"M": M, "N": N, "K": K})

    found = {PLAIN: [made[PLAIN]], ROTATED: [made[ROTATED]], PRODUCT: [product(PLAIN, each) for each in stored]}
    for chain, name in CHAINS.items() if device != "cpu" else ():
        found[chain] = [launch for each in stored for launch in (made[name], product(name, each))]
    return found


def timed_on_cpu(launches: list[Launch], first: int, calls: int) -> int:
    """ns of `calls` calls in a row, from index `first`."""
    begun = perf_counter_ns()
    for call in range(first, first + calls):
        launches[call % len(launches)].run()
    return perf_counter_ns() - begun


def timed(device: str, launches: dict[str, list[Any]], rounds: int) -> dict[str, float]:
    """us of each contender: of two launches for a chain."""
    samples = {}
    for name, each in launches.items():
        # Whole turns through the weights; more calls for contenders that have one launch.
        calls = len(each) * max(1, -(-CALLS // len(each)))
        sample: Callable[..., int] = timed_on_cpu
        if device != "cpu":
            from tritmark.kernels.cuda.measure.clock import GraphClock

            sample = GraphClock().sample
        samples[name] = Sample(partial(sample, each, 0, calls), calls // 2 if name in CHAINS else calls)
    return interleaved_us(samples, rounds, min if device == "cpu" else median)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shapes", nargs="+", default=("5120x5120", "17408x5120"), metavar="NxK")
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--rows", nargs="+", type=int, default=(1,), metavar="M")
    parser.add_argument("--format", help="of the weights")
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    device = options.device
    for shape in options.shapes:
        N, K = map(int, shape.split("x"))
        format = options.format or preferred_format(device, (N, K))
        for M in options.rows:
            threads = dispatch.threads_for(KernelKey(device, PLAIN, "none", "int8"), options.threads)
            us = timed(device, contenders(device, (M, N, K), options.block, format, threads), options.rounds)
            plain, rotated = (us[name] for name in (CHAINS if device != "cpu" else (PLAIN, ROTATED)))
            told = "  ".join(f"{name} {each:.2f}" for name, each in us.items())
            adds = f"the rotation adds {rotated - plain:.2f} us, {100 * (rotated - plain) / us[PRODUCT]:.1f} %"
            print(f"{M} x {N} x {K} {format}: {told}; {adds} of the product", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
