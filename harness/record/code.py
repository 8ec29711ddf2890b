"""What a compiler made of a kernel, as tools read it from the compiled code."""

from __future__ import annotations

from pydantic import Field

from tritmark.harness.record.model import Model


class Function(Model):
    """One function of a kernel, for one target; None where no tool tells."""

    name: str
    target: str
    """Such as sm_90 or x86-64."""
    registers: int | None = None
    """For each thread."""
    spilled: int | None = None
    """Bytes of registers that are stored to local memory, and loaded from there."""
    stack: int | None = None
    """Bytes of stack of each thread, those of spills included."""
    shared: int | None = None
    """Bytes of static shared memory of a block."""
    instructions: dict[str, int] = Field(default_factory=dict)
    """How often each mnemonic stands in the function, without modifiers, such as {"LDG": 4} or {"vpdpbusd": 16}."""
    loop: dict[str, int] = Field(default_factory=dict)
    """The same of its hottest loop: the longest of the innermost ones."""
    loads: dict[int, int] = Field(default_factory=dict)
    """Loads from memory in `loop`, by their width in bits."""
    chain_cycles: float | None = None
    """Cycles that a pass of `loop` takes at least because each pass waits for the one before (llvm-mca)."""
    throughput_cycles: float | None = None
    """Cycles that it takes at least because the execution units are busy (llvm-mca)."""


class Code(Model):
    """What runs for a Run, read from the file that was loaded."""

    functions: tuple[Function, ...] = ()
    tools: tuple[str, ...] = ()
    """Which tools said so, with their versions."""
    notes: tuple[str, ...] = ()
    """What could not be read, why, and what would help."""
