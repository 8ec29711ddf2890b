"""Shared parts of the instances of both gemm_wgmma.cu, of ternary_matmul and of ternary_matmul_a16: tiles, shared
memory, and the number of times that a launch has each measured cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tritmark.harness.spec import Axes
from tritmark.kernels.cuda.array import DeviceArray
from tritmark.kernels.cuda.driver.tensor_map import NO_MAP, TensorMap
from tritmark.kernels.cuda.launch.resources import resident_clusters
from tritmark.kernels.cuda.tiles.product import tiles_of
from tritmark.kernels.formats.row16 import row_bytes

WGMMA_SHARED = 227 << 10
"""Bytes of shared memory that a block may have on 9.0."""
ALIGNED = 16
"""Bytes of a copy of rows of activations."""
DEPTH = 128
"""Bytes of a row of activations in a panel of a stage, and of a row of outputs in a box."""
TAIL_BOX = 32
"""Rows of activations that are copied at a time if tiles differ in size."""
MOST_REPLACED = 4
"""Whole tiles of a strip that may be replaced by smaller ones."""


@dataclass(frozen=True, slots=True)
class WgmmaTiles:
    """An instance of a kernel with wgmma_tiles.cuh, which documents the macros, and its time on an H200 in us."""

    columns: int
    blocks: int
    panels: int
    stages: int
    costs: tuple[float, float, float, float]
    """Costs of a launch; of each tile of a multiprocessor; of each panel of k of a tile; additional cost of a panel if
    all multiprocessors are busy."""
    last: WgmmaTiles | None = None
    """The instance for the last tiles, if whole tiles would leave multiprocessors idle at the end."""
    split: int = 1
    """Blocks that share the K of a tile."""

    panel_k: ClassVar[int]
    """k of a panel."""
    factor_bytes: ClassVar[int]
    """Bytes of shared memory for the factors of a row of activations, for both warpgroups that multiply."""

    @property
    def tail(self) -> int:
        """The macro TAIL."""
        return self.last.columns if self.last else 0

    @property
    def threads(self) -> int:
        """Threads of a block: one warpgroup copies, two multiply."""
        return 384

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of activations and of weights of a block."""
        return self.columns, 128 * self.blocks

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory: stages, factors, and 16-bit outputs of a tile unless blocks share it."""
        rows, high = self.tile
        stage = (rows * DEPTH + high * self.panel_k // 4) * self.panels
        return self.stages * (stage + 16) + (2 * rows * high if self.split == 1 else 0) + self.factor_bytes * rows

    @property
    def defines(self) -> tuple[tuple[str, str], ...]:
        """The macros."""
        return (
            ("COLUMNS", str(self.columns)),
            ("BLOCKS", str(self.blocks)),
            ("PANELS", str(self.panels)),
            ("STAGES", str(self.stages)),
            ("TAIL", str(self.tail)),
            ("SPLIT", str(self.split)),
            ("THREADS", str(self.threads)),
        )

    def maps(
        self, activations: DeviceArray, apart: int, weights: DeviceArray, out: DeviceArray, axes: Axes
    ) -> tuple[object, object, object]:
        """The tensor maps of activations (`apart` bytes between rows), weights and outputs. Unaligned activations,
        unaligned outputs and outputs of other than 16 bits have no map."""
        (rows, high), bytes_w = self.tile, row_bytes(axes["K"])
        box_rows = TAIL_BOX if self.last else rows
        of_a: object = NO_MAP
        if apart % ALIGNED == 0:
            of_a = TensorMap(activations, axes["K"] * activations.dtype.itemsize, axes["M"], apart, (DEPTH, box_rows))
        of_w = TensorMap(weights, bytes_w, axes["N"], bytes_w, (self.panel_k // 4 * self.panels, high))
        of_out: object = NO_MAP
        bytes_out = axes["N"] * out.dtype.itemsize
        if self.split == 1 and out.dtype.itemsize == 2 and bytes_out % ALIGNED == 0 and out.pointer % ALIGNED == 0:
            of_out = TensorMap(out, bytes_out, axes["M"], bytes_out, (DEPTH, box_rows))
        return of_a, of_w, of_out

    def strips(self, M: int, N: int, K: int, sms: int) -> tuple[int, int]:
        """The number of strips of rows of weights that end in tiles of `last`, and the whole tiles of each: the choice
        with the least predicted time."""
        return self.timed_strips(M, N, K, sms)[1:]

    def timed_strips(self, M: int, N: int, K: int, sms: int) -> tuple[float, int, int]:
        """The predicted time of all tiles, followed by the result of `strips`."""
        assert self.last is not None
        rows, high = self.tile
        each, panels = -(-M // rows), -(-K // self.panel_k)
        us, us_last = (one.costs[1] + panels * (one.costs[2] + one.costs[3]) for one in (self, self.last))
        found = []
        for whole in range(max(0, each - MOST_REPLACED), each):
            lasts = -(-(M - whole * rows) // self.last.columns)
            for mixed in range(-(-N // high) + 1):
                # Whole tiles come first and are assigned round-robin, so the first block has the most of them.
                before = (-(-N // high) - mixed) * each + mixed * whole
                waves, waves_all = -(-before // sms), -(-(before + mixed * lasts) // sms)
                found.append((waves * us + (waves_all - waves) * us_last, mixed, whole))
        return min(found)

    def launched(self, M: int, N: int, K: int, sms: int) -> tuple[int, int, int]:
        """Blocks of a launch on a device with that many multiprocessors, which loop over tiles or share one, and the
        kernel's `mixed` and `mixed_wide`."""
        tiles, mixed, whole = tiles_of(self.tile, M, N), 0, 0
        if self.last:
            mixed, whole = self.strips(M, N, K, sms)
            tiles += mixed * (tiles_of(self.last.tile, M - whole * self.columns, 1) - tiles_of(self.tile, M, 1))
            tiles += mixed * whole
        return min(tiles, sms) if self.split == 1 else tiles * self.split, mixed, whole

    def counts(self, M: int, N: int, K: int, sms: int) -> tuple[float, float, float, float]:
        """How often each cost occurs on a device with that many multiprocessors."""
        tiles, stages = tiles_of(self.tile, M, N), -(-K // (self.panel_k * self.panels))
        waves, panels = -(-tiles // resident_clusters(self.split, sms)), -(-stages // self.split) * self.panels
        return 1, waves, waves * panels, waves * panels * min(1.0, tiles * self.split / sms)

    def predicted_us(self, M: int, N: int, K: int, sms: int) -> float:
        """Time of a launch on a device with that many multiprocessors."""
        if self.last:
            return self.costs[0] + self.timed_strips(M, N, K, sms)[0]
        return sum(cost * count for cost, count in zip(self.costs, self.counts(M, N, K, sms), strict=True))
