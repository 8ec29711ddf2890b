"""Arrays passed between processes of the gate, as files of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype


def save(folder: Path, arrays: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Write arrays and numbers as bytes, one file each. Returns the dtype and shape of each, which `read` needs."""
    reported = {}
    for name, value in arrays.items():
        array = np.ascontiguousarray(value)
        (folder / name).write_bytes(array.tobytes())
        reported[name] = (array.dtype.name, tuple(np.asarray(value).shape))
    return reported


def read(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `save` wrote. A value without axes becomes a NumPy scalar."""
    found: dict[str, Any] = {}
    for name, (dtype, shape) in given.items():
        array = np.frombuffer((folder / name).read_bytes(), named_dtype(dtype)).reshape(tuple(shape)).copy()
        found[name] = array if shape else array[()]
    return found
