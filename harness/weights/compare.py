"""Compare two weight files: names, shapes, codes, scales, and the values of all other tensors.

Names are compared in their GGUF form (published_names), so a GGUF file and a Hugging Face model can be equal. Reports
use the names of the files. Codes and scales are compared across formats: one scale for a tensor equals the same number
for each row. If one side holds codes and the other floats, code * scale is compared with the floats; no rule quantizes
them. Other tensors are equal if their bytes or their values in float32 are. 0 equals -0, and NaN equals NaN. Memory
holds two tensors at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights import hadamard
from tritmark.harness.weights.names import inert_path
from tritmark.harness.weights.published_names import expert_name
from tritmark.harness.weights.scales import by_row, first_difference
from tritmark.harness.weights.source import WeightSource, open_weights
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.ternary import Conventions, Holders, TernaryInfo, TernaryWeights, require_needed

_SLAB = 1 << 22
"""Elements that are compared at a time."""
_WIDENED = ("float32", "float16", "bfloat16")
"""dtypes whose values float32 holds exactly."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference, with the tensor's name in the first file, or in the only file that has it."""

    name: str
    what: str
    """name, shape, dtype, codes, scales, values, bytes or metadata."""
    description: str
    other_name: str = ""
    """The name in the second file, if it differs."""


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The result of a comparison. `differences` has the first difference of each tensor, in order of the first file."""

    matrices: int
    """Tensors with codes in one file or both."""
    others: int
    """The other tensors that both files have."""
    differences: tuple[Difference, ...]
    aside: tuple[str, ...] = ()
    """.safetensors files in either folder that do not belong to the model and were not read."""


def compare(
    a: str | Path,
    b: str | Path,
    holders: Holders,
    conventions: Conventions | None = None,
    progress: Callable[[str, int], None] = lambda name, total: None,
) -> ModelComparison:
    """Compare the weights at `a` and `b`.

    `progress(name, total)` is called before each of `total` tensors is compared. Raises WeightFileError for weights
    that cannot be read, and for two tensors of a file that have the same name in GGUF.
    """
    with open_weights(a) as first, open_weights(b) as second:
        left, right = (_Operand(each, holders, conventions) for each in (first, second))
        require_needed(left.ternary, right.ternary)
        return _compared(left, right, progress)


class _Operand:
    """One of the two files, with its tensors by GGUF name, without those that are only scales. Each expert of a 3-D
    tensor has an entry."""

    def __init__(self, source: WeightSource, holders: Holders, conventions: Conventions | None) -> None:
        self.source = source
        # Without a rule, floats are compared as floats.
        self.ternary = TernaryWeights(source, holders._replace(ternarize=None), conventions, beside_another=True)
        self.tensors: dict[str, _Entry] = {}
        for tensor in source.tensors:
            if tensor.name in self.ternary.scales:
                continue
            info = self.ternary.matrix(tensor.name)
            experts = info.expert_numbers if info is not None and info.experts else (None,)
            for expert in experts:
                name = expert_name(tensor.name, expert)
                if name in self.tensors:
                    legal = f"names used once; {self.tensors[name].tensor.name} has the same one"
                    raise source.error(tensor.name, f"is named {name} in GGUF, like another tensor", legal)
                self.tensors[name] = _Entry(tensor, info, expert)

    def read(self, entry: _Entry) -> tuple[Any, Any]:
        """Codes and scales of a ternary matrix."""
        assert entry.info is not None
        return self.ternary.read(entry.info, entry.expert or 0)


class _Entry(NamedTuple):
    """A tensor, or one expert of it."""

    tensor: TensorInfo
    info: TernaryInfo | None
    expert: int | None

    @property
    def name(self) -> str:
        return self.tensor.name + (f"[{self.expert}]" if self.expert is not None else "")


def _compared(a: _Operand, b: _Operand, progress: Callable[[str, int], None]) -> ModelComparison:
    names = [name for name in a.tensors if name in b.tensors]
    differences = [
        Difference(one.tensors[name].name, "name", f"only in {inert_path(one.source.path)}")
        for one, other in ((a, b), (b, a))
        for name in one.tensors
        if name not in other.tensors
    ]
    differences += _metadata(a.source, b.source)
    matrices = 0
    for name in names:
        progress(name, len(names))
        x, y = a.tensors[name], b.tensors[name]
        p, q = x.info, y.info
        matrices += p is not None or q is not None
        if p is not None and q is not None:
            found = _codes(a, x, b, y)
        elif p is not None:
            found = _products(a, x, b.source, y.tensor)
        elif q is not None:
            found = _products(b, y, a.source, x.tensor, swapped=True)
        else:
            found = _values(a.source, x.tensor, b.source, y.tensor)
        if found is not None:
            differences.append(Difference(x.name, *found, y.name if y.name != x.name else ""))
    aside = (*a.source.aside, *b.source.aside)
    return ModelComparison(matrices, len(names) - matrices, tuple(differences), aside)


def _metadata(a: WeightSource, b: WeightSource) -> Iterator[Difference]:
    """Differences in keys that change the meaning of the weights."""
    left, right = hadamard.pairs(a), hadamard.pairs(b)
    for key in dict.fromkeys((*left, *right)):
        if key not in left or key not in right:
            yield Difference(key, "metadata", f"only in {inert_path((a if key in left else b).path)}")
        elif left[key] != right[key]:
            yield Difference(key, "metadata", "with different values")


def _codes(a: _Operand, x: _Entry, b: _Operand, y: _Entry) -> tuple[str, str] | None:
    p, q = x.info, y.info
    assert p is not None
    assert q is not None
    if p.shape != q.shape:
        return "shape", f"{p.shape} and {q.shape}"
    codes, scale = a.read(x)
    other, other_scale = b.read(y)
    for part in _slabs(p.shape):
        differs = codes[part] != other[part]
        if differs.any():
            row, column = _index(differs, differs.shape)
            index = row + part.start, column
            return "codes", f"{codes[index]} and {other[index]} at {list(index)}"
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
            raise WeightFileError(
                path=a.path, found=f"{x.nbytes} and {y.nbytes} bytes of {x.dtype}", legal="equal sizes"
            )
        at = _first_byte(a, x, b, y)
        if at is None:
            return None
        if x.dtype == "float64" or not x.readable:  # float32 cannot distinguish all of them
            return _element(a, x, b, y, at)
    elif not {x.dtype, y.dtype} <= set(_WIDENED):
        return "dtype", f"{x.dtype} and {y.dtype}"
    elif x.shape and 0 in x.shape:
        return None
    for rows in _slabs(x.shape):
        index = _first_unlike(first := _read(a, x, rows), second := _read(b, y, rows))
        if index is not None:
            return "values", _both_values(first[index], second[index], index, rows.start)
    return None


def _products(
    a: _Operand, x: _Entry, b: WeightSource, y: TensorInfo, *, swapped: bool = False
) -> tuple[str, str] | None:
    """Compare codes times scales with floats; `swapped` if the floats belong to the first file."""
    p = x.info
    assert p is not None
    if p.shape != y.shape:
        shapes = (y.shape, p.shape) if swapped else (p.shape, y.shape)
        return "shape", "{} and {}".format(*shapes)
    if not y.readable:
        dtypes = (y.dtype, p.dtype) if swapped else (p.dtype, y.dtype)
        return "dtype", "{} and {}".format(*dtypes)
    codes, scale = a.read(x)
    scales = by_row(scale, p.shape)
    for rows in _slabs(p.shape):
        here = np.repeat(scales[rows], p.shape[1] // scales.shape[1], axis=1)
        with np.errstate(invalid="ignore"):  # a NaN scale differs from all numbers
            pair = [codes[rows] * here, b.read(y.name, rows)]
        first, second = reversed(pair) if swapped else pair
        index = _first_unlike(first, second)
        if index is not None:
            return "values", _both_values(first[index], second[index], index, rows.start)
    return None


def _read(source: WeightSource, tensor: TensorInfo, rows: slice) -> NDArray[np.float32]:
    return source.read(tensor.name, rows) if len(tensor.shape) > 1 else source.read(tensor.name)


def _first_unlike(first: NDArray[Any], second: NDArray[Any]) -> tuple[int, ...] | None:
    unlike = (first != second) & ~(np.isnan(first) & np.isnan(second))
    return _index(unlike, first.shape) if unlike.any() else None


def _both_values(first: Any, second: Any, index: tuple[int, ...], row: int = 0) -> str:
    at = [index[0] + row, *index[1:]] if index else []
    return f"{first} and {second} at {at}"


def _first_byte(a: WeightSource, x: TensorInfo, b: WeightSource, y: TensorInfo) -> int | None:
    done = 0
    for left, right in zip(a.chunks(x.name), b.chunks(y.name), strict=True):
        if left != right:
            return done + int(np.argmax(np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8)))
        done += len(left)
    return None


def _element(a: WeightSource, x: TensorInfo, b: WeightSource, y: TensorInfo, at: int) -> tuple[str, str]:
    """The values of both tensors at byte `at`, the first that differs."""
    try:
        dtype = np.dtype(x.dtype)
    except TypeError:
        dtype = None
    if dtype is None or dtype.itemsize * prod(x.shape) != x.nbytes:
        return "bytes", f"byte {at} of {x.dtype}"
    number = at // dtype.itemsize
    first, second = (
        source.read_bytes(tensor.name)[number * dtype.itemsize : (number + 1) * dtype.itemsize].view(dtype)[0]
        for source, tensor in ((a, x), (b, y))
    )
    index = tuple(int(each) for each in np.unravel_index(number, x.shape)) if x.shape else ()
    return "values", _both_values(first, second, index)


def _slabs(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of rows with about _SLAB elements each, at least one row; one empty slice for fewer than 2 dimensions."""
    if len(shape) < 2:
        yield slice(0, 0)
        return
    step = max(1, _SLAB // max(1, prod(shape[1:])))
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))


def _index(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(mask)), shape))
