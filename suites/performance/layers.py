"""Linear layers on a GPU from bfloat16 activations to bfloat16 outputs, interleaved in one process.

    python suites/performance/layers.py [--shapes 2560x2560 13824x2560] [--rows 1 8 16 64] [--rounds 15]

For each N x K and M the time in us with cold weights: of every variant of ternary_linear that takes the shape; of
ternary_matmul and activation_quantize alone; and of PyTorch's product of dense bfloat16 weights. A line ends with the
fastest variant over the product alone, and PyTorch's time over the fastest. Each contender has a CUDA graph of 24 calls
or more over as many copies of its weights as exceed the L2. The replays are interleaved, in another order each round,
and a time is the median of the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from interleaved_timing import CALLS, Sample, cold_copies, graph_sample, interleaved_us

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey, Tier
from tritmark.kernels import pack_weights
from tritmark.kernels.activation_quantize.spec import OP as QUANTIZE
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.measure.clock import timeable
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.ternary_linear.reference import NAMES
from tritmark.kernels.ternary_matmul.cuda import FORMAT
from tritmark.kernels.ternary_matmul.spec import OP as PRODUCT

SHAPES = ("2560x2560", "13824x2560", "2560x6912", "4096x4096")
ROWS = (1, 2, 4, 8, 12, 16, 64, 256, 1024, 4096)
DTYPE = "bfloat16"
ALONE, ROWS_ALONE, DENSE = "product", "quantize", "torch-bfloat16"


def launches_of(here: CudaContext, axes: Axes) -> dict[str, list[Any]]:
    """The launches of each contender, one for each copy of the weights."""
    M, N, K = (axes[axis] for axis in "MNK")
    rng = np.random.default_rng(0)
    x = here.upload(rng.standard_normal((M, K), np.float32).astype(named_dtype(DTYPE)))
    out = here.array((M, N), named_dtype(DTYPE))
    packed = pack_weights(rng.integers(-1, 2, (N, K), dtype=np.int8), 0.5, format=FORMAT)
    stored = [here.upload(packed.data) for _ in range(cold_copies(packed.data.nbytes))]
    scale = {"weight_scale": packed.weight_scale}
    found: dict[str, list[Any]] = {}

    def add(name: str, bind: Callable[..., Any], inputs: dict[str, Any]) -> None:
        found[name] = [bind({**inputs, **scale, "weights": each}, {"out": out}, axes, 1) for each in stored]

    key, registry = KernelKey(DEVICE, NAMES[DTYPE], FORMAT, DTYPE), dispatch.registry()
    for variant in registry.variants:
        if variant.key != key or variant.tier is Tier.BASELINE:
            continue
        if any(constraint.refusal(axes) for constraint in variant.constraints):
            continue
        add(variant.name, variant.bind, {"x": x})
    rows = {"q": here.array((M, K), np.int8), "scale": here.array((M,), np.float32), "sum": here.array((M,), np.int32)}
    quantize = dispatch.select(KernelKey(DEVICE, QUANTIZE.name, DTYPE, "int8"), {"M": M, "K": K}, None)
    found[ROWS_ALONE] = [quantize.bind({"x": x}, rows, {"M": M, "K": K}, 1)]
    found[ROWS_ALONE][0].run()
    product = registry.select_best(KernelKey(DEVICE, PRODUCT.name, FORMAT, DTYPE), axes)
    add(ALONE, product.bind, {"activations": rows["q"], "act_scale": rows["scale"]})
    return found


def dense(axes: Axes) -> Sample | None:
    """PyTorch's product; None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    M, N, K = (axes[axis] for axis in "MNK")
    x = torch.randn(M, K, device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn(N, K, device="cuda", dtype=torch.bfloat16) for _ in range(cold_copies(2 * N * K))]
    calls = -(-CALLS // len(weights)) * len(weights)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for each in weights:
            torch.nn.functional.linear(x, each)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for call in range(calls):
            torch.nn.functional.linear(x, weights[call % len(weights)])
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample() -> float:
        graph.replay()
        begun.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended)) * 1e6

    return Sample(sample, calls)


def timed(here: CudaContext, axes: Axes, rounds: int) -> dict[str, float]:
    """The time of each contender in us."""
    samples = {name: graph_sample(launches) for name, launches in launches_of(here, axes).items()}
    if beside := dense(axes):
        samples[DENSE] = beside
    return interleaved_us(samples, rounds)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="M")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    here = timeable(0)
    for shape in options.shapes:
        N, K = map(int, shape.split("x"))
        for M in options.rows:
            us = timed(here, {"M": M, "N": N, "K": K}, options.rounds)
            ours = {name: each for name, each in us.items() if name not in {ALONE, ROWS_ALONE, DENSE}}
            best = min(ours, key=ours.__getitem__)
            told = "  ".join(f"{name} {each:.2f}" for name, each in sorted(us.items(), key=lambda item: item[1]))
            beside = f", {DENSE} takes {us[DENSE] / us[best]:.2f} times as long" if DENSE in us else ""
            print(
                f"{M:5} x {N} x {K}: {told}; {best} takes {us[best] / us[ALONE]:.2f} of the product{beside}", flush=True
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
