"""compressed-tensors folders: int32 words MODULE.weight_packed with MODULE.weight_scale and MODULE.weight_shape.

The format pack-quantized with 2 bits stores the field w + 2, or with MODULE.weight_zero_point w + 2 + zero point, and
zero points + 2 packed along the rows. `config_groups` of the configuration describes the modules; the tensors show
which modules are packed, and their shapes with how many bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.format_names import COMPRESSED_TENSORS_2
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.words import FoundWords, Words, require_floats, stored_points

PACKED = ".weight_packed"
_FORMAT = "pack-quantized"
_BITS = range(1, 9)
_IN_WORD = 16
_STRATEGIES = ("tensor", "channel", "group")
_LARGEST_SHAPE = 1 << 40


@dataclass(frozen=True, slots=True)
class Scheme:
    """The weights of one of `config_groups`."""

    bits: int
    group_size: int | None
    """None for one scale for a row or the tensor."""
    symmetric: bool


@dataclass(frozen=True, slots=True)
class CompressedSettings:
    """The settings of a configuration."""

    schemes: tuple[Scheme, ...]


def settings_of(said: Mapping[str, object], wrong: Callable[[str, str], WeightFileError]) -> CompressedSettings:
    """The settings in `said`. `wrong(found, legal)` makes the error for settings that are not read."""
    groups = said.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise wrong(f"config_groups {inert(groups)}", "an object with a group of modules or more")
    schemes = []
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(group, dict) or not isinstance(weights, dict):
            raise wrong(f"config_groups.{inert(name)} without weights", "an object `weights`")
        format = group.get("format") or said.get("format")
        if format != _FORMAT:
            raise wrong(f"format {inert(format)}, which is not read as ternary codes", _FORMAT)
        schemes.append(_scheme(weights, wrong))
    return CompressedSettings(tuple(schemes))


def _scheme(weights: Mapping[str, object], wrong: Callable[[str, str], WeightFileError]) -> Scheme:
    bits, kind, strategy = weights.get("num_bits"), weights.get("type", "int"), weights.get("strategy")
    size, symmetric = weights.get("group_size"), weights.get("symmetric", True)
    if not isinstance(bits, int) or isinstance(bits, bool) or bits not in _BITS:
        raise wrong(f"num_bits {inert(bits)}", "an integer from 1 to 8")
    if kind != "int":
        raise wrong(f"type {inert(kind)}, which is not read as ternary codes", "int")
    if not isinstance(symmetric, bool):
        raise wrong(f"symmetric {inert(symmetric)}", "true or false")
    if strategy is not None and strategy not in _STRATEGIES:
        raise wrong(f"strategy {inert(strategy)}", " or ".join(_STRATEGIES))
    if size is not None and size != -1 and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise wrong(f"group_size {inert(size)}", "an integer above 0, -1 or none")
    grouped = isinstance(size, int) and size > 0 and strategy in {None, "group"}
    if strategy == "group" and not grouped:
        raise wrong(f"group_size {inert(size)} beside strategy group", "an integer above 0")
    return Scheme(bits, int(size) if grouped and isinstance(size, int) else None, symmetric)


def found(source: WeightSource, settings: CompressedSettings | None, tensor: TensorInfo) -> FoundWords | None:
    """What a tensor of words is; None for any other tensor.

    Raises WeightFileError for words without settings, scale or shape, for shapes that contradict each other or the
    settings, and for numbers that are not finite.
    """
    if not tensor.name.endswith(PACKED):
        return None
    module = tensor.name.removesuffix(PACKED)
    if settings is None:
        legal = "a configuration beside the file with quant_method compressed-tensors"
        raise source.error(tensor.name, f"{tensor.dtype} words without settings", legal)
    scale = _needed(source, tensor, f"{module}.weight_scale")
    stored = _needed(source, tensor, f"{module}.weight_shape")
    shape = _shape(source, stored)
    if tensor.dtype != "int32" or len(tensor.shape) not in {2, 3} or 0 in tensor.shape:
        found = f"{tensor.dtype} of shape {tensor.shape}"
        raise source.error(tensor.name, found, "int32 (N, K / 16) or (E, N, K / 16)")
    columns = shape[-1]
    bits = next((each for each in _BITS if -(-columns // (32 // each)) == tensor.shape[-1]), None)
    if shape[:-1] != tensor.shape[:-1] or bits is None:
        legal = f"the words of weights of shape {shape}, as {inert(stored.name)} states"
        raise source.error(tensor.name, f"words of shape {tensor.shape}", legal)
    fitting = [each for each in settings.schemes if -(-columns // (32 // each.bits)) == tensor.shape[-1]]
    if not fitting:
        legal = f"words of {' or '.join(str(each.bits) for each in settings.schemes)} bits, as the configuration states"
        raise source.error(tensor.name, f"words of shape {tensor.shape} for weights of shape {shape}", legal)
    if any(each.bits != 2 for each in fitting):
        several = " or ".join(str(each.bits) for each in fitting)
        return FoundWords(reason=f"compressed-tensors, {several} bits, which is not ternary")
    if source.tensor(f"{module}.weight_g_idx") is not None:
        reason = "compressed-tensors, 2 bits with permuted columns, which are not read as ternary codes"
        return FoundWords(reason=reason)
    points = source.tensor(f"{module}.weight_zero_point")
    fitting = [each for each in fitting if each.symmetric == (points is None)]
    if not fitting:
        name, state = inert(module + ".weight_zero_point"), "false" if points is None else "true"
        legal = f"{'' if points is None else 'no '}{name}, because the configuration has symmetric {state}"
        raise source.error(tensor.name, "no zero points" if points is None else "zero points", legal)
    words = _words(source, fitting, stored, scale, shape)
    if points is not None:
        refused = _other_points(source, points, scale, shape)
        if refused:
            return FoundWords(reason=f"compressed-tensors, 2 bits, {refused}")
        words = replace(words, offsets=points)
    return FoundWords(shape[-2:], shape[0] if len(shape) == 3 else 0, words)  # type: ignore[arg-type]


def _other_points(source: WeightSource, points: TensorInfo, scale: TensorInfo, shape: tuple[int, ...]) -> str:
    """Why weights with these zero points are not ternary, or "". Raises WeightFileError for another shape."""
    rows = shape[-2]
    groups = scale.shape[-1] if len(scale.shape) == len(shape) else 1
    wanted = (*shape[:-2], -(-rows // _IN_WORD), groups)
    if points.dtype != "int32" or points.shape != wanted:
        legal = f"int32 {wanted}, packed along the rows"
        raise source.error(points.name, f"{points.dtype} of shape {points.shape}", legal)
    experts = shape[0] if len(shape) == 3 else 1
    for expert in range(experts):
        stored = stored_points(source, points, rows, expert, experts, along_rows=False)
        others = set(np.unique(stored).tolist()) - {1, 2}
        if others:
            return f"not ternary: zero point {min(others) - 2}, ternary is -1 or 0"
    return ""


def _words(
    source: WeightSource, fitting: list[Scheme], stored: TensorInfo, scale: TensorInfo, shape: tuple[int, ...]
) -> Words:
    columns = shape[-1]
    sizes = {each.group_size or columns for each in fitting}
    wanted = [(*shape[:-1], columns // size) for size in sizes if columns % size == 0]
    whole = [shape[:-1], (1,), ()] if columns in sizes and len(shape) == 2 else []
    if not wanted:
        legal = f"a divisor of {columns} columns"
        raise source.error(scale.name, f"group_size {' or '.join(map(str, sizes))} in the configuration", legal)
    require_floats(source, scale, (*wanted, *whole))
    per_row = scale.shape[-1] if scale.shape in wanted else 1
    return Words(COMPRESSED_TENSORS_2, scale, columns // per_row, others=(stored,))


def _needed(source: WeightSource, tensor: TensorInfo, name: str) -> TensorInfo:
    there = source.tensor(name)
    if there is None:
        raise source.error(tensor.name, f"words without {inert(name)}", f"{inert(name)} beside them")
    return there


def _shape(source: WeightSource, stored: TensorInfo) -> tuple[int, ...]:
    if stored.dtype not in {"int64", "int32"} or stored.shape not in {(2,), (3,)}:
        found = f"{stored.dtype} of shape {stored.shape}"
        raise source.error(stored.name, found, "the shape (N, K) or (E, N, K) as int64 or int32")
    shape = tuple(int(each) for each in source.read_bytes(stored.name).view(np.dtype(stored.dtype)))
    if min(shape) < 1 or prod(shape) > _LARGEST_SHAPE:
        raise source.error(stored.name, f"{shape}", "numbers above 0")
    return shape
