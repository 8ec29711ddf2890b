"""Weights of ONNX's com.microsoft.MatMulNBits: a weight is (field - zero point) * scale, with a scale and a zero point
for each block of a row. Blocks with zero point 1 or 2 can be ternary; their fields show it when they are read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.finite import check_finite
from tritmark.harness.weights.format_names import ORT_Q2, ORT_Q2_SM80
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import FLOATS, BlockProduct, TensorInfo
from tritmark.harness.weights.words import FoundWords, Words, require_floats


class _Layout(NamedTuple):
    """A value of the attribute weight_prepacked, and what its kernels require."""

    format: str
    block_sizes: tuple[int, ...]
    rows: int = 1
    """N must be a multiple of this."""
    whole_blocks: bool = False
    """Whether K must be a multiple of the block."""


_LAYOUTS = {0: _Layout(ORT_Q2, (16, 32, 64, 128, 256)), 1: _Layout(ORT_Q2_SM80, (64, 128), 128, True)}
_SM90 = 2


def found(source: WeightSource, tensor: TensorInfo) -> FoundWords | None:
    """What an initializer with the fields of a product is; None for any other.

    Raises WeightFileError for inputs that are no initializers, for sizes that contradict the node, and for scales that
    are not finite.
    """
    other = source.header.other_words.get(tensor.name)
    if other is not None:
        return FoundWords(reason=f"weights of com.microsoft.{other}, which are not read")
    product = source.header.products.get(tensor.name)
    if product is None:
        return None
    if product.bits != 2:
        return FoundWords(reason=f"MatMulNBits, {product.bits} bits, which is not ternary")
    if product.group_index:
        return FoundWords(reason="MatMulNBits with g_idx: columns in another order, which is not read")
    if product.prepacked not in _LAYOUTS:
        kind = "the layout of SM90" if product.prepacked == _SM90 else "an unknown layout"
        return FoundWords(reason=f"MatMulNBits with weight_prepacked {product.prepacked}: {kind}, which is not read")
    layout = _LAYOUTS[product.prepacked]
    if product.block_size not in layout.block_sizes:
        legal = " or ".join(map(str, layout.block_sizes))
        of = f" with weight_prepacked {product.prepacked}" if product.prepacked else ""
        raise source.error(tensor.name, f"block_size {product.block_size}{of}", legal)
    if product.N % layout.rows or (layout.whole_blocks and product.K % product.block_size):
        found = f"N {product.N} and K {product.K} with weight_prepacked {product.prepacked}"
        raise source.error(tensor.name, found, f"N a multiple of {layout.rows}, K of block_size {product.block_size}")
    N, blocks = product.N, product.blocks
    nbytes = N * blocks * product.block_size // 4
    if tensor.dtype not in {"uint8", "uint2", "int2"} or tensor.nbytes != nbytes:
        text = f"{tensor.dtype} of shape {tensor.shape}"
        raise source.error(tensor.name, text, f"uint8 {(N, blocks, product.block_size // 4)}, as the node states")
    scales = _input(source, tensor, product.scales, "scales")
    require_floats(source, scales, ((N, blocks), (N * blocks,)))
    check_finite(source, scales.name, source.read(scales.name))
    points = _input(source, tensor, product.zero_points, "zero_points") if product.zero_points else None
    if points is not None:
        others = set(np.unique(_values(source, points, product))) - {1.0, 2.0}
        if others:
            return FoundWords(reason=f"MatMulNBits, 2 bits, not ternary: zero point {min(others):g}, ternary is 1 or 2")
    return FoundWords((N, product.K), 0, Words(layout.format, scales, product.block_size, points))


def _input(source: WeightSource, tensor: TensorInfo, name: str, what: str) -> TensorInfo:
    there = source.tensor(name)
    if there is None:
        raise source.error(tensor.name, f"{what} {inert(name)}, which is no initializer", "an initializer")
    return there


def _values(source: WeightSource, points: TensorInfo, product: BlockProduct) -> NDArray[np.float32]:
    """The zero points of all blocks."""
    N, blocks = product.N, product.blocks
    if points.dtype == "uint8" and points.nbytes == N * -(-blocks // 4):
        stored = source.read_bytes(points.name).reshape(N, -1, 1)
        return (stored >> np.arange(0, 8, 2, dtype=np.uint8) & 3).reshape(N, -1)[:, :blocks].astype(np.float32)
    if points.dtype not in FLOATS or points.shape not in {(N, blocks), (N * blocks,)}:
        legal = f"uint8 {(N, -(-blocks // 4))}, or floats {(N, blocks)}"
        raise source.error(points.name, f"{points.dtype} of shape {points.shape}", legal)
    values = source.read(points.name)
    check_finite(source, points.name, values)
    return values
