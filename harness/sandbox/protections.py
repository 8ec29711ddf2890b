"""The protections of a process for itself: namespaces(7), landlock(7) and getrlimit(2). Each raises OSError if the
system does not have it."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_RDONLY, _BIND, _REC, _PRIVATE = 1, 4096, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 442, 444, 445, 446
"""Numbers of system calls, the same on every architecture."""
_NO_NEW_PRIVS, _DROP_BOUNDING, _AMBIENT, _AMBIENT_CLEAR_ALL = 38, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x2008_0522
_ATTR_RDONLY = 1
_WRITES = 0b1_1111_1111_0010
"""landlock.h: WRITE_FILE, and REMOVE_DIR to MAKE_SYM."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_CONNECT_TCP, _BIND_TCP = 2, 1
_ALWAYS = (Path("/dev"), Path("/proc"))
"""Writable in any case: devices such as /dev/null and /dev/shm, and the process's own files."""
_FILE_BYTES, _SECONDS = 64 << 30, 86_400
"""Limits of one file, which shared memory counts as, and of the processor time of one process on all its threads."""


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _must(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def limit() -> None:
    """No core dumps, and limits of a file's size and of processor time, never above those of the session."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: _FILE_BYTES, resource.RLIMIT_CPU: _SECONDS}
    for name, most in limits.items():
        _, hard = resource.getrlimit(name)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(name, (bound, bound))


def enter_namespaces() -> None:
    """New namespaces of users, mounts, networks and IPC: no network, and own mounts."""
    user, group = os.getuid(), os.getgid()
    _must(_library().unshare(_NEWUSER | _NEWNS | _NEWNET | _NEWIPC))
    Path("/proc/self/setgroups").write_bytes(b"deny")
    Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (user, user))
    Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (group, group))
    _mount(b"none", b"/", None, _REC | _PRIVATE)


def private_temporary(kept: Iterable[Path], temporary: Path = Path("/tmp")) -> None:
    """An empty /tmp of this process. Folders of `kept` below it stay where they are."""
    below = [path for path in _outermost(kept) if path.is_relative_to(temporary) and path != temporary]
    handles = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in below}
    try:
        _mount(b"tmpfs", os.fsencode(temporary), b"tmpfs", 0, b"mode=1777")
        for path, handle in handles.items():
            path.mkdir(parents=True, exist_ok=True)
            _mount(b"/proc/self/fd/%d" % handle, os.fsencode(path), None, _BIND | _REC)
    finally:
        for handle in handles.values():
            os.close(handle)


def _outermost(paths: Iterable[Path]) -> Iterator[Path]:
    """The paths that are in no other one."""
    known: list[Path] = []
    for path in sorted({each.resolve() for each in paths if each.is_dir()}):
        if not any(path.is_relative_to(each) for each in known):
            known.append(path)
            yield path


def read_only_except(writable: Iterable[Path], readable: Iterable[Path] = (), temporary: Path = Path("/tmp")) -> None:
    """Mount everything read-only in this namespace, except /tmp, devices, and the folders of `writable`. Of /tmp the
    folders of `readable` are read-only. Raises OSError before Linux 5.12."""
    free = [each for each in (temporary, *_ALWAYS) if each.is_dir()]
    kept = [each.resolve() for each in readable if each.resolve().is_relative_to(temporary)]
    own = [each.resolve() for each in writable]
    for path in sorted({*free, *kept, *own}):  # a folder before those below it
        _mount(os.fsencode(path), os.fsencode(path), None, _BIND | _REC)
    _set_attribute(b"/", set_=_ATTR_RDONLY)
    for paths, change in (
        (free, {"clear": _ATTR_RDONLY}),
        (kept, {"set_": _ATTR_RDONLY}),
        (own, {"clear": _ATTR_RDONLY}),
    ):
        for path in paths:
            _set_attribute(os.fsencode(path), **change)


def hide_disks(devices: Path = Path("/dev")) -> None:
    """Mount /dev/null over each block device that this user may write. Root may without any capability, as their
    owner."""
    for each in devices.rglob("*"):
        if each.is_block_device() and not each.is_symlink() and os.access(each, os.W_OK):
            _mount(b"/dev/null", os.fsencode(each), None, _BIND)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    _must(_library().mount(source, target, kind, flags, data))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_capabilities() -> None:
    """Give up all capabilities(7), also those that root would get back by execve(2). With them, code could mount the
    file system writable again. Raises OSError if one is left."""
    library = _library()
    _must(library.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _must(library.prctl(_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0))
    for number in range(1 + int(Path("/proc/sys/kernel/cap_last_cap").read_bytes())):
        _must(library.prctl(_DROP_BOUNDING, number, 0, 0, 0))
    header, none = _CapabilityHeader(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _must(library.capset(ctypes.byref(header), ctypes.byref(none)))


class _MountAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "fd"))


def _set_attribute(path: bytes, *, set_: int = 0, clear: int = 0) -> None:
    wanted = _MountAttr(set_, clear, 0, 0)
    _must(
        _library().syscall(
            _MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted))
        )
    )


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64))


class _BeneathPath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock(writable: Iterable[Path]) -> bool:
    """Let this process and its children write only below these folders, and neither connect nor listen by TCP. Returns
    whether TCP is denied, which Landlock knows from Linux 6.7 on. Raises OSError without Landlock."""
    library = _library()
    version = _must(library.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    handled = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    denies_tcp = version >= 4
    ruleset = _Ruleset(handled, _CONNECT_TCP | _BIND_TCP if denies_tcp else 0)
    size = ctypes.c_size_t(ctypes.sizeof(ruleset) if denies_tcp else 8)
    handle = _must(library.syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, ctypes.c_uint32(0)))
    for path in (*writable, *_ALWAYS, Path("/tmp")):
        with suppress(FileNotFoundError):
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = _BeneathPath(handled, folder)
            _must(library.syscall(_ADD_RULE, handle, 1, ctypes.byref(rule), ctypes.c_uint32(0)))
            os.close(folder)
    _must(library.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _must(library.syscall(_RESTRICT_SELF, handle, ctypes.c_uint32(0)))
    os.close(handle)
    return denies_tcp
