"""Read how .safetensors files are quantized, from the configuration files that loaders look for beside them.

- config.json: `quantization_config` at the top or inside any inner configuration (text_config, ...),
  `compression_config` of compressed-tensors, `quantization` of MLX.
- Separate files: quantization_config.json, quantize_config.json (GPTQ), quant_config.json (AWQ),
  hf_quant_config.json (ModelOpt).

BitNet (integrations/bitnet.py of transformers): `linear_class` autobitlinear multiplies by weight_scale; bitlinear,
the default, divides. `quantization_mode` online has no weight_scale and quantizes floats by absmean in each call.
`modules_to_not_convert` stay floats. mlx.py, compressed_tensors.py and gptq.py read the settings of those methods. All
others are refused, because their tensors are not ternary codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights import compressed_tensors, gptq, mlx
from tritmark.harness.weights.compressed_tensors import CompressedSettings
from tritmark.harness.weights.gptq import GptqSettings
from tritmark.harness.weights.mlx import MlxSettings
from tritmark.harness.weights.names import inert, inert_path
from tritmark.harness.weights.small_json import CONFIGURATIONS, read_json

MULTIPLY, DIVIDE = "multiply", "divide"
OFFLINE, ONLINE = "offline", "online"

_CLASSES = {"autobitlinear": MULTIPLY, "bitlinear": DIVIDE}
_OWN = {"quantize_config.json": "gptq", "quant_config.json": "awq", "hf_quant_config.json": "modelopt"}
"""The method that each separate file implies when it names none."""
_KNOWN = {
    "awq": "AWQ: integers of 4 bits with zero points",
    "bitsandbytes": "bitsandbytes: NF4, FP4 or int8",
    "fp8": "float8 with scales",
    "modelopt": "ModelOpt of NVIDIA",
}
_IMPLIED = {"quantization": {"quant_method": "mlx"}, "compression_config": {"quant_method": "compressed-tensors"}}
"""By the key in config.json."""
_LARGEST = 1 << 20
_DEPTH = 4
_PATTERN = frozenset("*+?[](){}|^$\\")


@dataclass(frozen=True, slots=True)
class Quantization:
    """The settings of a BitNet configuration."""

    weight_scale: str = MULTIPLY
    """multiply or divide; "" for an unknown linear_class."""
    mode: str = OFFLINE
    kept: frozenset[str] = frozenset()
    """Modules that stay floats."""
    mlx: MlxSettings | None = None
    compressed: CompressedSettings | None = None
    gptq: GptqSettings | None = None
    """The settings of other methods, whose floats all stay floats."""

    @property
    def words(self) -> str:
        """The name of the method whose words hold the codes; "" for BitNet."""
        methods = {"MLX": self.mlx, "compressed-tensors": self.compressed, "GPTQ": self.gptq}
        return next((name for name, settings in methods.items() if settings is not None), "")

    def keeps(self, name: str) -> bool:
        """Whether the tensor is in a module that stays floats, by the rule of transformers (should_convert_module)."""
        if self.words:
            return True
        module = name.rpartition(".")[0]
        return any(module.startswith(each) or module.endswith(each) or f"{each}." in module for each in self.kept)


NONE = Quantization()
"""The settings without a configuration."""


def configuration_of(folder: Path, *, asked: bool = False) -> Quantization:
    """The settings of the files in `folder`; NONE without any.

    With `asked` the user has given the direction of weight_scale, so an unknown linear_class is no error. Raises
    WeightFileError for files that cannot be read, that contradict each other, or that name a method that is not read.
    """
    first: tuple[str, Quantization] | None = None
    for place, said in _places(folder):
        found = _described(folder, place, said, asked)
        if first is not None and found != first[1]:
            text = f"{place} and {first[0]} contradict each other: {_shown(found)}, {_shown(first[1])}"
            raise WeightFileError(path=inert_path(folder), found=text, legal="files that agree; correct one")
        first = first or (place, found)
    return first[1] if first is not None else NONE


def _places(folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Every quantization that the files describe, with its place."""
    for file in CONFIGURATIONS:
        path = folder / file
        if not path.exists():
            continue
        config = read_json(path, _LARGEST)
        if not isinstance(config, dict):
            continue
        if file == "config.json":
            yield from _within(path, config, file, 0)
            continue
        inner = config.get("quantization")
        said = inner if file == "hf_quant_config.json" and isinstance(inner, dict) else config
        yield file, {"quant_method": _OWN[file], **said} if file in _OWN else said


def _within(path: Path, config: dict[str, object], place: str, depth: int) -> Iterator[tuple[str, dict[str, object]]]:
    for key, inner in config.items():
        here = f"{place}: {key}"
        if key == "quantization_config" or key in _IMPLIED:
            if inner is None or inner == {}:
                continue
            if not isinstance(inner, dict):
                raise WeightFileError(path=inert_path(path), found=f"{key} {inert(inner)}", legal="an object")
            yield here, {**_IMPLIED.get(key, {}), **inner}
        elif isinstance(inner, dict) and depth < _DEPTH:
            yield from _within(path, inner, f"{place}: {inert(key)}", depth + 1)


def _described(folder: Path, place: str, said: dict[str, object], asked: bool) -> Quantization:
    def wrong(found: str, legal: str) -> WeightFileError:
        return WeightFileError(path=inert_path(folder), found=f"{place}: {found}", legal=legal)

    own = "linear_class" in said or "quantization_mode" in said
    method = said.get("quant_method", "bitnet" if own else _unnamed(said))
    if method == "mlx":
        return Quantization(mlx=mlx.settings_of(said, wrong))
    if method == "compressed-tensors":
        return Quantization(compressed=compressed_tensors.settings_of(said, wrong))
    if method == "gptq":
        return Quantization(gptq=gptq.settings_of(said, wrong))
    if method != "bitnet":
        known = _KNOWN.get(method, "") if isinstance(method, str) else ""
        text = f"quant_method {inert(method)}" + (f" ({known})" if known else "")
        raise wrong(
            f"{text}, whose tensors tritmark cannot read as ternary codes",
            "quant_method bitnet, mlx, compressed-tensors or gptq with 2 bits, or none",
        )
    linear_class = said.get("linear_class", "bitlinear")
    if not isinstance(linear_class, str) or (linear_class not in _CLASSES and not asked):
        raise wrong(f"linear_class {inert(linear_class)}", f"{' or '.join(_CLASSES)}; or pass --weight-scale")
    mode = said.get("quantization_mode", OFFLINE)
    if mode not in {OFFLINE, ONLINE}:
        raise wrong(f"quantization_mode {inert(mode)}", f"{OFFLINE} or {ONLINE}")
    kept = said.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or not all(isinstance(each, str) and each for each in kept):
        raise wrong(f"modules_to_not_convert {inert(kept)}", "a list of module names")
    for each in kept:
        if _PATTERN & set(each):
            raise wrong(f"modules_to_not_convert has {inert(each)}", "names without patterns")
    return Quantization(_CLASSES.get(linear_class, ""), str(mode), frozenset(kept))


def _unnamed(said: dict[str, object]) -> object:
    """The method of a description without a quant_method."""
    if "bits" in said or "group_size" in said:
        return "mlx"
    return "bitnet" if set(said) <= {"modules_to_not_convert", "use_rms_norm", "rms_norm_eps"} else None


def _shown(found: Quantization) -> str:
    if found.mlx is not None:
        default, others = found.mlx.default, len(found.mlx.modules)
        return f"MLX with {default.bits} bits in groups of {default.group_size}, and {others} modules that differ"
    if found.compressed is not None:
        return f"compressed-tensors with {' and '.join(f'{each.bits} bits' for each in found.compressed.schemes)}"
    if found.gptq is not None:
        size = found.gptq.group_size
        return f"GPTQ with {f'groups of {size}' if size else 'a scale for each row'}, zero points + {found.gptq.added}"
    kept = ", ".join(map(inert, sorted(found.kept))) or "no module"
    return f"{found.weight_scale or 'another linear_class'}, {found.mode}, {kept} kept as floats"
