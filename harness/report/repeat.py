"""The exact command for each figure: one for each kernel and thread count."""

from __future__ import annotations

from typing import Any

from tritmark.harness.record import Record, Run
from tritmark.harness.report.section import Section
from tritmark.harness.text import commands, groups


def _by_command(record: Record) -> list[dict[str, Any]]:
    found: dict[str, list[Run]] = {}
    for run in record.runs:
        found.setdefault(commands.of_run(record, run), []).append(run)
    return [
        {"command": command, "run": runs[0], "runs": len(runs), "anchor": groups.anchor(command)}
        for command, runs in found.items()
    ]


def _context(record: Record) -> dict[str, Any]:
    return {
        "kernels": _by_command(record),
        "whole": commands.whole(record),
        "layers": commands.of_layers(record) if record.layers else None,
        "machine": commands.of_machine(record),
        "report": commands.of_report(record),
        "verify": commands.of_verify(record),
    }


SECTION = Section("repeat", "Repeat a figure", "repeat.html", _context, about="the command behind each figure")
