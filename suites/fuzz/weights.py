"""The requirement for any bytes as a weight file: a WeightFileError, or tensors that equal those of the format's own
library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from safetensors import safe_open

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights import open_weights
from tritmark.harness.weights.tensor import DEQUANTIZED

Tensors = dict[str, tuple[tuple[int, ...], str, NDArray[np.float32] | None]]
_BY_GGUF = {
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    *(GGMLQuantizationType[name.upper()] for name in DEQUANTIZED),
}


_UNKNOWN = {"i2_s", "q2_0", "pq2_0", "ptq1_0", "stq1_0", "iq1_bn", "iq2_bn", "iq2_bn_r4"}


def read_all(path: Path) -> Tensors | None:
    """Shape, dtype and values of every tensor; None for a refused file. Errors other than WeightFileError propagate."""
    try:
        with open_weights(path) as source:
            for each in source.matrices():
                np.testing.assert_array_equal(source.read(each.name, slice(0, 1)), source.read(each.name)[:1])
            return {
                each.name: (each.shape, each.dtype, source.read(each.name) if each.readable else None)
                for each in source.tensors
            }
    except WeightFileError as error:
        _told(error)
        return None


def _told(error: WeightFileError) -> None:
    assert str(error).isprintable()
    assert error.found
    assert error.legal


def check(path: Path) -> bool:
    """Whether the file was read; raises if it should have been refused, or was read differently from the library."""
    tensors = read_all(path)
    if tensors is not None:
        (_as_safetensors if path.suffix == ".safetensors" else _as_gguf)(path, tensors)
    return tensors is not None


def _as_safetensors(path: Path, tensors: Tensors) -> None:
    with safe_open(path, "numpy") as library:
        assert set(library.keys()) == set(tensors)
        for name, (shape, dtype, values) in tensors.items():
            stored = library.get_slice(name)
            assert tuple(stored.get_shape()) == shape
            # NumPy has no bfloat16.
            if values is not None and dtype != "bfloat16":
                with np.errstate(all="ignore"):
                    np.testing.assert_array_equal(values, library.get_tensor(name).astype(np.float32))


def _as_gguf(path: Path, tensors: Tensors) -> None:
    if any(dtype in _UNKNOWN or dtype.startswith("type_") for _, dtype, _ in tensors.values()):
        return  # the library refuses the whole file
    library: dict[str, Any] = {each.name: each for each in gguf.GGUFReader(path).tensors}
    assert set(library) == set(tensors)
    for name, (shape, _, values) in tensors.items():
        found = library[name]
        assert tuple(int(size) for size in found.shape)[::-1] == shape
        if values is not None and found.tensor_type in _BY_GGUF:
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(
                    values, gguf.quants.dequantize(found.data, found.tensor_type).reshape(shape)
                )
