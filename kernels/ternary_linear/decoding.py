"""Logical inputs of ternary_linear from the encoded ones; see harness.spec.Decoding."""

from __future__ import annotations

from typing import Any

from tritmark.harness.spec import Arrays, Axes, Decoding, KernelKey
from tritmark.kernels.numerics import input_dtypes
from tritmark.kernels.ternary_linear.reference import NAMES
from tritmark.kernels.ternary_matmul import decoding as product


def _decode(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return {**product.decode(inputs, axes, key), "x": input_dtypes.decode(inputs, axes, key)["x"]}


DECODINGS = tuple(Decoding(op=op, decode=_decode) for op in NAMES.values())
