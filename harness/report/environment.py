"""Versions, compiler, variables and commit, and their differences from the baseline."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Machine, Record
from tritmark.harness.report.section import PageContext, Section
from tritmark.harness.text import units

_ABSENT = "none"


def _facts(record: Record) -> list[tuple[str, str]]:
    facts = record.environment
    return [
        ("tritmark", facts.tritmark),
        ("Commit", facts.commit or "unknown"),
        ("Wheel", facts.wheel or "unknown"),
        ("Python", facts.python),
        ("Compiler", facts.compiler),
        ("Seed", str(facts.seed)),
        ("Record", record.id),
        ("Created", record.created),
    ]


def _host(machine: Machine) -> dict[str, str]:
    gpus = {
        f"GPU {gpu.index}": f"{gpu.name}, {units.size(gpu.memory)}, driver {gpu.driver}, {gpu.uuid}"
        for gpu in machine.gpus
    }
    return {
        "Machine id": machine.id,
        "CPU": machine.cpu,
        "Usable cores": str(machine.usable_cores),
        "Kernel": machine.kernel,
        "Governor": machine.governor or "unknown",
        "Huge pages": machine.huge_pages or "unknown",
        "Host": machine.hostname,
        **gpus,
    }


def _all(record: Record) -> dict[str, str]:
    found = dict(_facts(record))
    found.pop("Record")
    found.pop("Created")
    found.update({f"package {name}": version for name, version in sorted(record.environment.packages.items())})
    found.update({f"variable {name}": value for name, value in sorted(record.environment.variables.items())})
    found.update(_host(record.machine))
    return found


def differences(record: Record, baseline: Record) -> list[tuple[str, str, str]]:
    """Name, current value and value in the baseline, for values that differ."""
    now, before = _all(record), _all(baseline)
    names = dict.fromkeys([*now, *before])
    return [
        (name, now.get(name, _ABSENT), before.get(name, _ABSENT)) for name in names if now.get(name) != before.get(name)
    ]


def _beside(record: Record, given: PageContext) -> dict[str, Any]:
    return {
        "facts": _facts(record),
        "packages": sorted(record.environment.packages.items()),
        "variables": sorted(record.environment.variables.items()),
        "baseline": given.baseline,
        "differences": differences(record, given.baseline) if given.baseline is not None else [],
    }


SECTION = Section(
    "environment", "Environment", "environment.html", beside=_beside, about="versions, packages and variables"
)
