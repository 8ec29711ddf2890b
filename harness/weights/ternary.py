"""Ternary matrices of weight files: codes and scales, never quantized again.

These matrices are ternary:

- a GGUF type that holds codes, and I8_S whose values are codes;
- words of MLX, compressed-tensors, GPTQ and ONNX with ternary scales and offsets beside them (words);
- a uint8 tensor NAME with four rows per byte, as in BitNet models on Hugging Face, with its scale in NAME_scale;
- floats or int8 that are all -1, 0 or 1 beside a NAME_scale: a packed model that was unpacked on load and saved;
- floats of a linear layer that are exactly ternary (float_codes), in any part of a model;
- other floats of linear layers ("master weights", which the model itself quantizes in each call), if a rule is given
  and either nothing else in the file is ternary or `quantize` is set.

`Conventions` decide what files do not state. The first source that states it applies:

- Layout of a type with several layouts (I2_S of bitnet.cpp on x86 or ARM): the request; the key tritmark.layout of a
  GGUF file; the usual layout.
- Meaning of a code: code * weight_scale or code / weight_scale. In transformers (integrations/bitnet.py) AutoBitLinear,
  which bitnet-b1.58-2B-4T uses, multiplies, and BitLinear divides. The request; the metadata tritmark.weight_scale of a
  .safetensors file; `linear_class` in the configuration beside it (bitlinear if it has none); multiply. A quotient is
  1 / weight_scale in float32, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.spec import Ternarized, WeightType
from tritmark.harness.weights import block_products, compressed_tensors, expert_products, gptq, hadamard, i8_s, mlx
from tritmark.harness.weights.companions import SCALE_SUFFIX, require_understood
from tritmark.harness.weights.configuration import DIVIDE, MULTIPLY, NONE, ONLINE, configuration_of
from tritmark.harness.weights.finite import check_finite, require_finite, scales_finite, slabs
from tritmark.harness.weights.float_codes import FloatLayout, first_other_than_codes, has_four_levels, layout_of, split
from tritmark.harness.weights.format_names import ORT_Q2, ORT_Q2_SM80, PACKED_ROWS
from tritmark.harness.weights.gguf_file import LAYOUT_KEY
from tritmark.harness.weights.gguf_scales import ScalesBeside
from tritmark.harness.weights.gguf_types import TL1, TL2, described, unread_type
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.published_names import is_linear, looks_linear
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import FLOATS, TensorInfo
from tritmark.harness.weights.words import Words, scales_of, zero_points
from tritmark.harness.weights.words import layout_of as layout_of_words

ROWS_TO_A_BYTE = 4
TL_TYPES = tuple(map(unread_type, (TL1, TL2)))
"""The dtypes of bitnet.cpp's types for look-up kernels; ggml may use the numbers, so their extents have the size."""
_BEHIND, _MOST_PADDING = 32, 32
"""Bytes of the scale and zeros behind tiles, and of padding to the next tensor."""
_FIRST_ROWS = 4
"""Rows that are tested for levels other than ternary ones."""
_BESIDE_WORDS = (
    *("scales", "biases", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx"),
    *("qzeros", "g_idx"),
)
WEIGHT_SCALE_KEY = "tritmark.weight_scale"

Codes = NDArray[np.int8]


class CodeFormat(Protocol):
    """The members of a format that are used here, see tritmark.kernels.formats."""

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

    def decided(self, shape: tuple[int, int]) -> bool: ...

    def pack(self, codes: Codes, scale: Any, *, tail: Literal["drop", "error"]) -> NDArray[np.uint8]: ...

    def stored_scales(self, packed: NDArray[np.uint8], shape: tuple[int, int]) -> Any: ...

    def unpack(
        self, packed: NDArray[np.uint8], shape: tuple[int, int], *, tail: Literal["drop", "error"], **layout: Any
    ) -> tuple[Codes, Any]: ...


@dataclass(frozen=True, slots=True)
class Conventions:
    """The user's choices where files do not state them; "" to follow the file."""

    layout: str = ""
    weight_scale: str = ""
    """multiply or divide."""


class Holders(NamedTuple):
    """The installed parts that know ternary weights."""

    types: Mapping[str, WeightType]
    formats: Mapping[str, Any]
    ternarize: Callable[[Any], Ternarized] | None = None
    """The rule for master weights; None: floats without a scale beside them are not quantized."""


class _Installed(Protocol):
    """The members of harness.providers.Installed that are used here."""

    @property
    def weight_types(self) -> Mapping[str, WeightType]: ...

    @property
    def formats(self) -> Mapping[str, Any]: ...

    @property
    def ternarize(self) -> Callable[[Any], Ternarized] | None: ...


def holders_of(installed: _Installed) -> Holders:
    """The Holders of everything that is installed."""
    return Holders(installed.weight_types, installed.formats, installed.ternarize)


@dataclass(frozen=True, slots=True)
class TernaryInfo:
    """One ternary matrix of a file."""

    tensor: TensorInfo
    """The tensor with the codes; it has the name of the matrix."""
    shape: tuple[int, int]
    """(N, K)."""
    dtype: str
    """The name of its WeightType, or the dtype of floats or int8."""
    format: str
    """The format of its bytes; "" for floats and int8."""
    scale: TensorInfo | None = None
    """The tensor with the scale; None if the scale is in the matrix's bytes."""
    layout: FloatLayout | None = None
    """The layout of the scales of exactly ternary floats and int8; None for all others."""
    factor: TensorInfo | None = None
    """The tensor with a further factor of the weights (see gguf_scales)."""
    words: Words | None = None
    """The tensors beside a matrix of words."""
    experts: int = 0
    """The number of matrices of `shape` in a 3-D tensor (E, N, K), one after another; 0 for one matrix."""

    @property
    def name(self) -> str:
        """As stored."""
        return self.tensor.name

    @property
    def nbytes(self) -> int:
        """Size in the file in bytes, including a scale beside it."""
        beside = self.words.tensors if self.words is not None else ()
        return sum(each.nbytes for each in (self.tensor, *((self.scale,) if self.scale is not None else ()), *beside))

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """(N, K), or (E, N, K) of experts."""
        return (self.experts, *self.shape) if self.experts else self.shape

    @property
    def expert_numbers(self) -> range:
        """The numbers of its matrices: 0 for one matrix."""
        return range(max(self.experts, 1))

    @property
    def ruled(self) -> bool:
        """Whether a rule makes its codes from floats."""
        return not self.format and self.layout is None


class TernaryWeights:
    """The ternary matrices of an open source."""

    def __init__(
        self,
        source: WeightSource,
        holders: Holders,
        conventions: Conventions | None = None,
        *,
        quantize: bool = False,
        beside_another: bool = False,
    ) -> None:
        """Find the matrices. Floats of linear layers are read once, and only until they prove not to be ternary.

        With `quantize` floats that are not ternary are matrices too. Set `beside_another` for one of two files with
        the same conventions, of which one may not need them (require_needed).

        Raises InvalidArgumentError for conventions that do not exist or that nothing in the file needs. Raises
        WeightFileError for packed rows without a scale, for scales and tensors beside a matrix with an unknown
        meaning, and for a configuration that cannot be read or describes another kind of weights.
        """
        self.source = source
        self._holders = holders
        self.asked = conventions or Conventions()
        """The requested conventions."""
        own = source.suffix != ".safetensors" or source.fact(WEIGHT_SCALE_KEY) is not None
        self.transform = hadamard.transform_note(source) or ("" if own else hadamard.configuration_note(source.folder))
        """How the model transforms activations before the products, in a sentence; "" if it does not."""
        self._beside = ScalesBeside(source) if source.suffix == ".gguf" else None
        self._config = NONE if own else configuration_of(source.folder, asked=bool(self.asked.weight_scale))
        self.not_ternary: dict[str, str] = {}
        """Why words are not ternary, by name of the tensor; also of the tensors beside them."""
        self._int8_scales: dict[str, np.float32] = {}
        self.unread: dict[str, str] = {}
        """Why values of I8_S are no codes, by name of the tensor."""
        found = [each for each in map(self._found, source.tensors) if each is not None]
        if self._config.words and not self.not_ternary and all(each.words is None for each in found):
            found_text = f"no words, and a configuration of {self._config.words}"
            raise WeightFileError(path=source.path, found=found_text, legal="words as the configuration states")
        self.scales = frozenset(part.name for each in found for part in _beside(each))
        """Names of tensors that hold only the scale of a matrix."""
        self.has_weight_scales = any(each.scale is not None and each.dtype not in TL_TYPES for each in found)
        """Whether any matrix has a scale beside it, which `weight_scale` applies to."""
        self.weight_scale = self._weight_scale() if self.has_weight_scales else MULTIPLY
        """multiply or divide."""
        found = [self._with_layout(each) for each in found]
        self.matrices: tuple[TernaryInfo, ...] = tuple(found if quantize else _decided(found))
        """In file order. If some are ternary, other floats are those that the model keeps as floats."""
        self.floats: tuple[TernaryInfo, ...] = tuple(each for each in found if each.ruled)
        """Linear layers of floats that are not ternary, including those among `matrices`."""
        self._by_name = {each.name: each for each in self.matrices}
        self._check_asked()
        if not beside_another:
            require_needed(self)

    def matrix(self, name: str) -> TernaryInfo | None:
        """The ternary matrix with this name, or None."""
        return self._by_name.get(name)

    def is_ternary(self, tensor: TensorInfo) -> bool:
        """Whether the type of the tensor holds codes; its shape may be any."""
        return tensor.dtype in self._holders.types and tensor.dtype != PACKED_ROWS

    def format(self, info: TernaryInfo) -> CodeFormat:
        """The format of a matrix that has one. Raises WeightFileError if the format is not installed."""
        if info.format not in self._holders.formats:
            legal = f"a type whose format is installed: {', '.join(sorted(self._holders.formats))}"
            raise self.source.error(info.name, f"{info.dtype}, format {info.format!r}, which is not installed", legal)
        form: CodeFormat = self._holders.formats[info.format]
        return form

    def read(self, info: TernaryInfo, expert: int = 0) -> tuple[Codes, Any]:
        """int8 codes (N, K) of one matrix, and the value of code 1: float32, one number or the format's `scale_shape`.

        For words and floats with several scales these are (N,) or (N, K / group). A factor beside the matrix is
        multiplied in and rounded once. Memory holds the stored bytes once, and the codes. Raises WeightFileError for
        bytes that the format refuses, and for numbers that are not finite.
        """
        codes, scale = self.read_stored(info, expert)
        if info.factor is None or self._beside is None:
            return codes, scale
        with np.errstate(over="ignore"):
            scale = np.float32(scale) * self._beside.read(info.factor)
        scales_finite(self.source, info.name, scale)
        return codes, scale

    def packed(self, info: TernaryInfo, expert: int = 0) -> NDArray[np.uint8]:
        """The bytes of a matrix that has a format, as a flat array."""
        if info.experts or info.words is not None:
            return self.source.read_bytes(info.name, expert, max(info.experts, 1))
        stored = self.source.read_bytes(info.name)
        return stored[: self.format(info).packed_bytes(info.shape)]  # the rest is padding, in a type of unknown size

    def read_stored(self, info: TernaryInfo, expert: int = 0) -> tuple[Codes, Any]:
        """Like `read`, without the factor, which llama.cpp multiplies the product by."""
        if not info.format:
            return self._of_numbers(info)
        form, options = self.format(info), {} if info.words is None else self._options(info, expert)
        try:
            codes, scale = form.unpack(self.packed(info, expert), info.shape, tail="error", **options)
        except InvalidArgumentError as error:
            of = f" of expert {expert}" if info.experts else ""
            raise self.source.error(info.name, f"{error.argument}{of} is {error.found}", error.legal) from error
        if info.words is not None:
            return codes, scales_of(self.source, info.words, info.shape, expert if info.experts else None)
        if info.scale is not None:
            scale = self._scale_beside(info)
        elif info.dtype in TL_TYPES:
            stored = self.source.read_bytes(info.name)
            end = _tiles_end(form, info.shape, behind=True)
            scale = np.float32(stored[end - _BEHIND : end - _BEHIND + 4].view("<f4")[0])
        scales_finite(self.source, info.name, scale)
        return codes, scale

    def _options(self, info: TernaryInfo, expert: int) -> dict[str, Any]:
        """The options of `unpack` for a matrix of words."""
        words = info.words
        assert words is not None
        if words.offsets is None and words.format not in {ORT_Q2, ORT_Q2_SM80}:
            return dict(words.options)
        points = zero_points(self.source, words, info.shape, expert if info.experts else None)
        return {**words.options, "zero_points": points}

    def _of_words(self, tensor: TensorInfo) -> TernaryInfo | None:
        """The matrix of words, or None; `not_ternary` gets the reason."""
        if self.source.suffix == ".gguf":
            return None
        found = block_products.found(self.source, tensor)
        found = found or expert_products.found(self.source, tensor, self.asked.layout)
        found = found or mlx.found(self.source, self._config.mlx, tensor)
        found = found or compressed_tensors.found(self.source, self._config.compressed, tensor)
        found = found or gptq.found(self.source, self._config.gptq, tensor)
        if found is None:
            return None
        if found.words is None:
            module = tensor.name.rpartition(".")[0]
            beside = (f"{module}.{each}" for each in _BESIDE_WORDS)
            there = [each for each in beside if self.source.tensor(each) is not None]
            self.not_ternary |= dict.fromkeys((tensor.name, *there), found.reason)
            return None
        layout = layout_of_words(self.source, found.words, found.shape)
        format, dtype = found.words.format, found.dtype or found.words.format
        return TernaryInfo(tensor, found.shape, dtype, format, None, layout, None, found.words, found.experts)

    def _experts(self, tensor: TensorInfo) -> TernaryInfo | None:
        """The matrices of a 3-D tensor of GGUF, or None if their places are not known."""
        layout = self._layout(self._holders.types[tensor.dtype])
        shape, factor = tensor.shape[1:], self._beside.factor(tensor) if self._beside is not None else None
        info = TernaryInfo(tensor, (shape[0], shape[1]), tensor.dtype, layout, factor=factor, experts=tensor.shape[0])
        if (
            layout in self._holders.formats
            and self.format(info).packed_bytes(info.shape) * info.experts == tensor.nbytes
        ):
            return info
        self.not_ternary[tensor.name] = f"{described(tensor.dtype)} of experts (3-D), whose layout is not known"
        return None

    def _of_int8(self, tensor: TensorInfo, shape: tuple[int, int]) -> TernaryInfo | None:
        """I8_S whose values are codes; None with the reason for any other."""
        scale, reason = i8_s.found(self.source, tensor)
        if scale is None:
            self.unread[tensor.name] = reason
            return None
        factor = self._beside.factor(tensor) if self._beside is not None else None
        with np.errstate(over="ignore"):
            float16 = bool(np.float32(np.float16(scale)) == scale)
        self._int8_scales[tensor.name] = scale
        return TernaryInfo(tensor, shape, tensor.dtype, "", layout=FloatLayout("tensor", 0, float16), factor=factor)

    def _of_tiles(self, tensor: TensorInfo, shape: tuple[int, int]) -> TernaryInfo | None:
        """TL1 or TL2: with its scale in NAME_scale, or in 32 bytes behind the codes. None with the reason if the file
        does not decide the layout."""
        info = TernaryInfo(tensor, shape, tensor.dtype, self._layout(self._holders.types[tensor.dtype]))
        scale = self.source.tensor(tensor.name + SCALE_SUFFIX)
        form = self._holders.formats.get(info.format)
        if form is None or not form.decided(shape):
            reason = f"the tiles of {shape} are in an ini file of its build, not in the model"
        elif not 0 <= tensor.nbytes - _tiles_end(form, shape, behind=scale is None) < _MOST_PADDING:
            reason = f"{tensor.nbytes} bytes are not those of {shape} weights"
        else:
            return replace(info, scale=scale)
        beside = (tensor.name,) if scale is None else (tensor.name, scale.name)
        self.not_ternary |= dict.fromkeys(beside, f"{described(tensor.dtype)}: {reason}")
        return None

    def _found(self, tensor: TensorInfo) -> TernaryInfo | None:
        words = self._of_words(tensor)
        if words is not None or tensor.name in self.not_ternary or self.source.suffix == ".onnx":
            return words
        if len(tensor.shape) == 3 and 0 not in tensor.shape and self.is_ternary(tensor):
            return self._experts(tensor)
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            packed = tensor.dtype == "uint8" and self.source.suffix == ".safetensors"
            if packed and tensor.shape and 0 not in tensor.shape and is_linear(tensor.name):
                found = f"uint8 of shape {tensor.shape} as the weights of a linear layer"
                raise self.source.error(tensor.name, found, "packed rows (R, K)")
            return None
        shape = tensor.shape[0], tensor.shape[1]
        if tensor.dtype == "uint8" and PACKED_ROWS in self._holders.types:
            return self._packed_rows(tensor)
        if tensor.dtype == i8_s.DTYPE:
            return self._of_int8(tensor, shape)
        if tensor.dtype in TL_TYPES and tensor.dtype in self._holders.types:
            return self._of_tiles(tensor, shape)
        if tensor.dtype in self._holders.types:
            layout = self._layout(self._holders.types[tensor.dtype])
            factor = self._beside.factor(tensor) if self._beside is not None else None
            return TernaryInfo(tensor, shape, tensor.dtype, layout, factor=factor)
        if self.source.suffix == ".safetensors" and tensor.name.endswith("weight"):
            scale = self.source.tensor(tensor.name + SCALE_SUFFIX)
            if scale is not None and tensor.dtype in {*FLOATS, "int8"}:
                self._require_converted(tensor)
                return TernaryInfo(tensor, shape, tensor.dtype, "", scale)
        named = is_linear(tensor.name)
        if tensor.dtype in FLOATS and (named or looks_linear(tensor.name)) and self._holders.ternarize is not None:
            if self._config.keeps(tensor.name):
                return None
            # An online model quantizes its floats in each call, also ternary ones.
            own = None if self._config.mode == ONLINE else self._own_layout(tensor)
            if not named and (own is None or own.constant):
                return None  # it is not known which other parts of a model are quantized
            if self.source.suffix == ".safetensors":
                require_understood(self.source, tensor.name)
            return TernaryInfo(tensor, shape, tensor.dtype, "", layout=own)
        return None

    def _require_converted(self, tensor: TensorInfo) -> None:
        """Refuse codes in a module that the configuration keeps as floats, in a model without weight_scale, and beside
        tensors with an unknown meaning."""
        require_understood(self.source, tensor.name)
        beside = f"has {inert(tensor.name + SCALE_SUFFIX)} beside it"
        if self._config.words:
            raise self.source.error(
                tensor.name, beside, f"the words of {self._config.words}, as the configuration states"
            )
        if self._config.keeps(tensor.name):
            legal = "no codes in modules that modules_to_not_convert of the configuration names"
            raise self.source.error(tensor.name, beside, legal)
        if self._config.mode == ONLINE:
            legal = "no weight_scale where the configuration has quantization_mode online"
            raise self.source.error(tensor.name, beside, legal)

    def _own_layout(self, tensor: TensorInfo) -> FloatLayout | None:
        if tensor.dtype == "float64" and not self._fits_float32(tensor):
            return None

        def rows(part: slice) -> NDArray[np.float32]:
            values = self.source.read(tensor.name, part)
            check_finite(self.source, tensor.name, values, part.start)
            return values

        found = layout_of(rows, slabs(tensor.shape), tensor.shape[1])
        if found is None and has_four_levels(rows(slice(0, _FIRST_ROWS))):
            levels = "levels -1.5, -0.5, 0.5 and 1.5 times a scale: 2-bit weights without 0, as Hy-MT has them"
            raise self.source.error(tensor.name, levels, "ternary weights, or floats that were never quantized")
        return found

    def _fits_float32(self, tensor: TensorInfo) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            stored = (np.frombuffer(chunk, "<f8") for chunk in self.source.chunks(tensor.name))
            return all(np.array_equal(each, each.astype(np.float32), equal_nan=True) for each in stored)

    def _with_layout(self, info: TernaryInfo) -> TernaryInfo:
        """The matrix with the layout of the scale beside it, if it has one."""
        if info.format or info.scale is None:
            return info
        scale = np.asarray(self._scale_beside(info))
        kinds: dict[int, Literal["tensor", "row", "group"]] = {0: "tensor", 1: "row", 2: "group"}
        with np.errstate(over="ignore"):
            float16 = bool((scale.astype(np.float16).astype(np.float32) == scale).all())
        group = info.shape[1] // scale.shape[1] if scale.ndim == 2 else 0
        return replace(info, layout=FloatLayout(kinds[scale.ndim], group, float16))

    def require_finite(self) -> None:
        """Raise WeightFileError for floats or scales of a matrix that are not finite, and for invalid codes beside a
        scale. Each matrix is read once."""
        for info in self.matrices:
            if info.format and info.format not in self._holders.formats:
                continue  # reading the matrix reports this
            if info.scale is not None:
                self._scale_beside(info)
            elif info.dtype in TL_TYPES:
                self.read_stored(info)
            elif info.format and info.words is None:  # the scales of words are checked when they are found
                for expert in info.expert_numbers:
                    packed = self.packed(info, expert)
                    scales_finite(self.source, info.name, self.format(info).stored_scales(packed, info.shape))
            if not info.format:
                if info.scale is not None:
                    self._codes_beside(info)
                elif info.layout is None:
                    require_finite(self.source, info.tensor)
            if info.factor is not None and self._beside is not None:
                self._beside.read(info.factor)

    def _of_numbers(self, info: TernaryInfo) -> tuple[Codes, Any]:
        if info.scale is not None:
            return self._codes_beside(info), self._scale_beside(info)
        if info.dtype == i8_s.DTYPE:
            return i8_s.codes(self.source, info.tensor), self._int8_scales[info.name]
        values = self.source.read(info.name)
        check_finite(self.source, info.name, values)
        if info.layout is not None:
            return split(values, info.layout)
        assert self._holders.ternarize is not None
        try:
            made = self._holders.ternarize(values)
        except InvalidArgumentError as error:
            raise self.source.error(info.name, str(error), "finite weights") from error
        return made.codes, made.scale

    def _codes_beside(self, info: TernaryInfo) -> Codes:
        codes = np.empty(info.shape, np.int8)
        stored = None
        if info.dtype == "int8":
            stored = self.source.read_bytes(info.name).view(np.int8).reshape(info.shape)
        for rows in slabs(info.shape):
            if stored is not None:
                values = stored[rows].astype(np.float32)
            else:
                values = self.source.read(info.name, rows)
                check_finite(self.source, info.name, values, rows.start)
            at = first_other_than_codes(values)
            if at is not None:
                assert info.scale is not None
                found = f"{values[at]:g} at [{at[0] + rows.start}, {at[1]}]"
                raise self.source.error(info.name, found, f"codes -1, 0 and 1 beside {inert(info.scale.name)}")
            codes[rows] = values
        return codes

    def _packed_rows(self, tensor: TensorInfo) -> TernaryInfo | None:
        scale = self.source.tensor(tensor.name + SCALE_SUFFIX)
        if scale is None:
            if is_linear(tensor.name):
                require_understood(self.source, tensor.name)
                legal = f"packed rows with their scale in {inert(tensor.name + SCALE_SUFFIX)}"
                raise self.source.error(tensor.name, "uint8 without a scale", legal)
            return None
        self._require_converted(tensor)
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
        layout = self.asked.layout or str(said if type.usual or said != usual else "")
        if not layout:
            found = (
                f"{described(type.dtype)}, whose tensors fit the blocks of each of {', '.join(type.layouts.values())}"
            )
            legal = f"--layout {' or '.join(type.layouts)}: q2_0 has 18 bytes for 64 weights, pq2_0 34 bytes for 128"
            raise WeightFileError(path=self.source.path, found=found, legal=legal)
        if layout in type.layouts:
            return type.layouts[layout]
        legal = " or ".join(type.layouts)
        if self.asked.layout:
            raise InvalidArgumentError(op="weights", argument="layout", found=repr(layout), legal=legal)
        raise WeightFileError(path=self.source.path, found=f"{LAYOUT_KEY} {inert(said)}", legal=legal)

    def _scale_beside(self, info: TernaryInfo) -> Any:
        """float32: one number, (N,), or (N, groups), depending on the shape of the scale."""
        tensor = info.scale
        assert tensor is not None
        N, K = info.shape
        rows, several = len(tensor.shape) == 2 and tensor.shape[0] == N, np.prod(tensor.shape) != 1
        fits = not several or tensor.shape == (N,) or (rows and tensor.shape[1] > 0 and K % tensor.shape[1] == 0)
        if tensor.dtype not in FLOATS or not fits:
            legal = f"one float, ({N},), ({N}, 1) or ({N}, groups) with equal groups of columns"
            raise self.source.error(tensor.name, f"{tensor.dtype} of shape {tensor.shape}", legal)
        stored = self.source.read(tensor.name)
        with np.errstate(all="ignore"):
            values = stored if self.weight_scale == MULTIPLY else np.float32(1) / stored
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            at = f" at {[int(each) for each in index]}" if several else ""
            legal = f"a number with a finite result >= 0 after {self.weight_scale}"
            raise self.source.error(tensor.name, f"{stored[index]}{at}", legal)
        if not several:
            return np.float32(values.reshape(())[()])
        return values.reshape(N) if values.size == N else values

    def _weight_scale(self) -> str:
        said = self.source.fact(WEIGHT_SCALE_KEY)
        if said not in {None, MULTIPLY, DIVIDE}:
            found = f"{WEIGHT_SCALE_KEY} {inert(said)}"
            raise WeightFileError(path=self.source.path, found=found, legal=f"{MULTIPLY} or {DIVIDE}")
        if self.asked.weight_scale:
            return self.asked.weight_scale
        return str(said) if said is not None else self._config.weight_scale

    def _check_asked(self) -> None:
        asked = self.asked
        if asked.weight_scale not in {"", MULTIPLY, DIVIDE}:
            legal = f"{MULTIPLY} or {DIVIDE}"
            raise InvalidArgumentError(
                op="weights", argument="weight_scale", found=repr(asked.weight_scale), legal=legal
            )

    @property
    def needs_layout(self) -> tuple[str, ...]:
        """The types among the matrices that have several layouts."""
        several = [name for name, type in self._holders.types.items() if len(type.layouts) > 1]
        return tuple(name for name in several if any(each.dtype == name for each in self.matrices))


def _tiles_end(form: CodeFormat, shape: tuple[int, int], *, behind: bool) -> int:
    """The size of TL1 or TL2 in the file: with `behind`, a multiple of 32 and 32 bytes that begin with the scale."""
    nbytes = form.packed_bytes(shape)
    return -(-nbytes // _BEHIND) * _BEHIND + _BEHIND if behind else nbytes


def _beside(info: TernaryInfo) -> Iterator[TensorInfo]:
    """The tensors that hold only the scales of a matrix."""
    yield from (each for each in (info.scale, info.factor) if each is not None)
    if info.words is not None:
        yield from info.words.tensors


def require_needed(*sides: TernaryWeights) -> None:
    """Raise InvalidArgumentError for a requested convention that no side needs. All sides have the same conventions."""
    asked = sides[0].asked
    places = " and ".join(side.source.path for side in sides)
    if asked.layout and not any(side.needs_layout for side in sides):
        found = f"{asked.layout!r}, and {places} has no tensor with several layouts"
        legal = "no layout, except with tensors of a type that has several"
        raise InvalidArgumentError(op="weights", argument="layout", found=found, legal=legal)
    if asked.weight_scale and not any(side.has_weight_scales for side in sides):
        found = f"{asked.weight_scale!r}, and {places} has no scales beside packed rows"
        legal = f"no weight_scale, except with tensors NAME{SCALE_SUFFIX}"
        raise InvalidArgumentError(op="weights", argument="weight_scale", found=found, legal=legal)


def _decided(found: list[TernaryInfo]) -> list[TernaryInfo]:
    """The matrices of a file if no rule was requested: those that are ternary, or all if none is. A constant matrix of
    floats counts as what its neighbours are."""
    stored = any(each.format or each.scale is not None for each in found)
    proven = [each for each in found if not each.ruled and not (each.layout is not None and each.layout.constant)]
    if stored:
        return proven
    return [each for each in found if not each.ruled] if proven else found
