"""Configuration files in every place where loaders look, and tensors beside a matrix."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import Conventions, TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.convert import convert

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
models = import_module("made_up_models")
NAME = "model.layers.0.mlp.up_proj.weight"
CODES = np.random.default_rng(0).integers(-1, 2, (16, 256)).astype(np.int8)
PACKED = {NAME: models.packed_rows(CODES), f"{NAME}_scale": np.array([0.5], np.float32)}
FLOATS = {NAME: CODES * np.float32(0.5)}
HOLDERS = holders_of(installed())
DIVIDES = {"quant_method": "bitnet", "linear_class": "bitlinear"}
MULTIPLIES = {"quant_method": "bitnet", "linear_class": "autobitlinear"}


def written(folder: Path, tensors: dict[str, Any], **files: Any) -> Path:
    """A model with JSON files, named without .json."""
    save_file(tensors, folder / "model.safetensors")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder / "model.safetensors"


def matrices(path: Path, conventions: Conventions | None = None) -> dict[str, tuple[Any, Any]]:
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS, conventions)
        return {each.name: weights.read(each) for each in weights.matrices}


PLACES: dict[str, dict[str, Any]] = {
    "at the top": {"config": {"quantization_config": DIVIDES}},
    "of the text": {"config": {"text_config": {"quantization_config": DIVIDES}}},
    "of another part": {"config": {"llm_config": {"quantization_config": DIVIDES}}},
    "two levels down": {"config": {"thinker_config": {"text_config": {"quantization_config": DIVIDES}}}},
    "a file of its own": {"config": {}, "quantization_config": DIVIDES},
    "quantize_config.json": {"quantize_config": DIVIDES},
    "the same twice": {
        "config": {"quantization_config": DIVIDES, "text_config": {"quantization_config": DIVIDES}},
        "quantization_config": DIVIDES,
    },
    "empty elsewhere": {"config": {"quantization_config": DIVIDES, "vision_config": {"quantization_config": {}}}},
    "without a method": {"config": {"quantization_config": {"linear_class": "bitlinear"}}},
}


@pytest.mark.parametrize("where", PLACES)
def test_a_configuration_is_found(tmp_path: Path, where: str) -> None:
    ((codes, scale),) = matrices(written(tmp_path, PACKED, **PLACES[where])).values()
    np.testing.assert_array_equal(codes, CODES)
    assert scale == 2.0


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"config": {"quantization_config": DIVIDES, "text_config": {"quantization_config": MULTIPLIES}}},
            "contradict",
        ),
        ({"config": {"quantization_config": DIVIDES}, "quantization_config": MULTIPLIES}, "contradict"),
        ({"config": {"quantization_config": {"quant_method": "gptq", "bits": 3}}}, "quant_method 'gptq' (GPTQ"),
        ({"config": {"quantization_config": {"quant_method": "gptq", "bits": 2}}}, "of GPTQ"),
        ({"config": {"text_config": {"quantization_config": {"quant_method": "awq"}}}}, "quant_method 'awq' (AWQ"),
        ({"quantize_config": {"bits": 4, "group_size": 128}}, "quant_method 'gptq'"),
        ({"quant_config": {"w_bit": 4}}, "quant_method 'awq'"),
        ({"config": {"quantization_config": {"quant_method": "compressed-tensors"}}}, "config_groups None"),
        ({"config": {"compression_config": {"format": "pack-quantized"}}}, "config_groups None"),
        ({"config": {"quantization": {"group_size": 128, "bits": 2}}}, "of MLX"),
        ({"config": {"quantization_config": {"group_size": 128, "bits": 2}}}, "of MLX"),
        ({"config": {"quantization": {"group_size": 128, "bits": 2}, "quantization_config": DIVIDES}}, "contradict"),
        ({"config": {"quantization": {"group_size": 48, "bits": 2}}}, "group_size 48; legal: 32 or 64 or 128"),
        ({"config": {"quantization": {"group_size": 64, "bits": 7}}}, "bits 7; legal: 2 or 3"),
        ({"config": {"quantization": {"group_size": 64, "bits": 2, "mode": 3}}}, "mode 3"),
        ({"config": {"quantization": {"group_size": 64, "bits": 2, "lm_head": 3}}}, "'lm_head' 3"),
        ({"config": {"quantization": {"group_size": 64, "bits": 2, "a": {"bits": 9}}}}, "bits of 'a' 9"),
        ({"hf_quant_config": {"quantization": {"quant_algo": "FP8"}}}, "quant_method 'modelopt'"),
        ({"config": {"quantization_config": {"quant_method": "made-up"}}}, "quant_method 'made-up'"),
        ({"config": {"quantization_config": {"quant_method": ["bitnet"]}}}, "quant_method ['bitnet']"),
        ({"config": {"quantization_config": 3}}, "quantization_config 3"),
        ({"config": {"quantization_config": {**DIVIDES, "quantization_mode": "later"}}}, "quantization_mode 'later'"),
        (
            {"config": {"quantization_config": {**DIVIDES, "modules_to_not_convert": "lm_head"}}},
            "modules_to_not_convert",
        ),
        ({"config": {"quantization_config": {**DIVIDES, "modules_to_not_convert": ["a.*b"]}}}, "without patterns"),
    ],
)
@pytest.mark.parametrize("tensors", [PACKED, FLOATS])
def test_a_configuration_that_means_something_else_is_refused(
    tmp_path: Path, tensors: dict[str, Any], files: dict[str, Any], told: str
) -> None:
    with pytest.raises(WeightFileError) as caught:
        matrices(written(tmp_path, tensors, **files))
    assert told in str(caught.value)


def test_the_users_word_settles_an_unknown_class(tmp_path: Path) -> None:
    path = written(tmp_path, PACKED, config={"quantization_config": {**DIVIDES, "linear_class": "newlinear"}})
    with pytest.raises(WeightFileError, match="newlinear"):
        matrices(path)
    ((_, scale),) = matrices(path, Conventions(weight_scale="divide")).values()
    assert scale == 2.0


@pytest.mark.parametrize("kept", ["mlp", "model.layers.0", "up_proj", "model.layers.0.mlp.up_proj"])
def test_modules_that_are_kept_stay_floats(tmp_path: Path, kept: str) -> None:
    config = {"quantization_config": {**MULTIPLIES, "modules_to_not_convert": [kept]}}
    other = {NAME.replace("mlp.up", "self_attn.q").replace("layers.0", "layers.1"): CODES * np.float32(0.25)}
    assert list(matrices(written(tmp_path, {**FLOATS, **other}, config=config))) == list(other)
    with pytest.raises(WeightFileError, match=f"{NAME}.*modules_to_not_convert"):
        matrices(written(tmp_path, PACKED, config=config))


def test_online_quantizes_at_each_call(tmp_path: Path) -> None:
    config = {"quantization_config": {**MULTIPLIES, "quantization_mode": "online"}}
    ((codes, scale),) = matrices(written(tmp_path, FLOATS, config=config)).values()
    np.testing.assert_array_equal(codes, CODES)
    assert scale == np.float32(np.mean(np.abs(FLOATS[NAME]), dtype=np.float64))
    with pytest.raises(InvalidArgumentError, match="--quantize"):
        convert(tmp_path, tmp_path / "out.gguf", "i2_s_x86", HOLDERS)
    with pytest.raises(WeightFileError, match="quantization_mode online"):
        matrices(written(tmp_path, PACKED, config=config))


def test_a_file_that_says_what_its_scales_do_needs_no_configuration(tmp_path: Path) -> None:
    out = tmp_path / "b.safetensors"
    convert(written(tmp_path, PACKED), out, "hf_pack", HOLDERS)
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": DIVIDES}))
    ((_, scale),) = matrices(out).values()
    assert scale == 0.5


@pytest.mark.parametrize(
    "other",
    [
        f"{NAME}_scale_inv",
        f"{NAME}_zero_point",
        f"{NAME}_g_idx",
        f"{NAME}.absmax",
        NAME.replace("weight", "scales"),
        NAME.replace("weight", "qzeros"),
        NAME.replace("weight", "lora_A.weight"),
    ],
)
@pytest.mark.parametrize("tensors", [PACKED, FLOATS, {NAME: PACKED[NAME]}])
def test_what_changes_a_matrix_by_an_unknown_rule_is_refused(
    tmp_path: Path, tensors: dict[str, Any], other: str
) -> None:
    with pytest.raises(WeightFileError) as caught:
        matrices(written(tmp_path, {**tensors, other: np.ones(1, np.float32)}))
    assert repr(other) in str(caught.value)


@pytest.mark.parametrize("shape", [(4096,), (4, 1024, 1)])
def test_bytes_in_place_of_a_linear_layer_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(WeightFileError, match=rf"{NAME}.*uint8 of shape.*legal: packed rows"):
        matrices(written(tmp_path, {NAME: np.zeros(shape, np.uint8)}))


def test_a_bias_and_a_norm_beside_change_nothing(tmp_path: Path) -> None:
    beside = {NAME.replace("weight", each): np.ones(16, np.float32) for each in ("bias", "rms_norm.weight")}
    assert list(matrices(written(tmp_path, {**PACKED, **beside}))) == [NAME]
