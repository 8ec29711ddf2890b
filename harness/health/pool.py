"""Checks of the memory of each device, by a process that uses it and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from tritmark.harness.health.finding import HealthFinding, Severity
from tritmark.harness.spec import Device
from tritmark.harness.text import units

LONGEST_S = 60.0
"""Time limit for all devices together. A probe takes a second or two; the first on a machine also compiles a kernel."""
_FRAGMENTED = 0.5
"""Half of the pool out of reach: a program then needs twice the memory that it asks for."""

NAME = "memory pool"
_LEGAL = "all bytes come back, nothing leaks, and the pool does not grow when the same work repeats"


def checks(devices: Mapping[str, Device], longest_s: float = LONGEST_S) -> Iterator[HealthFinding]:
    """A finding for each device, by its unit. All are used at the same time."""
    begun = monotonic()
    started = {unit: _start(device) for unit, device in devices.items()}
    try:
        for unit, process in started.items():
            left = max(0.0, longest_s - (monotonic() - begun))
            try:
                out, errors = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                yield HealthFinding(
                    unit=unit,
                    name=NAME,
                    severity=Severity.CRITICAL,
                    found=f"no answer within {longest_s:.0f} s",
                    legal=_LEGAL,
                    next_step="see nvidia-smi and the kernel's log (sudo dmesg); reset the GPU or reboot",
                )
            else:
                yield judged(unit, process.returncode, out, errors)
    finally:
        for process in started.values():
            if process.poll() is None:
                process.kill()
                process.communicate()


def _start(device: Device) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tritmark.harness.health.probe", device.type],
        env=os.environ | dict(device.environment()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def judged(unit: str, status: int, out: str, errors: str) -> HealthFinding:
    """The finding from what the process of a probe printed."""

    def finding(severity: Severity, found: str, next_step: str = "") -> HealthFinding:
        return HealthFinding(unit=unit, name=NAME, severity=severity, found=found, legal=_LEGAL, next_step=next_step)

    probed = _result(out) if status == 0 else {}
    if not probed:
        last = (errors.strip().splitlines() or ["it printed no result"])[-1]
        ended = f"by signal {-status}" if status < 0 else f"with status {status}"
        return finding(Severity.CRITICAL, f"the probe ended {ended}: {last}", "see tritmark doctor")
    where = " in the simulator" if probed["simulated"] else ""
    if probed["error"]:
        found, _, step = probed["error"].partition("; next: ")
        severity = Severity.WARNING if probed["full"] else Severity.CRITICAL
        return finding(severity, f"cannot be used{where}: {found}", step or "see tritmark doctor")
    facts = [f"{units.size(probed['nbytes'])} there and back{where}"]
    facts += [f"{probed['kernel']} ran"] if probed["kernel"] else []
    if probed["fragmentation"] is not None:
        facts.append(f"fragmentation {units.percent(probed['fragmentation'])}")
    faults = list(_faults(probed))
    if not faults:
        return finding(Severity.OK, ", ".join(facts))
    worst = Severity.CRITICAL if probed["differing"] else Severity.WARNING
    step = (
        "do not use this GPU: run nvidia-smi -q -d ECC, and have it replaced"
        if probed["differing"]
        else "report it as a fault of tritmark, with `tritmark doctor --json`"
        if probed["leaked"] or probed["grown"]
        else "end other processes that use this GPU"
    )
    return finding(worst, "; ".join([*faults, ", ".join(facts)]), step)


def _result(out: str) -> dict[str, Any]:
    """The result among the lines that the process printed; {} without one. Packages may print more, also at exit."""
    for each in reversed(out.splitlines()):
        with suppress(ValueError, RecursionError):
            found = json.loads(each)
            if isinstance(found, dict) and "simulated" in found:
                return found
    return {}


def _faults(probed: Mapping[str, Any]) -> Iterator[str]:
    if probed["differing"]:
        yield f"{probed['differing']} of {probed['nbytes']} bytes came back with another value"
    if probed["leaked"]:
        yield f"{units.size(probed['leaked'])} are still in use after everything was freed"
    if probed["grown"]:
        yield f"the pool grew by {units.size(probed['grown'])} when the same work was repeated"
    if (probed["fragmentation"] or 0) > _FRAGMENTED:
        yield f"{units.percent(probed['fragmentation'])} of the pool cannot be used"
    problems: Sequence[str] = probed["problems"]
    yield from problems
