"""Products on a GPU compared with peers, interleaved in one process.

    python suites/performance/gpu_peers.py [--shapes 2560x2560 14336x4096] [--rows 1 16 512] [--rounds 15] [--out FILE]
                                           [--activations bfloat16] [--format row16_g128]

For each N x K and M the time of a product in us, from int8 activations and cold weights to bfloat16 outputs: tritmark's
(the instance that is launched for that shape), humming-kernels W2A8 if installed, and PyTorch with dense weights of
bfloat16, int8 (torch._int_mm) and float8 (torch._scaled_mm with and without fast accumulation; these are another
product, since they round the activations). From bfloat16 activations: ternary_matmul_a16, humming-kernels W2A16, and
PyTorch with dense bfloat16 weights. `--format` with groups: weights with a scale for each group, also of the peers.
Each has a CUDA graph of 24 calls or more over as many copies of its weights as exceed the L2. The replays are
interleaved, in another order each round, and a time is the median of the rounds. A line ends with the time of the
fastest peer over tritmark's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from interleaved_timing import Sample, cold_copies, graph_sample, interleaved_us

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey, Tier
from tritmark.kernels import pack_weights
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.measure.clock import timeable
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.ternary_matmul import cuda
from tritmark.kernels.ternary_matmul.spec import OP
from tritmark.kernels.ternary_matmul_a16.spec import NAMES

SHAPES = ("2560x2560", "13824x2560", "2560x6912", "14336x4096")
ROWS = (1, 8, 16, 64, 128, 512, 2048)
OURS = "tritmark"
INT8, BFLOAT16 = "int8", "bfloat16"
"""Activations."""
PEERS = {
    INT8: ("humming-w2a8", "torch-int8", "torch-fp8", "torch-fp8-fast", "torch-bfloat16"),
    BFLOAT16: ("humming-w2a16", "torch-bfloat16"),
}
BYTES = {"torch-int8": 1.0, "torch-fp8": 1.0, "torch-fp8-fast": 1.0, "torch-bfloat16": 2.0}
"""Bytes of a weight; by default 1/4."""


def contenders(axes: Axes, key: KernelKey, activations: str) -> dict[str, Any]:
    """The bind function of each contender that takes the product."""
    registry = dispatch.registry()
    found = {OURS: registry.select_best(key, axes).bind}
    for variant in registry.variants:
        if variant.tier is not Tier.PEER or variant.name not in PEERS[activations] or variant.key != key:
            continue
        if not any(constraint.refusal(axes) for constraint in variant.constraints) and variant.missing() is None:
            variant.load()
            found[variant.name] = variant.bind
    return found


def bound(here: CudaContext, bind: Any, name: str, axes: Axes, key: KernelKey, rng: np.random.Generator) -> Any:
    """Launches of a contender, each with a copy of the weights."""
    M, N, K = (axes[axis] for axis in "MNK")
    weights = pack_weights(rng.integers(-1, 2, (N, K), dtype=np.int8), 0.5, format=key.weight_format)
    inputs: dict[str, Any] = {"weight_scale": weights.weight_scale}
    if key.op == NAMES[BFLOAT16]:
        inputs["activations"] = here.upload(rng.standard_normal((M, K), np.float32).astype(named_dtype(BFLOAT16)))
    else:
        inputs["activations"] = here.upload(rng.integers(-128, 128, (M, K), dtype=np.int8))
        inputs["act_scale"] = here.upload(rng.uniform(1, 100, M).astype(np.float32))
    outputs = {"out": here.array((M, N), named_dtype(BFLOAT16))}
    copies = cold_copies(int(N * K * BYTES.get(name, 0.25)))
    return [bind({**inputs, "weights": here.upload(weights.data)}, outputs, axes, 1) for _ in range(copies)]


def timed(here: CudaContext, axes: Axes, format: str, activations: str, rounds: int) -> dict[str, float]:
    """The time of each contender in us."""
    key = KernelKey(DEVICE, NAMES[BFLOAT16] if activations == BFLOAT16 else OP.name, format, BFLOAT16)
    rng, samples = np.random.default_rng(0), dict[str, Sample]()
    for name, bind in contenders(axes, key, activations).items():
        try:
            launches = bound(here, bind, name, axes, key, rng)
        except Exception as why:  # third-party code: print its error and continue with the others
            print(f"{name} at {axes}: {type(why).__name__}: {why}")
            continue
        samples[name] = graph_sample(launches)
    return interleaved_us(samples, rounds)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="M")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--activations", choices=tuple(PEERS), default=INT8)
    parser.add_argument("--format", default=cuda.FORMAT, help="of tritmark's weights")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON")
    options = parser.parse_args()
    here, found = timeable(0), []
    for shape in options.shapes:
        N, K = map(int, shape.split("x"))
        for M in options.rows:
            us = timed(here, {"M": M, "N": N, "K": K}, options.format, options.activations, options.rounds)
            peers = {name: each for name, each in us.items() if name != OURS}
            best = min(peers, key=peers.__getitem__, default=None)
            told = "  ".join(f"{name} {each:.2f}" for name, each in sorted(us.items(), key=lambda item: item[1]))
            beside = f"{best} takes {peers[best] / us[OURS]:.2f} times as long" if best else "no peer"
            print(f"{M:5} x {N} x {K}: {told}; {beside}", flush=True)
            found.append({"M": M, "N": N, "K": K, "us": us})
    if options.out:
        info = here.backend.info
        record = {
            "gpu": info.name,
            "driver": info.driver,
            "activations": options.activations,
            "format": options.format,
            "rounds": options.rounds,
            "products": found,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
