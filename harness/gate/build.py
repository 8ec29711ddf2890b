"""From a revision, a wheel or a folder to a folder with installed packages.

A revision is exported, built to a wheel by the project's own backend in pip's isolated environment, as asv does it, and
kept in the user's cache under its commit, the Python and the compiler. Whoever needs the same at the same time waits
for the first. What nobody has asked for in KEPT_S goes when something new is built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.gate.identity import site_digest
from tritmark.harness.gate.opened import BuildError

KEPT_S = 30 * 86400.0
_LOG_LINES = 25
_FLAGS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "TRITMARK_CFLAGS")
"""Environment variables that change what a compiler makes."""


@dataclass(frozen=True, slots=True)
class Built:
    """A build's folder, and where it comes from."""

    given: str
    site: Path
    commit: str = ""
    subject: str = ""

    def digest(self) -> str:
        """SHA-256 over the names and contents of its files."""
        return site_digest(self.site)


def built(given: str, told: Callable[[str], None] = lambda text: None, folder: Path | None = None) -> Built:
    """The build that `given` names: a `.whl`, a folder with installed packages, or a revision of the git repository in
    `folder` (the current one). `told` is told what is being done.

    Raises UsageError for what is none of these, BuildError where it cannot be built.
    """
    path = Path(given)
    if given.endswith(".whl"):
        if not path.is_file():
            raise UsageError(f"{given}: no such file")
        digest = sha256(path.read_bytes()).hexdigest()
        return Built(given, _cached(digest, lambda site: _unpack(path, site)))
    if path.is_dir() and any(path.glob("*.dist-info")):
        return Built(given, path.resolve())
    commit, subject, top = _revision(given, folder or Path.cwd())
    key = f"{commit}-{sysconfig.get_config_var('SOABI')}-{sha256(_compiler().encode()).hexdigest()[:12]}"

    def make(site: Path) -> None:
        told(f"building {given} ({commit[:10]})")
        with tempfile.TemporaryDirectory(prefix="tritmark-gate-") as name:
            _export(top, commit, Path(name, "source"))
            _unpack(_wheel(Path(name), given), site)

    return Built(given, _cached(key, make), commit, subject)


def _revision(given: str, folder: Path) -> tuple[str, str, Path]:
    """Full hash and subject of the commit, and the repository's top. Raises UsageError."""
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
    except subprocess.CalledProcessError:
        raise UsageError(
            f"{given!r} is neither a wheel nor a folder with installed packages, and {folder} is no git "
            "repository; go to a checkout"
        ) from None
    try:
        commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{commit}}")
    except subprocess.CalledProcessError:
        raise UsageError(
            f"{given!r} is no revision of {top}; legal: what `git rev-parse` takes, a .whl, or a folder of packages"
        ) from None
    return commit, _git(folder, "log", "-1", "--format=%s", commit), Path(top)


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise UsageError("git is not installed; gate two wheels or folders instead, or install git") from None
    return done.stdout.strip()


def _export(top: Path, commit: str, to: Path) -> None:
    """The tracked files of a commit."""
    to.mkdir()
    with subprocess.Popen(
        ["git", "-C", str(top), "archive", "--format=tar", commit], stdout=subprocess.PIPE
    ) as archive:
        unpacked = subprocess.run(
            ["tar", "-x", "-C", str(to)], stdin=archive.stdout, capture_output=True, text=True, check=False
        )
    if archive.returncode or unpacked.returncode:
        raise BuildError(
            f"{commit} could not be exported from {top}: {unpacked.stderr.strip() or 'git archive failed'}"
        )


def _wheel(folder: Path, given: str) -> Path:
    wheels = folder / "wheels"
    _run(["wheel", "--no-deps", "--wheel-dir", str(wheels), str(folder / "source")], folder, f"{given} does not build")
    found = list(wheels.glob("*.whl"))
    if len(found) != 1:
        raise BuildError(f"{given}: its build made {len(found)} wheels and one is needed")
    return found[0]


def _unpack(wheel: Path, site: Path) -> None:
    arguments = ["install", "--no-deps", "--no-index", "--no-compile", "--target", str(site), str(wheel.resolve())]
    _run(arguments, site.parent, f"{wheel.name} cannot be unpacked")


def _run(arguments: Sequence[str], folder: Path, failed: str) -> None:
    """pip, of this Python and without what this process was told to import from. Raises BuildError with the end of
    what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        end = "\n".join(done.stdout.strip().splitlines()[-_LOG_LINES:])
        raise BuildError(f"{failed} (pip ended with status {done.returncode}); the end of its log:\n{end}")


def _compiler() -> str:
    """What decides which machine code comes from the same source."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    try:
        said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""  # the build itself will say that there is no compiler, if it needs one
    return "\n".join([command, said, *(f"{name}={os.environ[name]}" for name in _FLAGS if name in os.environ)])


def _cached(key: str, make: Callable[[Path], None]) -> Path:
    """The folder of that key in the user's cache; `make` fills it where it is not there yet."""
    from filelock import FileLock
    from platformdirs import user_cache_path

    cache = user_cache_path("tritmark") / "gate"
    cache.mkdir(parents=True, exist_ok=True)
    site = cache / key
    with FileLock(cache / f"{key}.lock"):
        if not site.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as name:
                fresh = Path(name, "site")
                make(fresh)
                fresh.rename(site)
            _tidy(cache)
        os.utime(site)
    return site


def _tidy(cache: Path) -> None:
    """Remove the builds that were last asked for more than KEPT_S ago."""
    from filelock import FileLock, Timeout

    for site in cache.iterdir():
        if not site.is_dir() or time.time() - site.stat().st_mtime <= KEPT_S:
            continue
        with suppress(Timeout), FileLock(cache / f"{site.name}.lock", timeout=0):
            shutil.rmtree(site, ignore_errors=True)
