"""The keys prism.hadamard.* of a GGUF file: its weights expect transformed activations.

The file stores W * S * H: before a product the model multiplies activations by signs and, in blocks, by a Hadamard
matrix. tritmark judges the product of the stored weights without this transform, so it shows and compares the keys and
never drops them. Source: PrismML-Eng/llama.cpp, versions 1 and 2 of the keys.
"""

from __future__ import annotations

from typing import Any

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.gguf_values import bytes_of, value_of
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource

PREFIX = "prism.hadamard."
_VERSIONS = (1, 2)
_FIXED = {
    "transform": ("normalized-sylvester-walsh-hadamard",),
    "axis": ("input-last-dimension",),
    "sign_mode": ("identity", "explicit"),
}
_NEEDED = ("block_size", *_FIXED, "weight_names")
_NAMES = ("weight_names", "inverse_weight_names")
_LISTS = {**dict.fromkeys(_NAMES, str), "sign_widths": int, "sign_values": int}


def pairs(source: WeightSource) -> dict[str, bytes]:
    """The bytes of each such key-value pair, by key."""
    return {each.key: bytes_of(source, each) for each in source.header.pairs if each.key.startswith(PREFIX)}


def transform_note(source: WeightSource) -> str:
    """A sentence on what the keys mean for a judgement; "" for a file without them.

    Raises WeightFileError with the key for an unknown version, a missing key that the version requires, and keys that
    contradict each other or the tensors.
    """
    keys = {
        each.key.removeprefix(PREFIX): value_of(source, each)
        for each in source.header.pairs
        if each.key.startswith(PREFIX)
    }
    if not keys:
        return ""
    _check(source, keys)
    version = f"version {keys['version']}" if "version" in keys else "no version given"
    names = keys.get("weight_names")
    of = (
        "the activations"
        if names is None
        else f"the activations of {len(names)} tensor{'' if len(names) == 1 else 's'}"
    )
    blocks = f" in blocks of {keys['block_size']}" if "block_size" in keys else ""
    return (
        f"{PREFIX}* ({version}): the model transforms {of} (Hadamard{blocks}) before the product; products of the "
        "stored weights are judged, and the transform is not applied"
    )


def _check(source: WeightSource, keys: dict[str, Any]) -> None:
    if "version" in keys:
        if keys["version"] not in _VERSIONS:
            raise _error(source, "version", inert(keys["version"]), " or ".join(map(str, _VERSIONS)))
        for name in _NEEDED:
            if name not in keys:
                raise _error(source, name, "missing", f"a value, which {PREFIX}version {keys['version']} requires")
    for name, kind in _LISTS.items():
        listed = keys.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(each, kind) for each in listed):
            raise _error(source, name, "of another type", "an array of " + ("names" if kind is str else "integers"))
    for name, legal in _FIXED.items():
        if name in keys and keys[name] not in legal:
            raise _error(source, name, inert(keys[name]), " or ".join(legal))
    block = keys.get("block_size", 1)
    if not isinstance(block, int) or block < 1 or block & (block - 1):
        raise _error(source, "block_size", inert(block), "a power of two")
    widths = _widths(source, keys)
    for key in _NAMES:
        for name in keys.get(key, ()):
            tensor = source.tensor(name)
            if tensor is None or not tensor.shape:
                raise _error(source, key, f"with {inert(name)}, which is no tensor of the file", "names of tensors")
            columns = tensor.shape[-1]
            if columns % block:
                found = f"{block}, and {inert(name)} has {columns} columns"
                raise _error(source, "block_size", found, "a divisor of the columns")
            if widths is not None and columns not in widths:
                found = f"without {columns}, the columns of {inert(name)}"
                raise _error(source, "sign_widths", found, "every width of a named tensor")


def _widths(source: WeightSource, keys: dict[str, Any]) -> list[int] | None:
    """The widths that have signs; None if there are no signs."""
    widths, values = keys.get("sign_widths"), keys.get("sign_values")
    if keys.get("sign_mode") != "explicit":
        if values and keys.get("sign_mode") == "identity":
            raise _error(source, "sign_values", f"{len(values)} values", "none beside sign_mode identity")
        return None
    if not isinstance(widths, list):
        raise _error(source, "sign_widths", "missing", "a list of integers, which sign_mode explicit requires")
    if not isinstance(values, list) or len(values) != sum(widths):
        found = "missing" if not isinstance(values, list) else f"{len(values)} values"
        raise _error(source, "sign_values", found, f"{sum(widths)} values, a vector for each of sign_widths")
    if not set(values) <= {-1, 1}:
        raise _error(source, "sign_values", f"with {next(each for each in values if each not in {-1, 1})}", "-1 and 1")
    return widths


def _error(source: WeightSource, key: str, found: str, legal: str) -> WeightFileError:
    return source.file_error(f"{PREFIX}{key} {found}", legal)
