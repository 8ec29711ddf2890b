"""Overhead of calls of the public functions on the CPU, and a layer's call compared with ONNX Runtime's.

    python suites/performance/call_costs.py [--shapes 2560x2560 6912x2560] [--threads 1 2] [--rounds 200]

For each N x K (weights N x K, one row of activations) and thread count, in us: each function's call from Python, its
kernels alone, timed in a C loop, and the difference. Call and kernels are interleaved; a figure is the minimum over the
rounds, since other load can only add time. Weights are as warm as the previous round left them. For calls with bfloat16
the kernels are those that read float32, so the widening counts as overhead. If PyTorch is installed: also calls of
BitLinear without gradients and of a compiled torch.nn.Linear, most of whose time is torch.compile's own.

If ONNX Runtime is installed (`pip install '.[peers]'`): its session's call, MatMulNBits of 2 bits in blocks of 128 at
accuracy level 4, over the call of QuantizedLinear, and both with arrays that are bound beforehand. Each of the two runs
in its own process, so that their threads do not disturb each other. Samples are interleaved; the figures are medians
and the median of the ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter, sleep
from typing import Any

import ml_dtypes
import numpy as np

from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.spec import Launch
from tritmark.kernels import (
    QuantizedLinear,
    activation_quantize,
    hadamard_quantize,
    i2s_quantize,
    pack_weights,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.kernels.activation_quantize.spec import KEY
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.i2s_quantize.api import KEY as I2S_KEY
from tritmark.kernels.native import cpu
from tritmark.kernels.peers import onnx
from tritmark.kernels.ternary_quantize.spec import PACKED
from tritmark.kernels.weights.packed import product_with

SHAPES = ("64x256", "2560x2560", "6912x2560", "2560x6912")
SAMPLE_S = 5e-4
"""Approximate time of a sample in seconds."""
BLOCK = 256
"""Of rotated rows; it divides K of all shapes."""
Call = Callable[[], Any]


def drawn(N: int, K: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Codes (N, K), rows float32 (1, K), and a bias."""
    rng = np.random.default_rng(0)
    return (
        rng.integers(-1, 2, (N, K), dtype=np.int8),
        rng.standard_normal((1, K), dtype=np.float32),
        rng.standard_normal(N, dtype=np.float32),
    )


def seconds(call: Call, count: int) -> float:
    """A call's, on average."""
    begin = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - begin) / count


def counted(call: Call) -> int:
    """The number of calls in a sample."""
    call()
    return max(1, int(SAMPLE_S / seconds(call, 3)))


def pytorch_layers(N: int, K: int, x: np.ndarray, threads: int) -> dict[str, Call]:
    """Calls of BitLinear; none if PyTorch is not installed."""
    try:
        import torch

        from tritmark.torch import BitLinear
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    plain = torch.nn.Linear(K, N, bias=False).requires_grad_(False)
    layer: Any = BitLinear.from_float(plain)
    rows = torch.from_numpy(x)
    return {
        "BitLinear": partial(layer, rows),
        "BitLinear, bfloat16": partial(layer, rows.bfloat16()),
        "BitLinear, compiled": partial(torch.compile(layer, fullgraph=True), rows),
        "torch.nn.Linear, compiled": partial(torch.compile(plain, fullgraph=True), rows),
    }


def kernels(N: int, K: int, threads: int) -> dict[str, tuple[Call, Launch]]:
    """Each call, and the kernels that it runs."""
    codes, x, bias = drawn(N, K)
    weights, layer = pack_weights(codes, 0.5), QuantizedLinear(pack_weights(codes, 0.5), threads=threads)
    biased = QuantizedLinear(layer.weights, bias, threads=threads)
    rotated = QuantizedLinear(layer.weights, hadamard=(BLOCK, None), threads=threads)
    (q, scale, sums), out, axes = activation_quantize(x), np.empty((1, N), np.float32), {"M": 1, "N": N, "K": K}
    first = dispatch.select(KEY, {"M": 1, "K": K}, None)
    quantize = first.bind({"x": x}, {"q": q.copy(), "scale": scale.copy(), "sum": sums}, {"M": 1, "K": K}, threads)
    second = product_with(weights, "cpu", "float32", axes, None)
    packed = weights.packed_as(second.key.format)
    inputs = {"activations": q, "weights": packed, "weight_scale": weights.weight_scale, "act_scale": scale}
    product = second.bind(inputs, {"out": out}, axes, threads)
    bound, with_bias, with_rotation = layer.bind(x), biased.bind(x), rotated.bind(x)
    narrow, size = x.astype(ml_dtypes.bfloat16), {"n": K}
    ternary = i2s_quantize(x, 0.5)
    divide = dispatch.select(I2S_KEY, size, None).bind({"x": x[0], "scale": 0.5}, {"q": ternary[0]}, size, threads)
    packed_row, blocks = ternary_quantize(x, packed=True), {"n": K, "block": 128}
    by_block = dispatch.select(PACKED, blocks, None).bind(
        {"x": x[0]}, {"codes": packed_row.packed, "scales": packed_row.scales}, blocks, threads
    )
    layers = pytorch_layers(N, K, x, threads)

    def two_calls() -> Any:
        rows = hadamard_quantize(x, block_size=BLOCK, threads=threads)
        return ternary_matmul(rows.q, weights, act_scale=rows.scale, threads=threads)

    return {
        **{name: (call, bound.launch) for name, call in layers.items()},
        "i2s_quantize": (lambda: i2s_quantize(x, 0.5, threads=threads), divide),
        "ternary_quantize, packed": (lambda: ternary_quantize(x, packed=True, threads=threads), by_block),
        "activation_quantize": (lambda: activation_quantize(x, threads=threads), quantize),
        "activation_quantize, bfloat16": (lambda: activation_quantize(narrow, threads=threads), quantize),
        "ternary_matmul, out=": (
            lambda: ternary_matmul(q, weights, act_scale=scale, out=out, threads=threads),
            product,
        ),
        "QuantizedLinear": (lambda: layer(x), bound.launch),
        "QuantizedLinear, bfloat16": (lambda: layer(narrow), bound.launch),
        "QuantizedLinear, bias": (lambda: biased(x), with_bias.launch),
        "hadamard_quantize, ternary_matmul": (two_calls, with_rotation.launch),
        "QuantizedLinear, hadamard": (lambda: rotated(x), with_rotation.launch),
        "QuantizedLinear.bind": (bound.run, bound.launch),
        "QuantizedLinear.bind, hadamard": (with_rotation.run, with_rotation.launch),
        "QuantizedLinear.bind, bias": (with_bias.run, with_bias.launch),
    }


def costs(N: int, K: int, threads: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """For each call, us of the call, of its kernels, and the difference."""
    clock, found = cpu.DEVICE.clock(), {}  # type: ignore[misc]
    for name, (call, launch) in kernels(N, K, threads).items():
        row, count = [launch], counted(call)
        clock.sample(row, 0, count)
        whole, alone = [], []
        for _ in range(rounds):
            whole.append(seconds(call, count) * 1e6)
            alone.append(clock.sample(row, 0, count) / count / 1e3)
        found[name] = min(whole), min(alone), min(whole) - min(alone)
    return found


def serve(pipe: Connection, name: str, N: int, K: int, threads: int) -> None:
    """The process of a contender: takes the name of a call and a count, and returns seconds per call."""
    bind_threads()
    codes, x, _ = drawn(N, K)
    calls: dict[str, Call]
    if name == "tritmark":
        layer = QuantizedLinear(pack_weights(codes, 0.5), threads=threads)
        calls = {"whole": lambda: layer(x), "bound": layer.bind(x).run}
    else:
        out = np.empty((1, N), np.float32)
        product = onnx.OnnxProduct(onnx.pack(codes), 0.5, K, threads=threads)
        calls = {"whole": lambda: product(x), "bound": product.into(x, out)}
    counts = {each: counted(call) for each, call in calls.items()}
    pipe.send(None)
    while (asked := pipe.recv()) is not None:
        calls[asked]()
        pipe.send(seconds(calls[asked], counts[asked]))


def beside(N: int, K: int, threads: int, rounds: int) -> dict[str, tuple[float, float, float]]:
    """For the whole and the bound call: us of tritmark, us of ONNX Runtime, and the median of the ratio."""
    context, pipes, processes = get_context("spawn"), [], []
    for name in ("tritmark", "onnxruntime"):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, name, N, K, threads))
        process.start()
        theirs.close()
        ours.recv()
        pipes.append(ours)
        processes.append(process)
    times: dict[str, list[list[float]]] = {"whole": [], "bound": []}
    for _ in range(rounds):
        for kind, rows in times.items():
            row = []
            for pipe in pipes:
                pipe.send(kind)
                row.append(pipe.recv() * 1e6)
                sleep(1e-3)  # until waiting threads sleep
            rows.append(row)
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    return {
        kind: (median(a for a, _ in rows), median(b for _, b in rows), median(b / a for a, b in rows))
        for kind, rows in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=200)
    told = parser.parse_args()
    bind_threads()
    absent = onnx.missing()
    for shape in told.shapes:
        N, K = map(int, shape.split("x"))
        for threads in told.threads:
            print(f"\n{shape}, threads: {threads}{'':20}call us  kernels us  difference")
            for name, row in costs(N, K, threads, told.rounds).items():
                print(f"  {name:34}" + "".join(f"{us:12.2f}" for us in row))
            if absent is None:
                for kind, (mine, theirs, ratio) in beside(N, K, threads, told.rounds).items():
                    print(f"  {kind} call: {mine:.1f} us, ONNX Runtime {theirs:.1f} us: {ratio:.2f} times")
    if absent is not None:
        print(f"\nONNX Runtime is left out: {absent}")


if __name__ == "__main__":
    main()
