"""Products with the weights of experts on a GPU beside peers, interleaved in one process.

    python suites/performance/expert_products.py [--shapes 512x2048 2048x512] [--tokens 1 8 64 512] [--experts 256]
                                                 [--used 8] [--formats row16 row16_g128] [--rounds 9]
                                                 [--instances 4] [--peers humming-w2a8 torch-bfloat16]
                                                 [--out FILE]

For each N x K of an expert and number of tokens, each of which uses some experts drawn at random: the time of
ternary_matmul_experts in us, from int8 activations and cold weights to bfloat16 outputs; of ternary_matmul for as many
rows as an expert with rows has on average, with one expert, times the number of those experts ("dense"); and of peers:
humming-kernels' grouped product (also humming-w2a16), and PyTorch's of dense bfloat16 weights. "read" is the fastest of
the probes that read as many bytes as the weights of the experts that have rows, the activations and the outputs have: a
time that no kernel can beat by much. A line ends with that in percent of the kernel's time, with the rate of these
bytes, and with the fastest peer. The lines behind it are the times of the fastest instances, and
those whose outputs differ from the others'.

Each contender has a CUDA graph of 24 launches or more with other offsets each, over as many copies of the weights as
exceed the L2; an expert returns only after all others of its copy. The replays are interleaved, in another order each
round, and a time is the median of the rounds.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from interleaved_timing import CALLS, COLD, cold_copies, graph_sample, interleaved_us

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey, Launch
from tritmark.kernels import FORMATS
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.launch.launch import KERNELS
from tritmark.kernels.cuda.launch.resources import survey
from tritmark.kernels.cuda.measure.ceilings import ceilings
from tritmark.kernels.cuda.measure.clock import timeable
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.formats.row16 import row_bytes
from tritmark.kernels.peers import humming, torch_cuda
from tritmark.kernels.peers.launch_cuda import FASTEST as FORMAT
from tritmark.kernels.peers.products_experts_cuda import HummingExperts, TorchExperts
from tritmark.kernels.ternary_matmul.spec import OP as PRODUCT
from tritmark.kernels.ternary_matmul_experts.spec import OP

SHAPES = ("512x2048", "2048x512")
TOKENS = (1, 8, 64, 512)
DTYPE = "bfloat16"
PEERS: dict[str, Callable[..., Any]] = {
    "humming-w2a8": partial(HummingExperts, humming.INT8),
    "humming-w2a16": partial(HummingExperts, humming.BF16),
    "torch-bfloat16": TorchExperts,
}
OURS, DENSE, READ = "tritmark", "dense", "read"


@dataclass(frozen=True)
class Turn:
    """A launch: the copy of the weights that it reads, and its offsets."""

    which: int
    offsets: npt.NDArray[np.int32]

    @property
    def touched(self) -> int:
        """Experts that have rows."""
        return int((np.diff(self.offsets) > 0).sum())


def turns(tokens: int, experts: int, used: int, copies: int, rng: np.random.Generator) -> list[Turn]:
    """Launches, each with the experts that follow those of the one before, in an order of their own."""
    made: list[Turn] = []
    which, left = 0, rng.permutation(experts)
    while True:
        chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :used]
        counts = np.bincount(chosen.ravel(), minlength=experts)
        counts = counts[counts > 0]
        if len(left) < len(counts):
            which, left = which + 1, rng.permutation(experts)
            if which >= copies and len(made) >= CALLS:
                return made
        rows = np.zeros(experts, np.int32)
        rows[left[: len(counts)]] = counts
        left = left[len(counts) :]
        made.append(Turn(which % copies, np.concatenate(([0], np.cumsum(rows))).astype(np.int32)))


def drawn_weights(format: str, axes: Axes, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The bytes of all experts (E, bytes): drawn fields 0, 1 and 2, and scales near 1."""
    E, N, K = (axes[axis] for axis in "ENK")
    nbytes = FORMATS[format].packed_bytes((N, K))
    high = rng.integers(0, 256, (E, nbytes), dtype=np.uint8) & np.uint8(0xAA)
    low = rng.integers(0, 256, (E, nbytes), dtype=np.uint8) & np.uint8(0x55)
    made = np.asarray(high | (low & ~(high >> 1)), np.uint8)
    if FORMATS[format].scale_per == "group":
        scales = made[:, N * row_bytes(K) :].view(np.float16)
        scales[:] = rng.uniform(0.5, 2, scales.shape)
    else:
        made[:, N * row_bytes(K) :] = 0
    return made


class Weights:
    """The weights of all experts, with copies on the device and in the layouts of the peers."""

    def __init__(self, here: CudaContext, format: str, axes: Axes) -> None:
        self.format, self.axes = format, axes
        self.host = drawn_weights(format, axes, np.random.default_rng(0))
        self.copies = [here.upload(self.host) for _ in range(1 + -(-COLD // self.host.nbytes))]
        self._peers: dict[str, list[Any]] = {}

    def peer(self, name: str) -> list[Any]:
        """Its objects, one for each copy of the weights; of dense weights, which exceed the L2 anyway, one."""
        if name not in self._peers:
            inputs = {"weights": self.host, "weight_scale": np.ones(self.axes["E"], np.float32)}
            one = PEERS[name](self.format, inputs, self.axes)
            more = self.copies[1:] if name.startswith("humming") else []
            self._peers[name] = [one, *(copy.deepcopy(one) for _ in more)]
        return self._peers[name]


class Shape:
    """A product of some rows: its data, and what is timed."""

    def __init__(self, here: CudaContext, weights: Weights, tokens: int, used: int) -> None:
        self.here, self.weights, self.format = here, weights, weights.format
        self.axes = axes = {**weights.axes, "M": tokens * used}
        M, E, N, K = (axes[axis] for axis in "MENK")
        rng = np.random.default_rng(0)
        self.copies = weights.copies
        self.turns = turns(tokens, E, used, len(self.copies), rng)
        self.host: dict[str, Any] = {
            "activations": rng.integers(-128, 128, (M, K), dtype=np.int8),
            "weight_scale": np.ones(E, np.float32),
            "act_scale": rng.uniform(1, 100, M).astype(np.float32),
        }
        self.there = {name: here.upload(each) for name, each in self.host.items()}
        self.outputs = {"out": here.array((M, N), named_dtype(DTYPE))}
        self.offsets = [here.upload(turn.offsets) for turn in self.turns]
        self.touched = sum(turn.touched for turn in self.turns) / len(self.turns)
        of_experts = self.touched * (weights.host.shape[1] + 4)
        self.nbytes = round(of_experts + M * K + 4 * M + 4 * (E + 1) + 2 * M * N)

    def ours(self, every: bool) -> Iterator[tuple[str, list[Launch]]]:
        """The kernel that is selected, or each of its instances."""
        best = dispatch.registry().select_best(KernelKey(DEVICE, OP.name, self.format, DTYPE), self.axes)
        kinds = {OURS: best}
        if every and best.instances is not None:
            kinds = dict(best.instances(self.axes).each)
        survey(KERNELS[best.id], [self.here.backend.info.arch])
        for name, kind in kinds.items():
            yield (
                name,
                [
                    kind.bind(
                        {**self.there, "weights": self.copies[turn.which], "offsets": offsets},
                        self.outputs,
                        self.axes,
                        1,
                    )
                    for turn, offsets in zip(self.turns, self.offsets, strict=True)
                ],
            )

    def dense(self) -> list[Launch]:
        """ternary_matmul with the weights of one expert after another, for its average rows."""
        rows = max(1, round(self.axes["M"] / self.touched))
        axes = {"M": rows, "N": self.axes["N"], "K": self.axes["K"]}
        best = dispatch.registry().select_best(KernelKey(DEVICE, PRODUCT.name, self.format, DTYPE), axes)
        given = {
            name: self.there[name].view((rows, *self.there[name].shape[1:])) for name in ("activations", "act_scale")
        }
        out = {"out": self.here.array((rows, axes["N"]), named_dtype(DTYPE))}
        E, nbytes = self.copies[0].shape
        return [
            best.bind(
                {**given, "weight_scale": np.float32(1), "weights": each.view((nbytes,), np.uint8, expert * nbytes)},
                out,
                axes,
                1,
            )
            for each in self.copies
            for expert in range(E)
        ]

    def reads(self) -> Iterator[tuple[str, list[Launch]]]:
        """Probes that read as many bytes."""
        buffers = [self.here.array((self.nbytes,), np.uint8) for _ in range(cold_copies(self.nbytes))]
        for buffer in buffers:
            buffer.write(np.full(self.nbytes, 85, np.uint8))
        for how, ceiling in ceilings().items():
            if how.startswith(("read: 4", "read: 1")):
                yield f"{READ} {how}", [ceiling.bind(buffer, 1) for buffer in buffers]

    def peers(self, names: Iterable[str]) -> Iterator[tuple[str, list[Launch]]]:
        """Launches of these peers."""
        for name in names:
            try:
                each, out = self.weights.peer(name), self.outputs if name.startswith("humming") else None
                launches = [
                    each[turn.which % len(each)].launch(name, {**self.host, "offsets": turn.offsets}, out)
                    for turn in self.turns
                ]
            except Exception as why:  # third-party code: print its error and continue with the others
                print(f"{name} at {self.axes}: {type(why).__name__}: {why}", flush=True)
                continue
            yield name, launches


def timed(contenders: Mapping[str, list[Launch]], rounds: int) -> dict[str, float]:
    """The time of a launch of each in us, interleaved."""
    return interleaved_us({name: graph_sample(launches) for name, launches in contenders.items()}, rounds)


def empty_us() -> float:
    """The time of an empty kernel in a graph in us."""
    launches = [ceilings()["launch"].bind(timeable(0).array((16,), np.uint8), 1)]
    return timed({READ: launches}, 5)[READ]


def differing(shape: Shape, contenders: Mapping[str, list[Launch]]) -> list[str]:
    """The instances whose outputs differ from those of the first: with one scale for an expert all have the same bits.
    Prints them."""
    wrong, first = [], None
    for name, launches in contenders.items() if shape.format == FORMAT else ():
        launches[0].run()
        out = shape.outputs["out"].numpy().view(np.uint16)
        first = out if first is None else first
        if not np.array_equal(out, first):
            print(f"    outputs differ from those of the first instance: {name}", flush=True)
            wrong.append(name)
    return wrong


def report(shape: Shape, rounds: int, instances: int, peers: Iterable[str]) -> dict[str, Any]:
    """The figures of a product; prints its lines."""
    contenders = {**dict(shape.ours(False)), **dict(shape.reads()), DENSE: shape.dense(), **dict(shape.peers(peers))}
    us = timed(contenders, rounds)
    least = min(each for name, each in us.items() if name.startswith(READ))
    us = {name: each for name, each in us.items() if not name.startswith(READ)}
    us[DENSE] *= shape.touched
    others = {name: each for name, each in us.items() if name not in (OURS, DENSE)}
    best = min(others, key=others.__getitem__, default=None)
    M, N, K = (shape.axes[axis] for axis in "MNK")
    told = "  ".join(f"{name} {each:.2f}" for name, each in sorted(us.items(), key=lambda item: item[1]))
    beside = f"; {best} takes {others[best] / us[OURS]:.2f} times as long" if best else ""
    print(
        f"{shape.format} {M:5} rows of {shape.touched:.0f} experts x {N} x {K}: {told}; {READ} {least:.2f}, "
        f"{100 * least / us[OURS]:.0f} %, {shape.nbytes / us[OURS] / 1e3:.0f} GB/s{beside}",
        flush=True,
    )
    found = {"format": shape.format, **shape.axes, "touched": shape.touched, "bytes": shape.nbytes, "us": us}
    if instances:
        launches = dict(shape.ours(True))
        found["differing"] = differing(shape, launches)
        each = timed(launches, max(3, rounds // 3))
        for name, one in sorted(each.items(), key=lambda item: item[1])[:instances]:
            print(f"    {one:8.2f}  {name}", flush=True)
        found["instances"] = each
    return {**found, READ: least}


def main() -> int:
    """0, or 1 if outputs of instances differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--tokens", nargs="+", type=int, default=TOKENS)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--used", type=int, default=8, help="experts of a token")
    parser.add_argument("--formats", nargs="+", default=("row16", "row16_g128"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--instances", type=int, default=4, help="how many to show; 0 times none")
    parser.add_argument("--peers", nargs="*", choices=tuple(PEERS), default=("humming-w2a8", "torch-bfloat16"))
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figures as JSON")
    options = parser.parse_args()
    here, found = timeable(0), []
    usable = []
    for name in options.peers:
        module = humming if name.startswith("humming") else torch_cuda
        why = module.missing()
        if why is None:
            module.load()
            usable.append(name)
        else:
            print(f"{name}: {why}", flush=True)
    print(f"an empty kernel: {empty_us():.2f}", flush=True)
    for format in options.formats:
        for shape in options.shapes:
            N, K = map(int, shape.split("x"))
            weights = Weights(here, format, {"E": options.experts, "N": N, "K": K})
            for tokens in options.tokens:
                one = Shape(here, weights, tokens, options.used)
                found.append(report(one, options.rounds, options.instances, usable))
    if options.out:
        info = here.backend.info
        record = {"gpu": info.name, "driver": info.driver, "rounds": options.rounds, "products": found}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(each.get("differing") for each in found))


if __name__ == "__main__":
    raise SystemExit(main())
