"""Reads a variant's compiled code with the tools for its kind."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from tritmark.harness.disassembly import tools
from tritmark.harness.errors import TritmarkError
from tritmark.harness.record import Code, Function
from tritmark.harness.spec import CodeFile, Receipt, Variant


def code_of(variant: Variant, receipt: Receipt | None = None, target: str = "") -> Code | None:
    """The contents of `Run.code`: facts about the functions that were launched according to the receipt. Without a
    receipt: about all functions that the variant may use.

    None if there is no code to read, such as for Python, or if a simulator ran the kernel. A failure of a tool becomes
    a note with the next step, never an error. Each binary is read once in an invocation.
    """
    if receipt is not None and receipt.simulated:
        return None
    launched = {(each.binary, each.function) for each in receipt.launched} if receipt is not None else set()
    try:
        files = variant.code(target, frozenset(binary for binary, _ in launched))
    except TritmarkError as error:
        return Code(notes=(str(error),))
    files = tuple(file for file in files if file.kind != "python")
    if not files:
        return None
    functions: list[Function] = []
    used: list[str] = []
    notes: list[str] = []
    for file in files:
        digest = sha256(file.data or Path(file.path).read_bytes()).hexdigest()
        wanted = tuple(name for name in file.entries if not launched or (digest, name) in launched)
        if not wanted:
            continue
        found = _read(_Keyed(file, digest, wanted))
        functions += found.functions
        used += found.tools
        notes += found.notes
    return Code(functions=tuple(functions), tools=tuple(dict.fromkeys(used)), notes=tuple(dict.fromkeys(notes)))


class _Keyed:
    """A file that is equal to another file with the same bytes, functions and target."""

    def __init__(self, file: CodeFile, digest: str, entries: tuple[str, ...]) -> None:
        self.file, self.entries = file, entries
        self._key = (digest, file.target, entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=512)
def _read(keyed: _Keyed) -> Code:
    file = keyed.file
    try:
        if file.kind == "cubin":
            from tritmark.harness.disassembly import cubin

            found = cubin.functions(file.data, keyed.entries, file.target, file.spilled)
            return Code(functions=found, tools=(tools.version("nvdisasm"),))
        from tritmark.harness.disassembly import native

        functions, notes = native.functions(file.path, keyed.entries, file.target)
        timed = any(each.throughput_cycles is not None for each in functions)
        used = (tools.version("objdump"), *((tools.version("llvm-mca"),) if timed else ()))
        return Code(functions=functions, tools=used, notes=notes)
    except tools.ToolError as error:
        return Code(notes=(f"{file.name}: {error}",))
