"""git, as the gate and the history ask it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tritmark.harness.errors import BadEnvironmentError

OUTSIDE = "not a git repository"
"""What git says, in English, of a folder outside of every repository; all else that it refuses has another reason."""


def git(folder: Path, *arguments: str) -> str:
    """What it prints. Raises CalledProcessError with its words in English, OSError where it cannot be run."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=os.environ | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    return done.stdout.strip()


def refused_by_git(folder: Path, said: str) -> BadEnvironmentError:
    """The error for a repository that git does not open, such as one that belongs to another user; `said` has git's
    reason and its remedy."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return BadEnvironmentError(
        f"{folder}: git refuses it: {' '.join(lines)}",
        next_step=f"do what git says, such as: git config --global --add safe.directory {folder}",
    )


def must_be_whole(folder: Path, what: str) -> None:
    """Raises BadEnvironmentError where the repository is a shallow clone, which has no commits before some: `what` was
    looked for there."""
    if git(folder, "rev-parse", "--is-shallow-repository") == "true":
        raise BadEnvironmentError(
            f"{folder} is a shallow clone, so {what} cannot be found in it",
            next_step="git fetch --unshallow (actions/checkout: fetch-depth: 0)",
        )
