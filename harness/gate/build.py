"""Makes a folder with installed packages from a revision, a wheel or a folder.

A revision is exported and built to a wheel by the project's backend in pip's isolated environment, like in asv. The
build is kept in the user's cache under its commit, Python and compiler. Concurrent gates share a build. A new build
removes those that were not used for KEPT_S seconds.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path

from tritmark.harness.caches import CACHE, cache_folder, runs_code
from tritmark.harness.candidate.compiling import INSTALL, command_of
from tritmark.harness.errors import BadEnvironmentError, UsageError
from tritmark.harness.gate.compilers import cached_compilers
from tritmark.harness.gate.identity import all_digest, site_digest
from tritmark.harness.gate.opened import BuildError
from tritmark.harness.gate.part import WHOLE, BuildPart, lacks, narrow, stand_in
from tritmark.harness.locks import locked
from tritmark.harness.machine.repository import OUTSIDE, git, must_be_whole, refused_by_git
from tritmark.harness.store import write_atomically

KEPT_S = 30 * 86400.0
_LOG_LINES = 25
_DIGEST = ".sha256"
_LOG = logging.getLogger(__name__)
_CYTHON, _OF_CYTHON = ".pyx", (".c", ".cpp")
_COMPILED = frozenset({".c", ".cc", ".cpp", ".cxx", _CYTHON})
_COMPILERS = "ccache"
"""Folder of the compiler wrappers. A build that recognizes ccache by this name precompiles no header: ccache cannot
cache objects that use one."""
_OTHERWISE = frozenset({"PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"})
"""Environment variables that would change where pip installs a build or imports modules from."""
_FLAGS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "TRITMARK_CFLAGS")
"""Environment variables that change the machine code."""


@dataclass(frozen=True, slots=True)
class Built:
    """A build's folder, and its origin."""

    given: str
    site: Path
    commit: str = ""
    subject: str = ""

    def digest(self) -> str:
        """SHA-256 over the names and contents of its files."""
        return site_digest(self.site)


@dataclass(frozen=True)
class BuildProgress:
    """The progress of a revision that is being built."""

    title: str
    source: Path
    sources: int
    """Files to compile, as expected. A Cython file counts twice, because it is translated to C first."""

    @cached_property
    def _of_cython(self) -> tuple[str, ...]:
        found = [path.relative_to(self.source).as_posix() for path in self.source.rglob(f"*{_CYTHON}")]
        return tuple(f"/{name.removesuffix(_CYTHON)}{end}" for name in found for end in _OF_CYTHON)

    def compiled(self) -> int:
        """Number of files compiled so far: objects, and C made from Cython, below `source`. The C lies beside its
        source, or under the same path in a folder of the build."""
        try:
            found = [path for path in self.source.rglob("*") if path.suffix in {".o", *_OF_CYTHON}]
            return sum(path.suffix == ".o" or path.as_posix().endswith(self._of_cython) for path in found)
        except OSError:  # it is being removed
            return self.sources


def built(
    given: str,
    begun: Callable[[BuildProgress], None] = lambda making: None,
    folder: Path | None = None,
    part: BuildPart = WHOLE,
) -> Built:
    """The build that `given` names: a `.whl`, a folder with installed packages, or a revision of the git repository in
    `folder` (by default the current folder). `begun` is called if a revision is compiled. Of a revision, `part`
    suffices.

    Raises UsageError if `given` is none of these, and BuildError if it cannot be built.
    """
    path = Path(given)
    if given.endswith(".whl"):
        must_exist(given)
        digest = sha256(path.read_bytes()).hexdigest()
        return Built(given, _cached(digest, lambda site: _unpack(path, site)))
    if path.is_dir() and any(path.glob("*.dist-info")):
        return Built(given, path.resolve())
    commit, subject, top = _revision(given, folder or Path.cwd())
    key = f"{commit}-{sysconfig.get_config_var('SOABI')}-{sha256(_compiler().encode()).hexdigest()[:12]}"
    narrowed = _folder() / f"{key}{part.mark}"
    if (_folder() / key).is_dir() or (narrowed.is_dir() and lacks(narrowed)):
        part = WHOLE

    def make(site: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="tritmark-gate-") as name:
            source = Path(name, "source")
            for some in dict.fromkeys((part, WHOLE)):
                _export(top, commit, source)
                dropped = narrow(source, some)
                _must_have_compiler(source, given)
                begun(BuildProgress(f"{given} ({commit[:10]})", source, _sources(source, dropped)))
                try:
                    wheel = _wheel(Path(name), given)
                except BuildError:
                    if not dropped:
                        raise
                    shutil.rmtree(source)  # its build lists the modules, or is broken: the whole build shows which
                    continue
                _unpack(wheel, site)
                stand_in(site, some, dropped)
                return

    return Built(given, _cached(f"{key}{part.mark}", make), commit, subject)


def must_exist(given: str, folder: Path | None = None) -> None:
    """Raises UsageError if `given` is neither a wheel, nor a folder with packages, nor a revision."""
    path = Path(given)
    if given.endswith(".whl"):
        if not path.is_file():
            raise UsageError(f"{given}: no such file; legal: an existing wheel")
    elif not (path.is_dir() and any(path.glob("*.dist-info"))):
        _revision(given, folder or Path.cwd())


def _revision(given: str, folder: Path) -> tuple[str, str, Path]:
    """Full hash and subject of the commit, and the top folder of the repository. Raises UsageError."""
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
    except subprocess.CalledProcessError as why:
        if OUTSIDE not in why.stderr:
            raise refused_by_git(folder, why.stderr) from None
        raise UsageError(
            f"{given!r} is neither a wheel nor a folder with installed packages, and {folder} is not a git "
            "repository; next: run this command in a checkout"
        ) from None
    try:
        commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{commit}}")
    except subprocess.CalledProcessError:
        must_be_whole(Path(top), given)
        raise UsageError(
            f"{given!r} is not a revision of {top}; legal: a revision that `git rev-parse` knows, a .whl, or a folder "
            "of packages"
        ) from None
    return commit, _git(folder, "log", "-1", "--format=%s", commit), Path(top)


def _git(folder: Path, *arguments: str) -> str:
    try:
        return git(folder, *arguments)
    except OSError as why:
        raise BadEnvironmentError(
            f"git cannot be run ({why.strerror})", next_step="install git, or gate two wheels or folders"
        ) from None


def _export(top: Path, commit: str, to: Path) -> None:
    """The tracked files of a commit."""
    to.mkdir()
    tar = to.with_suffix(".tar")
    try:
        _git(top, "archive", "--format=tar", f"--output={tar}", commit)
        subprocess.run(["tar", "-x", "-f", str(tar), "-C", str(to)], capture_output=True, text=True, check=True)
    except OSError as why:
        raise BadEnvironmentError(f"tar cannot be run ({why.strerror})", next_step="install tar") from None
    except subprocess.CalledProcessError as why:
        raise BadEnvironmentError(
            f"{commit} could not be exported from {top}: {why.stderr.strip()}",
            next_step="free disk space (TMPDIR), or fetch missing objects: git fetch --refetch",
        ) from None
    tar.unlink()


def _sources(source: Path, without: Collection[str] = ()) -> int:
    """Number of C, C++ and Cython files. If there is Cython, only top folders with Cython count: others hold examples
    and tests. Files below folders named in `without` are left out: a module's files lie in a folder of its name."""
    found = [path.relative_to(source) for path in source.rglob("*") if path.suffix in _COMPILED and path.is_file()]
    rooms = {path.parts[0] for path in found if path.suffix == _CYTHON}
    given = [
        path
        for path in found
        if (not rooms or path.parts[0] in rooms) and not any(part in without for part in path.parts[:-1])
    ]
    return len(given) + sum(path.suffix == _CYTHON for path in given)


def _wheel(folder: Path, given: str) -> Path:
    wheels = folder / "wheels"
    _run(["wheel", "--no-deps", "--wheel-dir", str(wheels), str(folder / "source")], folder, f"{given} does not build")
    found = list(wheels.glob("*.whl"))
    if len(found) != 1:
        raise BuildError(f"{given}: its build made {len(found)} wheels; legal: 1")
    return found[0]


def _unpack(wheel: Path, site: Path) -> None:
    arguments = ["install", "--no-deps", "--no-index", "--no-compile", "--target", str(site), str(wheel.resolve())]
    _run(arguments, site.parent, f"{wheel.name} cannot be unpacked")


def _run(arguments: Sequence[str], folder: Path, failed: str) -> None:
    """Run this Python's pip, without environment variables that redirect it. Raises BuildError with the end of its
    log."""
    environment = {name: value for name, value in os.environ.items() if name not in _OTHERWISE}
    environment |= cached_compilers(_folder() / _COMPILERS, environment)
    # Not importlib.util.find_spec: setuptools hooks it and treats a search for pip as a start of pip.
    if PathFinder.find_spec("pip") is None:
        raise BadEnvironmentError(
            f"{sys.executable} has no pip, which builds commits and unpacks wheels",
            next_step=f"{sys.executable} -m ensurepip, or install your system's python3-pip",
        )
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        compiler = _compiler_command()[0]
        if shutil.which(compiler) is None:
            raise _no_compiler(failed, compiler)
        end = "\n".join(done.stdout.strip().splitlines()[-_LOG_LINES:])
        raise BuildError(f"{failed} (pip ended with status {done.returncode}); the end of its log:\n{end}")


def _must_have_compiler(source: Path, given: str) -> None:
    """Raises BadEnvironmentError if a commit has Cython and there is no compiler: its build would translate all of it
    to C first, which takes a minute."""
    compiler = _compiler_command()[0]
    if shutil.which(compiler) is None and next(source.rglob(f"*{_CYTHON}"), None) is not None:
        raise _no_compiler(f"{given} must be compiled", compiler)


def _no_compiler(failed: str, compiler: str) -> BadEnvironmentError:
    return BadEnvironmentError(
        f"{failed}, and the compiler {compiler} is not installed",
        next_step=f"install it ({INSTALL}), or set CC, or gate two wheels",
    )


def _compiler() -> str:
    """The compiler's command, version and flags, which determine the machine code of a source."""
    command = _compiler_command()
    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""  # a build that needs a compiler reports that there is none
    return "\n".join(
        [" ".join(command), said, *(f"{name}={os.environ[name]}" for name in _FLAGS if name in os.environ)]
    )


def _compiler_command() -> tuple[str, ...]:
    return command_of(os.environ.get("CC", "").strip() or sysconfig.get_config_var("CC") or "cc", "CC")


def _cached(key: str, make: Callable[[Path], None]) -> Path:
    """The folder of that key in the user's cache. `make` fills it if it does not exist yet."""
    cache = _folder()
    site = cache / key
    with locked(cache / f"{key}.lock"):
        digest = cache / f"{key}{_DIGEST}"
        if site.is_dir() and not _whole(site, digest):
            if digest.exists():
                _LOG.warning("%s is damaged, so it is built anew", site)
            shutil.rmtree(site)
        if not site.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as name:
                fresh = Path(name, "site")
                make(fresh)
                write_atomically(digest, all_digest(fresh))
                fresh.rename(site)
            _tidy(cache)
        os.utime(site)
    return site


def _whole(site: Path, digest: Path) -> bool:
    """Whether a stored build has the contents that it was stored with. Damaged code would count against a commit."""
    try:
        return digest.read_text(encoding="ascii") == all_digest(site)
    except (OSError, UnicodeDecodeError):
        return False


def _folder() -> Path:
    cache = cache_folder("gate")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as why:
        raise BadEnvironmentError(
            f"{cache}: builds cannot be stored there: {why.strerror or why}", next_step=f"set {CACHE} to another folder"
        ) from None
    if cache.stat().st_uid != os.geteuid():
        raise BadEnvironmentError(
            f"{cache} belongs to another user, who could change the code that runs",
            next_step=f"set {CACHE} to a folder of your own",
        )
    if not runs_code(cache):
        raise BadEnvironmentError(
            f"{cache} is mounted noexec, so no build can be loaded from there",
            next_step=f"set {CACHE} to a folder on another file system",
        )
    return cache


def _tidy(cache: Path) -> None:
    """Remove the builds that were last used more than KEPT_S seconds ago."""
    from filelock import Timeout

    for site in cache.iterdir():
        if not site.is_dir() or site.name == _COMPILERS or time.time() - site.stat().st_mtime <= KEPT_S:
            continue
        with suppress(Timeout), locked(cache / f"{site.name}.lock", 0):
            shutil.rmtree(site, ignore_errors=True)
            (cache / f"{site.name}{_DIGEST}").unlink(missing_ok=True)
