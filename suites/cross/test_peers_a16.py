"""Products of other projects as peers of ternary_matmul_a16: their arithmetic is within their bounds; on a GPU, so are
their outputs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError
from tritmark.harness.spec import Arrays, Axes, Tier, Variant
from tritmark.harness.validate.families import NONFINITE
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.cuda.device import missing as gpu_missing
from tritmark.kernels.formats import BUILT_IN, row16_grouped
from tritmark.kernels.peers import humming
from tritmark.kernels.peers.products_a16_cuda import VARIANTS
from tritmark.kernels.ternary_matmul.scales import weight_scales
from tritmark.kernels.ternary_matmul_a16.spec import FAMILIES, OPS

OP = OPS["bfloat16"]
BFLOAT16 = ml_dtypes.bfloat16
F32 = np.float32
SHAPES = ({"M": 1, "N": 128, "K": 256}, {"M": 17, "N": 256, "K": 2560})


def scaled(inputs: Arrays, axes: Axes, format: str) -> Any:
    """The weights times their scales, in float64."""
    scales = np.float64(weight_scales(inputs, axes, format))
    group = BUILT_IN[format].group
    return inputs["weights"] * (np.repeat(scales, group, axis=1) if group else scales)


def exact(inputs: Arrays, axes: Axes, format: str) -> Any:
    """In float64."""
    return inputs["activations"].astype(np.float64) @ scaled(inputs, axes, format).T


def arithmetic(name: str, inputs: Arrays, axes: Axes, format: str) -> Any:
    """The arithmetic of the peer in NumPy."""
    rows, codes = inputs["activations"].astype(F32), inputs["weights"].astype(F32)
    if name == "torch-bfloat16":
        return (rows @ scaled(inputs, axes, format).astype(BFLOAT16).astype(F32).T).astype(BFLOAT16)
    scale = F32(inputs["weight_scale"])
    if group := BUILT_IN[format].group:
        codes *= np.repeat(weight_scales(inputs, axes, format).astype(BFLOAT16).astype(F32), group, axis=1)
        scale = F32(1)
    total = np.zeros((axes["M"], axes["N"]), BFLOAT16)
    for k in np.array_split(np.arange(axes["K"]), humming.SLICES):
        part = ((rows[:, k] @ codes[:, k].T) * scale).astype(BFLOAT16)
        total = (total.astype(F32) + part.astype(F32)).astype(BFLOAT16)
    return total


def test_they_are_peers_where_ours_stand() -> None:
    formats = ("row16", *(form.name for form in row16_grouped.FORMATS))
    keys = {(Tier.PEER, f"cuda/ternary_matmul_bf16/{format}/bfloat16") for format in formats}
    assert {(each.tier, str(each.key)) for each in VARIANTS} == keys


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.name}-{each.key.format}")
def test_their_arithmetic_is_within_its_bound(variant: Variant) -> None:
    taken, format = 0, variant.key.format
    assert variant.error_bound is not None
    for family in set(FAMILIES) - {NONFINITE}:  # bounds do not apply
        for axes in SHAPES:
            inputs = OP.generate(axes, family, np.random.default_rng(3))
            try:
                bound = np.asarray(variant.error_bound(inputs, axes)["out"])
            except InvalidArgumentError:
                continue
            with np.errstate(over="ignore"):
                off = np.abs(
                    arithmetic(variant.name, inputs, axes, format).astype(np.float64) - exact(inputs, axes, format)
                )
            assert (off <= bound).all(), (family, axes)
            taken += 1
    assert taken >= 2 * len(FAMILIES) - 6  # scales, or sums with them, that float32 does not hold


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.name}-{each.key.format}")
def test_zeros_are_outside_the_bound(variant: Variant) -> None:
    axes, format = SHAPES[1], variant.key.format
    inputs = OP.generate(axes, "constant", np.random.default_rng(0))
    # The terms of the first output have one sign, whatever the signs of the scales.
    inputs["activations"][:] = np.where(scaled(inputs, axes, format)[0] < 0, -1, 1)
    assert variant.error_bound is not None
    bound = np.asarray(variant.error_bound(inputs, axes)["out"])
    assert (np.abs(exact(inputs, axes, format)) > bound)[:, 0].all()


@pytest.mark.skipif(gpu_missing() is not None, reason="no GPU here")
@pytest.mark.parametrize("axes", SHAPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: f"{each.name}-{each.key.format}")
def test_on_a_gpu_they_are_within_their_bound(variant: Variant, axes: Axes) -> None:
    why = variant.missing()
    if why is not None:
        pytest.skip(why)
    variant.load()
    context = cuda_context()
    inputs = OP.generate(axes, "normal", np.random.default_rng(1))
    encoded = OP.encode(inputs, axes, variant.key.format)
    there = {name: context.upload(each) if np.ndim(each) else each for name, each in encoded.items()}
    out = context.array((axes["M"], axes["N"]), BFLOAT16)
    variant.bind(there, {"out": out}, axes, 1).run()
    assert variant.error_bound is not None
    off = np.abs(out.numpy().astype(np.float64) - exact(inputs, axes, variant.key.format))
    assert (off <= variant.error_bound(inputs, axes)["out"]).all()
