"""The weights of a made-up model of 8B, quantized and packed on one GPU and on several, by turns: what several gain.

    python suites/large/several_gpus.py [--gpus N] [--layers 32] [--turns 5] [--pinned]

The linear layers of llama3-8B-1.58 (suites/workloads/models.toml), float32 in the host's memory: 28 GB go to the GPUs.
One block's matrices stand for those of all 32, so that 0.9 GB of them are made, more than any cache holds. What is
timed is `spread(ternary_quantize, ...)` from NumPy arrays to NumPy arrays, the weights in ordinary memory or in such as
a loader has pinned, so that the GPUs read it by themselves. Ends with status 1 where the results are not those of one
GPU, a GPU was taken out, or N of them are less than 0.95 N times as fast as one.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.kernels import Spread, spread, ternary_quantize
from tritmark.kernels.cuda.context import cuda_context, gpu_count

MODEL = "llama3-8B-1.58-100B-tokens"
BLOCK = 128
SHARE = 0.95
"""Of N GPUs' rate, what has to be reached."""

Weights = Mapping[str, npt.NDArray[np.float32]]


def weights(shapes: Sequence[tuple[int, int, int]], layers: int, empty: Callable[..., Any] = np.empty) -> Weights:
    """Made-up matrices (N, K), as many as the model has in so many blocks, in what `empty` gives."""
    rng = np.random.default_rng(8)
    block = {
        f"{N}x{K}.{number}": rng.standard_normal((N, K), np.float32, empty((N, K), np.float32))
        for N, K, count in shapes
        for number in range(count)
    }
    return {f"{layer}.{name}": matrix for layer in range(layers) for name, matrix in block.items()}


def pinned(shape: tuple[int, int], dtype: type[np.float32]) -> npt.NDArray[np.float32]:
    """An empty array in memory that is pinned for every GPU."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return cuda_context().backend.pinned(nbytes).view(dtype).reshape(shape)


def published() -> list[tuple[int, int, int]]:
    """The model's linear layers: N, K, and how many a block has."""
    path = Path(__file__).parents[1] / "workloads" / "models.toml"
    found: list[tuple[int, int, int]] = [
        (N, K, count) for N, K, count in tomllib.loads(path.read_text(encoding="utf-8"))[MODEL]["linears"]
    ]
    return found


def quantized(tensors: Weights, gpus: int) -> tuple[float, Spread[str, Any]]:
    """Seconds on so many GPUs, and what was made."""
    began = perf_counter()
    made = spread(
        ternary_quantize, tensors, devices=[f"cuda:{index}" for index in range(gpus)], packed=True, block=BLOCK
    )
    return perf_counter() - began, made


def differing(one: Spread[str, Any], other: Spread[str, Any]) -> list[str]:
    """Tensors of which two runs made different bits."""
    return [
        name
        for name, mine in one.results.items()
        if not all(np.array_equal(a, b) for a, b in zip(mine[:2], other.results[name][:2], strict=True))
    ]


def compared(tensors: Weights, gpus: int, turns: int) -> bool:
    """Print what so many GPUs gain over one, by turns; whether all is as it should be."""
    nbytes = sum(each.nbytes for each in tensors.values())
    (_, one), (_, several) = quantized(tensors, 1), quantized(tensors, gpus)  # compiles, and pins memory
    wrong = differing(one, several)
    times = [(quantized(tensors, 1)[0], quantized(tensors, gpus)[0]) for _ in range(turns)]
    alone, together = (median(each) for each in zip(*times, strict=True))
    ratio = median(first / second for first, second in times)
    print(f"{len(tensors)} tensors, {nbytes / 1e9:.1f} GB of float32")
    print(f"one GPU: {alone:.3f} s, {nbytes / alone / 1e9:.1f} GB/s")
    print(f"{gpus} GPUs: {together:.3f} s, {nbytes / together / 1e9:.1f} GB/s, {ratio:.2f} times as fast")
    for device in sorted(set(several.made_by.values())):
        mine = [name for name, by in several.made_by.items() if by == device]
        print(f"{device}: {len(mine)} tensors, {sum(tensors[name].nbytes for name in mine) / nbytes:.0%} of the bytes")
    for failed in several.failed:
        print(f"{failed.device} was taken out: {failed.error}")
    print(f"not the bits of one GPU: {', '.join(wrong) or 'none'}")
    return not wrong and not several.failed and (gpus == 1 or ratio >= SHARE * gpus)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=gpu_count())
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--pinned", action="store_true", help="the weights in pinned memory")
    asked = parser.parse_args()
    tensors = weights(published(), asked.layers, pinned if asked.pinned else np.empty)
    sys.exit(not compared(tensors, asked.gpus, asked.turns))


if __name__ == "__main__":
    main()
