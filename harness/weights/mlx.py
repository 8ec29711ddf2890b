"""MLX folders: uint32 words MODULE.weight with MODULE.scales and MODULE.biases, described by `quantization` in
config.json.

A weight is scale * field + bias. It is ternary if every bias is -scale: then the fields are w + 1. mlx-lm writes the
defaults `bits`, `group_size` and `mode`, and beside them an entry for each module that differs: an object, or false for
a module that is not quantized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights.companions import require_understood
from tritmark.harness.weights.finite import check_finite
from tritmark.harness.weights.format_names import MLX_Q2
from tritmark.harness.weights.names import inert
from tritmark.harness.weights.source import WeightSource
from tritmark.harness.weights.tensor import TensorInfo
from tritmark.harness.weights.words import FoundWords, Words, first_bias_of_other_codes, require_floats

_GROUP_SIZES = (32, 64, 128)
_BITS = (2, 3, 4, 5, 6, 8)
_AFFINE = "affine"
_OWN = ("bits", "group_size", "mode", "quant_method", "linear_class", "quantization_mode")
WORDS = "uint32"
_IN_WORD = 16


@dataclass(frozen=True, slots=True)
class MlxModule:
    """How a module is quantized."""

    bits: int
    group_size: int
    mode: str = _AFFINE


@dataclass(frozen=True, slots=True)
class MlxSettings:
    """The object `quantization` of config.json."""

    default: MlxModule
    modules: Mapping[str, MlxModule | None]
    """Modules that differ; None: not quantized."""

    def of(self, module: str) -> MlxModule | None:
        """The settings of a module; None if it is not quantized."""
        return self.modules.get(module, self.default)


def settings_of(said: Mapping[str, object], wrong: Callable[[str, str], WeightFileError]) -> MlxSettings:
    """The settings in `said`. `wrong(found, legal)` makes the error for values that MLX does not have."""
    default = _module(said, MlxModule(0, 0), "", wrong)
    modules: dict[str, MlxModule | None] = {}
    for name, each in said.items():
        if name in _OWN:
            continue
        if isinstance(each, dict):
            modules[name] = _module(each, default, name, wrong)
        elif each is False:
            modules[name] = None
        elif each is not True:
            raise wrong(f"{inert(name)} {inert(each)}", "an object with bits and group_size, true or false")
    return MlxSettings(default, modules)


def _module(
    said: Mapping[str, object], default: MlxModule, name: str, wrong: Callable[[str, str], WeightFileError]
) -> MlxModule:
    of = f" of {inert(name)}" if name else ""
    bits, size = said.get("bits", default.bits), said.get("group_size", default.group_size)
    mode = said.get("mode", default.mode)
    if isinstance(bits, bool) or bits not in _BITS:
        raise wrong(f"bits{of} {inert(bits)}", " or ".join(map(str, _BITS)))
    if not isinstance(mode, str):
        raise wrong(f"mode{of} {inert(mode)}", "a text, such as affine")
    if isinstance(size, bool) or not isinstance(size, int) or (mode == _AFFINE and size not in _GROUP_SIZES):
        raise wrong(f"group_size{of} {inert(size)}", " or ".join(map(str, _GROUP_SIZES)))
    assert isinstance(bits, int)
    return MlxModule(bits, size, mode)


def found(source: WeightSource, settings: MlxSettings | None, tensor: TensorInfo) -> FoundWords | None:
    """What a tensor of words is; None for any other tensor.

    Raises WeightFileError for words without settings or scales, for shapes that contradict the settings, and for
    numbers that are not finite.
    """
    module, _, leaf = tensor.name.rpartition(".")
    scales, biases = (source.tensor(f"{module}.{each}") for each in ("scales", "biases"))
    if tensor.dtype != WORDS or leaf != "weight" or (settings is None and scales is None):
        return None
    if settings is None:
        legal = "config.json beside the file with `quantization`, which states bits and group_size"
        raise source.error(tensor.name, f"{WORDS} with {inert(module + '.scales')} beside it", legal)
    own = settings.of(module)
    if own is None:
        raise source.error(tensor.name, WORDS, "floats, because config.json has false for this module")
    if scales is None:
        raise source.error(
            tensor.name, f"{WORDS} without scales", f"words with {inert(module + '.scales')} beside them"
        )
    if own.mode != _AFFINE:
        return FoundWords(reason=f"MLX, mode {inert(own.mode)}, which is not ternary")
    if len(tensor.shape) not in {2, 3} or 0 in tensor.shape:
        raise source.error(tensor.name, f"{WORDS} of shape {tensor.shape}", "words (N, K / 16) or (E, N, K / 16)")
    columns, rest = divmod(tensor.shape[-1] * 32, own.bits)
    groups, left = divmod(columns, own.group_size)
    if rest or left or scales.shape != (*tensor.shape[:-1], groups):
        found = f"words of shape {tensor.shape} with scales of shape {scales.shape}"
        legal = f"shapes of {own.bits} bits with a scale for {own.group_size} columns, as config.json states"
        raise source.error(tensor.name, found, legal)
    if own.bits != 2:
        return FoundWords(reason=f"MLX, {own.bits} bits, which is not ternary")
    if biases is None:
        raise source.error(
            tensor.name, f"{WORDS} without biases", f"{inert(module + '.biases')} beside {inert(scales.name)}"
        )
    for each in (scales, biases):
        require_floats(source, each, ((*tensor.shape[:-1], groups),))
    require_understood(source, tensor.name, known=("scales", "biases"))
    values, offsets = (source.read(each.name) for each in (scales, biases))
    check_finite(source, scales.name, values)
    check_finite(source, biases.name, offsets)
    at = first_bias_of_other_codes(values, offsets)
    if at is not None:
        return FoundWords(
            reason=f"MLX, 2 bits, not ternary: bias {offsets[at]:g} beside scale {values[at]:g}, ternary is -scale"
        )
    experts = tensor.shape[0] if len(tensor.shape) == 3 else 0
    words = Words(MLX_Q2, scales, own.group_size, others=(biases,))
    return FoundWords((tensor.shape[-2], columns), experts, words)
