"""The native fuzz targets: a driver in the folder of a module's C files, with these and those of cpu/, built by clang
with libFuzzer, ASan and UBSan."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "cython_ext" / "src"
_FILES = runpy.run_path(str(SOURCES / "c_files.py"))
DRIVERS: dict[str, Path] = {f"native.{name}": path for name, path in _FILES["drivers"]().items()}
"""The driver of each target."""
runpy.run_path(str(SOURCES / "tables.py"))["write"]()
SANITIZERS = "fuzzer,address,undefined"
FLAGS = ("-std=gnu11", "-O1", "-g", "-ffp-contract=off", "-w", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
VARIABLES = {"ASAN_OPTIONS": "quarantine_size_mb=16:detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
"""Environment variables of the targets."""


class NotBuiltError(Exception):
    """There is no clang with libFuzzer, or a file does not compile."""


def targets(glob: str = "*") -> list[str]:
    """Names of the matching targets."""
    return [name for name in DRIVERS if fnmatchcase(name, glob)]


def sources(name: str) -> list[Path]:
    """The C files of the target: its driver, those of its module, and those of cpu/."""
    return [DRIVERS[name], *_FILES["compiled"](SOURCES / "cpu"), *_FILES["compiled"](DRIVERS[name].parent)]


def build(name: str, folder: Path) -> Path:
    """The program of the target, kept in `folder` until a source changes. Raises NotBuiltError."""
    files = sources(name)
    mark = sha256(repr(FLAGS).encode())
    for path in sorted([*files, *SOURCES.rglob("*.h")]):
        mark.update(path.read_bytes())
    program = folder / f"{name.removeprefix('native.')}-{mark.hexdigest()[:16]}"
    if program.exists():
        return program
    clang = shutil.which("clang")
    if clang is None:
        raise NotBuiltError("clang is not installed; next: install clang and its compiler-rt")
    unfinished = program.with_suffix(".tmp")
    command = [clang, *FLAGS, f"-fsanitize={SANITIZERS}", "-o", str(unfinished), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuiltError(f"clang: {done.stderr.strip()[-500:]}")
    unfinished.rename(program)
    return program
