"""The public functions whose device `tritmark tune variants --device auto` measures, by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tritmark.harness.spec import Arrays, Axes, KernelKey, PortableCall
from tritmark.kernels.absmean_quantize.api import KEY as ABSMEAN_KEY
from tritmark.kernels.absmean_quantize.api import absmean_quantize
from tritmark.kernels.activation_quantize.api import activation_quantize
from tritmark.kernels.activation_quantize.auto_device import rows_class
from tritmark.kernels.hadamard_quantize.spec import BLOCKS
from tritmark.kernels.i2s_dequantize.api import KEY as DEQUANTIZE_KEY
from tritmark.kernels.i2s_dequantize.api import i2s_dequantize
from tritmark.kernels.i2s_quantize.api import KEY as QUANTIZE_KEY
from tritmark.kernels.i2s_quantize.api import i2s_quantize
from tritmark.kernels.linear.linear import QuantizedLinear
from tritmark.kernels.linear.row_quantizer import Hadamard, row_quantizer
from tritmark.kernels.public import auto_device
from tritmark.kernels.public.auto_device import CallClass
from tritmark.kernels.ternary_matmul.api import ternary_matmul
from tritmark.kernels.ternary_matmul.auto_device import product_class
from tritmark.kernels.ternary_quantize.api import ternary_quantize
from tritmark.kernels.ternary_quantize.spec import CODES
from tritmark.kernels.weights.packed import PackedWeights, pack_weights, preferred_format

Call = Callable[[str, Arrays], Callable[[], Sequence[Any]]]
"""See PortableCall.prepare."""


def portable(op: str, axes: Axes, threads: int | None) -> Sequence[PortableCall]:
    """The public functions of an op whose device may be chosen, for that shape class. Inputs are float32, or int8 if
    the op takes codes; weights have the format that the CPU prefers."""
    make = _MAKERS.get(op)
    return () if make is None else [_portable(*each) for each in make(axes, threads)]


def _portable(calls: CallClass, prepare: Call) -> PortableCall:
    candidates = calls.candidates()
    return PortableCall(
        function=calls.function,
        place=calls.place,
        axes=calls.axes,
        devices=tuple(candidates),
        identity=calls.identity(candidates),
        prepare=prepare,
    )


def _elements(key: KernelKey, dtype: str, call: Callable[..., Any]) -> Callable[[Axes, int | None], Any]:
    """The maker for an elementwise function. `call(inputs, axes, **more)` returns its outputs."""

    def make(axes: Axes, threads: int | None) -> list[tuple[CallClass, Call]]:
        def prepare(device: str, inputs: Arrays) -> Callable[[], Sequence[Any]]:
            return lambda: call(inputs, axes, device=device, threads=threads)

        return [(auto_device.elements_class(key, dtype, axes, threads), prepare)]

    return make


def _rows(axes: Axes, threads: int | None) -> list[tuple[CallClass, Call]]:
    def prepare(device: str, inputs: Arrays) -> Callable[[], Sequence[Any]]:
        return lambda: activation_quantize(inputs["x"], device=device, threads=threads)

    return [(rows_class("float32", axes, threads), prepare)]


def _products(axes: Axes, threads: int | None) -> list[tuple[CallClass, Call]]:
    M, N, K = axes["M"], axes["N"], axes["K"]
    format = preferred_format(auto_device.HOST, (N, K), threads=threads)
    like = pack_weights(np.zeros((N, K), np.int8), 1.0, format=format)

    def packed(inputs: Arrays) -> PackedWeights:
        return pack_weights(inputs["weights"], float(inputs["weight_scale"]), format=format)

    def product(device: str, inputs: Arrays) -> Callable[[], Sequence[Any]]:
        weights, rows, scale = packed(inputs), inputs["activations"], inputs["act_scale"]
        return lambda: (ternary_matmul(rows, weights, act_scale=scale, device=device, threads=threads),)

    def layer(hadamard: Hadamard | None, device: str, inputs: Arrays) -> Callable[[], Sequence[Any]]:
        made = QuantizedLinear(packed(inputs), hadamard=hadamard, device=device, threads=threads)
        rows = (inputs["activations"] / inputs["act_scale"][:, np.newaxis]).astype(np.float32)
        return lambda: (made(rows),)

    # Rotations take about the same time with every block, so the largest stands for all.
    rotations: list[Hadamard | None] = [(block, None) for block in BLOCKS[::-1] if K % block == 0]
    found: list[tuple[CallClass, Call]] = [
        (product_class("ternary_matmul", like, M, "int8", "float32", threads), product)
    ]
    for hadamard in (None, *rotations[:1]):
        quantizer = row_quantizer("QuantizedLinear", hadamard, K)
        calls = product_class(quantizer.function, like, M, "float32", "float32", threads, quantizer=quantizer)
        found.append((calls, partial(layer, hadamard)))
    return found


_MAKERS: dict[str, Callable[[Axes, int | None], Sequence[tuple[CallClass, Call]]]] = {
    "absmean_quantize": _elements(
        ABSMEAN_KEY, "float32", lambda inputs, axes, **more: absmean_quantize(inputs["x"], **more)
    ),
    "activation_quantize": _rows,
    "i2s_dequantize": _elements(
        DEQUANTIZE_KEY, "int8", lambda inputs, axes, **more: (i2s_dequantize(inputs["q"], inputs["scale"], **more),)
    ),
    "i2s_quantize": _elements(
        QUANTIZE_KEY, "float32", lambda inputs, axes, **more: (i2s_quantize(inputs["x"], inputs["scale"], **more),)
    ),
    "ternary_matmul": _products,
    "ternary_quantize": _elements(
        CODES, "float32", lambda inputs, axes, **more: ternary_quantize(inputs["x"], axes["block"], **more)
    ),
}
