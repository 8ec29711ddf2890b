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
    """How often each mnemonic stands in the function, without modifiers, such as {"LDG": 4} or {"vpdpbusd": 16}. A
    GPU's atomics keep what they do: {"REDG.ADD": 1}."""
    loop: dict[str, int] = Field(default_factory=dict)
    """The same of its hottest loop: of the innermost ones the longest, each loop around it counting tenfold."""
    loads: dict[int, int] = Field(default_factory=dict)
    """Loads by their width in bits: on a GPU those from global memory in the whole function (fast paths stand
    outside of loops, too), on the host those in `loop`, or in the whole function where it has none."""
    vectors: dict[int, int] = Field(default_factory=dict)
    """On the host: instructions of `loop` (or of the function) on vectors, by their width in bits; 0 for those on
    one number of it."""
    chain_cycles: float | None = None
    """Cycles that a pass of `loop` takes at least because each pass waits for the one before (llvm-mca)."""
    throughput_cycles: float | None = None
    """Cycles that it takes at least because the execution units are busy (llvm-mca)."""
    counters: dict[str, float] = Field(default_factory=dict)
    """What Nsight Compute counted, by the names of its metrics, in bytes, seconds and plain numbers."""


class Code(Model):
    """What runs for a Run, read from the file that was loaded."""

    functions: tuple[Function, ...] = ()
    """Of a GPU's those that were launched; of the host's those with a loop, the hottest first."""
    tools: tuple[str, ...] = ()
    """Which tools said so, with their versions."""
    notes: tuple[str, ...] = ()
    """What could not be read, why, and what would help."""
