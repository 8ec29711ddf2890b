"""The instruction that installs an extra, and the error without PyTorch."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tritmark.harness import extras
from tritmark.harness.errors import MissingPackageError, TritmarkError


def origin(text: str | None) -> SimpleNamespace:
    return SimpleNamespace(read_text=lambda name: text if name == "direct_url.json" else None)


def folder(path: Path) -> str:
    return json.dumps({"url": path.as_uri(), "dir_info": {"editable": True}})


def test_a_clone_gets_the_command_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: origin(folder(clone)))
    assert not extras.in_clone(), "the folder is there, and no project in it"
    (clone / "pyproject.toml").touch()
    assert extras.in_clone()
    assert extras.install.__wrapped__("cuda") == "pip install '.[cuda]' in the clone"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        '{"url": "https://example.org/tritmark.git", "vcs_info": {}}',
        '{"url": "file:///tmp/tritmark.whl", "archive_info": {}}',
        '{"dir_info": {}}',
        '{"url": "file:///no/such/folder", "dir_info": {}}',
    ],
)
def test_without_a_clone_the_extra_is_named(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: origin(text))
    assert extras.install.__wrapped__("peers") == "install the extra `peers` of tritmark"


def test_without_pytorch_the_import_says_what_to_do() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    import tritmark.torch\n"
        "except ModuleNotFoundError as error:\n    print(type(error).__name__, error.name, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = f"tritmark.torch needs PyTorch, which is not installed; next: {extras.install('torch')}"
    assert done.stdout.strip() == f"MissingPackageError torch {said}"


def test_the_error_passes_between_processes() -> None:
    error = pickle.loads(pickle.dumps(MissingPackageError("no x", name="x", next_step="install it")))
    assert isinstance(error, MissingPackageError)
    assert issubclass(MissingPackageError, TritmarkError)
    assert issubclass(MissingPackageError, ImportError)
    assert (error.name, error.next_step, str(error)) == ("x", "install it", "no x; next: install it")
