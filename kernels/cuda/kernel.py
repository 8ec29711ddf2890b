"""A CUDA kernel as its launcher sees it: a function of a .cu file, its limits, and one launch of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Dim = tuple[int, int, int]

NONE_BAD = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Initial value of the kernels' `bad`. A kernel lowers it by atomicMin to the index of an element that the contract
forbids."""

OVERLAPPING = (9, 0)
"""The lowest compute capability with overlapping launches (programmatic dependent launch)."""

ROOM = Path(__file__).parent.parent
"""Folder of the ops; `Kernel.file` is relative to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One `extern "C" __global__` function and its budget, which static checks enforce for every architecture."""

    file: str
    """Source, relative to kernels/, such as "i2s_quantize/vector.cu"; a full path for a kernel of another package."""
    name: str
    """The function. Its name begins with one of the provider's `functions`; receipts show it."""
    threads: int
    """Maximum threads per block. Sources contain no such number; they get it as a macro, see `defines`."""
    registers: int
    """Limit of registers per thread."""
    shared: int = 0
    """Limit of shared memory per block in bytes, static and dynamic together."""
    local: int = 0
    """Limit of local memory (stack and spills) per thread in bytes."""
    capability: tuple[int, int] = (7, 0)
    """The lowest compute capability."""
    specific: bool = False
    """Whether it uses features of exactly that capability (such as wgmma of 9.0a), and runs on no other."""
    defines: tuple[tuple[str, str], ...] = ()
    """Macros of this specialization of the source, such as (("BLOCK", "128"),)."""
    options: tuple[str, ...] = ()
    """Further options for nvcc."""
    overlaps: bool = False
    """Whether its launches may begin before the previous launch in the stream has ended, see overlap.cuh."""
    simulated: bool = True
    """False if the simulator cannot run it (wgmma, TMA); it is then compiled and its resources are checked."""

    @property
    def path(self) -> Path:
        """The source file."""
        return ROOM / self.file

    @property
    def needs(self) -> str:
        """The required compute capability in words, such as "8.0 or newer"."""
        return f"{'.'.join(map(str, self.capability))}{' alone' if self.specific else ' or newer'}"

    def overlaps_on(self, capability: tuple[int, int]) -> bool:
        """Whether its launches overlap on a device of that capability."""
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
