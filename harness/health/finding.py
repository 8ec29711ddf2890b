"""The result of a check of health, and the worst of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MACHINE = "machine"
"""The unit of checks that concern no single GPU."""


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, or not reported here, and nothing needs it."""
    WARNING = "warning"
    """Results are correct; times, memory or the future are not what they should be."""
    UNKNOWN = "unknown"
    """Could not be read, so it is not known to be in order."""
    CRITICAL = "critical"
    """Results may be incorrect, or nothing runs."""


_ORDER = (Severity.OK, Severity.WARNING, Severity.UNKNOWN, Severity.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFinding:
    """One check of `tritmark health`."""

    unit: str
    """MACHINE, or a GPU such as "GPU 0"."""
    name: str
    severity: Severity
    found: str
    legal: str = ""
    """What is in order; "" if that is evident."""
    next_step: str = ""
    """What to do; "" if nothing is to be done."""
    since: str = ""
    """UTC, ISO 8601: the first of the probes in a row that found it not in order. "" if it is in order or new."""


def overall(findings: Iterable[HealthFinding]) -> Severity:
    """The worst severity. What is absent does not count."""
    counted = (each.severity for each in findings if each.severity is not Severity.ABSENT)
    return max(counted, key=_ORDER.index, default=Severity.OK)


def by_unit(findings: Iterable[HealthFinding]) -> dict[str, Severity]:
    """The worst severity of each unit, in the order of their first findings."""
    found: dict[str, list[HealthFinding]] = {}
    for each in findings:
        found.setdefault(each.unit, []).append(each)
    return {unit: overall(each) for unit, each in found.items()}
