"""The instances of gemv_shared.cu, for 2 to 8 rows of activations, and the shapes for which they are launched."""

from __future__ import annotations

from dataclasses import dataclass

from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import Call
from tritmark.kernels.cuda.launch.resources import REGISTERS_PER_BLOCK
from tritmark.kernels.cuda.tiles.product import WARP, constant
from tritmark.kernels.ternary_matmul.cuda_arguments import SHARED, activation_row_bytes, arrays, scalars

STEP = 256
"""Weights of a row that a warp takes in one step."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The macros of an instance, which the source documents."""

    pairs: int
    tiles: int
    steps: int
    threads: int

    @property
    def rows(self) -> int:
        """Rows of weights of a block."""
        return 16 * self.pairs * self.tiles

    def split(self, K: int) -> int:
        """Warps that share the K of a row."""
        return -(-K // (STEP * self.steps))

    def block(self, K: int) -> int:
        """Threads of a block."""
        return WARP * self.tiles * self.split(K)

    def shared(self, M: int, K: int) -> int:
        """Bytes of dynamic shared memory: activations, factors and sums of their rows, sums of the warps."""
        return M * (-(-K // 128) * 128) + 96 + 4 * self.split(K) * M * (self.rows + 4)

    def takes(self, M: int, K: int) -> bool:
        """Whether a block's threads and shared memory suffice."""
        return self.block(K) <= self.threads and self.shared(M, K) <= SHARED


SEVEN = Shared(pairs=1, tiles=7, steps=10, threads=224)
WHOLE = Shared(pairs=1, tiles=8, steps=10, threads=256)
HALVES = Shared(pairs=1, tiles=8, steps=5, threads=512)
QUARTERS = Shared(pairs=2, tiles=2, steps=4, threads=256)
SHAPES = (SEVEN, WHOLE, HALVES, QUARTERS)


def _kernel(shape: Shared) -> Kernel:
    macros = {"PAIRS": shape.pairs, "TILES": shape.tiles, "STEPS": shape.steps, "THREADS": shape.threads}
    return Kernel(
        file="ternary_matmul/gemv_shared.cu",
        name="gemm_gemv_shared",
        threads=shape.threads,
        registers=min(255, REGISTERS_PER_BLOCK // shape.threads // 8 * 8),
        shared=SHARED,
        capability=(8, 0),
        defines=tuple((name, str(value)) for name, value in macros.items()),
        overlaps=True,
    )


KERNELS = {shape: _kernel(shape) for shape in SHAPES}


def shared_shape(M: int, N: int, K: int, sms: int, early: bool) -> Shared | None:
    """The instance for that product on a device with that many multiprocessors, or None if gemv_mma.cu is faster.

    Chosen by the times in the header of the source: weights that are read early, if most multiprocessors have one block
    of 128 rows and none has two; blocks of 112 rows if they are not more than the multiprocessors either.
    """
    if not early or not 3 * sms <= 4 * -(-N // WHOLE.rows) <= 4 * sms:
        return None
    if 2048 < K <= 2560:
        if -(-N // SEVEN.rows) <= sms:
            return SEVEN
        return WHOLE if M <= 6 else HALVES
    return QUARTERS if 3072 < K <= 4096 else None


def launch(shape: Shared, kind: int, call: Call) -> tuple[Step, ...]:
    """The launch of an instance; `kind` is the number of the output dtype."""
    M, N, K = (call.axes[axis] for axis in "MNK")
    kernel = KERNELS[shape]
    made = call.params(kernel, -(-N // shape.rows), shape.block(K), shared=shape.shared(M, K))
    args = (*arrays(call), activation_row_bytes(call), *scalars(call, kind), constant(call))
    return (Step(kernel=kernel, grid=made.grid, block=made.block, args=args, shared=made.shared),)
