"""The hook tritmark-check, run by pre-commit in a scratch repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pre_commit", reason="pre-commit is not installed; tox -e py runs this")

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CORRECT = (ROOT / "suites/examples/numpy_dequantize.py").read_text()
WRONG = CORRECT.replace("np.float32(scale)", "np.float32(scale * 2)")


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with kernels and other files whose configuration names the hook, as users do."""
    hooks, folder = tmp_path / "hooks", tmp_path / "repository"
    (hooks / ".ci").mkdir(parents=True)
    folder.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    shutil.copy(ROOT / ".ci" / "check_kernels.py", hooks / ".ci")
    for each in (hooks, folder):
        git(each, "init", "-q")
    git(hooks, "add", ".")
    git(hooks, "commit", "-q", "-m", "Hooks")
    (folder / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hooks}\n    rev: {git(hooks, 'rev-parse', 'HEAD')}\n    hooks:\n"
        "      - id: tritmark-check\n        files: ^kernels/\n"
    )
    (folder / "kernels").mkdir()
    (folder / "other.py").write_text("no kernel")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return folder


def hook(repository: Path) -> tuple[int, str]:
    """Status and output of the hook on what is staged."""
    git(repository, "add", ".")
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--color", "never"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_correct_kernel_passes_and_other_files_are_no_kernels(repository: Path, tmp_path: Path) -> None:
    (repository / "kernels/mine.py").write_text(CORRECT)
    status, said = hook(repository)
    assert status == 0, said
    assert "Passed" in said
    assert "results" not in git(repository, "status", "--porcelain")
    assert not [*tmp_path.glob("tritmark-*")], "a Record is left over"


def test_a_fault_stops_the_commit_and_says_where(repository: Path) -> None:
    (repository / "kernels/mine.py").write_text(WRONG)
    (repository / "kernels/broken.py").write_text("raise RuntimeError('no luck')")
    status, said = hook(repository)
    assert status == 1
    assert "kernels/mine.py: FAIL (accuracy.values)" in said
    assert "replay: tritmark check" in said
    assert "kernels/broken.py: " in said
    assert "has no kernel; legal: a function with @tritmark.harness.candidate.kernel" in said
    assert "not PASS: 2 of 2 kernels" in said
    assert "Traceback" not in said


def test_without_names_of_kernels_it_checks_nothing(repository: Path) -> None:
    configuration = repository / ".pre-commit-config.yaml"
    configuration.write_text(configuration.read_text().replace("        files: ^kernels/\n", ""))
    (repository / "kernels/mine.py").write_text(WRONG)
    status, said = hook(repository)
    assert status == 0
    assert "(no files to check)Skipped" in said
