"""Check the kernels that changed between BASE and HEAD, and write what was found to RESULTS/checks.json.

A kernel counts as changed if its file, its manifest or a header in its folder changed. Reads the environment variables
BASE, KERNELS (globs, one a line), OPTIONS and RESULTS. Ends with 0 also if a kernel fails: report.py decides.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

HEADERS = {".h", ".hpp", ".cuh"}


def changed(base: str, globs: list[str]) -> tuple[list[str], list[str]]:
    """The kernels that changed, and those that did not, in the order of git."""
    known = git("ls-files", "--", *(f":(top,glob){each}" for each in globs))
    touched = set(git("diff", "--name-only", "--no-renames", base, "HEAD"))
    folders = {str(PurePosixPath(name).parent) for name in touched if PurePosixPath(name).suffix in HEADERS}
    found: tuple[list[str], list[str]] = ([], [])
    for name in known:
        path = PurePosixPath(name)
        is_new = name in touched or str(path.with_suffix(".toml")) in touched or str(path.parent) in folders
        found[not is_new].append(name)
    return found


def git(*words: str) -> list[str]:
    """Names that git lists, relative to the top of the repository."""
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True).stdout
    command = ["git", "-C", top.rstrip("\n"), *words[:1], "-z", *words[1:]]
    said = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", check=True).stdout
    return [name for name in said.split("\0") if name]


def check(name: str, options: list[str], results: Path) -> dict[str, Any]:
    """The status of `tritmark check`, and its verdict, or what it said if it has none."""
    # Not "-" and so on: a file's name must not be an option.
    command = [
        sys.executable,
        "-m",
        "tritmark",
        "check",
        f"./{name}",
        "--json=verdict",
        "--out",
        str(results),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    print(f"::group::{name.encode('utf-8', 'replace').decode()}: status {done.returncode}")
    print(done.stderr.replace("::", ": :"), done.stdout.replace("::", ": :"), "::endgroup::", sep="\n", flush=True)
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        verdict = None
    said = "" if verdict is not None else done.stderr.strip()[-2000:]
    return {"file": name, "status": done.returncode, "verdict": verdict, "said": said}


def main() -> None:
    """Check what changed."""
    results = Path(os.environ["RESULTS"])
    globs = [line.strip() for line in os.environ["KERNELS"].splitlines() if line.strip()]
    new, old = changed(os.environ["BASE"], globs)
    if not new and not old:
        sys.exit(f"::error::tritmark: no tracked file matches {', '.join(globs)}; next: correct the input kernels")
    try:
        options = shlex.split(os.environ.get("OPTIONS", ""))
    except ValueError as why:
        sys.exit(
            f"::error::tritmark: the input check-options is {os.environ['OPTIONS']!r} ({why}); next: use shell syntax"
        )
    found = {"unchanged": len(old), "checks": [check(name, options, results) for name in new]}
    (results / "checks.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
