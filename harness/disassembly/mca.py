"""llvm-mca: cycles of a loop by a model of the processor, all loads hitting L1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tritmark.harness.disassembly import tools
from tritmark.harness.disassembly.flow import Instruction

ITERATIONS = 100
MODELS = ("native", "znver4", "icelake-server")
"""Processors in the order in which they are tried: a release that does not know the host's instructions knows those
of another."""

LONGEST = 1500
"""Instructions of a loop, at most: a longer one takes llvm-mca over 0.3 s."""

_PLACE = re.compile(r"\b(?:0x)?([0-9a-f]+) <[^>]*>")


@dataclass(frozen=True, slots=True)
class Cycles:
    """Of one pass through a loop."""

    throughput: float
    """That its execution units and the decoder need at least."""
    chain: float | None
    """That it takes where waiting for results of earlier instructions, those of the pass before included, takes
    longer; else None."""
    note: str = ""


def cycles(path: str, loop: Sequence[Instruction]) -> Cycles:
    """Raises ToolError where llvm-mca is not there, or no model of it knows the instructions."""
    if len(loop) > LONGEST:
        raise tools.ToolError(
            f"llvm-mca was not asked about a loop of {len(loop)} instructions (at most {LONGEST}); next: ask it by hand"
        )
    text = _assembly(path, loop)
    said = ""
    for model in _models():
        try:
            said = tools.run("llvm-mca", _arguments(model), text)
        except tools.ToolError as error:
            why = str(error)
            continue
        break
    else:
        raise tools.ToolError(f"{why}; next: a newer LLVM, which knows these instructions")
    total, throughput = _number(said, "Total Cycles"), _number(said, "Block RThroughput")
    waits = re.search(r"Data Dependencies:\s*\[\s*([\d.]+)%", said)
    units = re.search(r"Resource Pressure\s*\[\s*([\d.]+)%", said)
    waiting = waits is not None and float(waits[1]) > (float(units[1]) if units else 0.0)
    note = (
        ""
        if model == "native"
        else f"llvm-mca counted cycles of {model}, as it has no model of this processor with these instructions"
    )
    return Cycles(throughput, total / ITERATIONS if waiting else None, note)


def _arguments(model: str) -> list[str]:
    return [
        f"-mcpu={model}",
        f"-iterations={ITERATIONS}",
        "-bottleneck-analysis",
        "-instruction-info=false",
        "-resource-pressure=false",
    ]


@cache
def _models() -> tuple[str, ...]:
    tools.find("llvm-mca")
    return MODELS


def _number(said: str, name: str) -> float:
    found = re.search(rf"{name}:\s+([\d.]+)", said)
    if found is None:
        raise tools.ToolError(f"llvm-mca did not tell its {name}; next: another version of LLVM")
    return float(found[1])


def _assembly(path: str, loop: Sequence[Instruction]) -> str:
    """The loop in AT&T's syntax, which both tools spell alike, its jumps without places."""
    first, last = min(each.address for each in loop), max(each.address for each in loop)
    said = tools.run(
        "objdump",
        [
            "-d",
            "--no-show-raw-insn",
            "-j",
            ".text",
            f"--start-address={first:#x}",
            f"--stop-address={last + 16:#x}",
            path,
        ],
    )
    wanted = {each.address for each in loop}
    lines = []
    for line in said.splitlines():
        found = re.match(r"^\s*([0-9a-f]+):\s+(\S.*)$", line)
        if found and int(found[1], 16) in wanted:
            lines.append(_PLACE.sub("0", found[2].partition("#")[0].strip()))
    return "\n".join(lines) + "\n"
