"""g++ for the simulator: a .cu file becomes a shared object, kept in a separate cache.

After macro expansion three words are replaced, for which g++ has no equivalent. `__global__` is removed, and each
kernel gets an entry that takes its arguments as the driver does. `__shared__` variables become static ones in a
separate section, each after a gap that no kernel may access. `extern __shared__` arrays become pointers to memory of
the size in the launch.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tritmark.harness.caches import CACHE, runs_code
from tritmark.harness.errors import BadEnvironmentError, CompileError, DeviceUnavailableError
from tritmark.harness.locks import locked
from tritmark.kernels.cuda.driver.compile import cache_folder, local_sources, must_be_private
from tritmark.kernels.cuda.kernel import Kernel

HERE = Path(__file__).parent
SECTION = "tritmark_shared"
_DIGEST = ".sha256"
_LOG = logging.getLogger(__name__)

# Bits as on the device (no contraction), accesses as in the source (no vectors, no split aggregates), no conclusions
# from undefined behaviour, and a call before each access.
_FLAGS = (
    "-std=c++17",
    "-O1",
    "-g1",
    "-fPIC",
    "-fvisibility=hidden",
    "-w",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fno-aggressive-loop-optimizations",
    "-fno-delete-null-pointer-checks",
    "-fno-tree-sra",
    "-fno-ipa-sra",
    "-fno-toplevel-reorder",
    "-fno-section-anchors",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
)
_RUNTIME_FLAGS = [
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wall",
    "-Wextra",
]

_DYNAMIC = re.compile(
    r"\bextern\s+__shared__\s+((?:__attribute__\s*\(\(.*?\)\)|alignas\s*\(.*?\))\s*)?([\w:\s]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
_STATIC = re.compile(
    r"\b(?:static\s+)?((?:__attribute__\s*\(\([^()]*\([^()]*\)\)\)|alignas\s*\([^()]*\))\s*)?__shared__\b(?:\s+static\b)?"
)
_KERNEL = re.compile(
    r'\bextern\s+"C"\s+__global__\s+(?:__attribute__\s*\(\(.*?\)\)\s*)*void\s+(?:__attribute__\s*\(\(.*?\)\)\s*)*(\w+)\s*\('
)


def _run(command: Sequence[str | Path], text: str | None = None, folder: Path | None = None) -> str:
    """The output of the command. Raises CompileError with its error text."""
    import subprocess

    try:
        done = subprocess.run(
            list(map(str, command)), input=text, capture_output=True, text=True, cwd=folder, check=False
        )
    except OSError as why:
        raise BadEnvironmentError(
            f"{command[0]} cannot be run ({why})", next_step="install g++, and check the limits (ulimit -a)"
        ) from None
    if done.returncode:
        said = done.stderr.strip()
        raise CompileError(
            f"g++ for the simulator: {said if len(said) <= 2000 else said[:2000] + ' ...'}",
            next_step="correct the source, or add the missing feature to the simulator",
        )
    return done.stdout


@cache
def compiler() -> tuple[str, str]:
    """Path of g++, and its version. Raises DeviceUnavailableError if it is missing."""
    found = shutil.which("g++")
    if found is None:
        raise DeviceUnavailableError(
            "the CUDA simulator needs g++", next_step="install g++ (Debian and Ubuntu: apt install g++), or use a GPU"
        )
    return found, _run([found, "--version"]).splitlines()[0]


@cache
def _headers() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((HERE / "include").iterdir())}


def _kept(parts: object, make: Callable[[Path], None], stem: str) -> Path:
    """The shared object made from `parts`, from the cache or newly made. Raises UsageError if other users could write
    to the cache, and BadEnvironmentError if nothing can be stored or loaded there."""
    folder = cache_folder().parent / "simulator"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        must_be_private(folder)
    except OSError as why:
        raise BadEnvironmentError(
            f"{folder} cannot be made: {why.strerror or why}", next_step=f"set {CACHE} to a folder that can be written"
        ) from None
    if not runs_code(folder):
        raise BadEnvironmentError(
            f"{folder} is mounted noexec, so no compiled kernel can be loaded from there",
            next_step=f"set {CACHE} to a folder on another mount",
        )
    path = (
        folder / f"{stem}-{sha256(json.dumps([parts, compiler()[1], os.uname().machine]).encode()).hexdigest()[:40]}.so"
    )
    if not _whole(path):
        with locked(folder / f"{path.stem}.lock"):
            if not _whole(path):
                _make(path, make)
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    """Make the file and the digest beside it. A process that ends between the two leaves a file that is made again."""
    digest = path.with_suffix(_DIGEST)
    if path.exists() and digest.exists():
        _LOG.warning("%s is damaged, so it is compiled anew", path)
    temporaries = [each.with_suffix(f"{each.suffix}.{os.getpid()}.tmp") for each in (path, digest)]
    try:
        make(temporaries[0])
        temporaries[1].write_text(sha256(temporaries[0].read_bytes()).hexdigest(), encoding="ascii")
        for temporary, each in zip(temporaries, (path, digest), strict=True):
            temporary.replace(each)
    except OSError as why:
        raise BadEnvironmentError(
            f"{path} cannot be written: {why.strerror or why}",
            next_step=f"free some space, or set {CACHE} to a folder on another disk",
        ) from None
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _whole(path: Path) -> bool:
    """Whether the file is there and has its digest: code that is cut short would crash the process of a kernel."""
    try:
        return path.with_suffix(_DIGEST).read_bytes() == sha256(path.read_bytes()).hexdigest().encode()
    except OSError:
        return False


@cache
def runtime() -> Path:
    """The compiled runtime."""
    source = HERE / "runtime.cpp"
    text = source.read_text(encoding="utf-8")
    name = f"tritmark-simulator-{sha256(text.encode()).hexdigest()[:16]}.so"

    def make(into: Path) -> None:
        try:
            _run([compiler()[0], *_RUNTIME_FLAGS, "-shared", f"-Wl,-soname,{name}", "-o", into, source, "-ldl"])
        except CompileError as why:  # tritmark's own source: no kernel is at fault
            raise BadEnvironmentError(why.found, next_step="install another g++, or omit --device cuda") from None

    return _kept([text, _RUNTIME_FLAGS], make, "runtime")


def module(kernel: Kernel, capability: tuple[int, int]) -> Path:
    """The kernel's source, compiled with its macros for a device of that capability. Raises CompileError,
    DeviceUnavailableError."""
    sources = {str(name): text for name, text in local_sources(kernel.path).items()}
    defines = [f"-D{name}={value}" for name, value in kernel.defines]
    defines += ["-DTRITMARK_SIMULATOR", "-D__CUDACC__", f"-D__CUDA_ARCH__={capability[0] * 100 + capability[1] * 10}"]
    built = runtime()

    def make(into: Path) -> None:
        gxx = compiler()[0]
        include = HERE / "include"
        expanded = _run(
            [
                gxx,
                "-E",
                *_FLAGS,
                *defines,
                f"-I{include}",
                "-include",
                "tritmark_cuda.h",
                "-x",
                "c++",
                kernel.path.name,
            ],
            folder=kernel.path.parent,
        )
        with TemporaryDirectory(prefix="tritmark-") as scratch:
            made = Path(scratch) / "module.o"
            # Equal code wherever tritmark is installed.
            places = [f"-ffile-prefix-map={include}=simulator/include", f"-ffile-prefix-map={kernel.path.parent}=."]
            _run(
                [gxx, "-c", *_FLAGS, *places, "-x", "c++-cpp-output", "-o", made, "-"],
                text=rewritten(expanded),
                folder=kernel.path.parent,
            )
            _run([gxx, "-shared", "-o", into, made, built])

    return _kept(
        [sources, _headers(), defines, _FLAGS, HERE.joinpath("toolchain.py").read_text(encoding="utf-8"), built.name],
        make,
        kernel.path.stem,
    )


def rewritten(text: str) -> str:
    """Macro-expanded source text in the form that g++ accepts."""
    gaps = iter(range(1 << 30))

    def variable(found: re.Match[str]) -> str:
        place = f'__attribute__((section("{SECTION}")))'
        return (
            f"static __attribute__((used)) {place} char tritmark_gap_{next(gaps)}[64]; {found[1] or ''}static "
            f"__constinit {place}"
        )

    def dynamic(found: re.Match[str]) -> str:
        return f"{found[2]}* const {found[3]} = static_cast<{found[2]}*>(tritmark_dynamic_shared());"

    names = list(dict.fromkeys(_KERNEL.findall(text)))
    text = _STATIC.sub(variable, _DYNAMIC.sub(dynamic, text)).replace("__global__", "")
    exported = 'extern "C" __attribute__((visibility("default")))'
    entries = "".join(
        f"{exported} void tritmark_entry_{name}(void** arguments) {{ tritmark_enter(&{name}, arguments); }}\n"
        f"{exported} const char* tritmark_parameters_{name}() {{ return tritmark_parameters(&{name}); }}\n"
        for name in names
    )
    return f'{text}\n{entries}static __attribute__((used, section("{SECTION}"))) char tritmark_last[256];\n'


@cache
def _symbols(built: Path) -> dict[str, tuple[int, int]]:
    """Address and size of all symbols of a module that have both."""
    lines = [line.split() for line in _run([shutil.which("nm") or "nm", "-S", "--defined-only", built]).splitlines()]
    return {line[3]: (int(line[0], 16), int(line[1], 16)) for line in lines if len(line) == 4}


def shared_variables(built: Path, kernel: str) -> tuple[tuple[int, int], list[tuple[int, int, str]]]:
    """Begin and end of the module's shared section, and (address, bytes, name) of the kernel's variables in it,
    relative to the module.

    Variables of helper functions count for every kernel, because their callers are not known.
    """
    symbols = _symbols(built)
    edges = [symbols[f"_ZL{len(name)}{name}"] for name in ("tritmark_first", "tritmark_last")]
    begin, end = min(edge[0] for edge in edges), max(sum(edge) for edge in edges)
    mine = []
    for symbol, (address, nbytes) in symbols.items():
        if begin <= address < end and not re.search("tritmark_(first|last|gap_)", symbol):
            owner, name = _local_name(symbol)
            if owner == kernel or f"tritmark_entry_{owner}" not in symbols:
                mine.append((address, nbytes, name))
    return (begin, end), sorted(mine)


def _local_name(symbol: str) -> tuple[str, str]:
    """Function and name of its local variable, from _ZZ6kernelE4tile; for other symbols "" and the symbol."""
    found = re.match(r"_ZZ(\d+)(\w+)", symbol)
    if found is None:
        return "", symbol
    owner, rest = found[2][: int(found[1])], found[2][int(found[1]) :]
    name = re.match(r"E(\d+)(\w+)", rest)
    return owner, name[2][: int(name[1])] if name else symbol


def source_line(built: Path, pc: int) -> str:
    """ "file:line" of the instruction that returns to `pc` within the module, with the callers it was inlined into;
    "" if not known."""
    tool = shutil.which("addr2line")
    if tool is None or not pc:
        return ""
    said = _run([tool, "-i", "-e", built, hex(pc - 1)]).split("\n")
    places = [
        place.split(" (")[0] for place in said if place and "?" not in place and "simulator/include/" not in place
    ]
    return ", called at ".join(
        f"{Path(file).name}:{line}" for file, _, line in (place.rpartition(":") for place in places)
    )


class FaultStruct(ctypes.Structure):
    """The struct of that name in runtime.cpp."""

    _fields_ = (
        ("text", ctypes.c_char * 512),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
    )


class LaunchRequest(ctypes.Structure):
    """The struct of that name in runtime.cpp."""

    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("seconds", ctypes.c_uint64),
        ("module_begin", ctypes.c_uint64),
        ("module_end", ctypes.c_uint64),
        ("shared_begin", ctypes.c_uint64),
        ("shared_end", ctypes.c_uint64),
        ("ranges", ctypes.c_void_p),
        ("range_count", ctypes.c_uint64),
    )
