"""Shared parts of the instances of both gemm_mma.cu, of ternary_matmul and of ternary_matmul_a16: tiles, macros, and
the number of times that a launch has each measured cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.tiles.product import WARP, tiles_of

MMA_SHARED = 99 << 10
"""Bytes of shared memory that a block may have on every device with capability 8.0 or higher (8.6 has the least)."""


@dataclass(frozen=True, slots=True)
class MmaTiles(ABC):
    """An instance of a gemm_mma.cu, which documents the macros, and its time on an H200 in us."""

    rows8: int
    groups: int
    threads: int
    registers: int
    """Registers of a thread, as the compiler assigns them."""
    costs: tuple[float, float, float, float]
    """Costs of a launch; of each wave of blocks; of each pass of its warps over K; of 2560 activations of each row that
    a multiprocessor reads."""
    steps: int = 1

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of activations and of weights of a block."""
        return 8 * self.groups, 8 * self.rows8

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """The macros."""
        return (
            ("ROWS8", str(self.rows8)),
            ("GROUPS", str(self.groups)),
            ("STEPS", str(self.steps)),
            ("THREADS", str(self.threads)),
        )

    @property
    def sums_bytes(self) -> int:
        """Bytes of shared memory for the sums of a warp."""
        return 256 * self.groups * self.rows8

    @abstractmethod
    def warps(self, K: int) -> int:
        """Warps of a block."""

    def counts(self, M: int, N: int, K: int, sms: int) -> tuple[float, float, float, float]:
        """How often each cost occurs on a device with that many multiprocessors."""
        blocks, warps = tiles_of(self.tile, M, N), self.warps(K)
        resident = max(1, REGISTERS_PER_BLOCK // (WARP * warps * (-(-self.registers // 8) * 8)))
        waves = -(-blocks // (resident * sms))
        passes = -(-K // (256 * self.steps * warps))
        return 1, waves, waves * passes, blocks / sms * K / 2560

    def predicted_us(self, M: int, N: int, K: int, sms: int) -> float:
        """Time of a launch on a device with that many multiprocessors."""
        return sum(cost * count for cost, count in zip(self.costs, self.counts(M, N, K, sms), strict=True))
