"""Tensors beside a matrix that change what its numbers stand for. One that is understood is its scale; with any other
the matrix is refused, for what is read of it would not be what its model computes with."""

from __future__ import annotations

from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource

SCALE_SUFFIX = "_scale"

_BEHIND = (
    *("_scale_inv", "_scale_2", "_scales", "_zero_point", "_zero_points", "_zeros", "_bias", "_biases", "_g_idx"),
    *("_shape", "_packed", "_codebook", "_global_scale", "_absmax", ".absmax", ".quant_map", ".nested_absmax"),
    *(".scale", ".scales", ".zero_point"),
)
"""Endings behind the name of a matrix."""
_BESIDE = (
    *("scale", "scales", "scale_inv", "biases", "zeros", "zero_point", "qweight", "qzeros", "g_idx", "SCB", "scb"),
    *("lora_A.weight", "lora_B.weight", "lora_magnitude_vector", "weight_v", "weight_g"),
)
"""Names of a module's other tensors, in place of `weight`."""


def unknown_companion(source: WeightSource, name: str) -> str | None:
    """The name of a tensor that changes what matrix `name` stands for by a rule that is not known here, or None."""
    stem, dot, leaf = name.rpartition(".")
    candidates = [name + end for end in _BEHIND]
    if dot and leaf == "weight":
        candidates += [f"{stem}.{each}" for each in _BESIDE]
    return next((each for each in candidates if source.tensor(each) is not None), None)


def require_understood(source: WeightSource, name: str) -> None:
    """Raise WeightFileError where a matrix has such a companion."""
    other = unknown_companion(source, name)
    if other is not None:
        legal = f"no scale, or one float in {inert(name + SCALE_SUFFIX)}"
        raise source.error(name, f"has {inert(other)} beside it, and what that does to it is not known here", legal)
