"""Whether two weight files hold the same model: names, shapes, codes, scales, and the values of everything else.

Names are compared as GGUF has them (published_names), so a GGUF file and one of Hugging Face's can hold the same model.
Codes and scales are compared whatever format each side has them in: one scale for a tensor is the same as that number
for each of its rows. Other tensors are the same if their bytes are, or, where both are floats, if their values are,
widened to float32. Two tensors are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.names import inert_path
from tritmark.harness.weights.published_names import gguf_name
from tritmark.harness.weights.scales import by_row, first_difference
from tritmark.harness.weights.source import WeightSource, open_weights
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.ternary import Conventions, Holders, TernaryInfo, TernaryWeights

_SLAB = 1 << 22
"""Elements whose values are compared at a time."""
_WIDENED = ("float32", "float16", "bfloat16")
"""dtypes whose values float32 holds."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, in a tensor by its name in GGUF."""

    name: str
    what: str
    """name, shape, dtype, codes, scales, values or bytes."""
    told: str


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """What was found. `differences` has the first of each tensor, in the first file's order."""

    matrices: int
    """Tensors with codes on both sides."""
    others: int
    """The rest of those that both have."""
    differences: tuple[Difference, ...]


def compare(
    a: str | Path,
    b: str | Path,
    holders: Holders,
    conventions: Conventions | None = None,
    progress: Callable[[str, int], None] = lambda name, total: None,
) -> ModelComparison:
    """Compare the weights at `a` and `b`.

    `progress(name, total)` is told of each of `total` tensors before it is compared. Raises WeightFileError for weights
    that cannot be read, and for two tensors that have one name in GGUF.
    """
    with open_weights(a) as first, open_weights(b) as second:
        left, right = (_Operand(each, holders, conventions) for each in (first, second))
        return _compared(left, right, progress)


class _Operand:
    """One of the two, with its tensors by their names in GGUF; what is only a scale of another is left out."""

    def __init__(self, source: WeightSource, holders: Holders, conventions: Conventions | None) -> None:
        self.source = source
        self.ternary = TernaryWeights(source, holders, conventions)
        self.tensors: dict[str, TensorInfo] = {}
        for tensor in source.tensors:
            name = gguf_name(tensor.name)
            if tensor.name in self.ternary.scales:
                continue
            if name in self.tensors:
                legal = f"names used once, and not also {self.tensors[name].name}"
                raise source.error(tensor.name, f"{name} in GGUF, as another tensor is", legal)
            self.tensors[name] = tensor


def _compared(a: _Operand, b: _Operand, progress: Callable[[str, int], None]) -> ModelComparison:
    names = [name for name in a.tensors if name in b.tensors]
    differences = [
        Difference(name, "name", f"only in {inert_path(one.source.path)}")
        for one, other in ((a, b), (b, a))
        for name in one.tensors
        if name not in other.tensors
    ]
    matrices = 0
    for name in names:
        progress(name, len(names))
        x, y = a.tensors[name], b.tensors[name]
        p, q = a.ternary.matrix(x.name), b.ternary.matrix(y.name)
        if p is not None and q is not None and (p.format or q.format):
            matrices += 1
            found = _codes(a, p, b, q)
        else:
            found = _values(a.source, x, b.source, y)
        if found is not None:
            differences.append(Difference(name, *found))
    return ModelComparison(matrices, len(names) - matrices, tuple(differences))


def _codes(a: _Operand, p: TernaryInfo, b: _Operand, q: TernaryInfo) -> tuple[str, str] | None:
    if p.shape != q.shape:
        return "shape", f"{p.shape} and {q.shape}"
    codes, scale = a.ternary.read(p)
    other, other_scale = b.ternary.read(q)
    for part in _slabs(p.shape):
        differs = codes[part] != other[part]
        if differs.any():
            row, column = _index(differs, differs.shape)
            index = row + part.start, column
            return "codes", f"{codes[index]} and {other[index]} at {index}"
    left, right = by_row(scale, p.shape), by_row(other_scale, p.shape)
    at = first_difference(left, right)
    if at is None:
        return None
    groups = int(np.lcm(left.shape[1], right.shape[1]))
    x, y = (each[at[0], at[1] // (groups // each.shape[1])] for each in (left, right))
    return "scales", f"{x} and {y} at row {at[0]}, column {at[1] * (p.shape[1] // groups)}"


def _values(a: WeightSource, x: TensorInfo, b: WeightSource, y: TensorInfo) -> tuple[str, str] | None:
    if x.shape != y.shape:
        return "shape", f"{x.shape} and {y.shape}"
    if x.dtype == y.dtype:
        if x.nbytes != y.nbytes:
            raise WeightFileError(path=a.path, found=f"{x.nbytes} and {y.nbytes} bytes of {x.dtype}", legal="as many")
        done = 0
        for left, right in zip(a.chunks(x.name), b.chunks(y.name), strict=True):
            if left != right:
                differs = np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8)
                return "bytes", f"byte {done + int(np.argmax(differs))} of {x.dtype}"
            done += len(left)
        return None
    if not {x.dtype, y.dtype} <= set(_WIDENED):
        return "dtype", f"{x.dtype} and {y.dtype}"
    for start, first, second in _widened(a, x, b, y):
        unlike = first.view(np.uint32) != second.view(np.uint32)
        if unlike.any():
            index = _index(unlike, first.shape)
            at = (index[0] + start, *index[1:]) if index else index
            return "values", f"{first[index]} and {second[index]} at {at}"
    return None


def _widened(
    a: WeightSource, x: TensorInfo, b: WeightSource, y: TensorInfo
) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    if len(x.shape) < 2:
        yield 0, a.read(x.name), b.read(y.name)
        return
    for rows in _slabs(x.shape):
        yield rows.start, a.read(x.name, rows), b.read(y.name, rows)


def _slabs(shape: tuple[int, ...]) -> Iterator[slice]:
    """Rows that have _SLAB elements together, or one."""
    step = max(1, _SLAB // max(1, prod(shape[1:])))
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))


def _index(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(mask)), shape))
