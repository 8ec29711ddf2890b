"""Arrays on their way from one of the gate's processes to another: files of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tritmark.harness.dtypes import named_dtype


def save(folder: Path, arrays: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Write arrays and numbers as bytes, one file each; dtype and shape of each, which the other process needs to
    read them."""
    reported = {}
    for name, value in arrays.items():
        array = np.ascontiguousarray(value)
        (folder / name).write_bytes(array.tobytes())
        reported[name] = (array.dtype.name, tuple(np.asarray(value).shape))
    return reported


def read(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `save` wrote; what has no axes is a NumPy scalar again."""
    found: dict[str, Any] = {}
    for name, (dtype, shape) in given.items():
        array = np.frombuffer((folder / name).read_bytes(), named_dtype(dtype)).reshape(tuple(shape)).copy()
        found[name] = array if shape else array[()]
    return found
