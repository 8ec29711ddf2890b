"""Values of GGUF key-value pairs, for the few keys that are needed beyond FACTS."""

from __future__ import annotations

import struct
from typing import Any

from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import KeyValue

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LARGEST = 1 << 22
"""Bytes of a pair; the largest known has 28,672 signs of 4 bytes."""


def value_of(source: WeightSource, pair: KeyValue) -> Any:
    """The value: a number, a bool, a str, or a list of them. Raises WeightFileError for a value that is too large. Its
    extent was checked with the header."""
    raw = bytes_of(source, pair)
    at = 8 + len(pair.key.encode()) + 4
    if pair.kind != _ARRAY:
        return _value(raw, at, pair.kind)[0]
    kind, count = struct.unpack_from("<IQ", raw, at)
    at += 12
    if kind != _STRING:
        return list(struct.unpack_from(f"<{count}{_FORMATS[kind]}", raw, at))
    found = []
    for _ in range(count):
        text, at = _value(raw, at, _STRING)
        found.append(text)
    return found


def bytes_of(source: WeightSource, pair: KeyValue) -> bytes:
    """The bytes of the pair. Raises WeightFileError for a pair that is too large."""
    if pair.nbytes > _LARGEST:
        raise source.file_error(f"{inert(pair.key)} of {pair.nbytes} bytes", f"at most {_LARGEST}")
    return b"".join(source.pair_bytes(pair.offset, pair.nbytes))


def _value(raw: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind != _STRING:
        return struct.unpack_from(f"<{_FORMATS[kind]}", raw, at)[0], at + struct.calcsize(_FORMATS[kind])
    end = at + 8 + int.from_bytes(raw[at : at + 8], "little")
    return raw[at + 8 : end].decode("utf-8", "backslashreplace"), end
