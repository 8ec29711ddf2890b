"""Weights in formats that no kernel reads are repacked if their content fits another format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import NoCompatibleKernelError
from tritmark.harness.spec import KernelKey
from tritmark.kernels import FORMATS, PackedWeights, ternary_matmul
from tritmark.kernels.ternary_matmul.api import with_receipt
from tritmark.kernels.ternary_matmul.reference import reference

N, K, GROUP = 8, 256, 128
FORMAT = "mlx_q2"
RNG = np.random.default_rng(0)
CODES = RNG.integers(-1, 2, (N, K), dtype=np.int8)
ROWS = RNG.integers(-128, 128, (3, K), dtype=np.int8)


def weights(scales: Any) -> PackedWeights:
    assert FORMATS[FORMAT].group == GROUP
    return PackedWeights.from_bytes(FORMATS[FORMAT].pack(CODES, 1.0), FORMAT, (N, K), scales)


def test_float32_scales_that_float16_holds_are_repacked() -> None:
    scales = RNG.normal(size=(N, K // GROUP)).astype(np.float16).astype(np.float32)
    given = weights(scales)
    assert given.content.scale_dtype == "float16"
    found, receipt = with_receipt(ROWS, given)
    inputs = {
        "activations": ROWS,
        "weights": CODES,
        "weight_scale": scales,
        "act_scale": np.ones(len(ROWS), np.float32),
    }
    key = KernelKey("cpu", "ternary_matmul", f"tile64_g{GROUP}", "float32")
    expected = reference(inputs, {"M": len(ROWS), "N": N, "K": K}, key)
    assert (np.abs(found - expected["out"]) <= expected["out.bound"]).all()
    assert receipt.note == f"computed from tile64_g{GROUP}, repacked from {FORMAT}"


@pytest.mark.parametrize("factor", [1 + 2.0**-12, 2.0**-25, 2.0**17])
def test_other_scales_are_refused_with_the_reason(factor: float) -> None:
    scales = np.ones((N, K // GROUP), np.float32)
    scales[3, 1] = factor
    given = weights(scales)
    assert given.content.scale_dtype == "float32"
    with pytest.raises(NoCompatibleKernelError, match=r"has scales of float32, tile64_g128 of float16"):
        ternary_matmul(ROWS, given)


def test_codes_that_do_not_occur_need_no_room() -> None:
    scales = np.full((N, 4), 0.5, np.float32)
    ternary = PackedWeights(FORMATS["q2_0"].pack(CODES, scales), "q2_0", (N, K), scales)
    assert ternary.content.codes == (-1, 0, 1)
    codes = CODES.copy()
    codes[0, 0] = 2
    assert PackedWeights(FORMATS["q2_0"].pack(codes, scales), "q2_0", (N, K), scales).content.codes == (-1, 0, 1, 2)
