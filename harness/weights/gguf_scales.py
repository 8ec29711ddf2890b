"""Scales that lie in a GGUF file beside a tensor of codes.

llama.cpp multiplies the product with `STEM.weight` by the one number in `STEM.scale`, where it is there. What else is
called a scale of the tensor (`STEM.input_scale`, `STEM.weight_scale`, `NAME_scale`) has no meaning that all readers
share: it is refused, unless all of it is 1.
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
    """The tensors of a GGUF source that are scales of others, by the stem of those."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        self._scales = [each for each in source.tensors if "scale" in each.name.rpartition(".")[2]]

    def factor(self, tensor: TensorInfo) -> TensorInfo | None:
        """What the weights of `tensor` are multiplied by, one number; None where nothing is beside them.

        Raises WeightFileError for a scale that is not understood and not 1.
        """
        stem = tensor.name.removesuffix(_WEIGHT)
        found = None
        for each in self._scales:
            rest = each.name.removeprefix(stem) if each.name.startswith((f"{stem}.", f"{stem}_")) else ""
            if not rest or "." in rest[1:]:  # attn_q_norm.scale is none of attn_q
                continue
            if each.name == stem + _SCALE and prod(each.shape) == 1 and each.dtype in FLOATS:
                found = each
            elif not self._is_one(each):
                found_text = f"a scale of {inert(tensor.name)} in {each.dtype} of shape {each.shape}, not understood"
                legal = f"one float in {inert(stem + _SCALE)}, which is multiplied in, or only ones; else remove it"
                raise self._source.error(each.name, found_text, legal)
        return found

    def read(self, factor: TensorInfo) -> np.float32:
        """The number. Raises WeightFileError where it is not finite and above 0."""
        value = np.float32(self._source.read(factor.name).reshape(-1)[0])
        if not (np.isfinite(value) and value > 0):
            raise self._source.error(factor.name, f"a scale of {value}", "a finite number above 0")
        return value

    def _is_one(self, tensor: TensorInfo) -> bool:
        return tensor.dtype in FLOATS and bool((self._source.read(tensor.name) == 1).all())
