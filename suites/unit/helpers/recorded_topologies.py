"""Machines of several NUMA nodes: files of /sys and /proc that Linux was seen to have (suites/unit/machine/topologies,
each of which says where), planted below a folder."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.machine.numa import Topology, topology

FOLDER = Path(__file__).parents[1] / "machine" / "topologies"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


def planted(name: str, root: Path) -> tuple[Path, Path]:
    """/sys and /proc as that machine has them."""
    for part in (FOLDER / f"{name}.txt").read_text().split("== ")[1:]:
        path, _, text = part.partition("\n")
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root / "sys", root / "proc"


def recorded(name: str, root: Path, cores: frozenset[int] | None = None) -> Topology:
    """That machine, for a process that may run on all of its cores, or on those."""
    sys, proc = planted(name, root)
    found = topology(sys, proc, cores or frozenset(range(64)))
    every = frozenset(core for node in found.nodes for core in node.cores)
    return topology(sys, proc, every if cores is None else cores)
