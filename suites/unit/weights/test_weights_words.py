"""Words of MLX and compressed-tensors that contradict their configuration, or are not ternary."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import Conventions, TernaryWeights, holders_of, open_weights

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families = import_module("model_families")
HOLDERS = holders_of(installed())
Q = "model.layers.0.self_attn.q_proj"
Change = Callable[[dict[str, Any], dict[str, Any]], object]
"""Changes tensors, and the object of config.json that describes them."""


def opened(path: Path) -> tuple[dict[str, str], list[str]]:
    """Why tensors are not ternary, and the names of all ternary matrices, which are read in full."""
    with open_weights(path) as source:
        weights = TernaryWeights(source, HOLDERS)
        weights.require_finite()
        for info in weights.matrices:
            for expert in info.expert_numbers:
                weights.read(info, expert)
        return dict(weights.not_ternary), [each.name for each in weights.matrices]


def changed(made: Any, change: Change) -> Path:
    """The model of one file after a change."""
    place, file = made.path / "config.json", made.path / "model.safetensors"
    config, tensors = json.loads(place.read_text()), load_file(file)
    quantization = config.get("quantization") or config["quantization_config"]
    change(tensors, quantization)
    if "quantization" in config:
        config["quantization_config"] = quantization
    place.write_text(json.dumps(config))
    save_file(tensors, file)
    return Path(made.path)


def put(name: str, value: Any) -> Change:
    """Put a tensor, or the changed one, in place of another."""

    def change(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        tensors[name] = value(tensors[name]) if callable(value) else value

    return change


def without(name: str) -> Change:
    return lambda tensors, config: tensors.pop(name)


def said(**settings: Any) -> Change:
    return lambda tensors, config: config.update(settings)


def of_weights(**settings: Any) -> Change:
    return lambda tensors, config: config["config_groups"]["group_0"]["weights"].update(settings)


def with_value(index: tuple[int, ...], value: Any) -> Callable[[Any], Any]:
    def change(stored: Any) -> Any:
        found = stored.copy()
        found[index] = value
        return found

    return change


MLX: dict[str, tuple[Change, str]] = {
    "no scales": (without(f"{Q}.scales"), "uint32 without scales"),
    "no biases": (without(f"{Q}.biases"), "uint32 without biases"),
    "another group size": (said(group_size=64), "a scale for 64 columns, as config.json states"),
    "an unknown group size": (said(group_size=100), "group_size 100; legal: 32 or 64 or 128"),
    "no group size": (said(group_size=None), "group_size None"),
    "no bits": (said(bits=None), "bits None"),
    "4 bits": (said(bits=4), "shapes of 4 bits"),
    "true bits": (said(bits=True), "bits True"),
    "a module that is not quantized": (said(**{Q: False}), "floats, because config.json has false"),
    "a module of 4 bits": (said(**{Q: {"bits": 4, "group_size": 128}}), "shapes of 4 bits"),
    "scales cut": (put(f"{Q}.scales", lambda each: each[:, :1].copy()), "words of shape"),
    "biases cut": (put(f"{Q}.biases", lambda each: each[:-1].copy()), "float16 of shape (255, 2)"),
    "integer scales": (put(f"{Q}.scales", np.ones((256, 2), np.int32)), "int32 of shape"),
    "a NaN scale": (put(f"{Q}.scales", with_value((3, 1), np.nan)), "nan at [3, 1]"),
    "an infinite bias": (put(f"{Q}.biases", with_value((3, 1), -np.inf)), "-inf at [3, 1]"),
    "field 3": (put(f"{Q}.weight", with_value((5, 2), 0xFFFFFFFF)), "field 3 for the weight at (5, 32)"),
    "one axis": (put(f"{Q}.weight", np.zeros(16, np.uint32)), "uint32 of shape (16,)"),
    "no rows": (put(f"{Q}.weight", np.zeros((0, 16), np.uint32)), "uint32 of shape (0, 16)"),
    "an adapter": (put(f"{Q}.lora_A.weight", np.zeros((2, 2), np.float32)), "lora_A"),
    "a scale of BitNet": (put(f"{Q[:-6]}k_proj.weight_scale", np.ones(1, np.float32)), ""),
}


@pytest.mark.parametrize("what", MLX)
def test_mlx_words_that_contradict_are_refused(tmp_path: Path, what: str) -> None:
    change, told = MLX[what]
    made = families.mlx(tmp_path / "m")
    if not told:
        assert set(opened(changed(made, change))[1]) == set(made.truth)
        return
    with pytest.raises(WeightFileError) as caught:
        opened(changed(made, change))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put(f"{Q}.biases", lambda each: each * 2), "MLX, 2 bits, not ternary: bias"),
        (put(f"{Q}.biases", with_value((255, 1), 0.5)), "MLX, 2 bits, not ternary: bias 0.5 beside scale"),
        (said(**{Q: {"bits": 2, "group_size": 128, "mode": "mxfp2"}}), "MLX, mode 'mxfp2'"),
    ],
)
def test_mlx_modules_that_are_not_ternary_are_listed(tmp_path: Path, change: Change, told: str) -> None:
    made = families.mlx(tmp_path / "m")
    reasons, names = opened(changed(made, change))
    assert set(reasons) == {f"{Q}.{each}" for each in ("weight", "scales", "biases")}
    assert all(each.startswith(told) for each in reasons.values())
    assert set(names) == set(made.truth) - {f"{Q}.weight"}


def test_mlx_words_without_a_configuration_are_refused(tmp_path: Path) -> None:
    made = families.mlx(tmp_path / "m")
    (made.path / "config.json").unlink()
    with pytest.raises(WeightFileError, match="which states bits and group_size"):
        opened(made.path)


def test_what_mlx_quantizes_itself_is_not_ternary(tmp_path: Path) -> None:
    form: Any = HOLDERS.formats["mlx_q2"]
    x = families.ternary(Q, (256, 256), 128)[0].astype(np.float32)
    found = form.quantize_affine(x, group_size=128)
    own = {"weight": found.packed.view("<u4"), "scales": found.scales, "biases": found.biases}

    def change(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        tensors.update({f"{Q}.{name}": each for name, each in own.items()})

    reasons, _ = opened(changed(families.mlx(tmp_path / "m"), change))
    assert reasons[f"{Q}.weight"].startswith("MLX, 2 bits, not ternary")


PACKED, SCALE, SHAPE = (f"{Q}.weight_{each}" for each in ("packed", "scale", "shape"))
COMPRESSED: dict[str, tuple[Change, str]] = {
    "no scale": (without(SCALE), "words without"),
    "no shape": (without(SHAPE), "words without"),
    "another shape": (put(SHAPE, np.array([256, 512])), "words of shape"),
    "another number of rows": (put(SHAPE, np.array([255, 256])), "the words of weights of shape (255, 256)"),
    "a negative shape": (put(SHAPE, np.array([-256, 256])), "numbers above 0"),
    "a shape of floats": (put(SHAPE, np.array([256.0, 256.0])), "float64 of shape (2,)"),
    "a shape of one number": (put(SHAPE, np.array([65536])), "int64 of shape (1,)"),
    "words of 8 bits": (put(PACKED, lambda each: each.view(np.uint8)), "uint8 of shape (256, 64)"),
    "4 bits stated": (of_weights(num_bits=4), "words of 4 bits"),
    "no bits": (of_weights(num_bits=None), "num_bits None"),
    "floats stated": (of_weights(type="float"), "type 'float'"),
    "another group": (of_weights(group_size=64), "floats of shape (256, 8)"),
    "a group that does not divide": (
        of_weights(group_size=96),
        "group_size 96 in the configuration; legal: a divisor of",
    ),
    "a group of 0": (of_weights(group_size=0), "group_size 0"),
    "a group without a size": (of_weights(group_size=None), "group_size None beside strategy group"),
    "another strategy": (of_weights(strategy="block"), "strategy 'block'"),
    "zero points stated": (of_weights(symmetric=False), "no zero points"),
    "another format": (said(format="marlin-24"), "format 'marlin-24'"),
    "no groups": (said(config_groups={}), "config_groups {}"),
    "a group without weights": (said(config_groups={"a": {}}), "without weights"),
    "scales cut": (put(SCALE, lambda each: each[:, :1].copy()), "bfloat16 of shape (256, 1)"),
    "a NaN scale": (put(SCALE, with_value((3, 1), np.nan)), "nan at [3, 1]"),
    "a field of -2": (put(PACKED, with_value((5, 2), 0)), "field 0 for the weight at (5, 32)"),
}


@pytest.mark.parametrize("what", COMPRESSED)
def test_words_of_compressed_tensors_that_contradict_are_refused(tmp_path: Path, what: str) -> None:
    change, told = COMPRESSED[what]
    with pytest.raises(WeightFileError) as caught:
        opened(changed(families.compressed_tensors(tmp_path / "m", 128), change))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("other", "words", "told"),
    [
        ("zero_point", np.zeros((16, 2), np.int32), "not ternary: zero point -2, ternary is -1 or 0"),
        ("g_idx", np.zeros(256, np.int32), "permuted columns"),
    ],
)
def test_words_with_another_meaning_are_listed(tmp_path: Path, other: str, words: Any, told: str) -> None:
    made = families.compressed_tensors(tmp_path / "m", 128, point=-1)
    reasons, names = opened(changed(made, put(f"{Q}.weight_{other}", words)))
    assert set(reasons) == {PACKED, SCALE, SHAPE, f"{Q}.weight_zero_point", f"{Q}.weight_{other}"}
    assert told in reasons[PACKED]
    assert set(names) == set(made.truth) - {PACKED}


POINTS: dict[str, tuple[Change, str]] = {
    "no zero points": (without(f"{Q}.weight_zero_point"), "no zero points"),
    "symmetric stated": (of_weights(symmetric=True), "has symmetric true"),
    "zero points along K": (put(f"{Q}.weight_zero_point", np.zeros((256, 1), np.int32)), "int32 of shape (256, 1)"),
    "zero points of bytes": (put(f"{Q}.weight_zero_point", np.zeros((16, 2), np.int8)), "int8 of shape (16, 2)"),
    "a code of 2": (put(PACKED, with_value((5, 2), 0x7FFFFFFF)), "field 3 with zero point 1 at (5, 32)"),
}


@pytest.mark.parametrize("what", POINTS)
def test_zero_points_of_compressed_tensors_that_contradict_are_refused(tmp_path: Path, what: str) -> None:
    change, told = POINTS[what]
    with pytest.raises(WeightFileError) as caught:
        opened(changed(families.compressed_tensors(tmp_path / "m", 128, point=-1), change))
    assert told in str(caught.value)


WORDS_OF_GPTQ, ZEROS, ORDER = (f"{Q}.{each}" for each in ("qweight", "qzeros", "g_idx"))
GPTQ: dict[str, tuple[Change, str]] = {
    "no scales": (without(f"{Q}.scales"), "words without"),
    "no zero points": (without(ZEROS), "words without"),
    "scales by row": (put(f"{Q}.scales", np.ones((256, 2), np.float16)), "float16 of shape (256, 2)"),
    "a NaN scale": (put(f"{Q}.scales", with_value((1, 3), np.nan)), "nan at [1, 3]"),
    "zero points along K": (put(ZEROS, np.zeros((256, 1), np.int32)), "int32 of shape (256, 1)"),
    "words of 8 bits": (put(WORDS_OF_GPTQ, np.zeros((16, 256), np.uint8)), "uint8 of shape (16, 256)"),
    "an order of other columns": (put(ORDER, np.zeros(100, np.int32)), "of shape (100,)"),
    "an order of floats": (put(ORDER, np.zeros(256, np.float32)), "float32"),
    "a group that does not divide": (said(group_size=96), "columns with group_size 96"),
    "a group of 0": (said(group_size=0), "group_size 0"),
    "4 bits": (said(bits=4), "bits 4"),
    "true bits": (said(bits=True), "bits True"),
    "another format": (said(checkpoint_format="marlin"), "checkpoint_format 'marlin'; legal: gptq or gptq_v2"),
    "two formats": (said(format="gptq_v2"), "checkpoint_format 'gptq' and 'gptq_v2'"),
    "a field of -2": (put(WORDS_OF_GPTQ, with_value((2, 5), 0)), "field 0 with zero point 2 at (5, 32)"),
    "two meanings": (put(WORDS_OF_GPTQ, np.full((16, 256), 0x5A5A5A5A, np.int32)), "both of gptq and of gptq_v2"),
    "the second format stated": (said(checkpoint_format="gptq_v2"), "of gptq and not of gptq_v2, which"),
}


@pytest.mark.parametrize("what", GPTQ)
def test_words_of_gptq_that_contradict_are_refused(tmp_path: Path, what: str) -> None:
    change, told = GPTQ[what]
    with pytest.raises(WeightFileError) as caught:
        opened(changed(families.gptq(tmp_path / "m"), change))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put(ORDER, with_value((3,), 1)), "columns in another order (g_idx)"),
        (put(ORDER, np.zeros(128, np.int32)), "GPTQ, 4 bits"),
        (put(ZEROS, np.full((2, 16), -1, np.int32)), "zero point 4, ternary is 1 or 2"),
    ],
)
def test_words_of_gptq_that_are_not_ternary_are_listed(tmp_path: Path, change: Change, told: str) -> None:
    made = families.gptq(tmp_path / "m")
    reasons, names = opened(changed(made, change))
    assert set(reasons) == {WORDS_OF_GPTQ, ZEROS, ORDER, f"{Q}.scales"}
    assert told in reasons[WORDS_OF_GPTQ]
    assert set(names) == set(made.truth) - {WORDS_OF_GPTQ}


def test_words_of_gptq_without_a_configuration_are_refused(tmp_path: Path) -> None:
    made = families.gptq(tmp_path / "m")
    (made.path / "config.json").unlink()
    with pytest.raises(WeightFileError, match="quant_method gptq and bits 2"):
        opened(made.path)


def test_the_first_format_stated_over_zero_points_of_the_second_is_refused(tmp_path: Path) -> None:
    """As in vllm-project/vllm#38966."""
    made = families.gptq(tmp_path / "m", 128, 1, "gptq_v2")
    with pytest.raises(WeightFileError, match="of gptq_v2 and not of gptq, which the configuration states"):
        opened(changed(made, said(checkpoint_format="gptq")))


def test_words_of_gptq_without_an_order(tmp_path: Path) -> None:
    made = families.gptq(tmp_path / "m")
    names = opened(changed(made, without(ORDER)))[1]
    assert set(names) == set(made.truth)


def test_words_of_4_bits_are_listed(tmp_path: Path) -> None:
    def change(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        group = config["config_groups"]["group_0"]
        config["config_groups"]["group_1"] = {**group, "weights": {**group["weights"], "num_bits": 4}}
        tensors[PACKED] = np.zeros((256, 32), np.int32)

    reasons, _ = opened(changed(families.compressed_tensors(tmp_path / "m", 128), change))
    assert set(reasons.values()) == {"compressed-tensors, 4 bits, which is not ternary"}


def test_words_without_a_configuration_are_refused(tmp_path: Path) -> None:
    made = families.compressed_tensors(tmp_path / "m", 128)
    (made.path / "config.json").unlink()
    with pytest.raises(WeightFileError, match="quant_method compressed-tensors"):
        opened(made.path)


def test_ragged_rows_of_words(tmp_path: Path) -> None:
    """K that is no multiple of a word."""
    codes, scales = families.ternary("ragged", (5, 40), 40)
    padded = np.pad(codes + 2, ((0, 0), (0, 8))).astype(np.int8) - 2
    tensors = {
        PACKED: families.fields(padded, 2).view("<i4"),
        SCALE: scales.astype(ml_dtypes.bfloat16),
        SHAPE: np.array(codes.shape, np.int32),
    }
    made = families.compressed_tensors(tmp_path / "m", None)
    with open_weights(changed(made, lambda there, config: there.update(tensors))) as source:
        weights = TernaryWeights(source, HOLDERS)
        info = weights.matrix(PACKED)
        assert info is not None
        found, scale = weights.read(info)
    np.testing.assert_array_equal(found, codes)
    np.testing.assert_array_equal(scale, scales[:, 0])


@pytest.mark.parametrize("write", [families.mlx, lambda at: families.compressed_tensors(at, 128)])
def test_a_truncated_file_and_a_needless_convention_are_refused(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    made = write(tmp_path / "m")
    with open_weights(made.path) as source, pytest.raises(InvalidArgumentError, match="weight_scale"):
        TernaryWeights(source, HOLDERS, Conventions(weight_scale="divide"))
    file = made.path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(WeightFileError, match=r"bytes of data|data_offsets"):
        opened(made.path)
