"""How many rare changes of outputs the gate finds: the selftest's drawn mutants as HEAD, the correct kernel as BASE.

A mutant shows only at some shapes, values, layouts, thread counts or calls; few show in the timed workload.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import process_time
from types import SimpleNamespace
from typing import Any

from tritmark.harness.cli.console import console
from tritmark.harness.gate.build_host import LocalBuildHost
from tritmark.harness.gate.compared import CASES
from tritmark.harness.gate.drawn_cases import compare_drawn
from tritmark.harness.gate.task import GateTask
from tritmark.harness.machine.cpu import physical_cores
from tritmark.harness.providers import Installed, load
from tritmark.harness.selftest import drawn_mutants
from tritmark.harness.selftest.domain import Domain, NothingAdmittedError, reach
from tritmark.harness.selftest.population import interval
from tritmark.harness.selftest.right import keys, right
from tritmark.harness.selftest.struck import variant
from tritmark.harness.spec import Mutant, Variant
from tritmark.harness.text.table import plain_table

SUITE = "quick"
CALLS = 2000
"""About as many calls as the gate makes of a kernel: the range of mutants that depend on the call number."""


class PlantedMutant(LocalBuildHost):
    """The installed build, with one variant in place of all."""

    def __init__(self, installed: Installed, only: Variant) -> None:
        registry = SimpleNamespace(variants=[only], devices=installed.registry.devices)
        build: Any = SimpleNamespace(
            inside=nullcontext, installed=SimpleNamespace(ops=installed.ops, registry=registry)
        )
        self.build = build


@dataclass
class Found:
    """The result for one op."""

    caught: int = 0
    missed: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    """Results of the correct kernel compared with itself."""
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return self.caught + len(self.missed)


def of_op(installed: Installed, op: str, count: int, seed: int, cases: int) -> Found:
    """Draw `count` mutants of the op's first key, and compare each with the correct kernel on `cases` cases."""
    key = keys(installed, op)[0]
    there = right(installed, key)
    suite = [each.workload.axes for each in installed.suite(SUITE).selected if each.workload.op == op]
    domain = Domain(there, reach(suite), physical_cores())
    mutants = [
        each
        for provider in installed.providers.values()
        for each in provider.mutants()
        if isinstance(each, Mutant) and each.op == op and each.only(key)
    ]
    found, begun = Found(), process_time()

    def compared(head: Variant) -> str:
        base, _ = variant(there, lambda at: False, None, False, 0)
        task = GateTask(
            device=key.device,
            op=op,
            format=key.format,
            dtype=key.dtype,
            variant=base.name,
            axes={},
            family="",
            layout="",
            threads=1,
            seed=seed,
        )
        told = compare_drawn(
            PlantedMutant(installed, base),
            PlantedMutant(installed, head),
            task,
            cases,
            lambda stage, of="": None,
            trust_code=False,
        )
        return told.reason if told.outcome is not None else ""

    alarm = compared(variant(there, lambda at: False, None, False, 0)[0])
    if alarm:
        found.alarms.append(f"{key}: {alarm}")
    for number in range(count):
        try:
            mutant = drawn_mutants.draw(domain, mutants, CALLS, seed, number)
        except NothingAdmittedError:
            continue
        if compared(mutant.candidate(there, [seed, number])):
            found.caught += 1
        else:
            found.missed.append(f"{key} no. {number}: {mutant.text}")
    found.seconds = process_time() - begun
    return found


def main() -> None:
    """Print a line for each op, and the missed mutants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", default="*", metavar="GLOB")
    parser.add_argument("--count", type=int, default=24, help="mutants for each op")
    parser.add_argument("--cases", type=int, default=CASES, help="drawn cases for each kernel")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    installed, screen = load(), console()
    heads = ("mutants", "caught", "share", "95 % interval", "false alarms", "CPU s")
    table = plain_table("", "op", *heads, right=heads)
    missed: list[str] = []
    for op in installed.ops:
        if not fnmatchcase(op, asked.op):
            continue
        found = of_op(installed, op, asked.count, asked.seed, asked.cases)
        low, high = interval(found.caught, found.count)
        share = f"{100 * found.caught / max(1, found.count):.1f} %"
        within = f"{100 * low:.1f} to {100 * high:.1f}"
        table.add_row(
            op, str(found.count), str(found.caught), share, within, str(len(found.alarms)), f"{found.seconds:.0f}"
        )
        missed += [*found.alarms, *found.missed]
    screen.print(table)
    for line in missed:
        screen.print(line, soft_wrap=True)


if __name__ == "__main__":
    main()
