"""Scales beside a tensor of codes in a GGUF file.

llama.cpp multiplies the product with `STEM.weight` by the one number in `STEM.scale`, if it exists. Other tensors named
like a scale (`STEM.input_scale`, `STEM.weight_scale`, `NAME_scale`) have no meaning that all readers share. They are
refused unless all their values are 1.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import FLOATS, TensorInfo

_WEIGHT = ".weight"
_SCALE = ".scale"


class ScalesBeside:
    """The scale tensors of a GGUF source, found by the stem of the tensor that they belong to."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        self._scales = [each for each in source.tensors if "scale" in each.name.rpartition(".")[2]]

    def factor(self, tensor: TensorInfo) -> TensorInfo | None:
        """The tensor with the one number that the weights of `tensor` are multiplied by; None without one.

        Raises WeightFileError for a scale with an unknown meaning that is not 1.
        """
        stem = tensor.name.removesuffix(_WEIGHT)
        found = None
        for each in self._scales:
            rest = each.name.removeprefix(stem) if each.name.startswith((f"{stem}.", f"{stem}_")) else ""
            if not rest or "." in rest[1:]:  # attn_q_norm.scale does not belong to attn_q
                continue
            if each.name == stem + _SCALE and prod(each.shape) == 1 and each.dtype in FLOATS:
                found = each
            elif not self._is_one(each):
                found_text = (
                    f"a scale of {inert(tensor.name)} in {each.dtype} of shape {each.shape}, of unknown meaning"
                )
                legal = f"one float in {inert(stem + _SCALE)}, or only ones; otherwise remove it"
                raise self._source.error(each.name, found_text, legal)
        return found

    def read(self, factor: TensorInfo) -> np.float32:
        """The factor. Raises WeightFileError unless it is finite and above 0."""
        value = np.float32(self._source.read(factor.name).reshape(-1)[0])
        if not (np.isfinite(value) and value > 0):
            raise self._source.error(factor.name, f"a scale of {value}", "a finite number above 0")
        return value

    def _is_one(self, tensor: TensorInfo) -> bool:
        return tensor.dtype in FLOATS and bool((self._source.read(tensor.name) == 1).all())
