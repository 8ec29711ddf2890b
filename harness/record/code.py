"""Facts of a kernel's compiled code, as tools read them."""

from __future__ import annotations

from pydantic import Field

from tritmark.harness.record.model import Model


class Function(Model):
    """One function of a kernel, for one target; None if no tool reports the value."""

    name: str
    target: str
    """Such as sm_90 or x86-64."""
    registers: int | None = None
    """Per thread."""
    spilled: int | None = None
    """Bytes of register spills to local memory: stores and loads."""
    stack: int | None = None
    """Bytes of stack per thread, spills included."""
    shared: int | None = None
    """Bytes of static shared memory per block."""
    instructions: dict[str, int] = Field(default_factory=dict)
    """Count of each mnemonic in the function, without modifiers, such as {"LDG": 4} or {"vpdpbusd": 16}. Atomics of a
    GPU keep their operation: {"REDG.ADD": 1}."""
    loop: dict[str, int] = Field(default_factory=dict)
    """Count of each mnemonic in the hottest loop: the longest innermost loop, with each surrounding loop weighted
    tenfold."""
    loads: dict[int, int] = Field(default_factory=dict)
    """Loads by width in bits. On a GPU: loads from global memory in the whole function, because fast paths are outside
    loops too. On the host: loads in `loop`, or in the function if it has no loop."""
    vectors: dict[int, int] = Field(default_factory=dict)
    """On the host: vector instructions in `loop` (or in the function) by width in bits; 0 for scalar ones on vector
    registers."""
    chain_cycles: float | None = None
    """Least cycles of a pass of `loop` by the dependency on the previous pass (llvm-mca)."""
    throughput_cycles: float | None = None
    """Least cycles of a pass of `loop` by the throughput of the execution units (llvm-mca)."""
    counters: dict[str, float] = Field(default_factory=dict)
    """Metrics of Nsight Compute by name, in bytes, seconds or counts."""


class Code(Model):
    """The compiled code of a Run's kernel, read from the file that was loaded."""

    functions: tuple[Function, ...] = ()
    """On a GPU: the functions that were launched. On the host: the functions with a loop, the hottest first."""
    tools: tuple[str, ...] = ()
    """The tools that read the code, with their versions."""
    notes: tuple[str, ...] = ()
    """Facts that could not be read, each with the reason and the next step."""
