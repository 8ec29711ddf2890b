"""One decode step through blocks of bitnet-b1.58-2B-4T on a GPU, as one CUDA graph: BitLinear compared with
bfloat16 in PyTorch, with humming-kernels (if installed), and with the time of reading the packed weights.

    python suites/performance/decode_step.py [--blocks 8] [--context 512] [--rounds 60] [--out FILE.json]

A block has the seven linear layers as inference engines compute them: q, k and v as one, o, gate and up as one, down,
with one scale each. Norms, rotary embedding, attention over a cache of `--context` tokens and squared ReLU are
PyTorch's, in bfloat16, and equal for all. Each contender has two graphs: only its linears, in sequence, and the whole
blocks. The replays of all graphs are interleaved in one process. Every block has its own weights; eight blocks of 2-bit
weights are more than twice the L2 of an H200, so weights are cold. Times are medians for a block.

The floor is the time of reading the 2-bit weights at the memory's rate, which `tritmark machine` measures. The error is
||y - exact|| / ||exact|| of a linear's output, with exact in float64 from the same bfloat16 activations; it includes
the rounding of activations to int8.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from tritmark.kernels import FORMATS, pack_weights
from tritmark.kernels.peers import humming
from tritmark.torch import BitLinear

# config.json of microsoft/bitnet-b1.58-2B-4T.
HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD = 2560, 6912, 20, 5, 128
EPSILON, THETA = 1e-5, 500000.0
QKV = (HEADS + 2 * KV_HEADS) * HEAD
LINEARS = {
    "qkv": (QKV, HIDDEN),
    "o": (HIDDEN, HIDDEN),
    "gate_up": (2 * FEED_FORWARD, HIDDEN),
    "down": (HIDDEN, FEED_FORWARD),
}
SCALE = 0.02
"""The value of code 1."""
Linear = Callable[[torch.Tensor], torch.Tensor]
Made = Callable[[np.ndarray], Linear]


@dataclass(frozen=True)
class Line:
    """Figures of a contender; times in us for a block."""

    contender: str
    linears_us: float
    block_us: float
    linears_of_floor: float
    tokens_per_s: float
    """With all 30 blocks, without embedding and head."""
    errors: Mapping[str, float]


def tritmark_linear(codes: np.ndarray) -> Linear:
    packed = torch.from_numpy(FORMATS["hf_pack"].pack(codes, 1.0, tail="error"))
    made: Linear = BitLinear.from_packed(packed, SCALE).cuda()
    return made


def bfloat16_linear(codes: np.ndarray) -> Linear:
    weights = torch.from_numpy(codes).cuda().to(torch.bfloat16) * SCALE
    return partial(torch.nn.functional.linear, weight=weights)


def humming_linear(kind: str, codes: np.ndarray) -> Linear:
    N, K = codes.shape
    axes = {"M": 1, "N": N, "K": K}
    inputs = {"weights": pack_weights(codes, SCALE, format="row16").data, "weight_scale": SCALE}
    layer = humming.layer_of(kind, "row16", inputs, axes)
    return partial(layer, tuning_config=json.dumps(humming.tuned(layer, axes)))


def contenders() -> dict[str, Made]:
    found: dict[str, Made] = {"tritmark BitLinear": tritmark_linear, "torch bfloat16": bfloat16_linear}
    if humming.missing() is None:
        humming.load()
        found["humming W2A8"] = partial(humming_linear, humming.INT8)
        found["humming W2A16"] = partial(humming_linear, humming.BF16)
    else:
        print(f"humming-kernels is left out: {humming.missing()}", file=sys.stderr)
    return found


class Block:
    """A transformer block of the model for one token; the last entry of the cache belongs to the token."""

    def __init__(self, linears: Mapping[str, Linear], context: int) -> None:
        self.linears = linears
        self.norms = {name: torch.ones(n, device="cuda", dtype=torch.bfloat16) for name, n in NORMS.items()}
        cache = (1, KV_HEADS, context, HEAD)
        self.keys, self.values = (torch.randn(cache, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        angles = (context - 1) * THETA ** (-torch.arange(0, HEAD, 2, device="cuda") / HEAD)
        self.cos, self.sin = (f(angles).repeat(2).to(torch.bfloat16) for f in (torch.cos, torch.sin))

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.norms[name], EPSILON)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * self.cos + turned * self.sin

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.linears["qkv"](self.norm("input", x)).view(1, HEADS + 2 * KV_HEADS, 1, HEAD)
        q, k, v = heads.split((HEADS, KV_HEADS, KV_HEADS), 1)
        self.keys[:, :, -1:], self.values[:, :, -1:] = self.rotated(k), v
        attended = torch.nn.functional.scaled_dot_product_attention(
            self.rotated(q), self.keys, self.values, enable_gqa=True
        )
        x = x + self.linears["o"](self.norm("attention", attended.reshape(1, HIDDEN)))
        gate, up = self.linears["gate_up"](self.norm("post_attention", x)).chunk(2, -1)
        return x + self.linears["down"](self.norm("feed_forward", torch.relu(gate).square() * up))


NORMS = {"input": HIDDEN, "attention": HIDDEN, "post_attention": HIDDEN, "feed_forward": FEED_FORWARD}


class Graph:
    """The work as a graph. Compilation and first choices happen before the recording. It keeps its inputs alive."""

    def __init__(self, work: Callable[[], object]) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                work()
        torch.cuda.synchronize()
        self._work, self._graph = work, torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._kept = work()

    def replay(self) -> None:
        self._graph.replay()


def graphs(made: Made, codes: list[dict[str, np.ndarray]], context: int) -> tuple[dict[str, Graph], dict[str, float]]:
    """A contender's graphs, and the errors of the first block's linears."""
    linears = [{name: made(each) for name, each in block.items()} for block in codes]
    blocks = [Block(each, context) for each in linears]
    x = torch.randn(1, HIDDEN, device="cuda", dtype=torch.bfloat16)
    inputs = {name: torch.randn(1, K, device="cuda", dtype=torch.bfloat16) for name, (_, K) in LINEARS.items()}

    def products() -> list[torch.Tensor]:
        return [each[name](inputs[name]) for each in linears for name in LINEARS]

    def step() -> torch.Tensor:
        y = x
        for block in blocks:
            y = block(y)
        return y

    errors = {name: error(linears[0][name](inputs[name]), inputs[name], codes[0][name]) for name in LINEARS}
    return {"linears": Graph(products), "block": Graph(step)}, errors


def error(y: torch.Tensor, x: torch.Tensor, codes: np.ndarray) -> float:
    exact = x.double() @ torch.from_numpy(codes).cuda().double().T * SCALE
    return float((y.double() - exact).norm() / exact.norm())


def read_rate() -> float:
    """Bytes per second, as `tritmark machine` measures them in a separate process."""
    command = (sys.executable, "-m", "tritmark.harness", "machine", "--json")
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    at = ("cuda", "read", "memory")
    return next(
        float(each["rate"]) for each in found["ceilings"] if (each["device"], each["name"], each["level"]) == at
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    rate = read_rate()
    floor = sum(N * K / 4 for N, K in LINEARS.values()) / rate * 1e6

    rng = np.random.default_rng(0)
    codes = [{name: rng.integers(-1, 2, s, dtype=np.int8) for name, s in LINEARS.items()} for _ in range(told.blocks)]
    made = {name: graphs(make, codes, told.context) for name, make in contenders().items()}
    times: dict[tuple[str, str], list[float]] = {(name, kind): [] for name in made for kind in ("linears", "block")}
    for _ in range(told.rounds):
        for (name, kind), samples in times.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            made[name][0][kind].replay()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end) * 1e3 / told.blocks)
    medians = {key: statistics.median(samples) for key, samples in times.items()}
    lines = [
        Line(
            contender=name,
            linears_us=medians[name, "linears"],
            block_us=medians[name, "block"],
            linears_of_floor=medians[name, "linears"] / floor,
            tokens_per_s=1e6 / (30 * medians[name, "block"]),
            errors=errors,
        )
        for name, (_, errors) in made.items()
    ]
    print(f"{torch.cuda.get_device_name()}, torch {version('torch')}; reads {rate / 1e12:.2f} TB/s")
    print(f"the weights of a block's linears: {floor:.2f} us\n")
    print(f"{'':22}{'linears us':>11}{'of floor':>10}{'block us':>10}{'tokens/s':>10}  error of a linear")
    for each in lines:
        worst = max(each.errors.values())
        print(
            f"{each.contender:22}{each.linears_us:11.2f}{each.linears_of_floor:9.1f}x{each.block_us:10.2f}"
            f"{each.tokens_per_s:10.0f}  {worst:.4f}"
        )
    if told.out:
        facts = {
            "device": torch.cuda.get_device_name(),
            "torch": version("torch"),
            "read_bytes_per_s": rate,
            "floor_us": floor,
            "blocks": told.blocks,
            "context": told.context,
            "rounds": told.rounds,
            "lines": [asdict(each) for each in lines],
        }
        told.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
