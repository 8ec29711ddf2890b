"""What ran: versions, compiler, variables, commit."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record
from tritmark.harness.report.section import Section


def _context(record: Record) -> dict[str, Any]:
    facts = record.environment
    rows = [
        ("tritmark", facts.tritmark),
        ("Commit", facts.commit or "not known"),
        ("Python", facts.python),
        ("Compiler", facts.compiler),
        ("Seed", str(facts.seed)),
        ("Record", record.id),
        ("Made", record.created),
    ]
    return {"facts": rows, "packages": sorted(facts.packages.items()), "variables": sorted(facts.variables.items())}


SECTION = Section("environment", "Environment", "environment.html", _context)
