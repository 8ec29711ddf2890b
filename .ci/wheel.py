"""`tox -e wheel`: the files that a user of `pip install tritmark` gets, and their tests where nothing can be compiled.

The sdist comes from the clone, the wheel from the sdist. Here auditwheel uses the tag of this machine's libc; the
workflow wheels.yml builds in manylinux containers. Usage: python .ci/wheel.py FOLDER [arguments of pytest]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness/", "kernels/", "cython_ext/", "pytorch/", "suites/workloads/", "suites/golden/", "suites/bugs/")
"""Folders whose files are installed."""
NOT_INSTALLED = re.compile(r"cython_ext/.*\.(pyx|pxi|c|h|toml)$|cython_ext/src/.*\.py$|(^|/)\.|/history\.toml$|\.md$")
"""Sources of extension modules, what builds them, settings of tools, and what belongs to benchmarks in a clone."""


def main(folder: Path, arguments: list[str]) -> int:
    """Build into `folder`, check, and test. Returns the status of pytest."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
    (sdist,), (built,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    must_be_complete(sdist, built)
    run("auditwheel", "repair", "--plat", "auto", "--wheel-dir", folder / "wheels", built)
    (wheel,) = (folder / "wheels").glob("*.whl")
    must_be_listed()
    bare = folder / "bare"
    run(sys.executable, "-m", "venv", bare)
    run(bare / "bin" / "python", "-m", "pip", "install", "-q", wheel)
    must_have_a_bill(folder / "tritmark.cdx.json", bare)
    run(bare / "bin" / "python", "-m", "pip", "install", "-q", "hypothesis", "pytest")
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR", "PYTEST_ADDOPTS")}
    tests: list[str | Path] = [
        bare / "bin" / "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        ROOT / "suites/wheel",
        *arguments,
    ]
    return subprocess.run(tests, cwd=folder, env={**kept, "PATH": os.environ["PATH"]}, check=False).returncode


def run(*command: str | Path) -> None:
    """Show and run a command, which must succeed."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True)


def must_be_complete(sdist: Path, wheel: Path) -> None:
    """Every tracked file is in the sdist, except Records, and what is installed is in the wheel."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    left_out = (".gitignore", "results/")
    missing = [name for name in tracked if name not in there and not name.startswith(left_out)]
    with ZipFile(wheel) as installed:
        ends = {name.rpartition("tritmark/")[2] for name in installed.namelist()}
    folders = (("harness/toplevel/", ""), ("pytorch/", "torch/"), ("suites/", ""))
    for name in tracked:
        if name.startswith(PACKAGES) and not NOT_INSTALLED.search(name):
            end = next((new + name.removeprefix(old) for old, new in folders if name.startswith(old)), name)
            if end not in ends:
                missing.append(f"{end} (wheel)")
    if missing:
        sys.exit(f"missing in {sdist.name} or the wheel, see MANIFEST.in and pyproject.toml: {', '.join(missing)}")


def must_be_listed() -> None:
    """cibuildwheel builds a wheel for each Python of the classifiers and each processor, and no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    command: list[str | Path] = [
        "cibuildwheel",
        "--platform",
        "linux",
        "--archs",
        "x86_64,aarch64",
        "--print-build-identifiers",
        ROOT,
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    expected = {f"cp3{version}-manylinux_{machine}" for version in versions for machine in ("x86_64", "aarch64")}
    if set(listed) != expected:
        sys.exit(f"cibuildwheel would build {sorted(listed)}, and the classifiers name {sorted(expected)}")


def must_have_a_bill(file: Path, environment: Path) -> None:
    """The bill of materials, as in wheels.yml, has tritmark and what it depends on."""
    run("cyclonedx-py", "environment", "--output-format", "JSON", "--output-file", file, environment / "bin" / "python")
    components = {each["name"]: each["version"] for each in json.loads(file.read_text())["components"]}
    if not {"tritmark", "numpy", "pydantic", "scipy"} <= set(components):
        sys.exit(f"{file} lacks packages; it has {components}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
