"""Numbers and documents from a fuzzer's bytes."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Numbers:
    """Reads the bytes in order; zeros after the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int = 1) -> int:
        """The next `count` bytes as an unsigned number."""
        part = self._data[self._at : self._at + count]
        self._at += count
        return int.from_bytes(part, "little")

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        return self.take(2 if limit > 256 else 1) % limit

    def size(self, most: int) -> int:
        """A size from 1 to `most`, small ones more often."""
        return 1 + self.below(min(most, 20) if self.below(2) else most)

    def generator(self) -> np.random.Generator:
        """Fills arrays."""
        return np.random.default_rng(self.take(4))

    def patched(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array with up to three elements replaced by any bits."""
        flat = array.reshape(-1)
        bits = flat.view(f"u{array.itemsize}")
        for _ in range(self.below(4) if array.size else 0):
            bits[self.take(3) % array.size] = self.take(array.itemsize)
        return array


JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 255, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**400, 0.0, -0.0, 0.5, 1e-320,
    1e308, math.inf, -math.inf, math.nan, "", "x", "\0", "\ud800", "\x1b[2J\u202e", "x" * 5000, "1", "nan", "*", "PASS",
    "FAIL", "cpu", "cuda",
    "cpu/a/b/c/d", "../../etc", "sha256:" + "0" * 64, [], {}, [[]], [None], {"": 0}, [0] * 50, [{}] * 50,
)  # fmt: skip
"""Replacements of a field."""


def edited(document: Any, numbers: Numbers) -> Any:
    """The document with one to six fields changed, removed, duplicated, or copied from another place."""
    root = [copy.deepcopy(document)]
    for _ in range(1 + numbers.below(6)):
        holder, key = _place(root, numbers)
        how = numbers.below(8)
        if how == 0 and holder is not root:
            del holder[key]
        elif how == 1 and isinstance(holder, list) and holder is not root:
            holder.append(copy.deepcopy(holder[key]))
        elif how == 2:
            other, at = _place([document], numbers)
            holder[key] = copy.deepcopy(other[at])
        elif how == 3 and isinstance(holder, dict):
            holder[f"further{numbers.below(3)}"] = copy.deepcopy(JUNK[numbers.below(len(JUNK))])
        elif how == 4 and isinstance(holder[key], (int, float)):
            holder[key] = holder[key] * numbers.take(1) + numbers.take(2)
        else:
            holder[key] = copy.deepcopy(JUNK[numbers.below(len(JUNK))])
    return root[0]


def _place(root: list[Any], numbers: Numbers) -> tuple[Any, Any]:
    """A container in the document and a key or index of it."""
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], (dict, list)) and holder[key] and (holder is root or numbers.below(5)):
        holder = holder[key]
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = keys[numbers.below(len(keys))]
    return holder, key


def toml(document: Any) -> str:
    """A document as TOML with inline tables; values that TOML cannot represent become strings."""
    if not isinstance(document, dict):
        return f"all = {_toml(document)}\n"
    return "".join(f"{json.dumps(str(key))} = {_toml(value)}\n" for key, value in document.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(str(value) if value is None else value)
