"""Logical inputs from the encoded ones, for ops whose `encode` is more than a copy; see harness.spec.Decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, Decoding, KernelKey
from tritmark.kernels import input_dtypes
from tritmark.kernels.formats import FORMATS
from tritmark.kernels.ternary_linear.reference import NAMES as LINEAR


def _product(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    form = FORMATS[key.format]
    codes, scales = form.unpack(inputs["weights"], (axes["N"], axes["K"]))
    # A single scale is passed beside the weights, where a mutant may have changed it.
    one = form.scale_per == "tensor" or not form.scale_stored
    return {**inputs, "weights": codes} if one else {**inputs, "weights": codes, "weight_scale": scales}


def _unpacked(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    codes, scales = FORMATS[key.format].unpack(inputs["packed"], (axes["N"], axes["K"]))
    return {
        "packed": codes,
        "scales": np.asarray(scales, np.float32).reshape((1, 1) if np.ndim(scales) == 0 else np.shape(scales)),
    }


def _widened(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    with np.errstate(invalid="ignore"):
        return {"h": np.asarray(inputs["h"]).astype(np.float32)}


def _linear(inputs: Arrays, axes: Axes, key: KernelKey) -> dict[str, Any]:
    return {**_product(inputs, axes, key), "x": input_dtypes.decode(inputs, axes, key)["x"]}


DECODINGS = (
    Decoding(op="i2s_quantize", decode=input_dtypes.decode),
    Decoding(op="ternary_quantize", decode=input_dtypes.decode),
    Decoding(op="activation_quantize", decode=input_dtypes.decode),
    Decoding(op="ternary_matmul", decode=_product),
    Decoding(op="ternary_matmul_bf16", decode=_product),
    Decoding(op="ternary_matmul_fp16", decode=_product),
    *(Decoding(op=op, decode=_linear) for op in LINEAR.values()),
    Decoding(op="unpack_codes", decode=_unpacked),
    Decoding(op="float_widen", decode=_widened),
)
