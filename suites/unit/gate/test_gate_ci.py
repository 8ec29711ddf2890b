"""The CI's own gate of a pull request: red for the tutorial's slow-down, green for an honest change."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timing, pytest.mark.nightly, pytest.mark.long]

ROOT = Path(__file__).parents[3]
OP = "i2s_dequantize"
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *IDENTITY, "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this repository with what is not committed yet."""
    folder = tmp_path_factory.mktemp("gate") / "clone"
    subprocess.run(["git", "clone", "-q", "--no-tags", str(ROOT), str(folder)], check=True)
    git(folder, "switch", "-q", "-C", "main")
    if changed := git(ROOT, "diff", "HEAD", "--binary"):
        subprocess.run(["git", "-C", str(folder), "apply", "-"], input=changed + "\n", text=True, check=True)
        git(folder, "commit", "-qam", "Changes of the working tree")
    return folder


def gated(clone: Path, branch: str, command: str, subject: str) -> subprocess.CompletedProcess[str]:
    """The CI's gate of a pull request with one commit that `command` makes, of one op."""
    git(clone, "switch", "-q", "-c", branch, "main")
    subprocess.run(command, shell=True, cwd=clone, check=True)
    git(clone, "commit", "-qam", subject)
    steps = re.findall(r"- run: (\.ci/gate .*)", (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert len(steps) == 1
    step = steps[0].replace('"origin/$GITHUB_BASE_REF"', "main")
    summary = clone.parent / f"{branch}.md"
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(summary), "XDG_CACHE_HOME": str(clone.parent / "cache")}
    done = subprocess.run(
        f"{step} --op {OP}", shell=True, cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert summary.is_file(), done.stderr
    return done


def test_the_slow_down_of_the_tutorial_is_red(clone: Path) -> None:
    tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ {4}(sed -i .*)$", tutorial, re.MULTILINE)
    done = gated(clone, "slow", command, "Dequantize twice")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error" in done.stdout
    assert "SLOWER" in (clone.parent / "slow.md").read_text(encoding="utf-8")


def test_an_honest_change_is_green(clone: Path) -> None:
    # Other machine code, equal work.
    header = f"cython_ext/src/{OP}/{OP}.h"
    command = rf"""sed -i 's/^    a->run.used = tm_parallel.*/&\n    __asm__ volatile("nop");/' {header}"""
    done = gated(clone, "honest", command, "Add a no-op")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::error" not in done.stdout
