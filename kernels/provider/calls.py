"""Whole calls as users make them, for the league table: CALLS. Weights are packed, and sessions opened, beforehand.

All calls run in one process. NumPy's product is left out: its threads and tritmark's share the same cores and slow each
other down, so its time would be far longer than in a program that uses NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.spec import Arrays, Axes, PublicCall
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.peers import onnx
from tritmark.kernels.provider.calls_cuda import CUDA_CALLS
from tritmark.kernels.provider.calls_quantize import QUANTIZE_CALLS
from tritmark.kernels.ternary_matmul.api import ternary_matmul
from tritmark.kernels.weights.packed import PackedWeights, pack_weights, preferred_format

_ROWS = "float32 rows"


def _packed(inputs: Arrays) -> PackedWeights:
    return pack_weights(inputs["weights"], float(inputs["weight_scale"]), format=preferred_format("cpu"))


def _rows(inputs: Arrays) -> npt.NDArray[np.float32]:
    """The float32 values that the int8 activations encode."""
    rows: npt.NDArray[np.float32] = (inputs["activations"] / inputs["act_scale"][:, np.newaxis]).astype(np.float32)
    return rows


def _linear(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    layer, rows = QuantizedLinear(_packed(inputs), threads=threads), _rows(inputs)
    return lambda: layer(rows)


def _bound(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    return QuantizedLinear(_packed(inputs), threads=threads).bind(_rows(inputs)).run


def _product(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    weights, out = _packed(inputs), np.empty((axes["M"], axes["N"]), np.float32)
    activations, scale = inputs["activations"], inputs["act_scale"]
    return lambda: ternary_matmul(activations, weights, act_scale=scale, out=out, threads=threads)


def _session(inputs: Arrays, axes: Axes, threads: int) -> Callable[[], Any]:
    packed = onnx.pack(inputs["weights"])
    product = onnx.OnnxProduct(packed, float(inputs["weight_scale"]), axes["K"], threads=threads)
    rows = _rows(inputs)
    return lambda: product(rows)


def _call(name: str, takes: str, prepare: Callable[[Arrays, Axes, int], Callable[[], Any]], **more: Any) -> PublicCall:
    return PublicCall(
        name=name,
        op="ternary_matmul",
        device="cpu",
        dtypes=frozenset({"float32"}),
        takes=takes,
        prepare=prepare,
        scales=BUILT_IN[preferred_format("cpu")].scales,
        **more,
    )


CALLS = (
    _call("tritmark QuantizedLinear", _ROWS, _linear),
    _call("tritmark QuantizedLinear.bind", f"{_ROWS}, bound beforehand", _bound),
    _call("tritmark ternary_matmul, out=", "int8 rows and their scales", _product),
    _call("ONNX Runtime InferenceSession, MatMulNBits of 2 bits", _ROWS, _session, missing=onnx.missing),
    *CUDA_CALLS,
    *QUANTIZE_CALLS,
)
"""Calls of tritmark and of other projects."""
