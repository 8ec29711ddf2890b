"""hf:OWNER/NAME with a stand-in for huggingface_hub, because tests have no network."""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness.errors import WeightFileError
from tritmark.harness.weights import open_weights


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """A hub in which every repository has the one tensor `w`; returns the requests to it."""
    calls: list[dict[str, object]] = []
    save_file({"w": np.eye(3, dtype=np.float32)}, tmp_path / "model.safetensors")

    def snapshot_download(**arguments: object) -> str:
        calls.append(arguments)
        return str(tmp_path)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    return calls


@pytest.mark.parametrize(
    ("spec", "repo", "revision"),
    [
        ("hf:microsoft/bitnet-b1.58-2B-4T", "microsoft/bitnet-b1.58-2B-4T", None),
        ("hf:a/b@main", "a/b", "main"),
        ("hf:a/b@refs/pr/1", "a/b", "refs/pr/1"),
    ],
)
def test_a_repository_is_fetched_and_read(
    asked: list[dict[str, object]], spec: str, repo: str, revision: str | None
) -> None:
    with open_weights(spec) as source:
        assert source.path == spec
        np.testing.assert_array_equal(source.read("w"), np.eye(3, dtype=np.float32))
    described, weights = asked
    for call in asked:
        assert (call["repo_id"], call["revision"]) == (repo, revision)
        assert call["ignore_patterns"] == ["*/*"]
    patterns = described["allow_patterns"]
    assert isinstance(patterns, list)
    assert {"config.json", "*.safetensors.index.json"} <= set(patterns)
    assert all(each.endswith(".json") for each in patterns)
    assert weights["allow_patterns"] == ["*.safetensors"]  # and no pickle files


@pytest.mark.parametrize("shard", ["model-a.safetensors", "m[1].safetensors"])
def test_only_what_the_index_names_is_fetched(asked: list[dict[str, object]], tmp_path: Path, shard: str) -> None:
    (tmp_path / "model.safetensors").rename(tmp_path / shard)
    save_file({"w": np.zeros((3, 3), np.float32)}, tmp_path / "consolidated.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    with open_weights("hf:a/b") as source:
        np.testing.assert_array_equal(source.read("w"), np.eye(3, dtype=np.float32))
    patterns = asked[-1]["allow_patterns"]
    assert isinstance(patterns, list)
    assert len(patterns) == 1
    names = [shard, "consolidated.safetensors", "model-b.safetensors"]
    assert [name for name in names if fnmatch(name, patterns[0])] == [shard]


def test_both_requests_are_of_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("0123456789" * 4)
    folder.mkdir()
    save_file({"w": np.eye(3, dtype=np.float32)}, folder / "model.safetensors")
    revisions = []

    def snapshot_download(**arguments: object) -> str:
        revisions.append(arguments["revision"])
        return str(folder)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    open_weights("hf:a/b@main").close()
    assert revisions == ["main", folder.name]


@pytest.mark.parametrize(
    "spec",
    [
        "hf:",
        "hf:a",
        "hf:a/b/c",
        "hf:../b",
        "hf:a/..",
        "hf:a/b@",
        "hf:a/b@-x",
        "hf:a/b\n",
        "hf:\x1b[31m/b",
        "hf:https://x/y",
    ],
)
def test_a_malformed_name_asks_the_hub_nothing(asked: list[dict[str, object]], spec: str) -> None:
    with pytest.raises(WeightFileError, match="hf:OWNER/NAME") as caught:
        open_weights(spec)
    assert asked == []
    assert str(caught.value).isprintable()


def test_without_the_library_the_next_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(WeightFileError, match="`pip install huggingface_hub`"):
        open_weights("hf:a/b")


def test_whatever_the_library_raises_becomes_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(**_: object) -> str:
        raise ConnectionError("no route\x1b[2J to host")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    with pytest.raises(WeightFileError, match="ConnectionError: 'no route") as caught:
        open_weights("hf:a/b")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["README.md"], "no .safetensors files, and 0 .gguf and .onnx models; legal: hf:a/b/FILE"),
        (["b.gguf", "a.gguf"], "2 .gguf and .onnx models: 'a.gguf', 'b.gguf'; legal: hf:a/b/FILE"),
        (["onnx/m.onnx", "onnx/m.onnx_data", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], "2 .gguf and .onnx"),
    ],
)
def test_a_repository_without_safetensors_says_so(
    asked: list[dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], told: str
) -> None:
    (tmp_path / "model.safetensors").unlink()
    monkeypatch.setattr(sys.modules["huggingface_hub"], "list_repo_files", lambda **_: names, raising=False)
    with pytest.raises(WeightFileError) as caught:
        open_weights("hf:a/b")
    assert told in str(caught.value)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("spec", "file", "patterns"),
    [
        ("hf:a/b", "m.gguf", ["m.gguf"]),
        ("hf:a/b@main", "m.gguf", ["m.gguf"]),
        ("hf:a/b/m.gguf", "m.gguf", ["m.gguf"]),
        ("hf:a/b/sub/m.gguf@v1", "sub/m.gguf", ["sub/m.gguf"]),
        ("hf:a/b/onnx/m_q2.onnx", "onnx/m_q2.onnx", ["onnx/m_q2.onnx", "onnx/m_q2.onnx_data*", "onnx/m_q2.onnx.data*"]),
        ("hf:a/b/m-00002-of-00002.gguf", "m-00002-of-00002.gguf", ["m-?????-of-00002.gguf"]),
    ],
)
def test_one_file_of_a_repository_is_fetched(
    asked: list[dict[str, object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spec: str,
    file: str,
    patterns: list[str],
) -> None:
    (tmp_path / "model.safetensors").unlink()
    monkeypatch.setattr(sys.modules["huggingface_hub"], "list_repo_files", lambda **_: [file], raising=False)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(b"a stand-in")
    with pytest.raises(WeightFileError, match=str(tmp_path / file)):
        open_weights(spec)  # the file is found, and is no model
    assert asked[-1]["allow_patterns"] == patterns
    assert ("ignore_patterns" in asked[-1]) == ("/" not in file)
    assert asked[-1]["revision"] == (spec.partition("@")[2] or None)
