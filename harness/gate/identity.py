"""Whether two builds of a kernel have the same machine code. Unchanged code is not measured.

Two hashes must agree:

- The hash of the machine code. For a native module and those that it imports: the loaded sections of the files, without
  notes (which hold dates and build ids). For another device: the hash of its binaries, from the device.
- The hash of the Python sources that bind the kernel, and of their imports up to the harness: they choose block sizes
  and flags.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tritmark.harness.gate.opened import unwrapped
from tritmark.harness.gate.part import MARK

if TYPE_CHECKING:
    from tritmark.harness.gate.opened import OpenedBuild

_PER_INSTALLATION = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_CONTENT = 1
_ALLOCATED = 2
_HARNESS = __name__.rpartition(".gate.")[0]
"""The harness measures kernels and is not part of them."""


def code_hash(build: OpenedBuild, variant: Any, launch: Any) -> str:
    """SHA-256 of the code that runs for a variant; if that is unknown, of the whole build. Call it inside the build.

    `launch` is the variant bound to any data.
    """
    native = _native(build, variant, launch)
    if not native:
        return site_digest(build.site)
    digest = sha256(native.encode())
    for name, source in sorted(_sources(build, str(unwrapped(variant.bind).__module__)).items()):
        digest.update(f"\n{name} {sha256(source).hexdigest()}".encode())
    return digest.hexdigest()


@cache
def site_digest(site: Path) -> str:
    """SHA-256 over the names and contents of the files of an installation, except files that differ between
    installations of one build."""
    digest = sha256()
    for path in sorted(site.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.name not in _PER_INSTALLATION:
            digest.update(f"{path.relative_to(site)}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def all_digest(site: Path) -> str:
    """SHA-256 over the names and contents of all files of an installation, as they are now. Files that are written
    later are not part of it: bytecode, and the marks of stand-ins."""
    digest = sha256()
    for path in sorted(site.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != MARK:
            digest.update(f"{path.relative_to(site)}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _native(build: OpenedBuild, variant: Any, launch: Any) -> str:
    """Hashes of the native module that defines the launch's class; otherwise the device's hash; "" for pure Python."""
    path = build.file(type(launch).__module__)
    if path is not None and path.suffix == ".so":
        hashes = [sections_hash(each) for each in (path, *_imported(build, type(launch).__module__))]
        return " ".join(hashes) if all(hashes) else ""
    if launch.pointer is None:
        return ""
    device = build.installed.registry.devices[variant.key.device]
    return str(variant.code_hash or device.code_hash(variant.id))


def _imported(build: OpenedBuild, module: str) -> list[Path]:
    """The build's native modules that a native module has imported, such as its thread pool."""
    names = {each.__name__ for each in vars(build.module(module) or object).values() if isinstance(each, ModuleType)}
    paths = (build.file(name) for name in sorted(names) if build.has(name))
    return [path for path in paths if path is not None and path.suffix == ".so"]


def sections_hash(path: Path) -> str:
    """SHA-256 of the loaded sections of a 64-bit little-endian ELF file, with their names; "" for any other file."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return ""
    digest = sha256()
    try:
        for name, content in sorted(_sections(data)):
            digest.update(name + struct.pack("<Q", len(content)) + content)
    except (struct.error, IndexError, ValueError):
        return ""
    return digest.hexdigest()


def _sections(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and contents of the sections with code and constant data."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, table + nth * size) for nth in range(count)]
    strings = sections[names][4]
    for start, kind, flags, _, offset, length in sections:
        name = data[strings + start : data.index(b"\0", strings + start)]
        if (
            kind == _CONTENT
            and flags & _ALLOCATED
            and not name.startswith((b".note", b".eh_frame", b".gcc_except", b".comment"))
        ):
            yield name, data[offset : offset + length]


def _sources(build: OpenedBuild, module: str) -> dict[str, bytes]:
    """The Python sources that a module of the build imports, directly or indirectly, including within functions."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or not build.has(name) or f"{name}.".startswith(f"{_HARNESS}."):
            continue
        path = _file(build, name)
        if path is None:
            continue
        found[name] = path.read_bytes()
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports(build, found[name], package)
    return found


def _imports(build: OpenedBuild, source: bytes, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            inner = [f"{base}.{alias.name}" for alias in node.names]
            # Names imported from a package are mostly modules. The package's own file counts only for other names.
            yield from (name if _file(build, name) else base for name in inner)


def _file(build: OpenedBuild, module: str) -> Path | None:
    """The source file of a module of the build, loaded or not."""
    stem = build.site.joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)
