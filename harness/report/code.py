"""Compiled code of each kernel, as tools read it from the loaded file."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tritmark.harness.record import Function, Record
from tritmark.harness.report.section import Section

_MOST_ROWS = 120
_MOST_MNEMONICS = 6


def _mnemonics(counts: dict[str, int]) -> str:
    common = Counter(counts).most_common(_MOST_MNEMONICS)
    rest = sum(counts.values()) - sum(number for _, number in common)
    reported = [f"{name} {number}" for name, number in common]
    return ", ".join([*reported, f"others {rest}"] if rest else reported)


def _row(kernel: str, function: Function) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "function": function,
        "instructions": sum(function.instructions.values()) or None,
        "loop": _mnemonics(function.loop),
        "loads": ", ".join(f"{number} of {width} bits" for width, number in sorted(function.loads.items())),
    }


def _context(record: Record) -> dict[str, Any] | None:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    tools: dict[str, None] = {}
    notes: dict[str, None] = {}
    for run in record.runs:
        if run.code is None:
            continue
        tools.update(dict.fromkeys(run.code.tools))
        notes.update(dict.fromkeys(run.code.notes))
        for function in run.code.functions:
            rows.setdefault((run.kernel, function.name, function.target), _row(run.kernel, function))
    if not rows and not notes:
        return None
    shown = list(rows.values())[:_MOST_ROWS]
    functions = [row["function"] for row in shown]
    return {
        "rows": shown,
        "more": len(rows) - len(shown),
        "tools": list(tools),
        "notes": list(notes),
        "device": any(each.registers is not None or each.shared is not None for each in functions),
        "cycles": any(each.chain_cycles is not None or each.throughput_cycles is not None for each in functions),
    }


SECTION = Section(
    "code", "Compiled code", "code.html", _context, about="instructions, loops and spills of each function"
)
