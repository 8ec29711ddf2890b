"""Logical inputs of ternary_matmul_experts from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from typing import Any

from tritmark.harness.spec import Arrays, Axes, Decoding, KernelKey
from tritmark.kernels.formats import FORMATS


def decode(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    """Codes int8 (E, N, K) in place of packed weights, with the scales that the bytes hold."""
    form = FORMATS[key.format]
    codes, scales = form.unpack(inputs["weights"], (axes["E"], axes["N"], axes["K"]))
    # One scale for an expert is passed beside the weights, where a mutant may have changed it.
    one = form.scale_per == "tensor" or not form.scale_stored
    return {**inputs, "weights": codes} if one else {**inputs, "weights": codes, "weight_scale": scales}


DECODINGS = (Decoding(op="ternary_matmul_experts", decode=decode),)
