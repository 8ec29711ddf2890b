"""XID errors: what the driver reports of a GPU in the kernel's log, and as NVML events."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tritmark.harness.health.finding import Severity
from tritmark.harness.machine import nvml

KMSG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")
_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
_MOST_BYTES = 1 << 26
"""Of the kernel's log; its buffer is a few MiB at most."""
_MOST_READS = 1 << 20

BY_PROGRAMS = frozenset({13, 31, 43, 45, 68, 69})
"""XIDs that a faulty program causes: illegal addresses, traps, cleanup after them. The GPU remains in order."""
FATAL = {
    48: "an uncorrectable memory error",
    62: "its microcontroller halted",
    64: "a memory row could not be replaced",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    95: "an uncontained memory error",
    119: "its system processor does not respond",
    120: "its system processor failed",
    140: "an unrecovered memory error",
}
"""XIDs after which results may be incorrect or nothing runs, by NVIDIA's catalogue."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID error."""

    bus: str
    """PCI address, as `address` writes it."""
    number: int
    at_us: int | None = None
    """Microseconds since the machine started; None for an event of NVML."""

    @property
    def severity(self) -> Severity:
        """How bad a new one is."""
        if self.number in BY_PROGRAMS:
            return Severity.OK
        return Severity.CRITICAL if self.number in FATAL else Severity.WARNING

    def __str__(self) -> str:
        what = "of a program" if self.number in BY_PROGRAMS else FATAL.get(self.number, "")
        return f"XID {self.number}" + (f" ({what})" if what else "")


def address(bus: str) -> str:
    """A PCI address as domain:bus:device, in lower case; NVML and the kernel write it differently."""
    parts = bus.lower().split(".")[0].split(":")
    domain = parts[0] if len(parts) == 3 else "0"
    with suppress(ValueError, IndexError):
        return f"{int(domain, 16):04x}:{int(parts[-2], 16):02x}:{int(parts[-1], 16):02x}"
    return bus.lower()


def logged(path: Path = KMSG) -> list[Xid]:
    """All XID errors in the kernel's log, which reaches back to the start of the machine at most. Raises OSError if it
    cannot be read: most systems allow only root, or a user with CAP_SYSLOG."""
    return list(found(_lines(path)))


def made_readable(problem: OSError) -> str:
    """What makes the kernel's log readable, by why it is not."""
    if isinstance(problem, PermissionError):
        return (
            "run as root or with CAP_SYSLOG (in a container: --cap-add SYSLOG), "
            "or allow every user with sudo sysctl kernel.dmesg_restrict=0"
        )
    if isinstance(problem, FileNotFoundError):
        return f"in a container, add --device {KMSG} --cap-add SYSLOG; otherwise see sudo dmesg"
    return "see sudo dmesg"


def found(lines: Iterator[str] | Sequence[str]) -> Iterator[Xid]:
    """The XID errors among the records of the kernel's log."""
    for line in lines:
        record = _RECORD.match(line)
        xid = _XID.search(record[2]) if record is not None else None
        if record is not None and xid is not None:
            yield Xid(address(xid[1]), int(xid[2]), int(record[1]))


def _lines(path: Path) -> Iterator[str]:
    """The records of the log that are there now, without waiting for later ones."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        rest, taken = b"", 0
        for _ in range(_MOST_READS):
            if taken > _MOST_BYTES:
                break
            try:
                piece = os.read(file, 1 << 16)
            except BlockingIOError:
                break
            except OSError as problem:
                if problem.errno != errno.EPIPE:  # older records were overwritten meanwhile: go on with the next
                    raise
                continue
            if not piece:
                break
            taken += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from (each.decode("utf-8", "replace") for each in whole)
        yield rest.decode("utf-8", "replace")
    finally:
        os.close(file)


class XidEvents:
    """XID errors that NVML reports inside a `with`, for instance while a kernel runs. `note`: why it cannot."""

    def __init__(self) -> None:
        self.seen: list[Xid] = []
        self.note = ""
        self._set: Any = None

    def __enter__(self) -> XidEvents:
        try:
            self._nvml = nvml.library()
            self._begin()
        except LookupError as problem:
            self.note = str(problem)
        except Exception as problem:  # NVMLError has no name here; older packages lack the functions
            self.note = f"NVML events: {problem}"
        return self

    def _begin(self) -> None:
        library = self._nvml
        self._set = library.nvmlEventSetCreate()
        refused = []
        for index in range(int(library.nvmlDeviceGetCount())):
            try:
                device = library.nvmlDeviceGetHandleByIndex(index)
                library.nvmlDeviceRegisterEvents(device, library.nvmlEventTypeXidCriticalError, self._set)
            except library.NVMLError as problem:
                refused.append(f"GPU {index}: {problem}")
        self.note = "; ".join(refused)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._set is None:
            return
        library = self._nvml
        for _ in range(_MOST_EVENTS):
            try:
                event = library.nvmlEventSetWait_v2(self._set, 1)
            except Exception:  # no further event: NVMLError_Timeout
                break
            with suppress(Exception):
                bus = library.nvmlDeviceGetPciInfo(event.device).busId
                text = bus.decode("utf-8", "replace") if isinstance(bus, bytes) else str(bus)
                self.seen.append(Xid(address(text), int(event.eventData)))
        with suppress(Exception):
            library.nvmlEventSetFree(self._set)


_MOST_EVENTS = 1000
