"""Users' files: legal kinds, and the errors for others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from candidate_files import native

from tritmark.harness.candidate.native import NativeFile
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import load

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("compiled_files"),
]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("my.c", None, "no such file"),
        ("my.rs", "", "ends in '.rs'"),
        ("my", "", "ends in 'nothing'"),
        ("my.cpu", "", "did you mean '.cu'?"),
        ("my.c", "", "my.toml: no such file; legal: a manifest"),
        ("my.py", "x = 1", "has no kernel"),
        ("my.py", "\udcff", "not UTF-8"),
        ("my.py", "x" * (1 << 21), "over 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_taken_is_told(tmp_path: Path, name: str, text: str | None, told: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(os.fsencode(text))
    with pytest.raises(UsageError) as caught:
        open_candidate(path)
    assert told in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "my.c").mkdir()
    with pytest.raises(UsageError, match="not a file"):
        open_candidate(tmp_path / "my.c")


def test_candidates_are_loaded_beside_what_is_installed(tmp_path: Path) -> None:
    candidate = open_candidate(native(tmp_path))
    assert isinstance(candidate, NativeFile)
    installed = load((candidate,))
    assert "cpu/i2s_dequantize/none/float32/my.f" in {variant.id for variant in installed.registry.variants}
    best = installed.registry.select_best(installed.keys("i2s_dequantize")[0], {"n": 5})
    assert best.name != "my.f"
