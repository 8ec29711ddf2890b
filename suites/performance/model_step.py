"""One token through all ternary linears of a model on the CPU: what its calls cost, and what the pages of its weights.

    python suites/performance/model_step.py [--model bitnet-b1.58-2B-4T] [--threads N] [--rounds 40] [--blocks N]

Weights are cold, as in a model: each layer has its own. All contenders are interleaved round by round, in random
order; a figure is the median of a token in ms, then its least, then the median ratio to `one native call`, round by
round. No norms, attention or head run in between.

Calls, all from one arena of huge pages:

- `kernels alone`: quantization and product of each layer, in a loop in C; without sharing
- `one native call`: bind_linears over all layers of the model
- `four calls a block`: bind_linears of q, k, v; o; gate, up; down, as a graph with norms in between has them
- `bind`: QuantizedLinear.bind for each layer
- `QuantizedLinear`: each layer called with its rows
- `two functions`: activation_quantize and ternary_matmul(out=) for each layer
- `BitLinear`: tritmark.torch in bfloat16, if PyTorch is installed

Memory, each with `one native call`:

- `4 KiB pages`: advised to have no huge pages
- `NumPy arrays`: one for each layer, as NumPy allocates them
- `pack_weights, any order`: packed in random order, with other allocations in between
- `arena`: after gather_weights
"""

from __future__ import annotations

import argparse
import mmap
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tritmark.harness.machine import memory
from tritmark.kernels import (
    PackedWeights,
    QuantizedLinear,
    activation_quantize,
    bind_linears,
    gather_weights,
    pack_weights,
    ternary_matmul,
)
from tritmark.kernels.native import cpu
from tritmark.kernels.native.arena import huge_bytes

BASE = "one native call"
GROUPS = 4
"""Inputs of a block."""
Layers = list[list[QuantizedLinear]]
"""For each input of the model's blocks the layers that read it."""


@dataclass(frozen=True)
class Shapes:
    """The linears of a block by their inputs."""

    groups: tuple[tuple[tuple[int, int], ...], ...]
    blocks: int


def shapes(model: str) -> Shapes:
    """Of models.toml: q, k and v; o; gate and up; down. Gate and up are the widest, down has their width as K, and of
    the others o is the one with another K, else the first."""
    found = tomllib.loads((files("tritmark.workloads") / "models.toml").read_text())[model]
    each = [(N, K) for N, K, count in found["linears"] for _ in range(count)]
    width = max(N for N, _ in each)
    down = next((shape for shape in each if shape[1] == width), None)
    if down is None or "layers" not in found:
        raise SystemExit(f"{model} is no model of dense blocks; bitnet-b1.58-2B-4T is one")
    each.remove(down)
    feed = [shape for shape in each if shape[0] == width]
    rest = [shape for shape in each if shape[0] != width]
    o = next((shape for shape in rest if shape[1] != down[0]), rest[0])
    rest.remove(o)
    return Shapes((tuple(rest), (o,), tuple(feed), (down,)), found["layers"])


def packed(told: Shapes, blocks: int) -> list[list[PackedWeights]]:
    """Weights of all blocks: their bytes are equal for equal shapes, and in memory of their own."""
    rng, kept = np.random.default_rng(0), {}
    made = []
    for _ in range(blocks):
        for group in told.groups:
            for shape in group:
                if shape not in kept:
                    kept[shape] = rng.integers(-1, 2, shape, dtype=np.int8)
            made.append([pack_weights(kept[shape], 0.5) for shape in group])
    return made


def layers(weights: list[list[PackedWeights]], threads: int, moved: Callable[[Any], Any] | None = None) -> Layers:
    return [
        [
            QuantizedLinear(each if moved is None else replace(each, data=moved(each.data)), threads=threads)
            for each in group
        ]
        for group in weights
    ]


SMALL: list[mmap.mmap] = []


def in_small_pages(data: np.ndarray) -> np.ndarray:
    mapping = mmap.mmap(-1, data.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_NOHUGEPAGE)
    SMALL.append(mapping)
    made = np.frombuffer(mapping, np.uint8).reshape(data.shape)
    made[...] = data
    return made


def in_any_order(weights: list[list[PackedWeights]], threads: int) -> Layers:
    """Packed again in random order, beside arrays of other sizes that die."""
    rng = np.random.default_rng(1)
    order = [(a, b) for a, group in enumerate(weights) for b in range(len(group))]
    made: dict[tuple[int, int], PackedWeights] = {}
    dead = []
    for nth in rng.permutation(len(order)):
        a, b = order[nth]
        codes, scale = weights[a][b].unpack()
        made[a, b] = pack_weights(codes, scale)
        if nth % 3 == 0:
            dead.append(pack_weights(codes[: max(64, len(codes) // 5)], scale))
    return [[QuantizedLinear(made[a, b], threads=threads) for b in range(len(g))] for a, g in enumerate(weights)]


Call = tuple[QuantizedLinear, np.ndarray, np.ndarray]


def arguments(of: Layers) -> list[list[Call]]:
    """Layers with their rows and outputs, which all blocks share, as in a model: they stay in the caches."""
    rng, rows, outs = np.random.default_rng(2), {}, {}
    found = []
    for at, group in enumerate(of):
        place = at % GROUPS
        if place not in rows:
            rows[place] = rng.standard_normal((1, group[0].in_features), dtype=np.float32)
            outs[place] = [np.empty((1, each.out_features), np.float32) for each in group]
        found.append([(each, rows[place], out) for each, out in zip(group, outs[place], strict=True)])
    return found


def whole(of: Layers) -> Callable[[], object]:
    """One native call for all layers."""
    return bind_linears([call for group in arguments(of) for call in group]).run


def calls(of: Layers, threads: int) -> dict[str, Callable[[], object]]:
    """The ways to call the same layers."""
    groups = arguments(of)
    plain = [call for group in groups for call in group]
    shared = [bind_linears(group).run for group in groups]
    bound = [each.bind(x, out) for each, x, out in plain]
    clock, launches = cpu.DEVICE.clock(), [each.launch for each in bound]  # type: ignore[misc]
    runs = [each.run for each in bound]

    def functions() -> None:
        for each, x, out in plain:
            q = activation_quantize(x, threads=threads)
            ternary_matmul(q.q, each.weights, act_scale=q.scale, out=out, threads=threads)

    return {
        "kernels alone": lambda: clock.sample(launches, 0, len(launches)),
        BASE: whole(of),
        "four calls a block": lambda: [run() for run in shared],
        "bind": lambda: [run() for run in runs],
        "QuantizedLinear": lambda: [each(x) for each, x, _ in plain],
        "two functions": functions,
    }


def modules(weights: list[list[PackedWeights]], threads: int) -> dict[str, Callable[[], object]]:
    """The same layers as modules of PyTorch; none without it."""
    try:
        import torch

        from tritmark.torch import BitLinear
    except ImportError:
        print("PyTorch is not installed; BitLinear is left out")
        return {}
    torch.set_num_threads(threads)
    made = []
    for group in weights:
        of = []
        for each in group:
            codes, _ = each.unpack()
            state = torch.from_numpy(hf_packed(codes))
            of.append(BitLinear.from_packed(state, 0.5, out_features=each.matrix[0]).requires_grad_(False))
        made.append((of, torch.randn(1, 1, group[0].matrix[1], dtype=torch.bfloat16)))

    def call() -> None:
        with torch.no_grad():
            for of, x in made:
                for layer in of:
                    layer(x)

    return {"BitLinear": call}


def hf_packed(codes: np.ndarray) -> np.ndarray:
    from tritmark.kernels import FORMATS

    made: np.ndarray = FORMATS["hf_pack"].pack(codes, 1.0, tail="error")
    return made


def huge_share(of: Layers) -> str:
    """How much of the memory of these weights is in huge pages, by the mappings that hold them."""
    data = [each.weights.data for group in of for each in group]
    inside = sum(each.nbytes for each in data if huge_bytes(each.ctypes.data) >= each.nbytes)
    return f"{inside / sum(each.nbytes for each in data):.0%} of the bytes in mappings with huge pages"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", default="bitnet-b1.58-2B-4T")
    parser.add_argument("--threads", type=int, default=cpu.cores())
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--blocks", type=int, help="fewer than the model has")
    parser.add_argument("--without-torch", action="store_true")
    told = parser.parse_args()
    model = shapes(told.model)
    blocks = told.blocks or model.blocks
    weights = packed(model, blocks)
    nbytes = sum(each.data.nbytes for group in weights for each in group)
    count = sum(map(len, weights))
    print(f"{told.model}, {blocks} blocks: {count} linears, {nbytes / 1e6:.0f} MB packed; {told.threads} threads")
    print(f"transparent huge pages: {memory.huge_pages() or 'none in this kernel'}\n")

    torch = {} if told.without_torch else modules(weights, told.threads)
    placed = {
        "4 KiB pages": layers(weights, told.threads, in_small_pages),
        "NumPy arrays": layers(weights, told.threads, np.array),
        "pack_weights, any order": in_any_order(weights, told.threads),
        "arena": layers(weights, told.threads),
    }
    pages = {name: huge_share(each) for name, each in placed.items()}
    pages["arena"] = str(gather_weights([each for group in placed["arena"] for each in group]))
    contenders = calls(placed["arena"], told.threads) | torch
    contenders |= {name: whole(each) for name, each in placed.items() if name != "arena"}

    times: dict[str, list[float]] = {name: [] for name in contenders}
    rng, names = np.random.default_rng(3), list(contenders)
    for name in names:
        contenders[name]()
        contenders[name]()
    for _ in range(told.rounds):
        for nth in rng.permutation(len(names)):
            begin = perf_counter()
            contenders[names[nth]]()
            times[names[nth]].append(1e3 * (perf_counter() - begin))
    print(f"{'ms a token':26}{'median':>9}{'least':>9}{'ratio':>8}")
    for name, each in times.items():
        ratio = median(a / b for a, b in zip(each, times[BASE], strict=True))
        print(f"{name:26}{median(each):9.2f}{min(each):9.2f}{ratio:8.3f}  {pages.get(name, '')}")
    print(f"\narena: {pages['arena']}")


if __name__ == "__main__":
    main()
