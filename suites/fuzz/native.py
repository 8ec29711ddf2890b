"""The native fuzz targets: a driver in native/, whose name begins with its op, and the C files of the op and of cpu/,
built by clang with libFuzzer, ASan and UBSan."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "cython_ext" / "src"
runpy.run_path(str(SOURCES / "tables.py"))["write"]()
SANITIZERS = "fuzzer,address,undefined"
FLAGS = ("-std=gnu11", "-O1", "-g", "-ffp-contract=off", "-w", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
VARIABLES = {"ASAN_OPTIONS": "quarantine_size_mb=16:detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
"""Environment variables of the targets."""


class NotBuiltError(Exception):
    """There is no clang with libFuzzer, or a file does not compile."""


def targets(glob: str = "*") -> list[str]:
    """Names of the matching targets."""
    return [name for path in sorted((HERE / "native").glob("*.c")) if fnmatchcase(name := f"native.{path.stem}", glob)]


def op_of(name: str) -> str:
    """The op whose kernels the target calls."""
    driver = name.removeprefix("native.")
    return max((path.name for path in SOURCES.iterdir() if path.is_dir() and driver.startswith(path.name)), key=len)


def build(name: str, folder: Path) -> Path:
    """The program of the target, kept in `folder` until a source changes. Raises NotBuiltError."""
    driver, op = name.removeprefix("native."), op_of(name)
    sources = [HERE / "native" / f"{driver}.c", SOURCES / "cpu" / "cpu.c", *sorted((SOURCES / op).rglob("*.c"))]
    mark = sha256(repr(FLAGS).encode())
    for path in sorted([*sources, *(HERE / "native").glob("*.h"), *SOURCES.rglob("*.h")]):
        mark.update(path.read_bytes())
    program = folder / f"{driver}-{mark.hexdigest()[:16]}"
    if program.exists():
        return program
    clang = shutil.which("clang")
    if clang is None:
        raise NotBuiltError("clang is not installed; next: install clang and its compiler-rt")
    unfinished = program.with_suffix(".tmp")
    command = [clang, *FLAGS, f"-fsanitize={SANITIZERS}", "-o", str(unfinished), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuiltError(f"clang: {done.stderr.strip()[-500:]}")
    unfinished.rename(program)
    return program
