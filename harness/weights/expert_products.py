"""Weights of ONNX's com.microsoft.QMoE with 2 bits: experts (E, N, K) in a tensor (E, N, K / 4).

A weight is (field - zero point) * scale, as in MatMulNBits, with a scale and a zero point for each block of a row, or
for each row. Zero points are 2 where the node has none. The attribute weights_prepacked states the layout only if it is
0. Its default depends on the execution provider: plain on the CPU, and the order of fpA_intB kernels on CUDA. The bytes
do not show which, so the user must choose.
"""

from __future__ import annotations

import numpy as np

from tritmark.harness.weights.finite import check_finite
from tritmark.harness.weights.format_names import ORT_Q2, ORT_Q2_SM80, QMOE, QMOE_LAYOUTS
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import ExpertProduct, TensorInfo
from tritmark.harness.weights.words import FoundWords, Words, points_of_experts, require_floats

_SIZES = {ORT_Q2: (256, 128, 64, 32, 16), ORT_Q2_SM80: (128, 64)}
"""Block sizes of the formats, largest first."""
_CHOICE = (
    "--layout plain (fields in sequence, read by ONNX Runtime on the CPU) or sm80 (the order of its CUDA kernels); "
    "or a model with weights_prepacked 0"
)


def found(source: WeightSource, tensor: TensorInfo, layout: str) -> FoundWords | None:
    """What an initializer with the fields of experts is; None for any other. `layout` is the user's choice, or "".

    Raises WeightFileError for inputs that are no initializers, for shapes that contradict the node, for scales that are
    not finite, and for a layout that nothing states.
    """
    product = source.header.experts.get(tensor.name)
    if product is None:
        return None
    if product.kind != "int":
        return FoundWords(reason=f"QMoE, quant_type {inert(product.kind)}, which is not ternary")
    if product.bits != 2:
        return FoundWords(reason=f"QMoE, {product.bits} bits, which is not ternary")
    if product.point_offset:
        return FoundWords(reason="QMoE with zero_point_offset, which is not ternary")
    if product.prepacked not in {-1, 0}:
        kind = "a layout of its execution provider"
        return FoundWords(reason=f"QMoE with weights_prepacked {product.prepacked}: {kind}, which is not read")
    if product.prepacked and layout not in QMOE_LAYOUTS:
        text = "weights of QMoE without weights_prepacked, whose layout depends on the execution provider"
        raise source.error(tensor.name, text, _CHOICE)
    return _read(source, tensor, product, QMOE_LAYOUTS[layout] if product.prepacked else ORT_Q2)


def _read(source: WeightSource, tensor: TensorInfo, product: ExpertProduct, format: str) -> FoundWords:
    if tensor.dtype != "uint8" or len(tensor.shape) != 3 or 0 in tensor.shape:
        raise source.error(tensor.name, f"{tensor.dtype} of shape {tensor.shape}", "uint8 (E, N, K / 4)")
    scales = _input(source, tensor, product.scales, "scales")
    E, N, K = tensor.shape[0], tensor.shape[1], 4 * tensor.shape[2]
    if format == ORT_Q2_SM80 and len(scales.shape) == 3:  # its initializers may have the shape (E, K, N / 4)
        N, K = scales.shape[1], product.block_size * scales.shape[2]
    group = product.block_size or K
    size = next((each for each in _SIZES[format] if K % each == 0 and group % each == 0), 0)
    if K % group or not size or (format == ORT_Q2_SM80 and group not in _SIZES[format]):
        legal = f"K a multiple of the block, and blocks of {' or '.join(map(str, reversed(_SIZES[format])))}"
        raise source.error(tensor.name, f"K {K} in blocks of {product.block_size or K}", legal)
    if tensor.nbytes != E * N * K // 4:
        legal = f"{E * N * K // 4} bytes, because {inert(scales.name)} has shape {scales.shape}"
        raise source.error(tensor.name, f"{tensor.nbytes} bytes", legal)
    require_floats(source, scales, ((E, N, K // group),) if product.block_size else ((E, N),))
    check_finite(source, scales.name, source.read(scales.name))
    points = _input(source, tensor, product.zero_points, "zero points") if product.zero_points else None
    if points is not None:
        wanted = (E, N, -(-K // group // 4)) if product.block_size else (E, -(-N // 4))
        if points.dtype != "uint8" or points.shape != wanted:
            raise source.error(points.name, f"{points.dtype} of shape {points.shape}", f"uint8 {wanted}")
        for expert in range(E):
            stored = source.read_bytes(points.name, expert, E)
            values = points_of_experts(stored, N, K // group, by_row=not product.block_size)
            others = set(np.unique(values).tolist()) - {1, 2}
            if others:
                return FoundWords(reason=f"QMoE, 2 bits, not ternary: zero point {min(others)}, ternary is 1 or 2")
    words = Words(format, scales, group, points, block=size)
    return FoundWords((N, K), E, words, dtype=QMOE if product.prepacked else "")


def _input(source: WeightSource, tensor: TensorInfo, name: str, what: str) -> TensorInfo:
    there = source.tensor(name)
    if there is None:
        raise source.error(tensor.name, f"{what} {inert(name)}, which is no initializer", "an initializer")
    return there
