"""Speed-up of several GPUs: the weights of a made-up 8B model, quantized and packed on one GPU and on several,
interleaved.

    python suites/large/several_gpus.py [--gpus N] [--layers 32] [--turns 5] [--pinned]

The linear layers of llama3-8B-1.58 (suites/workloads/models.toml), float32 in the host's memory: 28 GB go to the GPUs.
The matrices of one block are used for all 32, so only 0.9 GB are made, more than any cache holds. Timed is
`spread(ternary_quantize, ...)` from NumPy arrays to NumPy arrays, with weights in ordinary memory or in pinned memory,
which GPUs read directly. With pinned memory the copies to the GPUs are also timed alone, interleaved: they are an upper
limit of the speed. Exits with status 1 if the results differ from those of one GPU, if a GPU was removed, or if N GPUs
are less than 0.95 N times as fast as one.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.kernels import Spread, spread, ternary_quantize
from tritmark.kernels.cuda.backend import Allocation, Stream
from tritmark.kernels.cuda.context import CudaContext, cuda_context, gpu_count

MODEL = "llama3-8B-1.58-100B-tokens"
BLOCK = 128
SHARE = 0.95
"""Required share of N times the rate of one GPU."""
AT_ONCE = 2
"""Copies to a GPU that are in flight when copies are timed alone: one is queued while another runs."""

Weights = Mapping[str, npt.NDArray[np.float32]]


def weights(shapes: Sequence[tuple[int, int, int]], layers: int, empty: Callable[..., Any] = np.empty) -> Weights:
    """Made-up matrices (N, K) of `blocks` blocks of the model, in arrays from `empty`."""
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
    """The model's linear layers: N, K, and the number in a block."""
    path = Path(__file__).parents[1] / "workloads" / "models.toml"
    found: list[tuple[int, int, int]] = [
        (N, K, count) for N, K, count in tomllib.loads(path.read_text(encoding="utf-8"))[MODEL]["linears"]
    ]
    return found


def quantized(tensors: Weights, gpus: int) -> tuple[float, Spread[str, Any]]:
    """Seconds on that many GPUs, and the results."""
    began = perf_counter()
    made = spread(
        ternary_quantize, tensors, devices=[f"cuda:{index}" for index in range(gpus)], packed=True, block=BLOCK
    )
    return perf_counter() - began, made


class Copies:
    """Only the copies that the tensors need."""

    def __init__(self, tensors: Weights, gpus: int) -> None:
        self._tensors = list(tensors.values())
        self._contexts = [cuda_context(index) for index in range(gpus)]
        largest = max(each.nbytes for each in self._tensors)
        self._places = [
            [(each.backend.allocate(largest), each.backend.new_stream(apart=True)) for _ in range(AT_ONCE)]
            for each in self._contexts
        ]

    def seconds(self, gpus: int) -> float:
        """Copies to that many GPUs, distributed round-robin."""
        queues = [SimpleQueue[npt.NDArray[np.float32]]() for _ in range(gpus)]
        for number, each in enumerate(self._tensors):
            queues[number % gpus].put(each)
        began = perf_counter()
        with ThreadPoolExecutor(gpus * AT_ONCE) as threads:
            made = [
                threads.submit(self._copy, self._contexts[gpu], *place, queues[gpu])
                for gpu in range(gpus)
                for place in self._places[gpu]
            ]
        for copied in made:
            copied.result()
        return perf_counter() - began

    @staticmethod
    def _copy(
        context: CudaContext, target: Allocation, stream: Stream, queue: SimpleQueue[npt.NDArray[np.float32]]
    ) -> None:
        with context.backend, suppress(Empty):
            while True:
                context.backend.write(target.pointer, queue.get_nowait(), stream)
                stream.synchronize()


def differing(one: Spread[str, Any], other: Spread[str, Any]) -> list[str]:
    """Tensors with different bits in two runs."""
    return [
        name
        for name, mine in one.results.items()
        if not all(np.array_equal(a, b) for a, b in zip(mine[:2], other.results[name][:2], strict=True))
    ]


def told(what: str, nbytes: int, gpus: int, times: Sequence[tuple[float, float]]) -> float:
    """Print interleaved times on one GPU and on several; return the speed-up."""
    alone, together = (median(each) for each in zip(*times, strict=True))
    ratio = median(first / second for first, second in times)
    print(f"{what} on one GPU: {alone:.3f} s, {nbytes / alone / 1e9:.1f} GB/s")
    print(f"{what} on {gpus}: {together:.3f} s, {nbytes / together / 1e9:.1f} GB/s, {ratio:.2f} times as fast")
    return ratio


def compared(tensors: Weights, gpus: int, turns: int, *, copies: bool = False) -> bool:
    """Print the speed-up of several GPUs over one, interleaved, and with `copies` also that of the copies alone; return
    whether all checks pass."""
    nbytes = sum(each.nbytes for each in tensors.values())
    (_, one), (_, several) = quantized(tensors, 1), quantized(tensors, gpus)  # compiles, and pins memory
    wrong = differing(one, several)
    alone = Copies(tensors, gpus) if copies else None
    times, copy_times = list[tuple[float, float]](), list[tuple[float, float]]()
    for _ in range(turns):
        times.append((quantized(tensors, 1)[0], quantized(tensors, gpus)[0]))
        if alone is not None:
            copy_times.append((alone.seconds(1), alone.seconds(gpus)))
    print(f"{len(tensors)} tensors, {nbytes / 1e9:.1f} GB of float32")
    ratio = told("quantized", nbytes, gpus, times)
    if copy_times:
        told("copied alone", nbytes, gpus, copy_times)
    for device in sorted(set(several.made_by.values())):
        mine = [name for name, by in several.made_by.items() if by == device]
        print(f"{device}: {len(mine)} tensors, {sum(tensors[name].nbytes for name in mine) / nbytes:.0%} of the bytes")
    for failed in several.failed:
        print(f"{failed.device} was removed: {failed.error}")
    print(f"bits differ from one GPU: {', '.join(wrong) or 'none'}")
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
    sys.exit(not compared(tensors, asked.gpus, asked.turns, copies=asked.pinned))


if __name__ == "__main__":
    main()
