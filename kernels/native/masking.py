"""Processes in which code detects fewer features than this machine's processor has: by CPUID and the C library
(cython_ext/src/masking), and in /proc/cpuinfo.

If CPUID does not trap, an instruction that traps replaces it in the candidate's files: patched copies are mounted over
them, visible only to that process.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.spec import HeldTo, Masking
from tritmark.kernels.native import extensions

_CPUINFO = Path("/proc/cpuinfo")
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
"""Flags of unshare(2) and mount(2)."""
_FOUND = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )*)0f a2 .*\bcpuid\b", re.MULTILINE)
"""A line of objdump: an address, the bytes there, and their disassembly."""
_LOADED = 1
"""PT_LOAD."""


def steps() -> Mapping[str, tuple[str, ...]]:
    """The steps to which this processor can be limited, in descending order, each with the higher steps that it has."""
    found: dict[str, tuple[str, ...]] = {}
    above: tuple[str, ...] = ()
    for step, bits in extensions.native("masking").steps().items():
        here = any(here for _, here in bits)
        if above and (here or not bits):  # the last step has no features of its own
            found[step] = above
        if here:
            above = (*above, step)
    return found


def missing() -> str | None:
    """Why no process can be limited to a step on this machine, or None."""
    from tritmark.harness.disassembly import tools

    if not extensions.native("masking").steps():
        return "the features of x86-64 alone can be masked"
    why = _untrapped()
    try:
        tools.find("objdump")
    except tools.ToolError as error:
        return f"{why}; and {error}" if why is not None else None
    return None


def _untrapped() -> str | None:
    """Why CPUID does not trap on this machine, or None."""
    try:
        extensions.native("masking").possible()
    except OSError as error:
        return f"neither the processor nor its hypervisor lets CPUID trap (arch_prctl: {error.strerror})"
    return None


def begin(held: HeldTo) -> Mapping[str, str]:
    """Limit this process to a step: see Masking."""
    from tritmark.harness.disassembly import tools

    unmasked = {}
    bits, why = extensions.native("masking").steps(), _untrapped()
    try:
        try:
            _have_mounts()
            _mount(_without({name for each in steps()[held.step] for name, _ in bits[each]}), _CPUINFO)
        except OSError as error:
            unmasked[str(_CPUINFO)] = f"nothing can be mounted over it ({error.strerror})"
            if why is not None:
                raise
        if why is not None:
            changed = [Path(path) for path in held.files if _stand_in(Path(path))]
            unmasked[f"CPUID outside of {' and '.join(each.name for each in changed) or 'its files'}"] = why
        extensions.native("masking").begin(held.step, why is None)
    except (OSError, tools.ToolError) as error:
        raise DeviceUnavailableError(
            f"this process cannot be held to {held.step}: {f'{why}, and: ' if why is not None else ''}{error}",
            next_step="run tritmark on such a processor",
        ) from None
    return unmasked


def _without(features: set[str]) -> bytes:
    """The content of /proc/cpuinfo on a processor without these features."""
    return re.sub(
        r"^(flags\s*:)(.*)$",
        lambda line: f"{line[1]} {' '.join(each for each in line[2].split() if each not in features)}",
        _CPUINFO.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    ).encode()


def _stand_in(path: Path) -> bool:
    """Replace every CPUID of a library by an instruction that traps, for this process only. Returns whether the library
    has a CPUID. Raises OSError and ToolError."""
    from tritmark.harness.candidate.located import stands_for
    from tritmark.harness.disassembly import tools

    native, data = extensions.native("masking"), bytearray(path.read_bytes())
    found = _FOUND.findall(tools.run("objdump", ["-d", "-w", str(path)]))
    for address, prefixes in found:
        at = _offset(data, int(address, 16)) + len(prefixes.split())
        if data[at : at + 2] != native.CPUID:
            raise tools.ToolError(f"{path.name}: CPUID is not where objdump has it, at {address}")
        data[at : at + 2] = native.STAND_IN
    if found:
        stands_for(bytes(data), path.read_bytes())
        _mount(bytes(data), path)
    return bool(found)


def _offset(data: bytes | bytearray, address: int) -> int:
    """The offset in a 64-bit ELF file of the byte that is loaded to an address."""
    from tritmark.harness.disassembly import tools

    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for nth in range(count):
        kind, _, offset, begin, _, nbytes = struct.unpack_from("<IIQQQQ", data, table + nth * size)
        if kind == _LOADED and begin <= address < begin + nbytes:
            return int(offset + address - begin)
    raise tools.ToolError(f"nothing is loaded to {address:#x}")


def _have_mounts() -> None:
    """Give this process its own mount namespace. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_NEW_MOUNTS) != 0:
        # A process without the privilege to mount has it in its own user namespace, if the system allows those.
        _must(library.unshare(_NEW_MOUNTS | _NEW_USER))
        with suppress(OSError):  # a kernel older than this file
            Path("/proc/self/setgroups").write_bytes(b"deny")
        Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (user, user))
        Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (group, group))
    _must(library.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None))


def _mount(content: bytes, over: Path) -> None:
    """Mount `content` over a file, for this process only. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        os.chmod(file.name, over.stat().st_mode & 0o777)
        _must(library.mount(os.fsencode(file.name), os.fsencode(over), None, _BIND, None))


def _must(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


MASKING = Masking(steps=steps, missing=missing, begin=begin)
