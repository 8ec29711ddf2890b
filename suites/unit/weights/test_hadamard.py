"""The transform of models with rotated weights, against the original's results, and its keys in config.json."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import InvalidArgumentError, WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.weights.convert import convert
from tritmark.harness.weights.gguf_values import value_of
from tritmark.harness.weights.hadamard import PREFIX, rotation_of, transformed

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
families = import_module("model_families")
HOLDERS = holders_of(installed())
VECTORS = Path(__file__).parent / "vectors"


@pytest.mark.parametrize("stem", sorted(path.stem for path in VECTORS.glob("hadamard_*.npz")))
def test_the_transform_is_the_originals(stem: str) -> None:
    with np.load(VECTORS / f"{stem}.npz") as vector:
        x, expected, size = vector["x"], vector["y_c"], int(vector["block_size"])
        signs = vector.get("signs")
        heads = tuple(map(int, vector["perm_hd_nk_rep"])) if "perm_hd_nk_rep" in vector else None
        found = transformed(x, size, signs, inverse=bool(vector["inverse"]), heads=heads)  # type: ignore[arg-type]
        exact = not vector["max_err_vs_float64"]
    # Sums of `size` float32 numbers in any order, each at most the largest times the root of the size.
    bound = 0 if exact else np.finfo(np.float32).eps * np.log2(size) * np.sqrt(size) * np.abs(x).max()
    assert np.all(np.abs(found - expected) <= bound)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 64, 128]))
def test_the_transform_and_its_inverse_are_one(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    x, signs = rng.integers(-16, 17, (3, 256)).astype(np.float32), rng.choice(np.array([-1, 1], np.int8), 256)
    again = transformed(transformed(x, size, signs), size, signs, inverse=True)
    assert np.all(np.abs(again - x) <= 16 * 256 * np.finfo(np.float64).eps)
    matrix = np.array([[1.0]])
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    expected = ((x * signs).reshape(3, -1, size) @ matrix).reshape(x.shape)
    np.testing.assert_array_equal(transformed(x, size, signs), expected / np.sqrt(size))


def test_products_of_a_rotated_file() -> None:
    """Products with the stored weights of transformed activations, and a row of the embedding."""
    with open_weights(VECTORS / "gguf_hadamard_a.gguf") as source, np.load(VECTORS / "gguf_hadamard_a.npz") as truth:
        weights = TernaryWeights(source, HOLDERS)
        read = {}
        for info in weights.matrices:
            codes, scale = weights.read(info)
            read[info.name] = codes * np.repeat(scale, 128, axis=1).astype(np.float64)
        keys = {each.key.removeprefix(PREFIX): value_of(source, each) for each in source.header.pairs}
        ends = np.cumsum(keys["sign_widths"])
        signs = dict(zip(keys["sign_widths"], np.split(np.array(keys["sign_values"]), ends[:-1]), strict=True))
        size, x, down = keys["block_size"], truth["x"], truth["x_down"]
        rows = read["token_embd.weight"][truth["token_ids"]]
        for name, width, inverse in (
            ("blk.0.attn_q.weight", 256, False),
            ("blk.0.ffn_down.weight", 384, False),
            ("token_embd.weight", 256, True),
        ):
            rotation = rotation_of(source, name)
            assert rotation is not None
            assert (rotation.block_size, rotation.inverse, rotation.heads) == (size, inverse, None)
            assert rotation.signs is not None
            assert np.array_equal(rotation.signs, signs[width])
        assert rotation_of(source, "blk.0.plain.weight") is None
        for found, expected in (
            (transformed(x, size, signs[256]) @ read["blk.0.attn_q.weight"].T, "y_attn_q_f64"),
            (transformed(down, size, signs[384]) @ read["blk.0.ffn_down.weight"].T, "y_ffn_down_f64"),
            (x @ read["blk.0.plain.weight"].T, "y_plain_f64"),
            (transformed(rows, size, signs[256], inverse=True), "embedding_f64"),
        ):
            # Sums of at most 384 products, of at most 64 activations each, in any order.
            largest = max(np.abs(x).max(), np.abs(down).max()) * max(np.abs(each).max() for each in read.values())
            bound = (384 + size) * 384 * np.finfo(np.float64).eps * np.sqrt(size) * largest
            assert np.abs(found - truth[expected]).max() <= bound


@pytest.mark.parametrize(
    ("size", "signs", "heads", "told"),
    [
        (96, None, None, "96 for 256 columns"),
        (512, None, None, "512 for 256 columns"),
        (0, None, None, "0 for 256 columns"),
        (64, np.ones(128), None, r"signs is of shape \(128,\)"),
        (64, np.zeros(256), None, "-1 and 1"),
        (64, None, (2, 2, 2), "product is 256"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(size: int, signs: Any, heads: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        transformed(np.ones((2, 256)), size, signs, heads=heads)


KEYS = {"schema_version": 2, "block_size": 1024, "sign_mode": "explicit"}


def rotated(folder: Path, keys: Any) -> Path:
    made = families.mlx(folder)
    place = made.path / "config.json"
    config = json.loads(place.read_text())
    place.write_text(json.dumps({**config, "prism": {"hadamard": keys}}))
    return Path(made.path)


def test_keys_in_config_json_are_reported(tmp_path: Path) -> None:
    path = rotated(tmp_path / "m", KEYS)
    with open_weights(path) as source:
        told = TernaryWeights(source, HOLDERS).transform
    assert "'hadamard' (version 2)" in told
    assert "the transform is not applied" in told
    with pytest.raises(InvalidArgumentError, match=r"from a \.gguf file to a \.gguf file"):
        convert(path, tmp_path / "out.gguf", "pq2_0", HOLDERS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema_version": 3}, "version 3; legal: 1 or 2"),
        ({"schema_version": None}, "version None"),
        ({"schema_version": True}, "version True"),
        ({"block_size": 1000}, "block_size 1000"),
        ({"sign_mode": "random"}, "sign_mode 'random'"),
        ({"transform": "dct"}, "transform 'dct'"),
    ],
)
def test_keys_with_an_unknown_meaning_are_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with open_weights(rotated(tmp_path / "m", {**KEYS, **change})) as source:
        with pytest.raises(WeightFileError) as caught:
            TernaryWeights(source, HOLDERS)
        assert told in str(caught.value)


def test_a_transform_without_keys_is_refused(tmp_path: Path) -> None:
    with open_weights(rotated(tmp_path / "m", "yes")) as source, pytest.raises(WeightFileError, match="version None"):
        TernaryWeights(source, HOLDERS)
