"""Split GGUF models: all parts are required, and their headers state the split."""

from __future__ import annotations

import shutil
import struct
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tritmark.harness.errors import WeightFileError
from tritmark.harness.providers import installed
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
models = import_module("made_up_models")
SMALL = models.SMALL


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split")
    models.write_gguf(folder / "m.gguf", SMALL, part=7)
    assert sorted(path.name for path in folder.iterdir()) == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    return folder


@pytest.fixture
def parts(written: Path, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(path, tmp_path)) for path in sorted(written.iterdir())]


def test_any_part_names_the_whole_model(parts: list[Path]) -> None:
    for part in parts:
        with open_weights(part) as source:
            weights = TernaryWeights(source, holders_of(installed()))
            assert [each.name for each in weights.matrices] == [f"{name}.weight" for name, _ in SMALL.matrices()]
            for name, shape in SMALL.matrices():
                info = weights.matrix(f"{name}.weight")
                assert info is not None
                codes, scale = weights.read(info)
                np.testing.assert_array_equal(codes, SMALL.codes(name, shape))
                assert scale == SMALL.scale(name)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_part_is_named(parts: list[Path], lost: int) -> None:
    parts[lost].unlink()
    with pytest.raises(WeightFileError, match=rf"no part 'm-0000{lost + 1}-of-00003\.gguf'; legal: all 3 parts"):
        open_weights(parts[lost - 1])


def test_a_part_in_anothers_place_is_refused(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])
    with pytest.raises(WeightFileError, match="part 2 of 3 according to its header; legal: part 3 of 3"):
        open_weights(parts[0])


def test_a_part_by_another_name_is_refused(parts: list[Path]) -> None:
    with pytest.raises(WeightFileError, match="part 1 of 3 according to its header; legal: part 1 of 1"):
        open_weights(parts[0].rename(parts[0].with_name("m.gguf")))


@pytest.mark.parametrize(
    ("key", "kind", "value", "told"),
    [
        ("split.no", "H", 7, "part 8 of 3 according to its header"),
        ("split.count", "H", 4, "part 1 of 4 according to its header"),
        ("split.tensors.count", "i", 22, "20 tensors in all parts; legal: 22"),
        ("split.tensors.count", "i", -1, "20 tensors in all parts; legal: -1"),
    ],
)
def test_a_header_that_lies_is_refused(parts: list[Path], key: str, kind: str, value: int, told: str) -> None:
    content = bytearray(parts[0].read_bytes())
    at = content.index(key.encode()) + len(key) + 4
    struct.pack_into(f"<{kind}", content, at, value)
    parts[0].write_bytes(content)
    with pytest.raises(WeightFileError, match=told):
        open_weights(parts[0])


def test_numbers_in_a_name_alone_are_no_split(tmp_path: Path) -> None:
    path = models.write_gguf(tmp_path / "m-00002-of-00005.gguf", SMALL)
    with open_weights(path) as source:
        assert len(source.tensors) == 14 + len(SMALL.others())
