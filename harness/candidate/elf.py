"""The exports of a shared library, read from the file. The library is not loaded, so none of its code runs."""

from __future__ import annotations

import platform
import struct

_DYNSYM = 11
_SHARED = 3
_INDIRECT = 10
"""STT_GNU_IFUNC: a resolver returns the address of the function."""
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}


class NotALibraryError(ValueError):
    """Why this machine cannot load a file as a library."""


def exported(data: bytes, *, indirect: bool = False) -> tuple[str, ...]:
    """Names of the functions and variables that a 64-bit little-endian ELF library defines. `indirect`: only functions
    whose address a resolver returns at load time. Raises NotALibraryError."""
    if data[:4] != b"\x7fELF":
        raise NotALibraryError("not an ELF file")
    if data[4:6] != b"\x02\x01":
        raise NotALibraryError("not 64-bit little-endian")
    try:
        kind, machine = struct.unpack_from("<HH", data, 16)
        if kind != _SHARED:
            raise NotALibraryError("not a shared library (was it linked with -shared?)")
        if machine != _MACHINES.get(platform.machine(), machine):
            raise NotALibraryError(f"made for ELF machine {machine}, not for this {platform.machine()}")
        return tuple(name for name, kind in _names(data) if kind == _INDIRECT or not indirect)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        if isinstance(error, NotALibraryError):
            raise
        raise NotALibraryError(f"damaged ({error})") from None


def _names(data: bytes) -> list[tuple[str, int]]:
    """The name and type of each symbol."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + nth * size) for nth in range(count)]
    found: list[tuple[str, int]] = []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != _DYNSYM:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + length, max(entry, 24)):
            name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            # Defined in this file (section), and global or weak.
            if name and section and info >> 4 in {1, 2}:
                end = data.index(b"\0", strings + name)
                found.append((data[strings + name : end].decode("ascii"), info & 15))
    return found
