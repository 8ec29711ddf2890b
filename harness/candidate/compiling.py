"""Compiles users' C and C++ sources to shared libraries. A private cache keeps them under the hash of their sources,
options and compiler."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tritmark.harness.caches import CACHE, cache_folder, runs_code
from tritmark.harness.candidate.located import digest_of
from tritmark.harness.errors import BadEnvironmentError, CompileError, UsageError
from tritmark.harness.locks import locked

OPTIONS = ("-O3", "-march=native")
"""The default options; `options` in the manifest replaces them."""
_CLOSED = "-Wl,-z,defs"
"""The linker reports undefined symbols by name, instead of the first call. The option -Wl,-z,undefs turns this off."""
_LONGEST = 2000
_LOG = logging.getLogger(__name__)
LIMIT_S = 120

# For each suffix, the environment variable that names its compiler, and the default names.
_COMPILERS = {".c": ("CC", ("cc", "gcc", "clang")), ".cpp": ("CXX", ("c++", "g++", "clang++"))}
SUFFIXES = tuple(_COMPILERS)
INSTALL = "Debian and Ubuntu: apt install g++"
"""How to get a compiler of both."""


def compiled(source: Path, options: Sequence[str]) -> Path:
    """Compile a source, or find it in the cache. Returns the path of the library.

    Raises CompileError with the compiler's messages, and UsageError or BadEnvironmentError if the cache or the compiler
    cannot be used.
    """
    compiler = _compiler(source.suffix)
    folder = _folder()
    # A sanitizer's functions are in the program that loads the library. With -Werror, -Wall would add errors.
    closed = () if any(each.startswith("-fsanitize") for each in options) else (_CLOSED,)
    watched = () if any(each.startswith("-Werror") for each in options) else ("-Wall",)
    flags = [*closed, *watched, *(options or OPTIONS), "-shared", "-fPIC"]
    # some linkers drop a library that precedes the source that needs it
    libraries = [each for each in options if each.startswith("-l")]
    # The text contains the macros that options define, including those of the processor under -march=native.
    text, _ = _run([*compiler, *flags, "-E", "-dD", str(source)], source, compiler)
    version, _ = _run([*compiler, "--version"], source, compiler)
    key = sha256("\0".join([*compiler, version, *flags, text]).encode("utf-8", "surrogateescape")).hexdigest()
    known = _known(folder, key)
    if known is not None:
        return known
    with locked(folder / f"{key}.lock"):
        return _known(folder, key) or _made(
            folder, key, [*compiler, *flags, str(source), *libraries, "-lm"], source, compiler
        )


def warnings(library: Path) -> str:
    """The compiler's warnings for a library, shortened; "" for a library that was not compiled here."""
    try:
        said = library.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return _shortened(said)


def _shortened(said: str) -> str:
    said = said.strip()
    return said if len(said) <= _LONGEST else said[:_LONGEST] + " ..."


def _known(folder: Path, key: str) -> Path | None:
    """The library in the cache under that key, if its contents still have the hash in its name."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        with suppress(OSError):
            if path.stem == f"{key}-{digest_of(path.read_bytes())}":
                return path
    return None


def _made(folder: Path, key: str, command: list[str], source: Path, compiler: Sequence[str]) -> Path:
    for damaged in sorted(folder.glob(f"{key}-*.so")):
        _LOG.warning("%s is damaged, so it is compiled anew", damaged)
    temporary = folder / f"{key}.{os.getpid()}.tmp"
    try:
        _, said = _run([*command, "-o", str(temporary)], source, compiler)
        path = folder / f"{key}-{sha256(temporary.read_bytes()).hexdigest()}.so"
        if said.strip():
            path.with_suffix(".txt").write_text(said, encoding="utf-8", errors="replace")
        os.replace(temporary, path)
    except OSError as error:
        raise BadEnvironmentError(
            f"{folder} cannot be written: {error.strerror or error}",
            next_step=f"free some space, or set {CACHE} to a folder on another disk",
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _folder() -> Path:
    folder = cache_folder("native")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise BadEnvironmentError(
            f"{folder} cannot be made: {error.strerror or error}", next_step=f"set {CACHE} to a writable folder"
        ) from None
    if not runs_code(folder):
        raise BadEnvironmentError(
            f"{folder} is mounted noexec, so no compiled kernel can be loaded from there",
            next_step=f"set {CACHE} to a folder on another file system",
        )
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{folder} belongs to, or can be written by, others; legal: a private folder; next: chmod 700, or set "
            f"{CACHE}"
        )
    return folder


def _compiler(suffix: str) -> tuple[str, ...]:
    """The words of the compiler's command: CC may have several, such as "ccache gcc"."""
    variable, names = _COMPILERS[suffix]
    reported = os.environ.get(variable, "").strip()
    for words in (command_of(reported, variable),) if reported else ((name,) for name in names):
        found = shutil.which(words[0])
        if found is not None:
            return (found, *words[1:])
    raise BadEnvironmentError(
        f"no compiler for {suffix}: {reported or ', '.join(names)} not found",
        next_step=f"install one ({INSTALL}), or set {variable} to one, or pass a compiled .so",
    )


def command_of(given: str, variable: str) -> tuple[str, ...]:
    """The words of a command in an environment variable. Raises BadEnvironmentError for an unclosed quote."""
    if shutil.which(given) is not None:  # a path with blanks in it
        return (given,)
    try:
        return tuple(shlex.split(given))
    except ValueError as why:
        raise BadEnvironmentError(
            f"{variable} is {given!r} ({why})", next_step="use shell syntax, such as 'ccache gcc'"
        ) from None


def _run(command: Sequence[str], source: Path, compiler: Sequence[str]) -> tuple[str, str]:
    """Run the compiler. Returns standard output and standard error. Raises CompileError for faults in the source, and
    BadEnvironmentError if the compiler does not work at all."""
    import subprocess

    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    except OSError as why:
        raise BadEnvironmentError(
            f"{command[0]} cannot be run ({why})", next_step="name another compiler in CC or CXX"
        ) from None
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"{command[0]} took over {LIMIT_S} s for {source}", next_step="make the source smaller"
        ) from None
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        _must_compile(compiler, source.suffix)
        raise CompileError(
            f"{source} does not compile:\n{_shortened(said)}\n",
            next_step="correct the source, or the options in its manifest",
        )
    return done.stdout.decode("utf-8", "replace"), said


def _must_compile(compiler: Sequence[str], suffix: str) -> None:
    """Raises BadEnvironmentError if the compiler cannot make a library from a trivial function."""
    import subprocess
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix="tritmark-") as name:
            probe = Path(name, f"probe{suffix}")
            probe.write_text("int tritmark_probe(void) { return 0; }\n", encoding="utf-8")
            done = subprocess.run(
                [*compiler, "-shared", "-fPIC", str(probe), "-o", str(Path(name, "probe.so"))],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise BadEnvironmentError(
            f"{' '.join(compiler)} cannot be run ({why})", next_step="check TMPDIR and the limits (ulimit -a)"
        ) from None
    if done.returncode:
        said = _shortened(done.stderr.decode("utf-8", "replace"))
        raise BadEnvironmentError(
            f"{' '.join(compiler)} does not compile a trivial function:\n{said}\n",
            next_step="repair the compiler, or name another one in CC or CXX",
        )
