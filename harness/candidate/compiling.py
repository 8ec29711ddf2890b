"""C and C++ sources of users become shared libraries, kept in a private cache under the hash of what they were made
from."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tritmark.harness.caches import CACHE, cache_folder
from tritmark.harness.errors import CompileError, UsageError

OPTIONS = ("-O3", "-march=native")
"""Unless the manifest has others."""
_CLOSED = "-Wl,-z,defs"
"""What nobody defines is told by name when the library is made, and not when it is called. The options may take it
back: -Wl,-z,undefs."""
_LONGEST = 2000
LIMIT_S = 120

# For each suffix the environment variable that names its compiler, and where it is looked for else.
_COMPILERS = {".c": ("CC", ("cc", "gcc", "clang")), ".cpp": ("CXX", ("c++", "g++", "clang++"))}
SUFFIXES = tuple(_COMPILERS)


def compiled(source: Path, options: Sequence[str]) -> Path:
    """The library of a source. Raises CompileError with the compiler's words, UsageError where nothing can be kept."""
    from filelock import FileLock

    compiler = _compiler(source.suffix)
    # A sanitizer's functions are in the program that loads the library, and -Wall would turn the options' own -Werror
    # against more.
    closed = () if any(each.startswith("-fsanitize") for each in options) else (_CLOSED,)
    watched = () if any(each.startswith("-Werror") for each in options) else ("-Wall",)
    flags = [*closed, *watched, *(options or OPTIONS), "-shared", "-fPIC"]
    # some linkers drop a library that stands before what needs it
    libraries = [each for each in options if each.startswith("-l")]
    # Macros that the options define, those of the processor under -march=native among them, are part of the text.
    text, _ = _run([compiler, *flags, "-E", "-dD", str(source)], source)
    version, _ = _run([compiler, "--version"], source)
    key = sha256("\0".join([compiler, version, *flags, text]).encode()).hexdigest()
    folder = _folder()
    known = _known(folder, key)
    if known is not None:
        return known
    with FileLock(folder / f"{key}.lock"):
        return _known(folder, key) or _made(folder, key, [compiler, *flags, str(source), *libraries, "-lm"], source)


def warnings(library: Path) -> str:
    """What the compiler said of a source that it compiled, shortened; "" for a library that was not made here."""
    try:
        said = library.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return _shortened(said)


def _shortened(said: str) -> str:
    said = said.strip()
    return said if len(said) <= _LONGEST else said[:_LONGEST] + " ..."


def _known(folder: Path, key: str) -> Path | None:
    """What the cache has under that key, if it still is what was put there: its name ends with its hash."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        if path.stem == f"{key}-{sha256(path.read_bytes()).hexdigest()}":
            return path
    return None


def _made(folder: Path, key: str, command: list[str], source: Path) -> Path:
    temporary = folder / f"{key}.{os.getpid()}.tmp"
    try:
        _, said = _run([*command, "-o", str(temporary)], source)
        path = folder / f"{key}-{sha256(temporary.read_bytes()).hexdigest()}.so"
        if said.strip():
            path.with_suffix(".txt").write_text(said, encoding="utf-8", errors="replace")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _folder() -> Path:
    folder = cache_folder("native")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror or error}; legal: set {CACHE} to a folder that can"
        ) from None
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{folder} belongs to, or can be written by, others; legal: a folder of your own: chmod 700, or set {CACHE}"
        )
    return folder


def _compiler(suffix: str) -> str:
    variable, names = _COMPILERS[suffix]
    told = os.environ.get(variable, "").strip()
    for name in (told,) if told else names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise CompileError(
        f"no compiler for {suffix}: {told or ', '.join(names)} not found",
        next_step=f"install one, or set {variable} to one, or give the compiled .so",
    )


def _run(command: Sequence[str], source: Path) -> tuple[str, str]:
    """Standard output and the error stream."""
    import subprocess

    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    except OSError as why:
        raise CompileError(
            f"{command[0]} cannot be run ({why})", next_step="name another compiler in CC or CXX"
        ) from None
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"{command[0]} took over {LIMIT_S} s for {source}", next_step="make the source smaller"
        ) from None
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        raise CompileError(
            f"{source} does not compile:\n{_shortened(said)}\n",
            next_step="mend the source, or the options in its manifest",
        )
    return done.stdout.decode("utf-8", "replace"), said
