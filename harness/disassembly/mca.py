"""Cycles of a loop from llvm-mca's model of the processor, in which all loads hit L1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tritmark.harness.disassembly import tools
from tritmark.harness.disassembly.flow import Instruction

ITERATIONS = 100
MODELS = ("native", "znver4", "icelake-server")
"""Processor models in the order of use: a release that lacks the host's instructions may have them in another model."""

LONGEST = 1500
"""Maximum instructions of a loop: for a longer one, llvm-mca needs over 0.3 s."""

_PLACE = re.compile(r"\b(?:0x)?([0-9a-f]+) <[^>]*>")


@dataclass(frozen=True, slots=True)
class Cycles:
    """Cycles of one iteration of a loop."""

    throughput: float
    """Cycles that the execution units and the decoder need at least."""
    chain: float | None
    """Cycles of an iteration if dependencies between instructions, also of consecutive iterations, limit it; otherwise
    None."""
    note: str = ""


def cycles(path: str, loop: Sequence[Instruction]) -> Cycles:
    """The cycles of a loop in the file `path`. Raises ToolError if llvm-mca is not installed, or has no model with the
    instructions."""
    if len(loop) > LONGEST:
        raise tools.ToolError(
            f"llvm-mca was not run on a loop of {len(loop)} instructions (limit: {LONGEST}); next: run it by hand"
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
        raise tools.ToolError(f"{why}; next: install a newer LLVM, which has these instructions")
    total, throughput = _number(said, "Total Cycles"), _number(said, "Block RThroughput")
    waits = re.search(r"Data Dependencies:\s*\[\s*([\d.]+)%", said)
    units = re.search(r"Resource Pressure\s*\[\s*([\d.]+)%", said)
    waiting = waits is not None and float(waits[1]) > (float(units[1]) if units else 0.0)
    note = (
        ""
        if model == "native"
        else f"llvm-mca counted cycles of {model}: it has no model of this processor with these instructions"
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
        raise tools.ToolError(f"llvm-mca did not report {name}; next: install another version of LLVM")
    return float(found[1])


def _assembly(path: str, loop: Sequence[Instruction]) -> str:
    """The loop in AT&T syntax, which both tools write the same way, with jump targets removed."""
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
