"""hadamard_quantize on a GPU, or in the simulator: within the bounds, and with the bits of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.spec import KernelKey, Variant
from tritmark.harness.validate.compare import compare, expectations
from tritmark.kernels import QuantizedLinear, hadamard_quantize, pack_weights, ternary_matmul
from tritmark.kernels.cuda.context import CudaContext
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.hadamard_quantize import cuda
from tritmark.kernels.hadamard_quantize.cpu import VARIANTS
from tritmark.kernels.hadamard_quantize.spec import OPS, QUANTIZE
from tritmark.kernels.numerics.input_dtypes import FORMATS, narrow

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


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("M", "K", "block"), SHAPES)
def test_a_layer_has_the_bits_of_the_two_calls(cuda: CudaContext, M: int, K: int, block: int, format: str) -> None:
    """With its rows in host memory: copied beforehand, then in round trips. One row and several."""
    rng = np.random.default_rng(K)
    weights = pack_weights(rng.integers(-1, 2, (40, K), dtype=np.int8), 0.5)
    signs = rng.choice(np.array([-1, 1], np.int8), K)
    layer = QuantizedLinear(weights, hadamard=(block, signs), device="cuda")
    for _ in range(3):
        x = narrow(rng.standard_normal((M, K), dtype=np.float32), format)
        rows = hadamard_quantize(x, signs, block_size=block, device="cuda")
        expected = ternary_matmul(rows.q, weights, act_scale=rows.scale, device="cuda")
        assert np.array_equal(layer(x), expected)
        assert np.array_equal(QuantizedLinear(weights, hadamard=(block, signs))(x), expected)
    assert layer.receipt is not None
    assert layer.receipt.note.endswith(f"activations rotated in blocks of {block}, with signs")
    assert any(name.startswith("ternary_gpu_hadamard") for name in layer.receipt.functions)


def _parts(key: KernelKey) -> tuple[str, str, str]:
    return key.op, key.format, key.dtype
