"""Tensors beside a matrix that change the meaning of its numbers. A known one is the scale; a matrix with any other is
refused, because its values would differ from those that its model computes with."""

from __future__ import annotations

from collections.abc import Collection

from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource

SCALE_SUFFIX = "_scale"

_BEHIND = (
    *("_scale_inv", "_scale_2", "_scales", "_zero_point", "_zero_points", "_zeros", "_bias", "_biases", "_g_idx"),
    *("_shape", "_packed", "_codebook", "_global_scale", "_absmax", ".absmax", ".quant_map", ".nested_absmax"),
    *(".scale", ".scales", ".zero_point"),
)
"""Suffixes of the matrix's name."""
_BESIDE = (
    *("scale", "scales", "scale_inv", "biases", "zeros", "zero_point", "qweight", "qzeros", "g_idx", "SCB", "scb"),
    *("lora_A.weight", "lora_B.weight", "lora_magnitude_vector", "weight_v", "weight_g"),
)
"""Names of other tensors of the module, in place of `weight`."""


def unknown_companion(source: WeightSource, name: str, known: Collection[str] = ()) -> str | None:
    """The name of a tensor that changes the meaning of matrix `name` by an unknown rule, or None. `known` are names in
    _BESIDE whose meaning is known here."""
    stem, dot, leaf = name.rpartition(".")
    candidates = [name + end for end in _BEHIND]
    if dot and leaf == "weight":
        candidates += [f"{stem}.{each}" for each in _BESIDE if each not in known]
    return next((each for each in candidates if source.tensor(each) is not None), None)


def require_understood(source: WeightSource, name: str, known: Collection[str] = ()) -> None:
    """Raise WeightFileError if a matrix has such a tensor beside it."""
    other = unknown_companion(source, name, known)
    if other is not None:
        legal = f"no scale, or one float in {inert(name + SCALE_SUFFIX)}"
        raise source.error(name, f"has {inert(other)} beside it, whose effect on the weights is not known", legal)
