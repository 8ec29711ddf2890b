"""The tensors of a folder in float64, dequantized exactly by tritmark's readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tritmark.harness.providers import installed
from tritmark.harness.weights.configuration import DIVIDE
from tritmark.harness.weights.source import WeightSource, open_weights
from tritmark.harness.weights.ternary import TernaryWeights, holders_of
from tritmark.torch.model.reference.architecture import Architecture, NotJudgedError

Floats = NDArray[np.float64]
_UNIT = 2.0**-24
_BLOCK = 1 << 24
"""Elements of a matrix that are in memory at a time, where rows suffice."""


class Matrix(NamedTuple):
    """The weights of a linear layer."""

    values: Floats
    """(N, K)."""
    quantized: bool
    """Whether the file says that activations are quantized to int8 before the product."""
    error: Floats | None = None
    """How far another rounding of the same rule may be from each value; None if values are stored."""
    bias: Floats | None = None
    scale: float = 0.0
    """The value of code 1, if a tensor beside the matrix states it."""


class ModelTensors:
    """Reads a folder of .safetensors files by the names that transformers gives."""

    def __init__(self, source: WeightSource, folder: Path, architecture: Architecture, dtype: str) -> None:
        self._source, self._dtype = source, np.dtype(getattr(ml_dtypes, dtype, dtype))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        method = (config.get("quantization_config") or {}).get("quant_method")
        if method not in (None, "bitnet", "tritmark"):
            raise NotJudgedError(f"quant_method {method!r} has no reference")
        self._quantizes = method == "bitnet"
        self._ternary = TernaryWeights(source, holders_of(installed()))
        for name, heads in (("q", architecture.heads), ("k", architecture.key_heads)):
            rows = len(self.linear(f"model.layers.0.self_attn.{name}_proj").values)
            if rows != heads * architecture.head_size:
                sizes = f"{heads} heads of {architecture.head_size}"
                raise NotJudgedError(f"config.json has {sizes}, and {name}_proj of layer 0 has {rows} rows")
        if architecture.tied and self.has("lm_head.weight"):
            raise NotJudgedError("config.json ties the head to the embedding, and the file has lm_head.weight, too")

    def has(self, name: str) -> bool:
        return self._source.tensor(name) is not None

    @property
    def scaled(self) -> bool:
        """Whether scales beside matrices multiply or divide them."""
        return bool(self._ternary.has_weight_scales)

    def vector(self, name: str) -> Floats:
        """A tensor of floats as the model's dtype holds it. Raises NotJudgedError without it."""
        if not self.has(name):
            raise NotJudgedError(f"the folder has no tensor {name}")
        return self._held(self._source.read(name))

    def linear(self, module: str) -> Matrix:
        """The weights of a linear layer. Raises NotJudgedError without them."""
        name = f"{module}.weight"
        info = self._ternary.matrix(name)
        bias = self.vector(f"{module}.bias") if self.has(f"{module}.bias") else None
        if info is None or not (self._quantizes or info.format or info.scale is not None):
            return Matrix(self.vector(name), False, bias=bias)
        if info.ruled:
            return Matrix(*_absmean(self.vector(name)), bias=bias)
        codes, scale = self._ternary.read(info)
        if info.scale is not None:  # of which the reader gives the value of code 1 in float32
            stored = self.vector(info.scale.name)
            scale = 1 / stored if self._ternary.weight_scale == DIVIDE else stored
        scales = np.asarray(scale, np.float64)
        scales = scales if scales.ndim == 2 else scales.reshape(-1, 1)
        scales = np.broadcast_to(scales, (info.shape[0], scales.shape[1]))
        values = (codes.reshape(*scales.shape, -1) * scales[:, :, None]).reshape(info.shape)
        alone = float(scales[0, 0]) if info.scale is not None and scales.size == len(scales) else 0.0
        return Matrix(values, self._quantizes, bias=bias, scale=alone)

    def _held(self, values: NDArray[np.float32]) -> Floats:
        return values.astype(self._dtype).astype(np.float64)

    def expert(self, module: str, expert: int, part: str) -> Floats:
        """The matrix of an expert, (N, K): a tensor of its own, or rows of stacked ones."""
        alone = f"{module}.{expert}.{part}.weight"
        if self.has(alone):
            return self.linear(f"{module}.{expert}.{part}").values
        name = f"{module}.{'down_proj' if part == 'down_proj' else 'gate_up_proj'}"
        if not self.has(name):
            raise NotJudgedError(f"the folder has no tensor {alone}, and no {name}")
        found = self._held(self._source.read(name, slice(expert, expert + 1))[0])
        if part == "down_proj":
            return found
        half = len(found) // 2
        return found[:half] if part == "gate_proj" else found[half:]

    def rows_of(self, name: str) -> int:
        """The number of rows of a matrix. Raises NotJudgedError without it."""
        info = self._source.tensor(name)
        if info is None:
            raise NotJudgedError(f"the folder has no tensor {name}")
        return info.shape[0]

    def row_blocks(self, name: str) -> Iterator[tuple[slice, Floats]]:
        """A large matrix in blocks of rows."""
        info = self._source.tensor(name)
        if info is None:
            raise NotJudgedError(f"the folder has no tensor {name}")
        rows = max(1, _BLOCK // info.shape[1])
        for start in range(0, info.shape[0], rows):
            part = slice(start, min(start + rows, info.shape[0]))
            yield part, self._held(self._source.read(name, part))

    def rows(self, name: str, numbers: NDArray[Any]) -> Floats:
        """Rows of a matrix, in the shape of their numbers."""
        if not self.has(name):
            raise NotJudgedError(f"the folder has no tensor {name}")
        unique, where = np.unique(numbers, return_inverse=True)
        found = np.concatenate([self._source.read(name, slice(int(each), int(each) + 1)) for each in unique])
        return self._held(found)[where.reshape(numbers.shape)]


def _absmean(floats: Floats) -> tuple[Floats, bool, Floats]:
    """Floats after the absmean rule of BitNet b1.58, and how far float32 means of their magnitudes, summed in another
    order, may move them. torch.sum has four levels of accumulators (ATen/native/cpu/SumKernel.cpp, cascade_sum)."""
    scale = max(float(np.abs(floats).mean()), 1e-5)
    exact = floats / scale
    codes = np.clip(np.rint(exact), -1, 1)
    off = (4 * 2 ** max(4, ceil(log2(floats.size) / 4)) + 4) * _UNIT
    moved = np.abs(np.clip(np.rint(exact + off * np.sign(exact)), -1, 1) - codes)
    moved = np.maximum(moved, np.abs(codes - np.clip(np.rint(exact - off * np.sign(exact)), -1, 1)))
    return codes * scale, True, scale * (moved + off * np.abs(codes))


@contextmanager
def tensors_of(folder: Path, architecture: Architecture, dtype: str) -> Iterator[ModelTensors]:
    """The tensors of a folder while it is open, floats rounded to the model's dtype. Raises WeightFileError for files
    that cannot be read, and NotJudgedError for weights that the reference does not compute with."""
    with open_weights(folder) as source:
        yield ModelTensors(source, folder, architecture, dtype)
