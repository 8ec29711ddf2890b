"""hadamard_quantize on a GPU, or in the simulator: within the bounds, and with the bits of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.spec import KernelKey, Variant
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.hadamard_quantize import cuda
from tritmark.kernels.hadamard_quantize.cpu import VARIANTS
from tritmark.kernels.hadamard_quantize.spec import OPS, QUANTIZE

SHAPES = ((2, 1088, 64), (1, 384, 128), (2, 768, 256), (3, 1536, 512), (1, 11264, 1024), (2, 21504, 1024))
"""Parts of a tile, rows of two tiles for each thread, and rows that are rotated twice."""
IDS = [f"{each.key.op}-{each.key.format}-{each.key.dtype}" for each in cuda.VARIANTS]


@pytest.mark.parametrize(("M", "K", "block"), SHAPES)
@pytest.mark.parametrize("variant", cuda.VARIANTS, ids=IDS)
def test_results_are_those_of_the_cpu(bound: Any, variant: Variant, M: int, K: int, block: int) -> None:
    key, axes = variant.key, {"M": M, "K": K, "block": block}
    op = OPS["int8" if key.op == QUANTIZE.op else "float"]
    own = next(each for each in VARIANTS if (each.key.op, each.key.format, each.key.dtype) == _parts(key))
    for number, (family, offset, gap) in enumerate((("normal", 0, 0), ("ties", 1, 3), ("nonfinite", 0, 4))):
        logical = op.generate(axes, family, np.random.default_rng(number))
        inputs = op.encode(logical, axes, key.format)
        found = bound(variant, inputs, axes, offset, gap).run(inputs)
        for each in expectations(op, axes, key, op.reference(logical, axes, key)):
            assert not compare(each, found[each.name]).wrong.size, (each.name, family)
        wanted = dispatch.outputs_for(op, axes, key, {}, {})
        own.bind(inputs, wanted, axes, 1).run()
        for name, array in wanted.items():
            assert np.array_equal(found[name], array, equal_nan=array.dtype.kind not in "iu"), (name, family)


def _parts(key: KernelKey) -> tuple[str, str, str]:
    return key.op, key.format, key.dtype
