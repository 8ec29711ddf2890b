"""A GPU's binary: registers, stack and shared memory from its ELF notes, instructions from nvdisasm."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tritmark.harness.disassembly import tools
from tritmark.harness.disassembly.flow import Instruction, counted, flow
from tritmark.harness.record import Function

_SECTION = re.compile(r"^//-+ \.text\.(\S+)\s+-+$", re.MULTILINE)
_LABEL = re.compile(r"^(\.L_\w+|\$\S+):")
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"`\(([^)]+)\)")
_ENDS = {"EXIT", "RET", "KILL"}
_JUMPS = {"BRA", "JMP", "UBRA"}
_INDIRECT = {"BRX", "BRXU", "JMX", "JMXU"}

_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}

EIATTR_REGCOUNT, EIATTR_FRAME_SIZE = 0x2F, 0x11
_SYMTAB, _NOBITS, _CUDA_INFO = 2, 8, 0x70000000


def functions(data: bytes, names: Sequence[str], target: str, spilled: Mapping[str, int]) -> tuple[Function, ...]:
    """Facts about the named kernels of a cubin. Raises ToolError."""
    with TemporaryDirectory(prefix="tritmark-") as scratch:
        path = Path(scratch) / "code.cubin"
        path.write_bytes(data)
        text = tools.run("nvdisasm", ["-c", str(path)])
    parts = _SECTION.split(text)[1:]
    bodies = dict(zip(parts[0::2], parts[1::2], strict=True))
    used = resources(data)
    return tuple(
        _function(name, parsed(bodies[name]), target, used.get(name, {}), spilled.get(name))
        for name in names
        if name in bodies
    )


def _function(
    name: str, instructions: list[Instruction], target: str, used: Mapping[str, int], spilled: int | None
) -> Function:
    loop = flow(instructions).hottest.instructions
    return Function(
        name=name,
        target=target,
        registers=used.get("registers"),
        stack=used.get("stack"),
        shared=used.get("shared"),
        spilled=spilled,
        instructions=counted(instructions),
        loop=counted(loop),
        loads=loads(instructions),
    )


def parsed(text: str) -> list[Instruction]:
    """The instructions of one function in the output of `nvdisasm -c`, without the padding at the end."""
    rows: list[tuple[int, str, str, str]] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label:
            waiting.append(label[1])
            continue
        found = _LINE.match(line)
        if found:
            address = int(found[1], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            rows.append((address, found[2] or "", found[3], found[4]))
    while rows and rows[-1][2] == "NOP":
        rows.pop()
    return [_instruction(*row, labels) for row in rows]


def _instruction(address: int, predicate: str, mnemonic: str, operands: str, labels: Mapping[str, int]) -> Instruction:
    root = mnemonic.partition(".")[0]
    if root in _ENDS:
        return Instruction(address, mnemonic, operands, falls=bool(predicate))
    if root in _INDIRECT:
        return Instruction(address, mnemonic, operands, falls=bool(predicate), indirect=True)
    if root not in _JUMPS:
        return Instruction(address, mnemonic, operands)
    found = _TARGET.search(operands)
    # A predicate may also be an operand, and .DIV falls through for a warp that does not diverge.
    conditional = bool(predicate) or "," in operands or ".DIV" in mnemonic
    return Instruction(address, mnemonic, operands, target=labels.get(found[1]) if found else None, falls=conditional)


def loads(instructions: Sequence[Instruction]) -> dict[int, int]:
    """Loads from global memory by their width in bits."""
    found: dict[int, int] = {}
    for each in instructions:
        root, *modifiers = each.mnemonic.split(".")
        if root in {"LDG", "LD", "LDGSTS"}:
            width = next((_WIDTHS[modifier] for modifier in modifiers if modifier in _WIDTHS), 32)
            found[width] = found.get(width, 0) + 1
    return found


def resources(data: bytes) -> dict[str, dict[str, int]]:
    """For each kernel of a cubin: registers a thread, stack a thread in bytes, static shared memory a block in bytes.

    Sources in the ELF: the upper byte of .text's sh_info, or EIATTR_REGCOUNT; EIATTR_FRAME_SIZE; the size of
    .nv.shared. Returns {} for a damaged file.
    """
    try:
        return _resources(data)
    except (struct.error, IndexError, ValueError, OverflowError):
        return {}


def _resources(data: bytes) -> dict[str, dict[str, int]]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + nth * size) for nth in range(count)]

    def text(base: int, at: int) -> str:
        return data[base + at : data.index(b"\0", base + at)].decode("utf-8", "replace")

    labels = [text(sections[names][4], section[0]) for section in sections]
    symbols: list[str] = []
    for section in sections:
        if section[1] == _SYMTAB:
            strings = sections[section[6]][4]
            symbols = [
                text(strings, struct.unpack_from("<I", data, at)[0])
                for at in range(section[4], section[4] + section[5], 24)
            ]
    found: dict[str, dict[str, int]] = {}
    for label, section in zip(labels, sections, strict=True):
        if label.startswith(".text."):
            found.setdefault(label.removeprefix(".text."), {"shared": 0})["registers"] = section[7] >> 24
        elif label.startswith(".nv.shared.") and label != ".nv.shared.reserved.0":
            found.setdefault(label.removeprefix(".nv.shared."), {})["shared"] = section[5]
    for label, section in zip(labels, sections, strict=True):
        if label != ".nv.info":
            continue
        at = section[4]
        while at < section[4] + section[5]:
            form, attribute, value = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != 4:
                continue
            if attribute in {EIATTR_REGCOUNT, EIATTR_FRAME_SIZE} and value >= 8:
                symbol, amount = struct.unpack_from("<II", data, at)
                if symbols[symbol] in found:
                    found[symbols[symbol]]["registers" if attribute == EIATTR_REGCOUNT else "stack"] = amount
            at += value
    return found
