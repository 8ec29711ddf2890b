"""Ternary weights in files as published: codes and scales are unchanged."""

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
from gguf.constants import GGMLQuantizationType
from safetensors.numpy import load_file, save_file

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import Conventions, TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.published_names import gguf_name, hf_name, is_linear

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
models = import_module("made_up_models")
SMALL = models.SMALL


def check(path: Path, model: Any = SMALL, conventions: Conventions | None = None) -> set[str]:
    """Check that every matrix has the model's codes and scales; returns their types."""
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()), conventions)
        found = {gguf_name(each.name): each for each in weights.matrices}
        assert list(found) == [f"{name}.weight" for name, _ in model.matrices()] or path.suffix != ".gguf"
        assert set(found) == {f"{name}.weight" for name, _ in model.matrices()}
        for name, shape in model.matrices():
            codes, scale = weights.read(found[f"{name}.weight"])
            np.testing.assert_array_equal(codes, model.codes(name, shape), strict=True)
            assert (np.asarray(scale) == model.scale(name)).all()
        return {each.dtype for each in weights.matrices}


def test_i2_s_is_that_of_x86_unless_told(tmp_path: Path) -> None:
    assert check(models.write_gguf(tmp_path / "m.gguf", SMALL)) == {"i2_s"}
    arm = models.write_gguf(tmp_path / "arm.gguf", SMALL, lane=16)
    check(arm, conventions=Conventions(layout="arm"))
    with pytest.raises(AssertionError):
        check(arm)
    with pytest.raises(InvalidArgumentError, match="legal: x86 or arm or x86_r4"):
        check(arm, conventions=Conventions(layout="ppc"))


@pytest.mark.parametrize("kind", [GGMLQuantizationType.TQ1_0, GGMLQuantizationType.TQ2_0])
def test_types_of_ggml(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    assert check(models.write_gguf(tmp_path / "m.gguf", SMALL, int(kind))) == {kind.name.lower()}


@pytest.mark.parametrize("kind", ["Q2_0", "IQ1_BN", "IQ2_BN", "IQ2_BN_R4"])
def test_types_that_the_gguf_package_does_not_know(tmp_path: Path, kind: str) -> None:
    assert check(models.write_gguf(tmp_path / "m.gguf", SMALL, getattr(models, kind))) == {kind.lower()}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
def test_packed_rows(tmp_path: Path, dtype: Any) -> None:
    assert check(models.write_safetensors(tmp_path / "m.safetensors", SMALL, dtype=dtype)) == {"packed_rows"}


def test_shards_with_their_configuration(tmp_path: Path) -> None:
    check(models.write_shards(tmp_path / "model", SMALL))


def test_master_weights_have_the_models_own_rule(tmp_path: Path) -> None:
    path = models.write_masters(tmp_path / "m.safetensors", SMALL)
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()))
        assert len(weights.matrices) == 14
        assert {(each.dtype, each.format) for each in weights.matrices} == {("bfloat16", "")}
        for info in weights.matrices:
            codes, scale = weights.read(info)
            name = gguf_name(info.name).removesuffix(".weight")
            np.testing.assert_array_equal(codes, SMALL.codes(name, info.shape))
            assert scale == np.float32(np.mean(np.abs(source.read(info.name)), dtype=np.float64))


def test_floats_that_are_ternary_are_read_as_they_are(tmp_path: Path) -> None:
    assert check(models.write_exact(tmp_path / "m.safetensors", SMALL)) == {"bfloat16"}


def configured(**quantization: Any) -> str:
    return json.dumps({"quantization_config": {"quant_method": "bitnet", **quantization}})


@pytest.mark.parametrize(
    ("config", "divides"),
    [
        (configured(linear_class="bitlinear"), True),
        (configured(), True),
        (configured(linear_class="autobitlinear"), False),
        ("{}", False),
        ("[]", False),
    ],
)
def test_the_configuration_says_what_weight_scale_does(tmp_path: Path, config: str, divides: bool) -> None:
    model = models.Model(layers=1, width=256, kv=64, ffn=512)
    tensors = models.packed_tensors(model, dtype=np.float32)
    for name in tensors:
        if name.endswith("_scale"):
            tensors[name] = np.array([0.25], np.float32)
    save_file(tensors, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(config)
    for conventions, scale in ((None, 4.0 if divides else 0.25), (Conventions(weight_scale="divide"), 4.0)):
        with open_weights(tmp_path / "m.safetensors") as source:
            weights = TernaryWeights(source, holders_of(installed()), conventions)
            assert {float(weights.read(each)[1]) for each in weights.matrices} == {scale}


def _without_scale(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in tensors.items() if name != "model.layers.0.mlp.up_proj.weight_scale"}


def _with_scale(value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda tensors: {**tensors, "model.layers.0.mlp.up_proj.weight_scale": value}


def _field_3(tensors: dict[str, Any]) -> dict[str, Any]:
    tensors["model.layers.0.mlp.up_proj.weight"][2, 5] = 0b00110000
    return tensors


def read_all(path: Path) -> None:
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(installed()))
        for each in weights.matrices:
            weights.read(each)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without_scale, "uint8 without a scale"),
        (_with_scale(np.ones(2, np.float32)), r"float32 of shape \(2,\); legal: one float"),
        (_with_scale(np.ones(1, np.int32)), "int32"),
        (_with_scale(np.array([np.nan], np.float32)), "nan; legal: a number with a finite result >= 0"),
        (_with_scale(np.array([-1], np.float32)), "-1.0; legal: a number with a finite result >= 0"),
        (_field_3, r"field 3 for the weight at \(258, 5\)"),
    ],
)
def test_packed_rows_that_cannot_be(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], told: str
) -> None:
    save_file(change(models.packed_tensors(SMALL)), tmp_path / "m.safetensors")
    with pytest.raises(WeightFileError, match=told) as caught:
        read_all(tmp_path / "m.safetensors")
    assert "model.layers.0.mlp.up_proj" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "told"),
    [("{", "not JSON"), ("[" * 100_000, "not JSON"), (configured(linear_class="other"), "linear_class 'other'")],
)
def test_a_configuration_that_cannot_be_read(tmp_path: Path, config: str, told: str) -> None:
    models.write_safetensors(tmp_path / "m.safetensors", SMALL)
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(WeightFileError, match=told):
        check(tmp_path / "m.safetensors")


def test_what_is_asked_for_must_matter(tmp_path: Path) -> None:
    models.write_safetensors(tmp_path / "m.safetensors", SMALL)
    models.write_gguf(tmp_path / "m.gguf", SMALL)
    with pytest.raises(InvalidArgumentError, match="has no tensor with several layouts"):
        check(tmp_path / "m.safetensors", conventions=Conventions(layout="arm"))
    with pytest.raises(InvalidArgumentError, match="has no scales beside packed rows"):
        check(tmp_path / "m.gguf", conventions=Conventions(weight_scale="divide"))


def test_a_format_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    models.write_gguf(tmp_path / "m.gguf", SMALL)
    with open_weights(tmp_path / "m.gguf") as source:
        weights = TernaryWeights(source, holders_of(installed())._replace(formats={}))
        with pytest.raises(WeightFileError, match=r"blk\.0\.attn_q\.weight.*format 'i2_s_x86', which is not installed"):
            weights.read(weights.matrices[0])


def test_floats_beside_codes_stay_floats(tmp_path: Path) -> None:
    tensors = models.packed_tensors(SMALL)
    name = "model.layers.0.mlp.up_proj.weight"
    del tensors[f"{name}_scale"]
    tensors[name] = np.ones((512, 256), np.float32)
    save_file(tensors, tmp_path / "m.safetensors")
    with open_weights(tmp_path / "m.safetensors") as source:
        weights = TernaryWeights(source, holders_of(installed()))
        assert len(weights.matrices) == 13
        assert weights.matrix(name) is None


def test_published_names_are_translated_both_ways(tmp_path: Path) -> None:
    names = [f"{name}.weight" for name, _ in SMALL.matrices()] + [*SMALL.others()]
    theirs = [f"{models.hf_name(name.removesuffix('.weight'))}.weight" for name in names]
    assert [hf_name(name) for name in names] == theirs == [hf_name(name) for name in theirs]
    assert [gguf_name(name) for name in theirs] == names == [gguf_name(name) for name in names]
    assert [is_linear(name) for name in names] == [is_linear(name) for name in theirs]
    assert sum(map(is_linear, names)) == 14
    for name in ("rope_freqs.weight", "weight", "", "blk.0.other.weight", "model.layers.x.mlp.up_proj.weight"):
        assert gguf_name(name) == hf_name(name) == name
    assert gguf_name("model.layers.3.mlp.ffn_layernorm.weight") == "blk.3.ffn_sub_norm.weight"


def test_the_made_up_model_is_packed_as_the_golden_vectors_are() -> None:
    golden = Path(__file__).parents[2] / "golden"
    with np.load(golden / "hf_a.npz") as vector:
        np.testing.assert_array_equal(models.packed_rows(vector["weights"]), vector["packed"])
    for name, lane in (("i2s_x86_rand", 32), ("i2s_arm_rand", 16)):
        with np.load(golden / f"{name}.npz") as vector:
            found = models.i2_s(vector["weights"], np.float32(vector["scale"]), lane)
            np.testing.assert_array_equal(found, vector["packed"])
    for name in ("q2_0", "iq1_bn", "iq2_bn", "iq2_bn_r4"):
        with np.load(golden / f"{name}_rand.npz") as vector:
            found = getattr(models, name)(vector["weights"], np.abs(vector["x"]).max())
            np.testing.assert_array_equal(found, vector["packed"].reshape(-1))


def test_masters_are_stored_as_the_library_reads_them(tmp_path: Path) -> None:
    path = models.write_masters(tmp_path / "m.safetensors", SMALL)
    with open_weights(path) as source:
        for name, array in load_file(path).items():
            assert b"".join(map(bytes, source.chunks(name))) == array.tobytes() == source.read_bytes(name).tobytes()
