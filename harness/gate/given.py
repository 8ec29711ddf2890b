"""Checks of BASE and HEAD before either is built: whether they are the same, uncommitted changes, and the op."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.gate.identity import site_digest
from tritmark.harness.nearest import nearest

_MOST = 3


def same(base: str, head: str, folder: Path | None = None) -> str:
    """Why BASE and HEAD are the same, as text; "" if they may differ. `built` reports a missing revision."""
    folder = folder or Path.cwd()
    contents = [_content(each, folder) for each in (base, head)]
    if not contents[0] or contents[0] != contents[1]:
        return ""
    what, _ = contents[0]
    commits = {_git(folder, "rev-parse", "--verify", "--quiet", f"{each}^{{commit}}") for each in (base, head)}
    if what == "files" and len(commits) == 1:
        what = f"commit {(commits.pop() or '')[:12]}"
    return (
        f"BASE {base} and HEAD {head} are the same {what}, so there is nothing to compare; next: commit your changes, "
        "or name two builds that differ"
    )


def uncommitted(base: str, head: str, folder: Path | None = None) -> str:
    """A note on uncommitted changes, if revisions are compared; "" if there are none."""
    folder = folder or Path.cwd()
    if not any(_tree(each, folder) for each in (base, head)):
        return ""
    changed = [line[3:] for line in (_git(folder, "status", "--porcelain", "-uno") or "").splitlines()]
    if not changed:
        return ""
    names = ", ".join(changed[:_MOST]) + (f" and {len(changed) - _MOST} more" if len(changed) > _MOST else "")
    return f"uncommitted changes ({names}) are in neither build: revisions are compared as committed"


def check_op(glob: str, installed: Iterable[str], base: str, head: str, folder: Path | None = None) -> None:
    """Raise UsageError for an op that neither build can have. Wheels and folders may have ops that are not installed
    here, and so may a revision that has a folder of that name."""
    legal = sorted(installed)
    if any(fnmatchcase(name, glob) for name in legal):
        return
    folder = folder or Path.cwd()
    for given in (base, head):
        tree = _tree(given, folder)
        folders = _git(folder, "ls-tree", "-r", "-d", "--name-only", "-z", tree) if tree else None
        if folders is None or any(fnmatchcase(Path(each).name, glob) for each in folders.split("\0")):
            return
    raise UsageError(f"--op {glob!r} matches no op; {nearest(glob, legal)}")


def _content(given: str, folder: Path) -> tuple[str, str] | None:
    """The kind of build and a hash of its contents; None if it cannot be found."""
    path = Path(given)
    if given.endswith(".whl"):
        return ("wheel", sha256(path.read_bytes()).hexdigest()) if path.is_file() else None
    if path.is_dir() and any(path.glob("*.dist-info")):
        return "build", site_digest(path.resolve())
    tree = _tree(given, folder)
    return ("files", tree) if tree else None


def _tree(given: str, folder: Path) -> str | None:
    """The hash of all files of a revision. Two commits may have the same hash."""
    return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{tree}}")


def _git(folder: Path, *arguments: str) -> str | None:
    """git's output; None if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout.rstrip("\n")
