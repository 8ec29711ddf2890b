"""Matrices of 2-bit words whose scales and offsets are separate tensors: MLX, compressed-tensors, GPTQ and ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.weights.finite import check_finite
from tritmark.harness.weights.float_codes import FloatLayout
from tritmark.harness.weights.format_names import COMPRESSED_TENSORS_2, GPTQ_2, MLX_Q2, ORT_Q2, ORT_Q2_SM80
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import FLOATS, TensorInfo

OPTIONS = {
    **dict.fromkeys((MLX_Q2, COMPRESSED_TENSORS_2, GPTQ_2), "group_size"),
    **dict.fromkeys((ORT_Q2, ORT_Q2_SM80), "block_size"),
}
"""The layout option of a format that depends on the group."""


@dataclass(frozen=True, slots=True)
class Words:
    """The tensors beside a matrix of words."""

    format: str
    scales: TensorInfo
    """Floats with K / group numbers for each row, rounded up; (E, N, groups) for experts, flat in ONNX, and
    (groups, N) in GPTQ."""
    group: int
    """Columns per scale: K if a row or the tensor has one."""
    offsets: TensorInfo | None = None
    """The zero points of ONNX, compressed-tensors and GPTQ; None if they are 2, and for MLX."""
    others: tuple[TensorInfo, ...] = ()
    """Further tensors that belong to the matrix: biases of MLX, the shape of compressed-tensors."""
    block: int = 0
    """The block of the layout, a divisor of the group, where the two differ; otherwise 0."""
    added: int = 0
    """What is added to stored zero points: 1 in the first format of GPTQ."""

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All of them."""
        return (self.scales, *((self.offsets,) if self.offsets is not None else ()), *self.others)

    @property
    def options(self) -> dict[str, int]:
        """The layout options of the format."""
        return {OPTIONS[self.format]: self.block or self.group} if self.format in OPTIONS else {}


@dataclass(frozen=True, slots=True)
class FoundWords:
    """What a tensor of words is: a ternary matrix, or why it is not one."""

    shape: tuple[int, int] = (0, 0)
    """(N, K)."""
    experts: int = 0
    """The number of matrices in a 3-D tensor; 0 for one matrix."""
    words: Words | None = None
    reason: str = ""
    """Why the matrix is not ternary; "" if it is."""
    dtype: str = ""
    """The name of its WeightType, if the file does not state the layout."""


def scales_of(
    source: WeightSource, words: Words, shape: tuple[int, int], expert: int | None = None
) -> NDArray[np.float32]:
    """The scales of one matrix (N, K): float32 (N,), or (N, K / G) with the largest G that divides both K and the
    group.

    Raises WeightFileError for numbers that are not finite.
    """
    rows, columns = shape
    if expert is None:
        values = source.read(words.scales.name)
    else:
        values = source.read(words.scales.name, slice(expert, expert + 1))
    check_finite(source, words.scales.name, values, expert or 0)
    if values.size == 1:
        return np.full(rows, values.reshape(-1)[0], np.float32)
    values = values.T if words.format == GPTQ_2 else values.reshape(rows, -1)
    if values.shape[1] == 1:
        return values[:, 0]
    whole = _group(words, columns)
    return np.repeat(values, words.group // whole, axis=1)[:, : columns // whole]


def _group(words: Words, columns: int) -> int:
    """The largest number of columns that share a scale in every group, also in a shorter one at the end."""
    return columns if words.group >= columns else gcd(columns, words.group)


def zero_points(source: WeightSource, words: Words, shape: tuple[int, int], expert: int | None = None) -> NDArray[Any]:
    """The zero points in a form that the format takes: uint8 (N, groups); for ONNX uint8 four per byte, or floats."""
    rows, columns = shape
    if words.offsets is not None and words.offsets.dtype == "int32":
        parts = (expert, words.offsets.shape[0]) if expert is not None else (0, 1)
        points = stored_points(source, words.offsets, rows, *parts, along_rows=words.format == GPTQ_2)
        return points + np.uint8(words.added)
    size = words.block or words.group
    blocks = -(-columns // size)
    if words.offsets is None:
        return np.full((rows, -(-blocks // 4)), 0xAA, np.uint8)  # 2 for each block
    if words.offsets.dtype != "uint8":
        return source.read(words.offsets.name).reshape(rows, blocks)
    if expert is None:
        return source.read_bytes(words.offsets.name).reshape(rows, -1)
    stored = source.read_bytes(words.offsets.name, expert, words.offsets.shape[0])
    points = points_of_experts(stored, rows, columns // words.group, by_row=len(words.offsets.shape) == 2)
    return np.repeat(points, words.group // size, axis=1).astype(np.float32)


def points_of_experts(stored: NDArray[np.uint8], rows: int, groups: int, *, by_row: bool) -> NDArray[np.uint8]:
    """The zero points (rows, groups) of QMoE, which are stored four per byte: along the groups of a row, or with
    `by_row` along the rows, one each."""
    fields: NDArray[Any] = stored[:, np.newaxis] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    if by_row:
        return fields.reshape(-1, 1)[:rows]
    return fields.reshape(rows, -1)[:, :groups]


def stored_points(
    source: WeightSource, points: TensorInfo, rows: int, part: int = 0, parts: int = 1, *, along_rows: bool
) -> NDArray[np.uint8]:
    """Zero points (rows, groups) as they are stored in int32, 16 to a word along the rows of the matrix. Words are
    (rows / 16, groups), or with `along_rows` (groups, rows / 16)."""
    stored = source.read_bytes(points.name, part, parts).view("<u4").reshape(points.shape[-2:])
    fields: NDArray[Any] = stored[..., np.newaxis] >> np.arange(0, 32, 2, dtype=np.uint32) & 3
    by_row = fields.reshape(len(stored), -1).T if along_rows else fields.transpose(0, 2, 1).reshape(-1, stored.shape[1])
    return by_row[:rows].astype(np.uint8)


def layout_of(source: WeightSource, words: Words, shape: tuple[int, int]) -> FloatLayout:
    """Where the scales apply, and whether float16 holds all of them."""
    scales = source.read(words.scales.name)
    check_finite(source, words.scales.name, scales)
    with np.errstate(over="ignore"):
        float16 = bool((scales.astype(np.float16).astype(np.float32) == scales).all())
    if scales.size == 1:
        return FloatLayout("tensor", 0, float16)
    group = _group(words, shape[1])
    return FloatLayout("row", 0, float16) if group == shape[1] else FloatLayout("group", group, float16)


def require_floats(source: WeightSource, tensor: TensorInfo, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Raise WeightFileError unless the tensor has floats in one of the shapes."""
    if tensor.dtype not in FLOATS or tensor.shape not in shapes:
        legal = f"floats of shape {' or '.join(map(str, shapes))}"
        raise source.error(tensor.name, f"{tensor.dtype} of shape {tensor.shape}", legal)


def first_bias_of_other_codes(scales: NDArray[np.float32], biases: NDArray[Any]) -> tuple[int, ...] | None:
    """The index of the first bias of MLX that is not -scale, so that its group is not ternary; None without one."""
    differs = biases != -scales
    return tuple(int(i) for i in np.argwhere(differs)[0]) if differs.any() else None
