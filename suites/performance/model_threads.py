"""Threads of PyTorch and of tritmark in one decode step: who waits for whom.

    python suites/performance/model_threads.py [--threads N] [--blocks 8] [--steps 40] [--rounds 5]

A step is a model's: for each block norms, q, k and v, attention over 512 tokens, o, gate and up, squared ReLU and down,
with BitLinear in bfloat16 at the shapes of bitnet-b1.58-2B-4T; then a head in bfloat16, whose product PyTorch shares
out over its OpenMP threads. After such an op these spin for a while on the cores that the next BitLinear needs.

Each setting has a process of its own; the processes are interleaved, and each round takes the next of each.

| setting | |
|---|---|
| joined | as `import tritmark.torch` sets it: while PyTorch's threads spin, they run tritmark's calls |
| apart | the pool's own threads only |
| apart, passive | the same with OMP_WAIT_POLICY=passive: PyTorch's threads sleep at once |
| joined, passive | joined with that variable |
| one thread for PyTorch | torch.set_num_threads(1) around everything except BitLinear |

Columns: wall time of a step in ms (median and 90th percentile), processor time of the process in ms a step,
involuntary and voluntary context switches a step, and the share of the pool's calls that PyTorch's threads ran.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Any

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD, VOCABULARY, CONTEXT = 2560, 6912, 20, 5, 128, 32000, 512
PASSIVE = {"OMP_WAIT_POLICY": "passive"}
SETTINGS: dict[str, tuple[bool, int | None, dict[str, str]]] = {
    "joined": (True, None, {}),
    "apart": (False, None, {}),
    "apart, passive": (False, None, PASSIVE),
    "joined, passive": (True, None, PASSIVE),
    "one thread for PyTorch": (True, 1, {}),
}
"""By name: whether tritmark joins PyTorch's threads, PyTorch's thread count, and environment variables."""


def decode_step(of_torch: int | None, threads: int, blocks: int) -> Callable[[], object]:
    """A step of a model with random weights; `of_torch`: PyTorch's thread count outside of BitLinear."""
    import torch
    from torch.nn import functional

    from tritmark.kernels import FORMATS
    from tritmark.torch import BitLinear

    generator = torch.Generator().manual_seed(0)

    def linear(N: int, K: int) -> Any:
        codes = torch.randint(-1, 2, (N, K), generator=generator, dtype=torch.int8)
        packed = torch.from_numpy(FORMATS["hf_pack"].pack(codes.numpy(), 1.0, tail="error"))
        return BitLinear.from_packed(packed, 0.02).requires_grad_(False)

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float32).bfloat16()

    wide, narrow = HEADS * HEAD, KV_HEADS * HEAD
    shapes = {
        "q": (wide, HIDDEN),
        "k": (narrow, HIDDEN),
        "v": (narrow, HIDDEN),
        "o": (HIDDEN, wide),
        "gate": (FEED_FORWARD, HIDDEN),
        "up": (FEED_FORWARD, HIDDEN),
        "down": (HIDDEN, FEED_FORWARD),
    }
    layers = [{name: linear(*shape) for name, shape in shapes.items()} for _ in range(blocks)]
    cache = [[drawn(1, KV_HEADS, CONTEXT, HEAD) for _ in range(2)] for _ in range(blocks)]
    head, first = drawn(VOCABULARY, HIDDEN), drawn(1, 1, HIDDEN)

    def product(layer: Any, x: Any) -> Any:
        if of_torch is None:
            return layer(x)
        torch.set_num_threads(threads)
        try:
            return layer(x)
        finally:
            torch.set_num_threads(of_torch)

    def norm(x: Any) -> Any:
        return functional.rms_norm(x, x.shape[-1:])

    def step() -> None:
        x = first
        for block, (keys, values) in zip(layers, cache, strict=True):
            y = norm(x)
            q, k, v = (product(block[name], y) for name in "qkv")
            keys[:, :, -1], values[:, :, -1] = k.view(1, KV_HEADS, HEAD), v.view(1, KV_HEADS, HEAD)
            attended = functional.scaled_dot_product_attention(q.view(1, HEADS, 1, HEAD), keys, values, enable_gqa=True)
            x = x + product(block["o"], norm(attended.reshape(1, 1, wide)))
            y = norm(x)
            inner = torch.relu(product(block["gate"], y)).square() * product(block["up"], y)
            x = x + product(block["down"], norm(inner))
        functional.linear(norm(x), head)

    return step


def serve(joined: bool, of_torch: int | None, threads: int, blocks: int) -> None:
    """A setting's process: for each line on stdin, a number of steps, prints their figures as JSON."""
    import torch

    from tritmark.kernels.native import cpu

    step, pool = decode_step(of_torch, threads, blocks), cpu.native("pool")
    if not joined:
        pool.set_team(0, 0, 0)
    torch.set_num_threads(of_torch or threads)
    with torch.no_grad():
        for _ in range(5):
            step()
        print(flush=True)
        for asked in sys.stdin:
            before, spent, walls = resource.getrusage(resource.RUSAGE_SELF), process_time(), []
            pool.watch(True)
            for _ in range(int(asked)):
                begin = perf_counter()
                step()
                walls.append(perf_counter() - begin)
            pool.watch(False)
            spent, after, seen = process_time() - spent, resource.getrusage(resource.RUSAGE_SELF), pool.seen()
            found = {
                "wall": walls,
                "cpu": spent,
                "forced": after.ru_nivcsw - before.ru_nivcsw,
                "free": after.ru_nvcsw - before.ru_nvcsw,
                "team": seen["team"],
                "calls": seen["calls"],
            }
            print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=list(SETTINGS), help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.serve:
        joined, of_torch, _ = SETTINGS[told.serve]
        serve(joined, of_torch, told.threads, told.blocks)
        return
    processes = {}
    command = [sys.executable, __file__, "--threads", str(told.threads), "--blocks", str(told.blocks), "--serve"]
    for name, (_, _, variables) in SETTINGS.items():
        processes[name] = subprocess.Popen(
            [*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | variables
        )
        if not processes[name].stdout.readline():  # type: ignore[union-attr]
            raise SystemExit(f"the process of {name!r} ended; see above")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SETTINGS}
    for _ in range(told.rounds):
        for name, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            print(told.steps, file=process.stdin, flush=True)
            found[name].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.communicate("")
    count = told.steps * told.rounds
    print(f"{told.threads} threads, {told.blocks} blocks, {count} steps each; for a step:")
    print(f"{'':24}{'ms':>9}{'p90':>9}{'cpu ms':>9}{'forced':>9}{'free':>9}{'by PyTorch':>12}")
    for name, rounds in found.items():
        walls = [1e3 * each for one in rounds for each in one["wall"]]
        total = {key: sum(one[key] for one in rounds) for key in ("cpu", "forced", "free", "team", "calls")}
        print(
            f"{name:24}{median(walls):9.2f}{quantiles(walls, n=10)[-1]:9.2f}{1e3 * total['cpu'] / count:9.2f}"
            f"{total['forced'] / count:9.2f}{total['free'] / count:9.2f}{total['team'] / max(1, total['calls']):12.0%}"
        )


if __name__ == "__main__":
    main()
