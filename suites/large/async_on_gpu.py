"""Awaitable calls on a GPU, one after the other and together: `python suites/large/async_on_gpu.py [--turns 7]`.

For each case prints the time of CALLS calls that are awaited in sequence, that of the same calls in asyncio.gather,
their ratio, and the longest pause of the event loop meanwhile, medians of interleaved turns. Also prints streams and
device memory that are left. Exits with status 1 if results differ from those of plain calls, or if memory is left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tritmark.kernels import QuantizedLinear, aio, matmul, ternary_quantize
from tritmark.kernels.cuda.context import cuda_context

CALLS = 8

Plain = Callable[[], Any]


def cases() -> Mapping[str, Sequence[Plain]]:
    """The calls of each case."""
    rng = np.random.default_rng(0)
    x = [rng.standard_normal(1 << 24, np.float32) for _ in range(CALLS)]
    thin = [rng.standard_normal((128, 1 << 16), np.float32) for _ in range(CALLS)]
    tall = [np.ascontiguousarray(each.T) for each in thin]
    layers = [QuantizedLinear(rng.standard_normal((4096, 4096), np.float32), device="cuda") for _ in range(CALLS)]
    row = rng.standard_normal((1, 4096), np.float32)
    return {
        "ternary_quantize of 64 MB": [partial(ternary_quantize, each, 128, packed=True, device="cuda") for each in x],
        "matmul of few blocks, 128 x 128 x 65536": [
            partial(matmul, a, b, mode="fp32") for a, b in zip(thin, tall, strict=True)
        ],
        "QuantizedLinear of 4096 x 4096, one row": [partial(layer, row) for layer in layers],
    }


async def paused(work: Awaitable[Any]) -> tuple[float, float, Any]:
    """Seconds of the work, the longest time between two turns of the loop, and the result."""
    begun = last = perf_counter()
    task, longest = asyncio.ensure_future(work), 0.0
    while not task.done():
        await asyncio.sleep(0)
        now = perf_counter()
        longest, last = max(longest, now - last), now
    return perf_counter() - begun, longest, await task


async def in_sequence(calls: Sequence[Plain]) -> list[Any]:
    """Each awaited before the next."""
    return [await aio.call(each) for each in calls]


async def together(calls: Sequence[Plain]) -> list[Any]:
    """All awaited at once."""
    return await asyncio.gather(*map(aio.call, calls))


def same(one: Any, other: Any) -> bool:
    """Whether two results have the same bits."""
    pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
    return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


async def measured(name: str, calls: Sequence[Plain], turns: int) -> list[str]:
    """Print one case. Returns its faults."""
    expected, faults, found = [each() for each in calls], [], []
    await together(calls)
    for _ in range(turns):
        apart, _, _ = await paused(in_sequence(calls))
        seconds, longest, results = await paused(together(calls))
        found.append((apart, seconds, longest))
        if not all(map(same, results, expected)):
            faults.append(f"{name}: other results than plain calls")
    apart, seconds, longest = (median(each) * 1e3 for each in zip(*found, strict=True))
    ratios = sorted(each[0] / each[1] for each in found)
    print(
        f"{name}: {apart:.2f} ms in sequence, {seconds:.2f} ms together, {median(ratios):.2f} times as fast "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}); longest pause of the loop {longest:.2f} ms"
    )
    return faults


def main() -> int:
    """Run all cases; returns the number of faults."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--turns", type=int, default=7)
    turns, here = asked.parse_args().turns, cuda_context()
    print(here.backend.info.name)
    faults = []
    with here.pool.watch() as watch:
        for name, calls in cases().items():
            faults += asyncio.run(measured(name, calls, turns))
        del calls
        gc.collect()
        leaks = watch.leaks()
    print(f"{len(here.transfers._up._idle)} streams of calls; {leaks}")
    faults += [f"device memory: {leaks}"] if leaks else []
    print("\n".join(["FAULTS:", *faults]) if faults else "no faults")
    return len(faults)


if __name__ == "__main__":
    sys.exit(bool(main()))
