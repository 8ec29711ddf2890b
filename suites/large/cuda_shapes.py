"""ternary_matmul with row16 weights on a GPU at random shapes, compared bit for bit, and with a scale for each group of
weights, within the bound of the contract.

    python suites/large/cuda_shapes.py [--shapes 3000] [--grouped 500] [--seed 0] [--most M N K]

Shapes are drawn from M 1..600, N 1..6000, K 16..30000, alternately log-uniform and uniform, half of them multiples of
64. Each is multiplied by torch.ops.tritmark to int32, float32, bfloat16 and float16. The sums are compared with
PyTorch's float64 product, which is exact for them, and other outputs with that times the factor, rounded once. Prints
how often each instance of the products for more than 8 rows was launched.

Then, at --grouped such shapes, products with scales of groups of 32 to 256: of the launched instance and of a drawn
one. Sums over groups are compared with PyTorch's float64 product.

Exits with status 1 if an output is wrong.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np
import torch

import tritmark.torch  # noqa: F401
from tritmark.harness.dtypes import named_dtype
from tritmark.kernels import FORMATS
from tritmark.kernels.cuda.launch.launch import KERNELS
from tritmark.kernels.cuda.launch.resources import survey
from tritmark.kernels.cuda.measure.clock import timeable
from tritmark.kernels.ternary_matmul import cuda_grouped
from tritmark.kernels.ternary_matmul.cuda_gemm import MMA, WGMMA, GemmMma, fastest

LEAST = (1, 1, 16)
MOST = (600, 6000, 30000)
BITS = {torch.int32: torch.int32, torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def drawn(rng: np.random.Generator, most: tuple[int, ...], even: bool) -> tuple[int, ...]:
    """M, N and K."""
    shape = []
    for low, high in zip(LEAST, most, strict=True):
        size = rng.integers(low, high + 1) if even else round(np.exp(rng.uniform(np.log(low), np.log(high))))
        shape.append(int(size) if size < 64 or rng.random() < 0.5 else int(size) // 64 * 64)
    return tuple(shape)


def wrong(shape: tuple[int, ...], generator: torch.Generator) -> list[str]:
    """The incorrect outputs."""
    M, N, K = shape
    on = {"device": "cuda", "generator": generator}
    activations = torch.randint(-128, 128, (M, K), dtype=torch.int8, **on)
    codes = torch.randint(-1, 2, (N, K), dtype=torch.int8, **on)
    act_scale = torch.rand(M, **on) * 100 + 0.01
    weight_scale = float(np.float32(0.7))
    weights = torch.ops.tritmark.pack(codes, weight_scale, "row16")
    sums = activations.double() @ codes.double().T
    # A tensor on the left: PyTorch divides a number by a tensor through a reciprocal, which rounds twice.
    factors = torch.tensor(weight_scale, dtype=torch.float64, device="cuda") / act_scale.double()
    wanted = {torch.int32: sums.int(), torch.float32: (sums * factors[:, None]).float()}
    wanted |= {dtype: wanted[torch.float32].to(dtype) for dtype in (torch.bfloat16, torch.float16)}
    return [
        f"{M} x {N} x {K} {dtype}: {different} outputs"
        for dtype, right in wanted.items()
        if (
            different := int(
                (
                    torch.ops.tritmark.ternary_matmul(
                        activations, weights, weight_scale, act_scale, N, "row16", dtype
                    ).view(BITS[dtype])
                    != right.view(BITS[dtype])
                ).sum()
            )
        )
    ]


def wrong_grouped(shape: tuple[int, ...], group: int, dtype: str, rng: np.random.Generator) -> list[str]:
    """The instances with outputs beyond the bound; PyTorch's float64 sums are far within it."""
    M, N, K = shape
    K = -(-K // group) * group
    here, axes = timeable(0), {"M": M, "N": N, "K": K}
    activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
    codes = rng.integers(-1, 2, (N, K), dtype=np.int8)
    scales = np.ldexp(rng.uniform(-2, 2, (N, K // group)), rng.integers(-20, 1, (N, K // group)))
    scales = scales.astype(np.float16).astype(np.float32)
    act_scale = rng.uniform(50, 500, M).astype(np.float32)
    wide = torch.from_numpy(codes).cuda().double() * torch.from_numpy(scales).cuda().double().repeat_interleave(
        group, 1
    )
    left, factors = (
        torch.from_numpy(activations).cuda().double(),
        1 / torch.from_numpy(act_scale).cuda().double()[:, None],
    )
    wanted, magnitudes = left @ wide.T * factors, left.abs() @ wide.abs().T * factors
    bound = (K // group + 2.5) * 2.0**-24 * magnitudes
    if dtype != "float32":
        bound += (wanted.abs() + bound) * (2.0**-8 if dtype == "bfloat16" else 2.0**-11) + 2.0**-24
    inputs = {
        "activations": here.upload(activations),
        "weights": here.upload(FORMATS[f"row16_g{group}"].pack(codes, scales)),
        "weight_scale": np.float32(1),
        "act_scale": here.upload(act_scale),
    }
    complaints = []
    for variant in cuda_grouped.VARIANTS:
        there = variant.key.weight_format == f"row16_g{group}" and variant.key.dtype == dtype
        if not there or any(constraint.refusal(axes) for constraint in variant.constraints):
            continue
        assert variant.instances is not None
        instances = variant.instances(axes).each
        for name in dict.fromkeys([next(iter(instances)), rng.choice(list(instances))]):
            out = here.upload(np.full((M, N), 85, named_dtype(dtype)))
            instances[name].bind(inputs, {"out": out}, axes, 1).run()
            found = torch.from_numpy(out.numpy().astype(np.float32)).cuda().double()
            different = int((~((found - wanted).abs() <= bound)).sum())
            if different:
                complaints.append(f"{M} x {N} x {K} {variant.id} {name}: {different} outputs")
    return complaints


def main() -> int:
    """0, or 1 if an output is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=3000)
    parser.add_argument("--grouped", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, nargs=3, default=MOST, metavar=("M", "N", "K"))
    options = parser.parse_args()
    rng, generator = np.random.default_rng(options.seed), torch.Generator("cuda").manual_seed(options.seed)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    launched, failed, began = Counter[str](), 0, time.monotonic()
    for nth in range(options.shapes):
        shape = drawn(rng, tuple(options.most), nth % 2 == 0)
        complaints = wrong(shape, generator)
        failed += bool(complaints)
        print(*complaints, sep="\n", end="\n" if complaints else "", flush=True)
        instance = fastest((*MMA, *WGMMA), *shape, sms)
        kind = "mma" if isinstance(instance, GemmMma) else "wgmma"
        launched[f"{kind} {instance.tile[0]} x {instance.tile[1]}" if shape[0] > 8 else "gemv"] += 1
    print(
        f"{options.shapes} shapes, {failed} wrong, {time.monotonic() - began:.1f} s on {torch.cuda.get_device_name()}"
    )
    print("launched:", ", ".join(f"{name} {times}" for name, times in launched.most_common()))
    survey((kernel for each in cuda_grouped.VARIANTS for kernel in KERNELS[each.id]), [timeable(0).backend.info.arch])
    failed_grouped, began = 0, time.monotonic()
    for nth in range(options.grouped):
        shape, group = drawn(rng, tuple(options.most), nth % 2 == 0), 32 << int(rng.integers(4))
        complaints = wrong_grouped(shape, group, ("float32", "bfloat16", "float16")[nth % 3], rng)
        failed_grouped += bool(complaints)
        print(*complaints, sep="\n", end="\n" if complaints else "", flush=True)
    print(f"{options.grouped} shapes with groups, {failed_grouped} wrong, {time.monotonic() - began:.1f} s")
    return bool(failed or failed_grouped)


if __name__ == "__main__":
    raise SystemExit(main())
