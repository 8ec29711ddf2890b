"""Every family of 2026 is read as what it is, or refused by name: `model_families` knows what is in its files."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.compare import compare
from tritmark.harness.weights.convert import convert
from tritmark.harness.weights.gguf_values import value_of
from tritmark.harness.weights.left_out import judged, left_out, reads_of
from tritmark.harness.weights.scales import by_row

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families = import_module("model_families")
HOLDERS = holders_of(installed())


def of(folder: Path, name: str) -> Any:
    if "onnx" in name:
        pytest.importorskip("onnx", reason="onnx is not installed; tox -e peers has it")
    return families.FAMILIES[name](folder)


def repeated(scales: Any, columns: int) -> Any:
    return np.repeat(scales, columns // scales.shape[-1], axis=-1)


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_is_read_as_what_it_is(tmp_path: Path, name: str) -> None:
    made = of(tmp_path, name)
    if made.refused:
        with pytest.raises(WeightFileError, match=made.refused), open_weights(made.path) as source:
            TernaryWeights(source, HOLDERS)
        return
    with open_weights(made.path) as source:
        weights = TernaryWeights(source, HOLDERS)
        weights.require_finite()
        assert {each.name for each in weights.matrices} == set(made.truth)
        for info in weights.matrices:
            codes, scales = made.truth[info.name]
            assert info.stored_shape == codes.shape
            for expert in info.expert_numbers:
                found, scale = weights.read(info, expert)
                at = expert if info.experts else ...
                np.testing.assert_array_equal(found, codes[at], strict=True)
                if scales is not None:
                    one = by_row(scale, info.shape)
                    np.testing.assert_array_equal(repeated(one, info.shape[1]), repeated(scales[at], info.shape[1]))
        assert set(weights.not_ternary) == set(made.not_ternary)
        reads = reads_of(weights)
        assert reads == {each: made.reads.get(each, 1) for each in made.truth}
        names = {each.name for each in judged(weights)}
        rest = {each for listed in left_out(weights, names) for each in listed.names}
        beside = {each.name for each in source.tensors} - weights.scales
        assert names | rest == beside
        assert names >= {each for each in made.truth if "embed" not in each and "token_embd" not in each}


@pytest.mark.parametrize("name", [each for each in families.FAMILIES if "bitnet, masters" not in each])
def test_a_family_equals_itself_and_no_other(tmp_path: Path, name: str) -> None:
    made = of(tmp_path, name)
    if not made.refused:
        found = compare(made.path, made.path, HOLDERS)
        assert found.differences == ()
        stored = sum(len(codes) if codes.ndim == 3 else 1 for codes, _ in made.truth.values())
        assert found.matrices == (0 if name in {"maple, hf", "bitcpm4"} else stored)  # floats are compared as floats


def test_experts_are_the_same_in_one_tensor_and_in_several(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    stacked = families.experts_gguf(tmp_path / "maple.gguf", "maple")
    names = {f"blk.0.ffn_{part}_exps.weight": part for part in families.OF_EXPERTS}
    tensors = {}
    for name, part in names.items():
        codes, scales = stacked.truth[name]
        for expert in range(families.EXPERTS):
            key = f"model.layers.0.mlp.experts.{expert}.{part}_proj.weight"
            tensors[key] = families.values(codes[expert], scales[expert])
    folder = families.folder(tmp_path / "hf", tensors, {})
    differences = compare(stacked.path, folder, HOLDERS).differences
    assert {each.what for each in differences} == {"name"}
    assert {each.name for each in differences} == {
        "blk.0.attn_q.weight",
        "blk.0.ffn_up_shexp.weight",
        "blk.0.ffn_gate_inp.weight",
    }
    changed = tensors["model.layers.0.mlp.experts.2.up_proj.weight"]
    changed[3, np.flatnonzero(changed[3])[0]] *= -1
    other = families.folder(tmp_path / "other", tensors, {})
    (found,) = (each for each in compare(stacked.path, other, HOLDERS).differences if each.what != "name")
    assert found.name == "blk.0.ffn_up_exps.weight[2]"


CONVERTED = {
    "bonsai, mlx": "pq2_0",
    "bonsai, onnx": "pq2_0",
    "bonsai, pq2_0": "ptq1_0",
    "bonsai, old q2_0": "pq2_0",
    "bitcpm4": "ptq1_0",
    "maple, gguf": "q2_0",
    "compressed-tensors": "q2_0",
    "compressed-tensors, channels": "tq2_0",
    "compressed-tensors, experts": "q2_0",
    "compressed-tensors, zero points": "pq2_0",
    "gptq": "pq2_0",
    "gptq, second format": "q2_0",
}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_family_is_converted_exactly(tmp_path: Path, name: str) -> None:
    made = of(tmp_path, name)
    out = tmp_path / "out.gguf"
    convert(made.path, out, CONVERTED[name], HOLDERS)
    assert compare(made.path, out, HOLDERS).differences == ()
    with open_weights(out) as source:
        assert {each.format for each in TernaryWeights(source, HOLDERS).matrices} == {CONVERTED[name]}


@pytest.mark.parametrize(
    ("format", "file_type"),
    [("q2_0", 41), ("pq2_0", 141), ("ptq1_0", 143), ("tq1_0", 36), ("tq2_0", 37), ("i2_s_x86", 40), ("stq1_0", None)],
)
def test_the_file_type_is_that_of_the_new_format(tmp_path: Path, format: str, file_type: int | None) -> None:
    form: Any = HOLDERS.formats[format]
    codes = form.sample((64, 256), np.random.default_rng(0))
    name = "blk.0.attn_q.weight"
    raw = families.block_bytes(codes, np.full((64, 2), 0.5, np.float32))
    facts = {"general.architecture": "qwen3", "general.file_type": 142}
    path = families.gguf(tmp_path / "m.gguf", [(name, codes.shape, 142, raw)], facts)
    convert(path, tmp_path / "out.gguf", format, HOLDERS)
    with open_weights(tmp_path / "out.gguf") as source:
        pairs = {each.key: value_of(source, each) for each in source.header.pairs}
    assert pairs.get("general.file_type") == file_type
    assert pairs["general.architecture"] == "qwen3"


def test_stq1_0_refuses_a_model_that_it_cannot_hold(tmp_path: Path) -> None:
    codes, _ = families.ternary("any", (4, 256), 256)
    raw = families.block_bytes(codes, np.full((4, 2), 0.5, np.float32))
    path = families.gguf(tmp_path / "m.gguf", [("blk.0.attn_q.weight", codes.shape, 142, raw)], {})
    with pytest.raises(InvalidArgumentError, match=r"attn_q.*without exactly one 0 in group \d+ of block 0"):
        convert(path, tmp_path / "out.gguf", "stq1_0", HOLDERS)
    assert not (tmp_path / "out.gguf").exists()


def test_words_of_other_modules_are_not_converted(tmp_path: Path) -> None:
    made = of(tmp_path, "maple, mlx")
    with pytest.raises(InvalidArgumentError, match=r"MLX, 4 bits.*words mean nothing without their configuration"):
        convert(made.path, tmp_path / "out.gguf", "pq2_0", HOLDERS)
    assert not (tmp_path / "out.gguf").exists()


def test_encodings_of_one_model_are_equal(tmp_path: Path) -> None:
    """Words of MLX, compressed-tensors and ONNX, and blocks of GGUF."""
    pytest.importorskip("onnx", reason="onnx is not installed; tox -e peers has it")
    gguf = families.dense_gguf(tmp_path / "m.gguf", 142, 128, families.block_bytes, 141)
    names = {gguf_name: hf for gguf_name, (hf, _) in families.BLOCK.items()}
    stored = {
        f"model.layers.0.{hf.replace('self_attn', 'attn')}.MatMul.weight_Q2": gguf.truth[f"blk.0.{name}.weight"]
        for name, hf in names.items()
    }
    onnx = families.onnx_model(tmp_path / "m.onnx", stored)
    found = compare(gguf.path, onnx, HOLDERS)
    assert {each.what for each in found.differences} == {"name"}
    assert found.matrices == len(stored)
