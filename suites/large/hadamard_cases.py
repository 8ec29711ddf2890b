"""hadamard_quantize on a GPU, or in the simulator, at random cases, within the bounds of the contract and with the same
bits as on the CPU.

    python suites/large/hadamard_cases.py [--cases 1000] [--seed 0] [--most 40960]

A case draws M 1..300, a block, K up to --most, the dtypes of input and output, the family of values and the row stride.
Exits with status 1 if an output is beyond its bound or differs from the CPU's.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np

from tritmark.harness.spec import Axes, KernelKey
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.hadamard_quantize.cpu import KEYS
from tritmark.kernels.hadamard_quantize.spec import BLOCKS, OPS, QUANTIZE

MOST_ELEMENTS = 1 << 20


def drawn(rng: np.random.Generator, most: int) -> tuple[KernelKey, Axes, str]:
    """The key on the CPU, the axes and the family."""
    key = KEYS[int(rng.integers(len(KEYS)))]
    block = int(rng.choice(BLOCKS))
    K = block * int(rng.integers(1, max(2, most // block + 1)))
    M = int(min(np.exp(rng.uniform(0, np.log(300))), max(1, MOST_ELEMENTS // K)))
    return key, {"M": M, "K": K, "block": block}, str(rng.choice(OPS["int8"].input_families))


def run(key: KernelKey, inputs: dict[str, Any], axes: Axes) -> dict[str, Any]:
    """The outputs of the kernel that is selected."""
    op = OPS["int8" if key.op == QUANTIZE.op else "float"]
    outputs = dispatch.outputs_for(op, axes, key, {}, {})
    dispatch.run(op, dispatch.select(key, axes, None), inputs, outputs, axes, dispatch.threads_for(key, None))
    return outputs


def wrong(key: KernelKey, axes: Axes, family: str, rng: np.random.Generator) -> list[str]:
    """What is incorrect in a case."""
    op = OPS["int8" if key.op == QUANTIZE.op else "float"]
    logical = op.generate(axes, family, rng)
    inputs = op.encode(logical, axes, key.format)
    wide = np.zeros((axes["M"], axes["K"] + int(rng.integers(0, 3)) * 4), inputs["x"].dtype)
    wide[:, : axes["K"]] = inputs["x"]
    inputs["x"] = wide[:, : axes["K"]]
    there, here = run(replace(key, device="cuda"), inputs, axes), run(key, inputs, axes)
    found = []
    for each in expectations(op, axes, key, op.reference(logical, axes, key)):
        result = compare(each, there[each.name])
        if result.wrong.size:
            found.append(f"{each.name}: {result.wrong.size} beyond the bound, first {result.first}")
        if not np.array_equal(there[each.name], here[each.name], equal_nan=each.values.dtype.kind not in "iu"):
            found.append(f"{each.name}: other bits than on the CPU")
    return found


def main() -> int:
    """1 if a case was incorrect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=40960, metavar="K")
    options = parser.parse_args()
    rng, failed, begun = np.random.default_rng(options.seed), 0, time.monotonic()
    for number in range(options.cases):
        key, axes, family = drawn(rng, options.most)
        told = wrong(key, axes, family, rng)
        failed += bool(told)
        for each in told:
            print(f"case {number}: {key} {axes} {family}: {each}", flush=True)
    print(f"{options.cases} cases, {failed} incorrect, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
