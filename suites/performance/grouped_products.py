"""Products on a GPU from weights with a scale for each group, beside those from weights with one scale, interleaved in
one process.

    python suites/performance/grouped_products.py [--shapes 2560x2560 17408x5120] [--rows 1 16 512] [--groups 64 128]
                                                  [--rounds 7] [--every] [--activations bfloat16]

For each N x K and M the time in us of the launched instances, from int8 activations and cold weights to bfloat16
outputs, or from 16-bit activations (ternary_matmul_a16): of row16, then of row16_g32 to row16_g256 with the quotient of
both. Each has a CUDA graph of 24 calls or more over as many copies of its weights as exceed the L2; replays are
interleaved, and a time is the median of the rounds. With --every, then a line with the time of each instance of the
same product.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from interleaved_timing import cold_copies, graph_sample, interleaved_us

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes, KernelKey, Variant
from tritmark.kernels import FORMATS
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.launch.launch import KERNELS
from tritmark.kernels.cuda.launch.resources import survey
from tritmark.kernels.cuda.measure.clock import timeable
from tritmark.kernels.formats.row16 import row_bytes
from tritmark.kernels.ternary_matmul import cuda, cuda_grouped
from tritmark.kernels.ternary_matmul.spec import OP
from tritmark.kernels.ternary_matmul_a16 import cuda as a16
from tritmark.kernels.ternary_matmul_a16 import cuda_grouped as a16_grouped
from tritmark.kernels.ternary_matmul_a16.spec import NAMES

SHAPES = ("2560x2560", "13824x2560", "2560x6912", "17408x5120")
ROWS = (1, 8, 16, 64, 256, 1024, 4096)
DTYPE = "bfloat16"
HIDDEN = ("group", "threads", "tail", "blocks", "input")
"""Macros that are not shown."""


def variant_for(format: str, M: int, given: str) -> Variant:
    """The variant that is launched for M rows of activations of that dtype."""
    few, variants = "gemv", (*cuda.VARIANTS, *cuda_grouped.VARIANTS)
    if given != "int8":
        few, variants = "mma", (*a16.VARIANTS, *a16_grouped.VARIANTS)
    name, op = few if M <= cuda.GEMV_M else "gemm", NAMES.get(given, OP.name)
    key = KernelKey(DEVICE, op, format, DTYPE)
    return next(each for each in variants if (each.key, each.name) == (key, name))


def packed(format: str, N: int, K: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Drawn bytes of weights with fields 0, 1 and 2, and scales near 1."""
    drawn = np.empty(FORMATS[format].packed_bytes((N, K)), np.uint8)
    high = rng.integers(0, 256, drawn.size, dtype=np.uint8) & 0xAA
    drawn[:] = high | (rng.integers(0, 256, drawn.size, dtype=np.uint8) & 0x55 & ~(high >> 1))
    if format != cuda.FORMAT:
        scales = drawn[N * row_bytes(K) :].view(np.float16)
        scales[:] = rng.uniform(0.5, 2, scales.size)
    return drawn


def launches_of(here: CudaContext, variants: dict[str, Variant], axes: Axes, given: str) -> dict[str, Any]:
    """For each variant the launches with copies of the weights of its format."""
    rng, (M, N, K) = np.random.default_rng(0), (axes[axis] for axis in "MNK")
    drawn_rows = rng.integers(-128, 128, (M, K), dtype=np.int8)
    shared = {"activations": here.upload(drawn_rows.astype(named_dtype(given))), "weight_scale": np.float32(1)}
    if given == "int8":
        shared["act_scale"] = here.upload(rng.uniform(1, 100, M).astype(np.float32))
    out = {"out": here.array((M, N), named_dtype(DTYPE))}
    copies: dict[str, list[Any]] = {}
    for variant in variants.values():
        if variant.key.format not in copies:
            drawn = packed(variant.key.format, N, K, rng)
            copies[variant.key.format] = [here.upload(drawn) for _ in range(cold_copies(drawn.size))]
    return {
        name: [variant.bind({**shared, "weights": each}, out, axes, 1) for each in copies[variant.key.format]]
        for name, variant in variants.items()
    }


def timed(here: CudaContext, variants: dict[str, Variant], axes: Axes, given: str, rounds: int) -> dict[str, float]:
    """The time of each in us."""
    launches = launches_of(here, variants, axes, given)
    return interleaved_us({name: graph_sample(each) for name, each in launches.items()}, rounds)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="M")
    parser.add_argument("--groups", nargs="+", type=int, default=tuple(cuda_grouped.FORMATS.values()))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--activations", choices=("int8", *NAMES), default="int8")
    parser.add_argument("--every", action="store_true", help="also time each instance")
    options = parser.parse_args()
    here, given = timeable(0), options.activations
    formats = (cuda.FORMAT, *(f"row16_g{group}" for group in options.groups))
    launched = [variant_for(format, M, given) for format in formats for M in (1, cuda.GEMV_M + 1)]
    survey((kernel for each in launched for kernel in KERNELS[each.id]), [here.backend.info.arch])
    for shape in options.shapes:
        N, K = map(int, shape.split("x"))
        for M in options.rows:
            axes = {"M": M, "N": N, "K": K}
            held = [format for format in formats if K % (FORMATS[format].group or 1) == 0]
            us = timed(here, {each: variant_for(each, M, given) for each in held}, axes, given, options.rounds)
            first = us.pop(cuda.FORMAT)
            told = "  ".join(f"{format} {each:.2f} ({each / first:.2f})" for format, each in us.items())
            print(f"{M:5} x {N} x {K}: {cuda.FORMAT} {first:.2f}  {told}", flush=True)
            for format in us if options.every else ():
                found = variant_for(format, M, given).instances
                assert found is not None
                times = timed(here, dict(found(axes).each), axes, given, options.rounds // 2)
                ordered = sorted(times.items(), key=lambda item: item[1])
                print("      " + format, *(f"{each:.2f} {short(name)}" for name, each in ordered), sep="; ", flush=True)
    return 0


def short(name: str) -> str:
    """The name of an instance without what all share."""
    macros = [word for word in name.split()[1:] if word.split("=")[0] not in HIDDEN]
    return " ".join([name.split(maxsplit=1)[0].rpartition("grouped_")[2], *macros])


if __name__ == "__main__":
    raise SystemExit(main())
