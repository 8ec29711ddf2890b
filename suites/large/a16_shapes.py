"""ternary_matmul_a16 with a scale for each group of weights on a GPU: random shapes, within the bound of the contract.

    python suites/large/a16_shapes.py [--shapes 300] [--seed 0] [--most M N K]

Shapes are drawn log-uniform from M 1..300, N 1..3000 and K to 8000. Groups, dtypes of activations and outputs, and
families of values are drawn, too. Each shape is multiplied by the launched instance of each variant and by a drawn one,
and compared with the reference. Exits with status 1 if an output is wrong.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.spec import Axes
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels.cuda.context import CudaContext, cuda_context
from tritmark.kernels.ternary_matmul_a16.cuda_grouped import FORMATS, VARIANTS
from tritmark.kernels.ternary_matmul_a16.spec import DTYPES, FAMILIES, NAMES, OPS

MOST = (300, 3000, 8000)


def wrong(here: CudaContext, axes: Axes, format: str, given: str, dtype: str, rng: np.random.Generator) -> list[str]:
    """The instances with outputs beyond the bound."""
    op, family = OPS[given], str(rng.choice(FAMILIES))
    inputs = op.generate(axes, family, rng)
    encoded = op.encode(inputs, axes, format)
    there = {name: here.upload(encoded[name]) for name in ("activations", "weights")}
    there["weight_scale"] = encoded["weight_scale"]
    complaints, expected = [], None
    for variant in VARIANTS:
        key = variant.key
        if (key.op, key.format, key.dtype) != (op.name, format, dtype):
            continue
        if any(constraint.refusal(axes) for constraint in variant.constraints):
            continue
        if expected is None:
            (expected,) = expectations(op, axes, key, op.reference(inputs, axes, key))
        assert variant.instances is not None
        instances = variant.instances(axes).each
        for name in dict.fromkeys([next(iter(instances)), str(rng.choice(list(instances)))]):
            out = here.upload(np.full((axes["M"], axes["N"]), np.nan, named_dtype(dtype)))
            instances[name].bind(there, {"out": out}, axes, 1).run()
            found = compare(expected, out.numpy())
            if found.first is not None:
                complaints.append(f"{axes} {family} {variant.id} {name}: {found.wrong.size} outputs, {found.first}")
    return complaints


def main() -> int:
    """0, or 1 if an output is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, nargs=3, default=MOST, metavar=("M", "N", "K"))
    options = parser.parse_args()
    rng, here, failed, began = np.random.default_rng(options.seed), cuda_context(), 0, time.monotonic()
    for _ in range(options.shapes):
        M, N, K = (round(np.exp(rng.uniform(0, np.log(most)))) for most in options.most)
        format, given = str(rng.choice(list(FORMATS))), str(rng.choice(list(NAMES)))
        axes = {"M": M, "N": N, "K": -(-K // FORMATS[format]) * FORMATS[format]}
        complaints = wrong(here, axes, format, given, str(rng.choice(DTYPES)), rng)
        failed += bool(complaints)
        print(*complaints, sep="\n", end="\n" if complaints else "", flush=True)
    print(f"{options.shapes} shapes, {failed} wrong, {time.monotonic() - began:.1f} s")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
