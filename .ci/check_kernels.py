#!/usr/bin/env python3
"""The hook of .pre-commit-hooks.yaml: does each of these kernels compute what its op requires?

It uses the tritmark of the environment that runs git, because kernels in Python import what is installed there.
Usage: .ci/check_kernels.py [--suite NAME] [--dimension NAME] FILE ...
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Judge each file. Returns 1 if one is not PASS."""
    parser = argparse.ArgumentParser(prog="tritmark-check")
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--dimension", action="append")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    try:
        import tritmark
        from tritmark.harness.errors import TritmarkError
    except ModuleNotFoundError:
        print(f"{sys.executable} has no tritmark; next: pip install tritmark, and commit in that environment")
        return 1
    bad = []
    for file in given.files:
        out = tempfile.mkdtemp(prefix="tritmark-")
        try:
            verdict = tritmark.check(file, suite=given.suite, dimension=given.dimension or "accuracy", out=out)
        except TritmarkError as why:
            print(f"{file}: {why}")
            bad.append(file)
        else:
            # "passed" also has what could not be decided or was not judged.
            if verdict.code == "pass":
                shutil.rmtree(Path(out))
                continue
            print(f"{file}: {verdict}")
            bad.append(file)
    if bad:
        print(f"not PASS: {len(bad)} of {len(given.files)} kernels")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
