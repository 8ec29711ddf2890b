"""Ternary weights as they lie in files: codes and scales, never quantized again.

Three kinds of matrices are ternary: a type of GGUF's that holds codes; a uint8 tensor NAME with four rows to a byte, as
Hugging Face publishes BitNet models, whose scale is the tensor NAME_scale; and, where a rule for them is given, the
float weights of a linear layer ("master weights"), which the model itself quantizes whenever it runs.

What files do not say, `Conventions` do:

- The layout of a type that has several (I2_S of bitnet.cpp on x86 or ARM): as asked for; else the key tritmark.layout
  of a GGUF file; else the usual one.
- Whether a code stands for code * weight_scale or code / weight_scale. In transformers (integrations/bitnet.py) the
  class AutoBitLinear, which bitnet-b1.58-2B-4T uses, multiplies, and BitLinear divides. As asked for; else the metadata
  tritmark.weight_scale of a .safetensors file; else `linear_class` under `quantization_config` in the config.json
  beside it, bitlinear where there is such a configuration without a class; else it is multiplied. A quotient is
  1 / weight_scale in float32, rounded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.spec import Ternarized, WeightType
from tritmark.harness.weights.gguf_file import LAYOUT_KEY
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.plain_file import PlainFile
from tritmark.harness.weights.published_names import is_linear
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import FLOATS, TensorInfo

PACKED_ROWS = "packed_rows"
"""The type of a uint8 tensor (R, K) with rows n, n + R, n + 2R and n + 3R in a byte: N is 4 * R, for files do not say
if it was less."""
SCALE_SUFFIX = "_scale"
ROWS_TO_A_BYTE = 4
WEIGHT_SCALE_KEY = "tritmark.weight_scale"
MULTIPLY, DIVIDE = "multiply", "divide"
_CLASSES = {"autobitlinear": MULTIPLY, "bitlinear": DIVIDE}
_LARGEST_CONFIG = 1 << 20

Codes = NDArray[np.int8]


class CodeFormat(Protocol):
    """What is used of a format, see tritmark.kernels.formats."""

    @property
    def name(self) -> str: ...

    @property
    def scale_per(self) -> Literal["tensor", "row", "group"]: ...

    @property
    def group(self) -> int: ...

    @property
    def scale_dtype(self) -> Literal["float32", "float16"]: ...

    @property
    def row_multiple(self) -> int: ...

    @property
    def column_multiple(self) -> int: ...

    def packed_shape(self, shape: tuple[int, int]) -> tuple[int, ...]: ...

    def packed_bytes(self, shape: tuple[int, int]) -> int: ...

    def scale_shape(self, shape: tuple[int, int]) -> tuple[int, ...]: ...

    def holds(self, shape: tuple[int, int]) -> bool: ...

    def pack(self, codes: Codes, scale: Any, *, tail: Literal["drop", "error"]) -> NDArray[np.uint8]: ...

    def unpack(
        self, packed: NDArray[np.uint8], shape: tuple[int, int], *, tail: Literal["drop", "error"]
    ) -> tuple[Codes, Any]: ...


@dataclass(frozen=True, slots=True)
class Conventions:
    """What is asked for where files do not say; "" to go by the file."""

    layout: str = ""
    weight_scale: str = ""
    """multiply or divide."""


class Holders(NamedTuple):
    """What is installed that knows ternary weights."""

    types: Mapping[str, WeightType]
    formats: Mapping[str, Any]
    ternarize: Callable[[Any], Ternarized] | None = None
    """The rule for master weights; None: they are floats like any others."""


class _Installed(Protocol):
    """What is used of harness.providers.Installed."""

    @property
    def weight_types(self) -> Mapping[str, WeightType]: ...

    @property
    def formats(self) -> Mapping[str, Any]: ...

    @property
    def ternarize(self) -> Callable[[Any], Ternarized] | None: ...


def holders_of(installed: _Installed) -> Holders:
    """All that is installed."""
    return Holders(installed.weight_types, installed.formats, installed.ternarize)


@dataclass(frozen=True, slots=True)
class TernaryInfo:
    """One ternary matrix of a file."""

    tensor: TensorInfo
    """With the codes; its name is the matrix's."""
    shape: tuple[int, int]
    """(N, K)."""
    dtype: str
    """Its type: a WeightType's, or the float dtype of master weights."""
    format: str
    """What its bytes are in; "" for master weights."""
    scale: TensorInfo | None = None
    """Where the scale lies, if not in the bytes."""

    @property
    def name(self) -> str:
        """As stored."""
        return self.tensor.name

    @property
    def nbytes(self) -> int:
        """Size in the file, with a scale beside."""
        return self.tensor.nbytes + (self.scale.nbytes if self.scale is not None else 0)


class TernaryWeights:
    """The ternary matrices of an open source."""

    def __init__(self, source: WeightSource, holders: Holders, conventions: Conventions | None = None) -> None:
        """Find them; nothing of them is read yet.

        Raises InvalidArgumentError for conventions that nothing in the file needs or that do not exist, WeightFileError
        for packed rows without a scale of one number, and for a config.json that cannot be read.
        """
        self.source = source
        self._holders = holders
        self._asked = conventions or Conventions()
        found = [self._found(tensor) for tensor in source.tensors]
        stored = tuple(each for each in found if each is not None and each.format)
        self.matrices: tuple[TernaryInfo, ...] = stored or tuple(each for each in found if each is not None)
        """In file order. Where some are stored as codes, floats are what the model keeps as floats."""
        self._by_name = {each.name: each for each in self.matrices}
        self.scales = frozenset(each.scale.name for each in self.matrices if each.scale is not None)
        """Tensors that hold nothing but the scale of a matrix."""
        self.weight_scale = self._weight_scale() if self.scales else MULTIPLY
        """multiply or divide."""
        self._check_asked()

    def matrix(self, name: str) -> TernaryInfo | None:
        """The ternary matrix of that name, or None."""
        return self._by_name.get(name)

    def format(self, info: TernaryInfo) -> CodeFormat:
        """The format of a matrix that has one. Raises WeightFileError where nothing installed brings it."""
        if info.format not in self._holders.formats:
            legal = f"a type whose format is installed: {', '.join(sorted(self._holders.formats))}"
            raise self.source.error(info.name, f"{info.dtype}, format {info.format!r}, which is not installed", legal)
        form: CodeFormat = self._holders.formats[info.format]
        return form

    def read(self, info: TernaryInfo) -> tuple[Codes, Any]:
        """int8 codes (N, K), and what code 1 stands for: float32, one number or of the format's `scale_shape`.

        In memory is what is stored, once, and the codes. Raises WeightFileError for bytes that the format refuses.
        """
        if not info.format:
            assert self._holders.ternarize is not None
            try:
                made = self._holders.ternarize(self.source.read(info.name))
            except InvalidArgumentError as error:
                raise self.source.error(info.name, str(error), "finite weights") from error
            return made.codes, made.scale
        form = self.format(info)
        try:
            codes, scale = form.unpack(self.source.read_bytes(info.name), info.shape, tail="error")
        except InvalidArgumentError as error:
            raise self.source.error(info.name, f"{error.argument} is {error.found}", error.legal) from error
        return codes, scale if info.scale is None else self._scale_beside(info.scale)

    def _found(self, tensor: TensorInfo) -> TernaryInfo | None:
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            return None
        shape = tensor.shape[0], tensor.shape[1]
        if tensor.dtype == "uint8" and PACKED_ROWS in self._holders.types:
            return self._packed_rows(tensor)
        if tensor.dtype in self._holders.types:
            return TernaryInfo(tensor, shape, tensor.dtype, self._layout(self._holders.types[tensor.dtype]))
        if tensor.dtype in FLOATS and is_linear(tensor.name) and self._holders.ternarize is not None:
            return TernaryInfo(tensor, shape, tensor.dtype, "")
        return None

    def _packed_rows(self, tensor: TensorInfo) -> TernaryInfo | None:
        scale = self.source.tensor(tensor.name + SCALE_SUFFIX)
        if scale is None:
            if is_linear(tensor.name):
                legal = f"packed rows with their scale in {inert(tensor.name + SCALE_SUFFIX)}"
                raise self.source.error(tensor.name, "uint8 without a scale", legal)
            return None
        if scale.dtype not in FLOATS or np.prod(scale.shape) != 1:
            raise self.source.error(scale.name, f"{scale.dtype} of shape {scale.shape}", "one float")
        rows, columns = tensor.shape
        shape = rows * ROWS_TO_A_BYTE, columns
        return TernaryInfo(tensor, shape, PACKED_ROWS, self._layout(self._holders.types[PACKED_ROWS]), scale)

    def _layout(self, type: WeightType) -> str:
        usual = next(iter(type.layouts))
        if len(type.layouts) == 1:
            return type.layouts[usual]
        said = self.source.header.facts.get(LAYOUT_KEY, usual)
        layout = self._asked.layout or str(said)
        if layout in type.layouts:
            return type.layouts[layout]
        legal = " or ".join(type.layouts)
        if self._asked.layout:
            raise InvalidArgumentError(op="weights", argument="layout", found=repr(layout), legal=legal)
        raise WeightFileError(path=self.source.path, found=f"{LAYOUT_KEY} {inert(said)}", legal=legal)

    def _scale_beside(self, scale: TensorInfo) -> np.float32:
        stored = self.source.read(scale.name).reshape(())[()]
        with np.errstate(all="ignore"):
            value = np.float32(stored if self.weight_scale == MULTIPLY else np.float32(1) / stored)
        if not (np.isfinite(value) and value >= 0):
            legal = f"a number to {self.weight_scale} by that leaves a finite one >= 0"
            raise self.source.error(scale.name, str(stored), legal)
        return value

    def _weight_scale(self) -> str:
        said = self.source.header.facts.get(WEIGHT_SCALE_KEY)
        if said not in {None, MULTIPLY, DIVIDE}:
            found = f"{WEIGHT_SCALE_KEY} {inert(said)}"
            raise WeightFileError(path=self.source.path, found=found, legal=f"{MULTIPLY} or {DIVIDE}")
        if self._asked.weight_scale:
            return self._asked.weight_scale
        return str(said) if said is not None else _of_config(self.source.folder / "config.json")

    def _check_asked(self) -> None:
        asked = self._asked
        if asked.weight_scale not in {"", MULTIPLY, DIVIDE}:
            legal = f"{MULTIPLY} or {DIVIDE}"
            raise InvalidArgumentError(
                op="weights", argument="weight_scale", found=repr(asked.weight_scale), legal=legal
            )
        several = {name for name, type in self._holders.types.items() if len(type.layouts) > 1}
        if asked.layout and not any(each.dtype in several for each in self.matrices):
            found = f"{asked.layout!r}, and {self.source.path} has no tensor that it could be of"
            legal = f"only beside tensors of type {', '.join(sorted(several))}"
            raise InvalidArgumentError(op="weights", argument="layout", found=found, legal=legal)
        if asked.weight_scale and not self.scales:
            found = f"{asked.weight_scale!r}, and {self.source.path} has no scales beside packed rows"
            legal = f"only beside tensors NAME{SCALE_SUFFIX}"
            raise InvalidArgumentError(op="weights", argument="weight_scale", found=found, legal=legal)


def _of_config(path: Path) -> str:
    if not path.exists():
        return MULTIPLY
    file = PlainFile(path)
    try:
        if file.size > _LARGEST_CONFIG:
            raise file.error(f"{file.size} bytes", f"a configuration of at most {_LARGEST_CONFIG}")
        config = json.loads(file.read(0, file.size))
    except (ValueError, RecursionError) as error:
        if isinstance(error, WeightFileError):
            raise
        raise file.error(f"not JSON: {inert(str(error))}", "JSON") from error
    finally:
        file.close()
    quantization = config.get("quantization_config") if isinstance(config, dict) else None
    if not isinstance(quantization, dict):
        return MULTIPLY
    linear_class = quantization.get("linear_class", "bitlinear")
    if not isinstance(linear_class, str) or linear_class not in _CLASSES:
        legal = f"{' or '.join(_CLASSES)}; or say --weight-scale"
        raise file.error(f"linear_class {inert(linear_class)}", legal)
    return _CLASSES[linear_class]
