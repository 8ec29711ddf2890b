"""Calls git for the gate and the history."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tritmark.harness.errors import BadEnvironmentError

OUTSIDE = "not a git repository"
"""Part of git's English message for a folder outside of every repository."""


def git(folder: Path, *arguments: str) -> str:
    """The output of git. Raises CalledProcessError with git's message in English, OSError if git cannot be run."""
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
    """The error for a repository that git does not open, such as one of another user; `said` is git's message."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return BadEnvironmentError(
        f"{folder}: git refuses it: {' '.join(lines)}",
        next_step=f"follow git's message, for example: git config --global --add safe.directory {folder}",
    )


def must_be_whole(folder: Path, what: str) -> None:
    """Raise BadEnvironmentError if the repository is a shallow clone, which lacks old commits. `what`: what the caller
    needs from it."""
    if git(folder, "rev-parse", "--is-shallow-repository") == "true":
        raise BadEnvironmentError(
            f"{folder} is a shallow clone, so {what} cannot be found in it",
            next_step="git fetch --unshallow (actions/checkout: fetch-depth: 0)",
        )
