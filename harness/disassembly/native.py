"""Compiled code for the CPU: the functions that a kernel's entry reaches within its library, from objdump."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tritmark.harness.disassembly import mca, tools
from tritmark.harness.disassembly.flow import NESTED, Flow, Instruction, counted, flow
from tritmark.harness.record import Function

_HEAD = re.compile(r"^([0-9a-f]{8,}) <([^>\n]+)>:$", re.MULTILINE)
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
_WHOLE = re.compile(r"\b(?:0x)?([0-9a-f]+) <[^>+]+>")
"""A reference to the start of a function."""
_PLACE = re.compile(r"\b(?:0x)?([0-9a-f]+) <")
DEEPEST = 8
"""Maximum loop depth around a function, because calls can be recursive."""

_PREFIXES = {
    "{vex}",
    "{evex}",
    "lock",
    "rep",
    "repz",
    "repnz",
    "notrack",
    "bnd",
    "data16",
    "cs",
    "ds",
    "es",
    "fs",
    "gs",
}
_MEMORY = re.compile(r"\b(XMMWORD|YMMWORD|ZMMWORD|OWORD|QWORD|DWORD|WORD|BYTE)(?: PTR| BCST)? (?:\w\w:)?\[")
_BITS = {"ZMMWORD": 512, "YMMWORD": 256, "XMMWORD": 128, "OWORD": 128, "QWORD": 64, "DWORD": 32, "WORD": 16, "BYTE": 8}
_READS_FIRST = (
    "cmp",
    "test",
    "add",
    "sub",
    "and",
    "or",
    "xor",
    "inc",
    "dec",
    "neg",
    "not",
    "push",
    "vucomi",
    "vcomi",
    "ucomi",
    "comi",
)
"""Prefixes of mnemonics that also read their first operand."""
_FETCHES = ("prefetch", "nop", "lea")

_SCALAR = re.compile(r"^(?!v?p)v?\w+(ss|sd)$")
"""Instructions on one float of a register. Integer instructions, which begin with p, use the whole register:
vpdpbusd."""
_REGISTER = re.compile(r"\b([xyz])mm\d")
LANES = {"x": 128, "y": 256, "z": 512}


@dataclass(slots=True)
class _Reached:
    """A function that the entry reaches."""

    name: str
    instructions: list[Instruction]
    flow: Flow
    depth: int
    """Number of loops around its calls, including loops in indirect callers."""

    @property
    def heat(self) -> int:
        return self.flow.hottest.heat * int(NESTED**self.depth)


def functions(path: str, entries: Sequence[str], target: str) -> tuple[tuple[Function, ...], tuple[str, ...]]:
    """Facts about the entries and the functions with a loop that they reach, the hottest first, and notes. Raises
    ToolError."""
    reached = [each for each in _reached(path, tuple(entries)) if each.flow.innermost or each.name in entries]
    if not reached:
        raise tools.ToolError(
            f"{path} has no symbol {' or '.join(entries)}; next: build it without stripping its symbols (-s)"
        )
    reached.sort(key=lambda each: -each.heat)
    made = [_function(each, target) for each in reached]
    loop = reached[0].flow.hottest.instructions
    if not loop:
        return tuple(made), ()
    if any(each.mnemonic == "call" for each in loop):
        return tuple(made), (
            (f"llvm-mca was not run on {reached[0].name}: its hottest loop calls other functions; next: inline them"),
        )
    try:
        cycles = mca.cycles(path, loop)
    except tools.ToolError as error:
        return tuple(made), (str(error),)
    made[0] = made[0].model_copy(update={"chain_cycles": cycles.chain, "throughput_cycles": cycles.throughput})
    return tuple(made), (cycles.note,) if cycles.note else ()


def _function(each: _Reached, target: str) -> Function:
    loop = each.flow.hottest.instructions
    return Function(
        name=each.name,
        target=target,
        instructions=counted(each.instructions),
        loop=counted(loop),
        loads=loads(loop or each.instructions),
        vectors=vectors(loop or each.instructions),
    )


@lru_cache(maxsize=4)
def _listing(path: str) -> tuple[tuple[int, str, str], ...]:
    """Address, name and disassembly of each function, in the order of addresses."""
    text = tools.run("objdump", ["-d", "--no-show-raw-insn", "-M", "intel", "-j", ".text", path])
    parts = _HEAD.split(text)[1:]
    return tuple(
        (int(at, 16), name, body) for at, name, body in zip(parts[0::3], parts[1::3], parts[2::3], strict=True)
    )


def _reached(path: str, entries: tuple[str, ...]) -> list[_Reached]:
    """The entries, and transitively the functions that they call, jump to, or take the address of.

    A function whose address is taken counts as called at the innermost call through a register.
    """
    listing = _listing(path)
    numbers = {start: number for number, (start, _, _) in enumerate(listing)}
    found: dict[int, _Reached] = {}
    waiting = [(number, 0) for number, (_, name, _) in enumerate(listing) if name in entries]
    while waiting:
        number, depth = waiting.pop(0)
        if number in found and (found[number].depth >= depth or depth > DEEPEST):
            continue
        _, name, body = listing[number]
        if number in found:
            found[number].depth = depth
        else:
            instructions = parsed(body)
            found[number] = _Reached(name, instructions, flow(instructions), depth)
        depths = found[number].flow.depths
        through = max((depths.get(at, 0) for at in _through(found[number].instructions)), default=0)
        for line in body.splitlines():
            row, place = _LINE.match(line), _WHOLE.search(line)
            if row and place and (called := numbers.get(int(place[1], 16), number)) != number:
                taken = row[2].startswith("lea")
                waiting.append((called, depth + (through if taken else depths.get(int(row[1], 16), 0))))
    return list(found.values())


def _through(instructions: Sequence[Instruction]) -> list[int]:
    return [each.address for each in instructions if each.mnemonic == "call" and "<" not in each.operands]


def parsed(text: str) -> list[Instruction]:
    """The instructions of one function in the output of `objdump -d -M intel`."""
    found: list[Instruction] = []
    for line in text.splitlines():
        row = _LINE.match(line)
        if not row:
            continue
        words = row[2].partition("#")[0].strip()
        mnemonic, _, operands = words.partition(" ")
        while mnemonic in _PREFIXES and operands:
            mnemonic, _, operands = operands.strip().partition(" ")
        found.append(_instruction(int(row[1], 16), mnemonic, operands.strip()))
    # Padding after the last jump or return
    while found and found[-1].mnemonic in {"nop", "nopw", "nopl", "xchg", "int3"}:
        found.pop()
    return found


def _instruction(address: int, mnemonic: str, operands: str) -> Instruction:
    if mnemonic.startswith("ret") or mnemonic in {"ud2", "hlt"}:
        return Instruction(address, mnemonic, operands, falls=False)
    if not mnemonic.startswith("j") and not mnemonic.startswith("loop"):
        return Instruction(address, mnemonic, operands)
    place = _PLACE.search(operands)
    if mnemonic != "jmp":
        return Instruction(address, mnemonic, operands, target=int(place[1], 16) if place else None)
    return Instruction(
        address, mnemonic, operands, target=int(place[1], 16) if place else None, falls=False, indirect=place is None
    )


def loads(instructions: Sequence[Instruction]) -> dict[int, int]:
    """Loads from memory by their width in bits. A gather or a broadcast counts as one load of one element."""
    found: dict[int, int] = {}
    for each in instructions:
        place = _MEMORY.search(each.operands)
        if place is None or each.mnemonic.startswith(_FETCHES):
            continue
        written = "," in each.operands[place.start() :] and not each.operands[: place.start()].strip()
        if written and not each.mnemonic.startswith(_READS_FIRST):
            continue
        found[_BITS[place[1]]] = found.get(_BITS[place[1]], 0) + 1
    return found


def vectors(instructions: Sequence[Instruction]) -> dict[int, int]:
    """Vector instructions by their width in bits; instructions on one float of a register have the width 0."""
    found: dict[int, int] = {}
    for each in instructions:
        widths = [LANES[letter] for letter in _REGISTER.findall(each.operands)]
        if widths:
            width = 0 if _SCALAR.match(each.mnemonic) else max(widths)
            found[width] = found.get(width, 0) + 1
    return found
