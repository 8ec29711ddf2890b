"""The comparison of machines as a page."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.fleet.comparison import FleetCell, FleetComparison, FleetMachine
from tritmark.harness.report.compare import Change
from tritmark.harness.report.page import document, named, put
from tritmark.harness.text import units

MARKS = "* is the fastest machine of a row, beyond the 95 % intervals. ~ precedes kernels that are as fast within them."


def headline(found: FleetComparison) -> str:
    """What was compared, and what must be looked at."""
    parts = [f"{units.counted(len(found.machines), 'machine')} on {units.counted(len(found.rows), 'workload')}"]
    if found.failures:
        parts.append(f"{units.counted(len(found.failures), 'Run')} failed")
    if found.not_run:
        parts.append(f"{units.counted(len(found.not_run), 'job')} not run")
    if found.left_out:
        parts.append(f"{units.counted(len(found.left_out), 'Record')} left out")
    if found.against:
        parts.append(f"{units.counted(len(found.slower), 'figure')} slower than in {', '.join(found.against)}")
    return ", ".join(parts)


def kernel(cell: FleetCell) -> str:
    """The fastest kernel, and those that are as fast."""
    return " ~ ".join((cell.variant, *cell.ties))


def figures(cell: FleetCell) -> str:
    """Time and percent of the ceiling. Cold is not written."""
    hot = ", hot" if cell.temperature == "hot" else ""
    share = "" if cell.share is None else f", {units.percent(cell.share)}"
    return f"{units.time(cell.ns)}{hot}{share}"


def wins(machine: FleetMachine) -> str:
    """The variants that are the fastest somewhere, the most frequent first."""
    return ", ".join(f"{variant} {count}" for variant, count in machine.wins.items()) or units.NONE


def changes(machine: FleetMachine) -> str:
    """The numbers of figures that changed since the earlier set, or why there are none."""
    return machine.compared or ", ".join(f"{number:,} {change}" for change, number in machine.changes.items())


def different(found: FleetComparison) -> list[str]:
    """What differs between the environments of the machines, apart from the machines themselves."""
    versions: dict[str, dict[str, list[str]]] = {}
    for each in found.machines:
        known = {"tritmark": each.tritmark, "Python": each.python, "compiler": each.compiler, **each.packages}
        for name, version in known.items():
            versions.setdefault(name, {}).setdefault(version, []).append(each.label)
    lists = {
        name: [f"{version or units.NONE} on {', '.join(labels)}" for version, labels in of.items()]
        for name, of in versions.items()
    }
    return [f"{name}: {'; '.join(each)}" for name, each in lists.items() if len(each) > 1]


def write(found: FleetComparison, folder: Path) -> Path:
    """Write the page to `folder` and return its path. Raises OSError if it cannot be written, and RecordError if the
    names of the sets make no legal file name."""
    name = named("-and-".join((f"fleet-{found.sets[0]}", *found.sets[1:])), folder)
    page = document(
        "fleet.html",
        found=found,
        headline=headline(found),
        kernel=kernel,
        figures=figures,
        wins=wins,
        changes=changes,
        different=different(found),
        marks=MARKS,
        slower=Change.SLOWER,
    )
    return put(folder, f"{name}.html", page)
