"""index.json states which files of a folder are the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness.errors import WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights

ONE = np.eye(3, dtype=np.float32)
STALE = np.zeros((3, 3), np.float32)
INDEX = "model.safetensors.index.json"


def indexed(folder: Path, files: Mapping[str, Mapping[str, Any]], weight_map: Any, name: str = INDEX) -> Path:
    for file, tensors in files.items():
        save_file(dict(tensors), folder / file)
    text = weight_map if isinstance(weight_map, str) else json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / name).write_text(text)
    return folder


def read(path: Path) -> dict[str, Any]:
    with open_weights(path) as source:
        return {tensor.name: source.read(tensor.name) for tensor in source.tensors}


TWO = {"a": "layers-a.safetensors", "b": "layers-b.safetensors"}
WHOLE: dict[str, tuple[dict[str, dict[str, Any]], dict[str, str]]] = {
    "beside another copy of all": (
        {
            "model-00001-of-00001.safetensors": {"a": ONE, "b": ONE},
            "consolidated.safetensors": {"a": STALE, "b": STALE},
        },
        dict.fromkeys("ab", "model-00001-of-00001.safetensors"),
    ),
    "a single file beside another copy": (
        {"model.safetensors": {"a": ONE, "b": ONE}, "consolidated.safetensors": {"a": STALE, "c": STALE}},
        dict.fromkeys("ab", "model.safetensors"),
    ),
    "names without numbers": ({"layers-a.safetensors": {"a": ONE}, "layers-b.safetensors": {"b": ONE}}, TWO),
    "an old copy of a tensor in another shard": (
        {"layers-a.safetensors": {"a": ONE, "b": STALE}, "layers-b.safetensors": {"b": ONE}},
        TWO,
    ),
    "old shards of another count": (
        {
            "model-00001-of-00002.safetensors": {"a": ONE},
            "model-00002-of-00002.safetensors": {"b": ONE},
            "model-00001-of-00003.safetensors": {"a": STALE},
        },
        {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    ),
    "an old model.safetensors": (
        {"layers-a.safetensors": {"a": ONE}, "layers-b.safetensors": {"b": ONE}, "model.safetensors": {"a": STALE}},
        TWO,
    ),
}


@pytest.mark.parametrize("what", WHOLE)
def test_the_index_says_which_files_are_read(tmp_path: Path, what: str) -> None:
    files, weight_map = WHOLE[what]
    found = read(indexed(tmp_path, files, weight_map))
    with open_weights(tmp_path) as source:
        assert set(source.aside) == set(files) - set(weight_map.values())
    assert set(found) == {"a", "b"}
    for values in found.values():
        np.testing.assert_array_equal(values, ONE)


def test_shards_may_be_links_to_elsewhere_as_in_the_hubs_cache(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    save_file({"a": ONE}, tmp_path / "blobs" / "0123")
    (tmp_path / "snapshot" / "x.safetensors").symlink_to("../blobs/0123")
    np.testing.assert_array_equal(read(indexed(tmp_path / "snapshot", {}, {"a": "x.safetensors"}))["a"], ONE)


def test_without_an_index_the_usual_file_is_the_model(tmp_path: Path) -> None:
    save_file({"a": ONE}, tmp_path / "model.safetensors")
    save_file({"a": STALE}, tmp_path / "consolidated.safetensors")
    np.testing.assert_array_equal(read(tmp_path)["a"], ONE)


def test_an_index_of_another_name_is_one_too(tmp_path: Path) -> None:
    files = {"pytorch_model-a.safetensors": {"a": ONE}, "other.safetensors": {"a": STALE}}
    indexed(tmp_path, files, {"a": "pytorch_model-a.safetensors"}, "pytorch_model.safetensors.index.json")
    np.testing.assert_array_equal(read(tmp_path)["a"], ONE)
    indexed(tmp_path, {}, {"a": "other.safetensors"}, "consolidated.safetensors.index.json")
    with pytest.raises(WeightFileError, match=r"2 index files.*legal: one index, or model\.safetensors\.index\.json"):
        read(tmp_path)
    indexed(tmp_path, {}, {"a": "pytorch_model-a.safetensors"})
    np.testing.assert_array_equal(read(tmp_path)["a"], ONE)


FILES = {"layers-a.safetensors": {"a": ONE}}
REFUSED: dict[str, tuple[Any, str]] = {
    "a missing shard": (TWO, "no file 'layers-b.safetensors', which model.safetensors.index.json names"),
    "a tensor that its shard lacks": (
        dict.fromkeys("ab", "layers-a.safetensors"),
        "layers-a.safetensors: no tensor 'b'",
    ),
    "a file of another folder": ({"a": "../layers-a.safetensors"}, "legal: a file name in the same folder"),
    "an absolute path": ({"a": "/etc/x.safetensors"}, "legal: a file name in the same folder"),
    "a folder below": ({"a": "x/layers-a.safetensors"}, "legal: a file name in the same folder"),
    "a pickle": ({"a": "pytorch_model.bin"}, "'pytorch_model.bin' for tensor 'a'; legal: a .safetensors file"),
    "a number for a file": ({"a": 3}, "3 for tensor 'a'"),
    "no map": ("{}", "no weight_map"),
    "an empty map": ({}, "no weight_map"),
    "a list": ("[]", "no weight_map"),
    "no JSON": ("{", "not JSON"),
    "a nest": ("[" * 100_000, "not JSON"),
    "a tensor twice": ('{"weight_map": {"a": "layers-a.safetensors", "a": "b.safetensors"}}', "the key 'a' twice"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_index_that_cannot_be_followed_is_refused(tmp_path: Path, what: str) -> None:
    weight_map, told = REFUSED[what]
    indexed(tmp_path, FILES, weight_map)
    with pytest.raises(WeightFileError) as caught:
        read(tmp_path)
    assert told in str(caught.value)


@pytest.mark.parametrize("other", [None, {"tritmark.weight_scale": "divide"}])
def test_files_whose_metadata_contradict_each_other_are_refused(tmp_path: Path, other: dict[str, str] | None) -> None:
    for layer, metadata in enumerate(({"tritmark.weight_scale": "multiply"}, other)):
        name = f"model.layers.{layer}.mlp.up_proj.weight"
        tensors: dict[str, Any] = {name: np.zeros((4, 256), np.uint8), f"{name}_scale": np.ones(1, np.float32)}
        save_file(tensors, tmp_path / f"{layer}.safetensors", metadata=metadata)
    with open_weights(tmp_path) as source, pytest.raises(WeightFileError, match=r"tritmark\.weight_scale.*files"):
        TernaryWeights(source, holders_of(installed()))
