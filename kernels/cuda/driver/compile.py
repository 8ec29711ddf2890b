"""The compile step: a .cu file becomes a cubin for one architecture, kept in tritmark's own cache.

The semantics are those of PyCUDA's `SourceModule(text, no_extern_c=True, cache_dir=False, options=..., arch=...)`: nvcc
compiles a source text in a temporary folder with the given options, and `pycuda.driver.module_from_buffer` loads the
result (driver.py). nvcc runs here, because `pycuda.compiler` imports the driver (static checks run without one), warns
about every output of nvcc (such as ptxas's report, which kernels.cuda.launch.resources reads), and does not write its
cache atomically. TRITMARK_CUDA_LOADER=sourcemodule selects SourceModule itself (source_module.py).

The text is stored with its local #includes at the same relative paths and compiled without line information. So the
cubin does not depend on where tritmark is installed, and its hash is equal for equal compiler, source and options.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePath

from tritmark.harness import caches
from tritmark.harness.errors import BadEnvironmentError, CompileError, DeviceUnavailableError, UsageError
from tritmark.harness.locks import locked
from tritmark.harness.nearest import nearest
from tritmark.kernels.cuda.kernel import Kernel

OPTIONS = ("-fmad=false", "-O3", "-std=c++17")
"""For every kernel. Without fused multiply-adds the bits equal those of the CPU kernels."""

CACHE = caches.CACHE
"""Environment variable: see harness.caches."""
NVCC = "TRITMARK_NVCC"
"""Environment variable: the nvcc to use."""

LOADER = "TRITMARK_CUDA_LOADER"
"""Environment variable: the compiler and loader of kernels for PyCUDA's context, "nvcc" (the default, see above) or
"sourcemodule"."""
SOURCE_MODULE = "sourcemodule"
_LOADERS = ("nvcc", SOURCE_MODULE)

LIMIT_S = 600
_LOG = logging.getLogger(__name__)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
FLAGS = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
"""Environment variables with options that an installation needs, such as -ccbin. nvcc reads them, and they are part of
the cache's key."""
ARCHITECTURES = ("-arch", "-gencode", "--gpu-architecture", "--generate-code")
"""Prefixes of options that name an architecture."""
REPORT = ("-Xptxas", "-v")
"""The options for ptxas's report, whose source names are part of the code."""


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled source for one architecture."""

    code: bytes
    report: str
    """Output of nvcc and ptxas (-v)."""
    cached: bool
    """Whether it came from the cache."""

    @property
    def hash(self) -> str:
        """SHA-256 of the code."""
        return sha256(self.code).hexdigest()


@cache
def find_nvcc() -> Path:
    """The compiler: TRITMARK_NVCC, CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda, then PyPI's nvidia-cuda-nvcc (13 and
    later have an nvcc).

    Raises UsageError if TRITMARK_NVCC is no executable file, and DeviceUnavailableError if no compiler is found.
    """
    reported = os.environ.get(NVCC, "").strip()
    if reported:
        if not os.access(reported, os.X_OK) or Path(reported).is_dir():
            raise UsageError(f"{NVCC} is {reported!r}; legal: the path of an executable nvcc")
        return Path(reported)
    for candidate in _candidates():
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise DeviceUnavailableError(
        "no CUDA compiler was found",
        next_step="pip install 'nvidia-cuda-nvcc>=13' 'nvidia-cuda-cccl>=13', or install the CUDA toolkit, or set "
        f"{NVCC} to its nvcc",
    )


def _candidates() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        folder = os.environ.get(variable, "").strip()
        if folder:
            yield Path(folder) / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    if on_path:
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/nvcc")
    from importlib.util import find_spec

    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(folder).glob("cu[0-9]*/bin/nvcc"), reverse=True)


def _run(arguments: Sequence[str | Path], folder: Path | None = None) -> tuple[int, str]:
    """Exit status, and the text of both outputs."""
    import subprocess

    try:
        done = subprocess.run(
            [str(argument) for argument in arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    except OSError as why:
        raise BadEnvironmentError(
            f"{arguments[0]} cannot be run ({why})", next_step=f"set {NVCC} to a working nvcc"
        ) from None
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"{arguments[0]} took over {LIMIT_S} s", next_step="make the source smaller, or try another compiler"
        ) from None
    return done.returncode, done.stdout.decode("utf-8", "replace")


@cache
def _version_text(nvcc: Path) -> str:
    status, said = _run([nvcc, "--version"])
    if status or "release" not in said:
        raise BadEnvironmentError(
            f"{nvcc} --version failed: {said.strip()[-200:]}", next_step=f"set {NVCC} to a working nvcc"
        )
    return said


def compiler() -> str:
    """Name and version, such as "nvcc 13.0.88". Raises the errors of find_nvcc, and BadEnvironmentError if it does not
    run."""
    found = re.search(r"\bV(\d[\d.]*)", text := _version_text(find_nvcc()))
    return f"nvcc {found[1]}" if found else text.strip().splitlines()[-1]


@cache
def architectures() -> tuple[str, ...]:
    """Architectures that the compiler supports, such as ("sm_75", "sm_80", ...), oldest first."""
    status, said = _run([find_nvcc(), "--list-gpu-arch"])
    found = {int(number) for number in re.findall(r"^compute_(\d+)\s*$", said, re.MULTILINE)}
    if status or not found:
        raise BadEnvironmentError(
            f"nvcc --list-gpu-arch failed: {said.strip()[-200:]}", next_step=f"set {NVCC} to a working nvcc"
        )
    return tuple(f"sm_{number}" for number in sorted(found))


def loaded_by_pycuda() -> bool:
    """Whether TRITMARK_CUDA_LOADER selects SourceModule. Raises UsageError for an unknown value."""
    chosen = os.environ.get(LOADER, "").strip().lower() or _LOADERS[0]
    if chosen not in _LOADERS:
        raise UsageError(f"{LOADER} is {chosen!r}; {nearest(chosen, _LOADERS)}")
    return chosen == SOURCE_MODULE


def compile_kernel(kernel: Kernel, arch: str) -> Cubin:
    """The cubin of the kernel's source with its macros and options, for `arch` (sm_90) unless its own options name an
    architecture.

    Raises CompileError with nvcc's output, and the errors of find_nvcc.
    """
    return compile_source(kernel.path, options_of(kernel, arch))


def compiled_before(kernel: Kernel, arch: str) -> Cubin | None:
    """The cubin from the cache; None if it is not there. Raises the errors of find_nvcc."""
    options = options_of(kernel, arch)
    return _load(stored_as(find_nvcc(), local_sources(kernel.path), options))


def options_of(kernel: Kernel, arch: str) -> tuple[str, ...]:
    """The options of nvcc for the kernel and `arch`."""
    defines = [f"-D{name}={value}" for name, value in kernel.defines]
    own = any(option.startswith(ARCHITECTURES) for option in kernel.options)
    # Code for exactly one capability has an architecture of its own: sm_90a.
    exact = "".join(map(str, kernel.capability)) + "a"
    made = [f"-gencode=arch=compute_{exact},code=sm_{exact}"] if kernel.specific else [f"-arch={arch}"]
    target = [] if own else made
    return (*OPTIONS, *target, *defines, *kernel.options)


def stored_as(nvcc: Path, sources: dict[PurePath, str], options: Sequence[str]) -> Path:
    """The path of the result in the cache."""
    parts: list[object] = [[(str(name), text) for name, text in sources.items()], list(options), _version_text(nvcc)]
    flags = {name: os.environ[name] for name in FLAGS if os.environ.get(name)}
    key = sha256(json.dumps([*parts, flags] if flags else parts).encode()).hexdigest()
    return cache_folder() / f"{key}.cubin"


def compile_source(path: Path, options: Sequence[str]) -> Cubin:
    """The cubin of a .cu file, from the cache or newly compiled. One process compiles; others that need it wait."""
    nvcc = find_nvcc()
    sources = local_sources(path)
    stored = stored_as(nvcc, sources, options)
    folder = stored.parent
    found = _load(stored)
    if found:
        return found
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            must_be_private(folder)
            stack.enter_context(locked(stored.with_suffix(".lock")))
        except OSError as why:
            not_kept(folder, why)
            return _compile(nvcc, sources, options)
        return _load(stored) or _store(stored, _compile(nvcc, sources, options))


def not_kept(folder: Path, why: OSError) -> None:
    """Log a warning that the cache cannot be used, and why."""
    _LOG.warning(
        "nothing can be kept in %s (%s), so kernels are compiled anew in each process; next: set %s", folder, why, CACHE
    )


def cache_folder() -> Path:
    """The folder of cached cubins."""
    return caches.cache_folder("cubin")


def must_be_private(folder: Path) -> None:
    """Raises UsageError if other users could put code into the folder that this process would run."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{folder} belongs to, or can be written by, others; legal: a folder of your own: chmod 700, or set {CACHE}"
        )


def local_sources(path: Path) -> dict[PurePath, str]:
    """The text of a source and of every local #include that it names, itself first, by their paths relative to a common
    folder."""
    texts: dict[Path, str] = {}
    waiting = [path.resolve()]
    while waiting:
        current = waiting.pop(0)
        if current in texts:
            continue
        try:
            texts[current] = current.read_text(encoding="utf-8")
        except OSError as why:
            raise CompileError(
                f"{current} cannot be read ({why})", next_step="reinstall tritmark, or correct the kernel's file name"
            ) from None
        # A quoted name that does not exist is left to the compiler.
        waiting += [
            near for name in _INCLUDE.findall(texts[current]) if (near := (current.parent / name).resolve()).is_file()
        ]
    top = Path(os.path.commonpath([source.parent for source in texts]))
    return {source.relative_to(top): text for source, text in texts.items()}


def _load(stored: Path) -> Cubin | None:
    """The cached cubin, or None if it is missing or damaged."""
    try:
        must_be_private(stored.parent)
        reported, _, rest = stored.read_bytes().partition(b"\n")
    except OSError:
        return None
    if sha256(rest).hexdigest().encode() != reported:
        _LOG.warning("%s is damaged, so it is compiled anew", stored)
        return None
    report, _, code = rest.partition(b"\n")
    return Cubin(code, json.loads(report), cached=True)


def _store(stored: Path, made: Cubin) -> Cubin:
    """Write the file atomically: its SHA-256, a line with the report, the code."""
    rest = json.dumps(made.report).encode() + b"\n" + made.code
    temporary = stored.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(sha256(rest).hexdigest().encode() + b"\n" + rest)
        os.replace(temporary, stored)
    except OSError as why:
        temporary.unlink(missing_ok=True)
        not_kept(stored.parent, why)
    return made


def _compile(nvcc: Path, sources: dict[PurePath, str], options: Sequence[str]) -> Cubin:
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix="tritmark-") as scratch:
            return _compile_in(Path(scratch), nvcc, sources, options)
    except OSError as why:
        raise BadEnvironmentError(
            f"no scratch folder for the compiler ({why})", next_step="free some space there, or set TMPDIR"
        ) from None


def _compile_in(folder: Path, nvcc: Path, sources: dict[PurePath, str], options: Sequence[str]) -> Cubin:
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    source = next(iter(sources))
    status, said = _run([nvcc, "-cubin", *REPORT, *options, "-o", "out.cubin", str(source)], folder)
    if status:
        _must_compile(folder, nvcc, options)
        raise refused(source, options, said)
    return Cubin((folder / "out.cubin").read_bytes(), said, cached=False)


def _must_compile(folder: Path, nvcc: Path, options: Sequence[str]) -> None:
    """Raises BadEnvironmentError if nvcc cannot compile even an empty kernel for that architecture, for instance
    because the system's g++ is too new. The kernel is not at fault then."""
    (folder / "probe.cu").write_text('extern "C" __global__ void probe() {}\n', encoding="utf-8")
    target = [each for each in options if each.startswith(ARCHITECTURES)]
    status, said = _run([nvcc, "-cubin", *target, "-o", "probe.cubin", "probe.cu"], folder)
    if status:
        raise BadEnvironmentError(
            f"nvcc cannot compile ({' '.join(_with_environment(target))}), even an empty kernel:\n{_errors(said)}\n",
            next_step=(_remedy(said) or f"name a host compiler that it supports: {FLAGS[0]}=-ccbin=g++-13")
            + ", or run without the GPU: --device cpu",
        )


def _with_environment(options: Sequence[str]) -> list[str]:
    return [*options, *(f"{name}={os.environ[name]}" for name in FLAGS if os.environ.get(name))]


def refused(source: PurePath, options: Sequence[str], said: str) -> CompileError:
    """The error for a source that nvcc refused, with its output."""
    return CompileError(
        f"{source} does not compile ({' '.join(_with_environment(options))}):\n{_errors(said)}\n",
        next_step=_remedy(said) or "correct the source; CPU kernels are not affected",
    )


def _errors(said: str) -> str:
    """The compiler's output without ptxas's report, at most 2000 characters."""
    lines = [row for row in said.splitlines() if row.strip() and not row.startswith("ptxas info")]
    text = "\n".join(lines)
    return text if len(text) <= 2000 else text[:2000] + "\n..."


def _remedy(said: str) -> str:
    """The remedy for a fault of the installation that nvcc reports; "" for other faults."""
    if "Unsupported gpu architecture" in said:
        return (
            f"{compiler()} supports {', '.join(architectures())}; install a toolkit that supports the device, "
            "or use the CPU"
        )
    if shutil.which("g++") is None:
        return "install g++, which nvcc needs"
    if "nv/target" in said:
        return "pip install nvidia-cuda-cccl of nvcc's version"
    return ""
