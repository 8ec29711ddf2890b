"""The public functions follow from the folders of ops, and type checkers know the same ones."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tritmark import kernels
from tritmark.kernels import aio, functions

FOLDER = Path(kernels.__file__).parent
STUBS: dict[str, Any] = runpy.run_path(str(FOLDER / "stubs.py"))


def test_the_functions_of_every_op_are_public() -> None:
    assert {"i2s_quantize", "matmul", "matmul_batch", "ternary_matmul_batch"} <= set(functions.__all__)
    for name in functions.__all__:
        assert getattr(kernels, name) is getattr(functions, name)
        assert callable(getattr(kernels, name)), "not the package of the same name"
    assert set(functions.__all__) < set(kernels.__all__)
    assert set(functions.__all__) < set(aio.__all__)


def test_type_checkers_know_what_is_there() -> None:
    assert [name for name, _ in STUBS["functions"]()] == functions.__all__
    for name, module in STUBS["functions"]():
        assert getattr(functions, name).__module__ == module
    for file, text in STUBS["texts"]().items():
        assert (FOLDER / file).read_text(encoding="utf-8") == text, "next: python kernels/stubs.py"


def made_up(folder: Path, api: str) -> Path:
    (folder / "negate").mkdir()
    (folder / "negate" / "spec.py").touch()
    (folder / "negate" / "api.py").write_text(api, encoding="utf-8")
    return folder


def test_a_stub_has_the_functions_of_a_new_folder(tmp_path: Path) -> None:
    STUBS["write"](made_up(tmp_path, '__all__ = ["negate"]\n'))
    assert "from tritmark.kernels.negate.api import negate as negate" in (tmp_path / "functions.pyi").read_text()
    assert "negate = awaitable(_negate)" in (tmp_path / "awaited.pyi").read_text()


def test_an_op_that_names_no_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"api\.py: no __all__; legal: a list"):
        STUBS["write"](made_up(tmp_path, "def negate(): ...\n"))
