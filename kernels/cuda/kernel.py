"""What a CUDA kernel is to its launcher: a function of a .cu file, what it may use, and one launch of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Dim = tuple[int, int, int]

NONE_BAD = np.uint64(0xFFFFFFFFFFFFFFFF)
"""What the kernels' `bad` holds until one of them lowers it, by atomicMin, to the index of an element that the
contract forbids."""

OVERLAPPING = (9, 0)
"""The least compute capability of which launches overlap (programmatic dependent launch)."""

ROOM = Path(__file__).parent.parent
"""Folder of the ops: `Kernel.file` is relative to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One `extern "C" __global__` function and its budget, which the static checks hold it to for every
    architecture."""

    file: str
    """Source, relative to kernels/, such as "i2s_quantize/vector.cu"; the whole path for one of another package."""
    name: str
    """The function. Names begin with one of the provider's `functions`: receipts show them."""
    threads: int
    """Threads of a block, at most. Sources have no number of their own: they get this one as a macro, see `defines`."""
    registers: int
    """Registers a thread may use."""
    shared: int = 0
    """Bytes of shared memory that a block may use, static and dynamic together."""
    local: int = 0
    """Bytes of local memory (stack and spills) that a thread may use."""
    capability: tuple[int, int] = (7, 0)
    """The least compute capability."""
    specific: bool = False
    """Whether it uses what that capability alone has (such as 9.0a's wgmma), and runs nowhere else."""
    defines: tuple[tuple[str, str], ...] = ()
    """Macros that make this specialisation of the source, such as (("BLOCK", "128"),)."""
    options: tuple[str, ...] = ()
    """Further options for nvcc."""
    overlaps: bool = False
    """Whether its launches may begin before the one before them in the stream has ended, see overlap.cuh."""
    simulated: bool = True
    """False where the simulator cannot run it (wgmma, TMA); it is then compiled and its resources are checked."""

    @property
    def path(self) -> Path:
        """The source file."""
        return ROOM / self.file

    @property
    def needs(self) -> str:
        """The compute capability in words, such as "8.0 or newer"."""
        return f"{'.'.join(map(str, self.capability))}{' alone' if self.specific else ' or newer'}"

    def overlaps_on(self, capability: tuple[int, int]) -> bool:
        """Whether it does so on a device of that capability."""
        return self.overlaps and capability >= OVERLAPPING

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a device of that capability runs it."""
        return capability == self.capability if self.specific else capability >= self.capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One launch of a kernel.

    `args` are in the order of the function's parameters: DeviceArray (its pointer is passed), a NumPy scalar of exactly
    the parameter's type (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64), or a TensorMap (or its
    NO_MAP), which come before all others.
    """

    kernel: Kernel
    grid: Dim
    block: Dim
    args: tuple[Any, ...]
    shared: int = 0
    """Bytes of dynamic shared memory."""
