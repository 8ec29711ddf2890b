"""The keys prism.hadamard.* of a GGUF file: its weights expect transformed activations.

The file stores W * S * H: before a product the model multiplies activations by signs and, in blocks, by a Hadamard
matrix. tritmark judges the product of the stored weights without this transform, so it shows and compares the keys and
never drops them. `rotation_of` reads the rotation of a tensor for callers of hadamard_quantize, and `transformed`
computes it for checks. Source: PrismML-Eng/llama.cpp, versions 1 and 2 of the keys. A config.json of MLX may have the
same keys, with the version in `schema_version`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.weights.gguf_values import bytes_of, value_of
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.small_json import read_json
from tritmark.harness.weights.source import WeightSource

PREFIX = "prism.hadamard."
_HEADS = ("ssm_out", (128, 16, 3))
"""With gdn_v_grouped, the tensor whose input has grouped heads, and their (hd, nk, rep)."""
_LARGEST = 1 << 20
_DEPTH = 4
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
    keys = _keys(source)
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


@dataclass(frozen=True, slots=True)
class WeightRotation:
    """The rotation of a tensor W * S * H."""

    block_size: int
    signs: NDArray[np.int8] | None
    """One for each column, -1 or 1; None for none."""
    inverse: bool
    """Whether rows of the tensor are rotated back (an embedding), and not the activations."""
    heads: tuple[int, int, int] | None
    """(hd, nk, rep) of activations whose heads (rep, nk, hd) are first reordered to (nk, rep, hd)."""


def rotation_of(source: WeightSource, name: str) -> WeightRotation | None:
    """What the keys say of a tensor; None for a tensor that is not rotated, and for a file without the keys.

    Raises WeightFileError as transform_note does, for keys without a block size or a list of names, and for grouped
    heads of another model than the keys are known for.
    """
    keys = _keys(source)
    if not keys:
        return None
    widths = _check(source, keys)
    for key in ("block_size", "weight_names"):
        if key not in keys:
            raise _error(source, key, "missing", "a value, which a rotation requires")
    named = [name in keys.get(key, ()) for key in _NAMES]
    tensor = source.tensor(name)
    if not any(named) or tensor is None:
        return None
    signs, columns = None, tensor.shape[-1]
    if widths is not None:
        at = widths.index(columns)
        begin = sum(widths[:at])
        signs = np.array(keys["sign_values"][begin : begin + columns], np.int8)
    part, heads = _HEADS
    grouped = bool(keys.get("gdn_v_grouped")) and part in name.split(".")
    if grouped and prod(heads) != columns:
        raise _error(source, "gdn_v_grouped", f"for {columns} columns", f"{prod(heads)} columns, heads of {heads}")
    return WeightRotation(keys["block_size"], signs, not named[0], heads if grouped else None)


def _keys(source: WeightSource) -> dict[str, Any]:
    return {
        each.key.removeprefix(PREFIX): value_of(source, each)
        for each in source.header.pairs
        if each.key.startswith(PREFIX)
    }


def transformed(
    x: NDArray[Any],
    block_size: int,
    signs: NDArray[Any] | None = None,
    *,
    inverse: bool = False,
    heads: tuple[int, int, int] | None = None,
) -> NDArray[np.float64]:
    """The activations of a model before a product with rotated weights: x (..., K) times signs (K,), then each block
    of K times the Hadamard matrix in natural order over the root of its size. In float64.

    With `inverse`, the row of a rotated embedding as the model uses it: the matrix first, then the signs. `heads` are
    (hd, nk, rep) of the activations of ssm_out (gdn_v_grouped), whose heads (rep, nk, hd) become (nk, rep, hd) first.

    Raises InvalidArgumentError for a block that is no power of two or does not divide K, and for other numbers of signs
    or heads.
    """
    values: NDArray[np.float64] = np.asarray(x, np.float64)
    columns = values.shape[-1] if values.ndim else 0
    if block_size < 1 or block_size & (block_size - 1) or columns == 0 or columns % block_size:
        found, legal = f"{block_size} for {columns} columns", "a power of two that divides the columns"
        raise InvalidArgumentError(op="hadamard", argument="block_size", found=found, legal=legal)
    if signs is not None and (signs.shape != (columns,) or not np.isin(signs, (-1, 1)).all()):
        found, legal = f"of shape {signs.shape}", f"-1 and 1 of shape {(columns,)}"
        raise InvalidArgumentError(op="hadamard", argument="signs", found=found, legal=legal)
    if heads is not None:
        dim, groups, repeats = heads
        if dim * groups * repeats != columns or min(heads) < 1:
            legal = f"sizes whose product is {columns}"
            raise InvalidArgumentError(op="hadamard", argument="heads", found=str(heads), legal=legal)
        values = values.reshape(-1, repeats, groups, dim).swapaxes(1, 2).reshape(values.shape)
    factors: NDArray[np.float64] = np.ones(columns) if signs is None else signs.astype(np.float64)
    blocks = (values if inverse else values * factors).reshape(-1, block_size)
    width = 1
    while width < block_size:
        pairs_of = blocks.reshape(len(blocks), -1, 2, width)
        blocks = np.stack([pairs_of[:, :, 0] + pairs_of[:, :, 1], pairs_of[:, :, 0] - pairs_of[:, :, 1]], axis=2)
        blocks = blocks.reshape(-1, block_size)
        width *= 2
    found_values: NDArray[np.float64] = (blocks / np.sqrt(block_size)).reshape(values.shape)
    return found_values * factors if inverse else found_values


def configuration_note(folder: Path) -> str:
    """Like transform_note, for an object in config.json whose name has `hadamard`; "" without one."""
    path = folder / "config.json"
    if not path.exists():
        return ""
    for place, said in _described(read_json(path, _LARGEST), 0):

        def wrong(found: str, legal: str, place: str = place) -> WeightFileError:
            return WeightFileError(path=inert_path(path), found=f"{place} {found}", legal=legal)

        keys = said if isinstance(said, dict) else {}
        version = keys.get("schema_version", keys.get("version"))
        if isinstance(version, bool) or version not in _VERSIONS:
            raise wrong(f"with version {inert(version)}", " or ".join(map(str, _VERSIONS)))
        for name, legal in _FIXED.items():
            if name in keys and keys[name] not in legal:
                raise wrong(f"with {name} {inert(keys[name])}", " or ".join(legal))
        block = keys.get("block_size")
        if isinstance(block, bool) or not isinstance(block, int) or block < 1 or block & (block - 1):
            raise wrong(f"with block_size {inert(block)}", "a power of two")
        return (
            f"{place} (version {version}): the model transforms activations (Hadamard in blocks of {block}) before the "
            "product; products of the stored weights are judged, and the transform is not applied"
        )
    return ""


def _described(config: object, depth: int) -> Iterator[tuple[str, object]]:
    if not isinstance(config, dict) or depth > _DEPTH:
        return
    for key, value in config.items():
        if "hadamard" in key.lower() and value not in (None, False):
            yield f"config.json: {inert(key)}", value
        else:
            yield from _described(value, depth + 1)


def _check(source: WeightSource, keys: dict[str, Any]) -> list[int] | None:
    """The widths that have signs."""
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
    return widths


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
