"""Whether code queries its processor or environment at run time. If so, only the path for this machine was judged.

The whole file is examined, and the libraries from its folders that it is linked with: a constructor, a resolver of an
indirect function or a table of pointers may select the function that is called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from tritmark.harness.disassembly import tools
from tritmark.harness.spec import CodeFile

_INSTRUCTIONS = re.compile(
    r"^\s*[0-9a-f]+:\s+(?:\w+\s+)?(cpuid|xgetbv|mrs\s+\w+,\s*id_aa64\w+|mrs\s+\w+,\s*midr_el1)\b",
    re.MULTILINE | re.IGNORECASE,
)
_CALLS = re.compile(
    r"\b(getauxval|elf_aux_info|__x86_get_cpuid_feature_leaf|__cpu_model|__cpu_features2?|__cpu_indicator_init|"
    r"__init_cpu_features\w*|__aarch64_cpu_features|__riscv_hwprobe|__get_cpuid\w*|cpuinfo_\w+|"
    r"getenv|secure_getenv|uname|gethostname|get_nprocs|sched_getcpu|"
    # Time and process, by names that a kernel's own functions may have too.
    r"(?:getpid|getppid|gettid|getuid|time|gettimeofday|localtime|localtime_r|gmtime|gmtime_r|getrandom)(?=@))\b"
)
_LOADS = re.compile(r"\b(dlopen|dlmopen|dlsym|dlvsym|dl_iterate_phdr|LoadLibrary\w*)\b")
_FILES = ("/proc/cpuinfo", "/proc/self/auxv", "/proc/self/maps", "/sys/devices/system/cpu")
_INDIRECT = re.compile(r"^[0-9a-f]{8,} .{4}i|\bR_\w+_IRELATIVE?\b", re.MULTILINE)
"""A symbol whose address a resolver returns (STT_GNU_IFUNC), or its relocation."""
_NEEDED = re.compile(r"^\s*NEEDED\s+(\S+)", re.MULTILINE)
_PATHS = re.compile(r"^\s*(?:RPATH|RUNPATH)\s+(\S+)", re.MULTILINE)
_SYSTEM = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|omp|iomp5|atomic|util|cudart|cuda|python3.*))\.so.*"
)
"""Libraries of the languages and the system, which are not examined."""
_PYTHON = frozenset(
    {
        "cpuinfo",
        "get_cpu_info",
        "__cpu_features__",
        "__cpu_dispatch__",
        "get_cpu_capability",
        "cpu_features",
        "archspec",
        "cpufeature",
    }
)
"""Names under which Python packages report processor features."""
_PLATFORM = frozenset(
    {
        *("platform.processor", "platform.machine", "platform.node", "socket.gethostname"),
        *("os.uname", "os.environ", "os.getenv", "os.getpid", "os.getppid"),
        *("time.time", "time.time_ns", "time.localtime", "time.gmtime", "datetime.now", "datetime.datetime.now"),
    }
)
_PYTHON_LOADS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "dlopen", "load_library"})
_OUT_OF_SIGHT = "of code that was not examined"
_FEATURES = re.compile(
    r"(cpuid|xgetbv|getauxval|an indirect function|__cpu_model|__cpu_features2?|__cpu_indicator_init|__get_cpuid\w*|"
    r"__init_cpu_features\w*|cpuinfo_\w+|__x86_get_cpuid_feature_leaf|/proc/cpuinfo)( in .*)?|"
    rf".*(whose code was not examined|{_OUT_OF_SIGHT})( in .*)?"
)
"""Queries whose answer can be masked to fewer features; see spec.Masking."""
_MOST = 3
_X86 = b"\x3e\x00"
"""The field e_machine of an ELF file for x86-64."""


def asks(file: CodeFile) -> tuple[str, ...]:
    """The queries of processor and environment in the file, and code that may contain some and cannot be examined.

    Empty if nothing was found. Raises ToolError if no tool can read the file.
    """
    return _asks(file.path, file.kind == "python")


def of_features(found: Sequence[str]) -> tuple[str, ...]:
    """The answers of `asks` that are, or may be, queries of processor features."""
    asked = tuple(each for each in found if _FEATURES.fullmatch(each))
    # XGETBV reports the state that the system saves. It can be masked only through CPUID, which reports its presence.
    return asked if any("cpuid" in each for each in asked) else tuple(each for each in asked if "xgetbv" not in each)


def _foremost(found: Iterable[str]) -> list[str]:
    """The first _MOST distinct findings, queries of features first."""
    return sorted(dict.fromkeys(found), key=lambda each: not _FEATURES.fullmatch(each))[:_MOST]


@lru_cache(maxsize=64)
def _asks(path: str, python: bool) -> tuple[str, ...]:
    return tuple(_python(Path(path)) if python else _native(Path(path)))


def linked(file: CodeFile) -> tuple[str, ...]:
    """The file, and the libraries from its folders that it is linked with; () for a Python file. Raises ToolError."""
    return () if file.kind == "python" else tuple(str(each) for each, _ in _linked(Path(file.path)))


def _native(path: Path) -> Iterator[str]:
    for each, absent in _linked(path):
        where = "" if each == path else f" in {each.name}"
        yield from (f"{what}{where}" for what in _foremost(_of(each)))
        yield from (f"{name}, whose code was not examined{where}" for name in absent)


def _linked(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each linked file, with the names of the libraries that it needs and that were not found."""
    seen, waiting = {path.resolve()}, [path]
    while waiting:
        each = waiting.pop()
        absent = []
        head = tools.run("objdump", ["-p", str(each)])
        folders = [each.parent, *(Path(folder) for found in _PATHS.findall(head) for folder in _folders(found, each))]
        for name in _NEEDED.findall(head):
            if _SYSTEM.fullmatch(name):
                continue
            there = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if there is None:
                absent.append(name)
            elif there.resolve() not in seen:
                seen.add(there.resolve())
                waiting.append(there)
        yield each, absent


def _folders(found: str, path: Path) -> list[str]:
    origin = str(path.parent)
    return [each.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for each in found.split(":") if each]


def _of(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    syntax = ["-M", "intel"] if data[18:20] == _X86 else []
    code = tools.run("objdump", ["-d", "--no-show-raw-insn", *syntax, str(path)])
    yield from (" ".join(found.split()).lower() for found in _INSTRUCTIONS.findall(code))
    symbols = tools.run("objdump", ["-t", "-T", "-R", str(path)])
    yield from _CALLS.findall(symbols)
    if _INDIRECT.search(symbols):
        yield "an indirect function"
    yield from (f"{name} {_OUT_OF_SIGHT}" for name in _LOADS.findall(symbols))
    yield from (name for name in _FILES if name.encode() in data)


def _python(path: Path) -> Iterator[str]:
    source = path.read_bytes()
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [name for name in _FILES if name in node.value]
        elif isinstance(node, ast.alias):
            found += [name for name in node.name.split(".") if name in _PYTHON]
        elif isinstance(node, ast.ImportFrom):
            found += [name for name in (node.module or "").split(".") if name in _PYTHON]
        elif isinstance(node, ast.Attribute) and (whole := ast.unparse(node)) in _PLATFORM:
            found.append(whole)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in _PYTHON:
                found.append(name)
            elif name in _PYTHON_LOADS:
                found.append(f"{name} {_OUT_OF_SIGHT}")
    yield from _foremost(found)
