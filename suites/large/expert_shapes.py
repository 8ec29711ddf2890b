"""ternary_matmul_experts on a GPU at random shapes, offsets and formats, compared with PyTorch's float64 products.

    python suites/large/expert_shapes.py [--shapes 500] [--seed 0] [--most M E N K]

Shapes are drawn from M 1..3000, E 1..300, N 1..3000 and K 16..9000, alternately log-uniform and uniform, half of the
sizes multiples of 64, with at most 2^24 weights. Offsets are those of the op's families: spread evenly, dealt to
experts of different popularity, cut at random, or all rows of one expert. Each shape is multiplied by the launched
instance of each variant and by a drawn one, and again after other offsets were written into the same array: a launch
depends on the sizes alone. Outputs of row16 are compared bit for bit, those with scales of groups within the bound of
the contract.

Exits with status 1 if an output is wrong.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np
import numpy.typing as npt
import torch

from tritmark.harness.dtypes import named_dtype
from tritmark.kernels import FORMATS
from tritmark.kernels.cuda.launch.launch import KERNELS
from tritmark.kernels.cuda.launch.resources import survey
from tritmark.kernels.cuda.measure.clock import timeable
from tritmark.kernels.ternary_matmul_experts import cuda
from tritmark.kernels.ternary_matmul_experts.offsets import drawn as drawn_offsets
from tritmark.kernels.ternary_matmul_experts.offsets import parts
from tritmark.kernels.ternary_matmul_experts.spec import OP

LEAST = (1, 1, 1, 16)
MOST = (3000, 300, 3000, 9000)
MOST_WEIGHTS = 1 << 24
FAMILIES = ("uniform", "normal", "corners", "constant", "one_nonzero")


def drawn(rng: np.random.Generator, most: tuple[int, ...], even: bool) -> tuple[int, ...]:
    """M, E, N and K."""
    shape = []
    for low, high in zip(LEAST, most, strict=True):
        size = rng.integers(low, high + 1) if even else round(np.exp(rng.uniform(np.log(low), np.log(high))))
        shape.append(int(size) if size < 64 or rng.random() < 0.5 else int(size) // 64 * 64)
    M, E, N, K = shape
    return M, max(1, min(E, MOST_WEIGHTS // (N * K))), N, K


def exact(
    offsets: npt.NDArray[np.int32], activations: torch.Tensor, weights: torch.Tensor, N: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums in float64, and those of the magnitudes of their terms."""
    sums = torch.zeros((len(activations), N), dtype=torch.float64, device="cuda")
    magnitudes = torch.zeros_like(sums)
    for expert, rows in parts(offsets, len(activations)):
        left, right = activations[rows[0] : rows[-1] + 1].double(), weights[expert].double()
        sums[rows[0] : rows[-1] + 1] = left @ right.T
        magnitudes[rows[0] : rows[-1] + 1] = left.abs() @ right.abs().T
    return sums, magnitudes


def wrong(shape: tuple[int, ...], format: str, dtype: str, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """The incorrect launches, and the names of all."""
    (M, E, N, K), group = shape, cuda.FORMATS[format]
    K = -(-K // group) * group if group else K
    here, axes = timeable(0), {"M": M, "E": E, "N": N, "K": K}
    activations = rng.integers(-128, 128, (M, K), dtype=np.int8)
    codes = rng.integers(-1, 2, (E, N, K), dtype=np.int8)
    act_scale = rng.uniform(50, 500, M).astype(np.float32)
    weight_scale = np.ones(E, np.float32) if group else rng.uniform(0.1, 3, E).astype(np.float32)
    wide, stored = torch.from_numpy(codes).cuda(), weight_scale
    if group:
        scales = np.ldexp(rng.uniform(-2, 2, (E, N, K // group)), rng.integers(-20, 1, (E, N, K // group)))
        stored = scales.astype(np.float16).astype(np.float32)
        wide = wide.float() * torch.from_numpy(stored).cuda().repeat_interleave(group, 2)
    packed = np.stack([FORMATS[format].pack(*each) for each in zip(codes, stored, strict=True)])
    inputs = {
        "activations": here.upload(activations),
        "weights": here.upload(packed),
        "weight_scale": here.upload(weight_scale),
        "act_scale": here.upload(act_scale),
        "offsets": here.array((E + 1,), np.int32),
    }
    out = here.array((M, N), named_dtype(dtype))
    left, launches = torch.from_numpy(activations).cuda(), {}
    for variant in cuda.VARIANTS:
        if (variant.key.format, variant.key.dtype) != (format, dtype):
            continue
        if any(constraint.refusal(axes) for constraint in variant.constraints):
            continue
        assert variant.instances is not None
        instances = variant.instances(axes).each
        for name in dict.fromkeys([next(iter(instances)), str(rng.choice(list(instances)))]):
            launches[f"{variant.name} {name}"] = instances[name].bind(inputs, {"out": out}, axes, 1)
    complaints = []
    for family in rng.choice(FAMILIES, 2, replace=False):
        offsets = drawn_offsets(str(family), M, E, rng)
        inputs["offsets"].write(offsets)
        sums, magnitudes = exact(offsets, left, wide, N)
        experts = np.repeat(np.arange(E), np.diff(offsets))
        factors = (
            torch.from_numpy(weight_scale[experts].astype(np.float64)).cuda()
            / torch.from_numpy(act_scale.astype(np.float64)).cuda()
        )
        for name, launch in launches.items():
            out.write(np.full((M, N), 85, out.dtype))
            launch.run()
            found = out.numpy()
            if group:
                bound = (K // group + 2.5) * 2.0**-24 * magnitudes * factors[:, None]
                wanted = sums * factors[:, None]
                if dtype != "float32":
                    bound += (wanted.abs() + bound) * (2.0**-8 if dtype == "bfloat16" else 2.0**-11) + 2.0**-24
                of_this = torch.from_numpy(found.astype(np.float32)).cuda().double()
                different = int((~((of_this - wanted).abs() <= bound)).sum())
            else:
                right = sums if dtype == "int32" else (sums * factors[:, None]).float()
                right = right.cpu().numpy().astype(named_dtype(dtype))
                different = int((found.view(f"u{found.itemsize}") != right.view(f"u{found.itemsize}")).sum())
            if launch.bad >= 0 or different:
                complaints.append(f"{axes} {format} {dtype} {family} {name}: {different} outputs, bad {launch.bad}")
    return complaints, list(launches)


def main() -> int:
    """0, or 1 if an output is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, nargs=4, default=MOST, metavar=("M", "E", "N", "K"))
    options = parser.parse_args()
    rng, launched, failed = np.random.default_rng(options.seed), Counter[str](), 0
    survey((kernel for each in cuda.VARIANTS for kernel in KERNELS[each.id]), [timeable(0).backend.info.arch])
    began = time.monotonic()
    kinds = list(dict.fromkeys((each.key.format, each.key.dtype) for each in cuda.VARIANTS))
    for nth in range(options.shapes):
        shape = drawn(rng, tuple(options.most), nth % 2 == 0)
        complaints, names = wrong(shape, *kinds[nth % len(kinds)], rng)
        failed += bool(complaints)
        launched.update(names)
        print(*complaints, sep="\n", end="\n" if complaints else "", flush=True)
    seconds = time.monotonic() - began
    print(f"{OP.name}: {options.shapes} shapes, {failed} wrong, {seconds:.1f} s on {torch.cuda.get_device_name()}")
    print("launched:", *(f"{times} {name}" for name, times in launched.most_common()), sep="\n  ")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
