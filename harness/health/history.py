"""The history of probes on this machine: one line of JSON for each, bounded, in the user's state folder."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from filelock import Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tritmark.harness.caches import state_folder
from tritmark.harness.errors import UsageError
from tritmark.harness.health.finding import HealthFinding, Severity
from tritmark.harness.locks import locked
from tritmark.harness.machine.files import line
from tritmark.harness.store import write_atomically

MOST = 1000
"""Probes that are kept: ten days of one every quarter of an hour."""
MOST_BYTES = 1 << 20
LOG_US = "log_us"
"""Beside a GPU's counters: its newest XID error in the kernel's log, microseconds since the machine started, or -1."""
AT_S = "at_s"
"""Beside a GPU's counters: when they were read, seconds since 1970."""
_LOCK_S = 5.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class PastFinding(BaseModel):
    """A finding that was not in order."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    unit: str
    name: str
    severity: Severity
    found: str


class PastProbe(BaseModel):
    """One probe of the history."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: str
    """UTC, ISO 8601."""
    host: str
    boot: str
    """Identifies the time since the machine started."""
    overall: Severity
    checked: tuple[str, ...] = ()
    """The checks that were made, see `check`."""
    unread: tuple[str, ...] = ()
    """The checks that the session could not make, or only in part."""
    findings: tuple[PastFinding, ...] = ()
    """Those that were not in order."""
    gpus: dict[str, dict[str, int]] = Field(default_factory=dict)
    """By UUID: the counters of each GPU when a probe last checked it, see GpuState.counters, with LOG_US and AT_S."""
    cpu_throttled_ns: dict[str, int] = Field(default_factory=dict)
    log_us: int = -1
    """Microseconds since the machine started of the newest XID error in the kernel's log; -1 without one."""


def boot_id(path: Path = _BOOT) -> str:
    """Identifies the time since this machine started; "" if unknown."""
    return line(path) or ""


class HealthHistory:
    """The file of the history."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder("health") / "history.jsonl"

    def probes(self, host: str = "") -> tuple[list[PastProbe], int]:
        """The probes of a host, by default this one, oldest first, and the number of lines that cannot be read. Raises
        OSError if the file cannot be read."""
        host = host or platform.node()
        try:
            lines = _lines(self.path)
        except FileNotFoundError:
            return [], 0
        found, broken = [], 0
        for each in filter(str.strip, lines):
            try:
                found.append(PastProbe.model_validate_json(each))
            except ValidationError:
                broken += 1
        return [probe for probe in found if probe.host == host], broken

    def add(self, probe: PastProbe) -> str:
        """Add a probe and drop the oldest beyond MOST and MOST_BYTES. Returns why it could not be kept, or ""."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.path.with_suffix(".lock"), _LOCK_S):
                before: list[str] = []
                if self.path.exists():
                    before = _lines(self.path)
                newest = json.dumps(probe.model_dump(mode="json"))
                write_atomically(self.path, "".join(f"{each}\n" for each in _bounded(before, newest)))
        except (OSError, Timeout, UsageError) as problem:
            return f"{self.path}: {problem}"
        return ""


def _lines(path: Path) -> list[str]:
    """Not by splitlines, which also splits at the line separators of Unicode that JSON may contain."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _bounded(lines: Sequence[str], newest: str) -> list[str]:
    kept, nbytes = [newest], len(newest.encode()) + 1
    for each in reversed([each for each in lines if each.strip()][-MOST + 1 :]):
        nbytes += len(each.encode()) + 1
        if nbytes > MOST_BYTES:
            break
        kept.append(each)
    return kept[::-1]


def check(finding: HealthFinding | PastFinding) -> str:
    """The name of a check of a unit."""
    return f"{finding.unit}: {finding.name}"


def since(finding: HealthFinding, past: Iterable[PastProbe]) -> str:
    """When the probes in a row began that found the same check not in order; "" if the last one that made it found it
    in order."""
    begun, name = "", check(finding)
    for probe in reversed(list(past)):
        if name in map(check, probe.findings):
            begun = probe.at
        elif name in probe.checked:
            break
    return begun
