"""The CUDA variants of ternary_matmul, all with row16 weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from tritmark.harness.machine.gpu import DeviceInfo
from tritmark.harness.spec import Axes, KernelKey, MaxSize, MinSize, Tier
from tritmark.kernels.cuda.kernel import OVERLAPPING, Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.cuda.launch.params import tile_search
from tritmark.kernels.cuda.launch.tuning import Steps, instance_name
from tritmark.kernels.cuda.tiles.product import WARP, constant, reads_early
from tritmark.kernels.formats.row16 import row_bytes
from tritmark.kernels.ternary_matmul import cuda_gemm, cuda_gemv_shared
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, SHARED, activation_row_bytes, arrays, scalars
from tritmark.kernels.ternary_matmul.cuda_gemv_shared import Shared
from tritmark.kernels.ternary_matmul.spec import MAX_K, OP, dtypes

FORMAT = "row16"

# --- tiled, v1
# ----------------------------------------------------------------------------------------------------------------------

TILED = {
    edge: Kernel(
        file="ternary_matmul/tiled.cu",
        name="gemm_i2s_tiled",
        threads=edge * edge,
        registers=64,
        shared=edge * (2 * edge + 4),
        defines=(("TILE", str(edge)), ("THREADS", str(edge * edge))),
    )
    for edge in (16, 32)
}


def _tiled(kind: int, call: Call) -> tuple[Step, ...]:
    edge = tile_search(call.info, itemsize=1)
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    launch = call.params(TILED[edge], -(-M // edge) * -(-N // edge))
    args = (*arrays(call), activation_row_bytes(call), np.int64(row_bytes(K)), *scalars(call, kind))
    return (Step(kernel=TILED[edge], grid=launch.grid, block=launch.block, args=args),)


# --- dp4a: a register-tiled product
# ----------------------------------------------------------------------------------------------------------------------

THREADS = 256
"""Threads of a block here, and the most of a block of gemv_dp4a."""
GEMM = Kernel(
    file="ternary_matmul/gemm.cu",
    name="gemm_i2s_dp4a",
    threads=THREADS,
    registers=72,
    shared=2 * 16 * 68 * 4 + 64 * 8,
    defines=(("THREADS", str(THREADS)),),
)
EDGE = 64
"""Rows and columns of the outputs of a block."""


def _gemm(kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    launch = call.params(GEMM, -(-M // EDGE) * -(-N // EDGE))
    args = (*arrays(call), activation_row_bytes(call), np.int64(row_bytes(K) // 4), *scalars(call, kind))
    return (Step(kernel=GEMM, grid=launch.grid, block=launch.block, args=args),)


# --- gemv_dp4a: M = 1
# ----------------------------------------------------------------------------------------------------------------------

LANES = 8
ROWS = 4
MOST_SPLIT = 8
"""The most groups of LANES lanes that share a row."""
LONG_K = 8192
"""For this K or more, activations are read directly and not staged in shared memory."""
GEMV_DP4A = {
    staged: Kernel(
        file="ternary_matmul/gemv_dp4a.cu",
        name="gemm_gemv_dp4a",
        threads=THREADS,
        registers=64,
        shared=SHARED,
        defines=(
            ("LANES", str(LANES)),
            ("ROWS", str(ROWS)),
            ("STEPS", "1"),
            ("THREADS", str(THREADS)),
            ("STAGED", str(int(staged))),
        ),
        overlaps=True,
    )
    for staged in (False, True)
}


def dp4a_shape(N: int, K: int, sms: int) -> tuple[bool, int, int]:
    """Whether to stage activations, threads of a block, and split, as measured on the H200's 132 multiprocessors
    (gemv_dp4a.cu)."""
    chunks = row_bytes(K) // 16
    threads, split = 128, 1
    # Split K until each multiprocessor has four blocks, as far as K allows.
    while split < MOST_SPLIT and LANES * split < chunks and N * LANES * split < 4 * sms * threads * ROWS:
        split *= 2
    if split == MOST_SPLIT and chunks <= LANES * split:
        threads = THREADS
    return K < LONG_K, threads, split


def _gemv_dp4a(kind: int, call: Call) -> tuple[Step, ...]:
    N, K = call.axes["N"], call.axes["K"]
    return _launch_dp4a(dp4a_shape(N, K, call.info.sms), kind, call)


def _dp4a_by_name(kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """Each split of K with both sizes of blocks, the built-in choice first."""
    first = dp4a_shape(axes["N"], axes["K"], info.sms)
    splits = [1 << power for power in range(MOST_SPLIT.bit_length())]
    shapes = [first, *((first[0], threads, split) for threads in (128, THREADS) for split in splits)]
    return {
        instance_name(GEMV_DP4A[shape[0]], block=shape[1], split=shape[2]): partial(_launch_dp4a, shape, kind)
        for shape in dict.fromkeys(shapes)
    }


def _launch_dp4a(shape: tuple[bool, int, int], kind: int, call: Call) -> tuple[Step, ...]:
    staged, threads, split = shape
    N = call.axes["N"]
    kernel = GEMV_DP4A[staged]
    groups = threads // (LANES * split)
    shared = 4 * groups * ROWS * split + (16 * 4 * LANES * split if staged else 0)
    launch = call.params(kernel, -(-N // (groups * ROWS)), threads, shared=shared)
    activations, weights, act_scale, out = arrays(call)
    weight_scale, _, *numbers = scalars(call, kind)
    args = (activations, weights, act_scale, out, weight_scale, *numbers, np.int32(split))
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


def instance(file: str, name: str, macros: Shape | Rows, **more: int) -> Kernel:
    """The function gemm_NAME of FILE.cu with these macros, limited to the registers with which a block fits a
    multiprocessor."""
    return Kernel(
        file=f"ternary_matmul/{file}.cu",
        name=f"gemm_{name}",
        threads=macros.threads,
        registers=min(255, 65536 // macros.threads // 8 * 8),
        shared=SHARED,
        capability=(8, 0),
        defines=(
            *((each.name.upper(), str(int(getattr(macros, each.name)))) for each in fields(macros)),
            *((each, str(value)) for each, value in more.items()),
        ),
        overlaps=True,
    )


# --- gemv: 2 <= M <= 8, on tensor cores
# --------------------------------------------------------------------------------------------------

GEMV_M = 8
"""Rows of activations that one mma takes."""
STEP = 256
"""Weights of a row that a warp takes in one step."""
WARP_K = 1 << 19
"""Weights of a row that one warp may sum in int32, see gemv_mma.cu."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The macros of an instance of gemv_mma.cu, which documents them."""

    rows8: int
    steps: int
    activations: int
    flow: int
    threads: int

    @property
    def rows(self) -> int:
        """Rows of weights that a block takes at a time."""
        return 8 * self.rows8

    @property
    def one_pass(self) -> bool:
        """Whether its warps must cover K in one pass."""
        return self.flow > 0

    @property
    def ahead(self) -> bool:
        """Whether it loads the next tile before it multiplies this one."""
        return self.flow == 2

    def warps(self, M: int, K: int) -> int:
        """Warps of a block; two or more if it may take several passes over K."""
        warps = -(-K // (STEP * self.steps))
        if not self.one_pass:
            warps = max(min(-(-warps // 2), self.threads // WARP // 2), -(-K // WARP_K))
        return max(warps, -(-self.rows * M // WARP))

    def shared(self, warps: int, M: int) -> int:
        """Bytes of dynamic shared memory."""
        return 8 * warps * M * self.rows

    def takes(self, M: int, K: int) -> bool:
        """Whether a block's threads and shared memory suffice."""
        warps = self.warps(M, K)
        return warps * WARP <= self.threads and self.shared(warps, M) <= SHARED


FEW = tuple(
    Shape(rows8=rows8, steps=1, activations=1, flow=1, threads=threads)
    for rows8, threads in ((1, 1024), (3, 768), (4, 640))
)
"""For N of at most one tile per multiprocessor."""
FEW_LONG = Shape(rows8=3, steps=2, activations=1, flow=1, threads=512)
MANY = Shape(rows8=4, steps=1, activations=1, flow=2, threads=640)
MANY_LONG = Shape(rows8=3, steps=2, activations=1, flow=2, threads=512)
ANY = Shape(rows8=2, steps=2, activations=0, flow=0, threads=768)
SHAPES = (*FEW, FEW_LONG, MANY, MANY_LONG, ANY)

GEMV = {shape: instance("gemv_mma", "gemv_mma", shape) for shape in SHAPES}


def gemv_shape(M: int, N: int, K: int, sms: int) -> Shape:
    """The instance of gemv_mma.cu for that product on a device with that many multiprocessors.

    Chosen by N (is one wave of tiles enough?) and K (how many warps does one pass need?), from the times in the header
    of the source. They were measured on the H200's 132 multiprocessors with one row of activations; more rows run the
    same instructions.
    """
    few = next((shape for shape in FEW if shape.rows * sms >= N), None)
    many = (MANY, MANY_LONG) if K <= 3072 else (MANY_LONG, MANY)
    wanted = (few, FEW_LONG) if few else many
    return next(shape for shape in (*wanted, ANY) if shape.takes(M, K))


def _gemv_mma(kind: int, call: Call) -> tuple[Step, ...]:
    return _launch_mma(gemv_shape(call.axes["M"], call.axes["N"], call.axes["K"], call.info.sms), kind, call)


def _launch_mma(shape: Shape, kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    warps = shape.warps(M, K)
    # A block that loads ahead loops over tiles; otherwise the device schedules one block per tile.
    waves = 1 if shape.ahead else None
    launch = call.params(GEMV[shape], -(-N // shape.rows), WARP * warps, shared=shape.shared(warps, M), waves=waves)
    args = (*arrays(call), activation_row_bytes(call), *scalars(call, kind), constant(call))
    return (Step(kernel=GEMV[shape], grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


# --- gemv: M = 1, on tensor cores unless dp4a is faster
# ----------------------------------------------------------------------------------

ROWS_N = 1 << 30
"""Rows of weights that gemv_rows.cu can index, with a margin."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The macros of an instance of gemv_rows.cu, which documents them."""

    seg: int
    steps: int
    pairs: int
    threads: int
    loop: bool = False

    @property
    def tile(self) -> int:
        """Rows that a warp takes at a time."""
        return 2 * self.pairs * 8 // self.seg

    def chunks(self, K: int) -> int:
        """Chunks of 64 weights that its steps process for a row."""
        whole = 4 * self.seg * self.steps
        return -(-K // (64 * whole)) * whole

    def shared(self, warps: int, K: int) -> int:
        """Bytes of dynamic shared memory."""
        return 64 * self.chunks(K) + 4 * warps

    def takes(self, K: int) -> bool:
        """Whether shared memory holds the activations, and a warp covers K in one pass if the instance requires it."""
        return (self.loop or self.chunks(K) == 4 * self.seg * self.steps) and self.shared(
            self.threads // WARP, K
        ) <= SHARED


SHORT = Rows(seg=8, steps=2, pairs=1, threads=1024)
LONG = (Rows(seg=8, steps=4, pairs=1, threads=640), Rows(seg=8, steps=5, pairs=1, threads=512))
TALL = Rows(seg=2, steps=5, pairs=2, threads=384)
FOURS = tuple(Rows(seg=4, steps=4, pairs=pairs, threads=threads) for pairs, threads in ((1, 512), (2, 384)))
LOOP = Rows(seg=8, steps=2, pairs=1, threads=640, loop=True)
LOOPS = (
    Rows(seg=4, steps=4, pairs=1, threads=320, loop=True),
    Rows(seg=4, steps=5, pairs=1, threads=256, loop=True),
    Rows(seg=8, steps=4, pairs=1, threads=320, loop=True),
)
"""Instances that cover K of 4096, 5120 and 8192 in one pass; two blocks per multiprocessor."""
FEW_ROWS = 32
"""Up to this many rows per multiprocessor, each warp has two."""
FEW_PASSES = 3
"""Up to this many passes, the rows of a block are a multiple of the rows of all its warps: this needs fewer blocks."""
ROWS_SHAPES = (SHORT, *LONG, TALL, *FOURS, LOOP, *LOOPS)

GEMV_ROWS = {shape: instance("gemv_rows", "gemv_rows", shape, INPUT=0) for shape in ROWS_SHAPES}


def one_wave(N: int, K: int, sms: int) -> tuple[Rows, int, int] | None:
    """The instance of gemv_rows.cu that has every weight in flight together on a device with that many multiprocessors,
    its warps and the rows of a block; None for too many weights.

    Up to 32 rows per multiprocessor, in two blocks if that needs more than 10 warps and registers allow it; for
    K <= 2560 as many rows as fit.
    """
    share = -(-N // sms)
    for shape in (SHORT, *LONG) if share <= FEW_ROWS else (TALL,):
        if shape.takes(K) and share <= shape.threads // WARP * shape.tile:
            blocks = sms if shape is not SHORT or share <= 20 else 2 * sms
            warps = -(-N // (blocks * shape.tile))
            return shape, warps, warps * shape.tile
    return None


def looping(N: int, sms: int) -> tuple[Rows, int, int]:
    """As one_wave, for one block per multiprocessor that loops over its rows."""
    share = -(-N // sms)
    return LOOP, min(LOOP.threads // WARP, -(-share // LOOP.tile)), share


def small_blocks(N: int, K: int, sms: int, early: bool) -> tuple[Rows, int, int] | None:
    """As one_wave, in blocks so small that blocks of the next launch fit beside them and begin while this one waits;
    None if such blocks are not faster.

    Chosen by the times at the end of the source's header comment. Weights that are not read `early` wait too; then more
    blocks than are resident take longer.
    """
    share = -(-N // sms)
    if K <= 2560 and share > FEW_ROWS:
        shape, warps = TALL, min(5, -(-share // TALL.tile))
    elif K <= 4096 and share > 20:
        shape = FOURS[0] if share <= 80 else FOURS[1] if share <= 128 else LOOPS[0]
        warps = 10 if shape is LOOPS[0] else max(8, -(-share // shape.tile)) if share <= 40 else 8
    elif 4096 < K <= 8192 and share > FEW_ROWS:
        shape, warps = LOOPS[1 if K <= 5120 else 2], 8
    elif K > 4096 and LONG[1].takes(K) and share <= FEW_ROWS:
        shape = LONG[not LONG[0].takes(K)]
        warps = min(10, -(-share // shape.tile))
    else:
        return None
    if not early and (share <= FEW_ROWS or shape not in (FOURS[0], *LOOPS[:2])):
        return None
    if not shape.loop:
        return shape, warps, warps * shape.tile
    each = -(-N // (2 * sms))
    warps = min(warps, -(-each // shape.tile))
    passes = -(-each // (warps * shape.tile))
    return shape, warps, passes * warps * shape.tile if early and passes <= FEW_PASSES else each


def rows_shape(N: int, K: int, sms: int, early: bool = True) -> tuple[Rows, int, int] | Shape | None:
    """The instance of gemv_rows.cu for M = 1 on a device with that many multiprocessors, its warps and the rows of a
    block.

    If another kernel is faster: the instance of gemv_mma.cu, or None for dp4a.

    Chosen by the times in the header of the source: small blocks where they are faster; else, as measured on the H200's
    132 multiprocessors, one wave where it suffices; beyond, for K under 4096, gemv_mma.cu. dp4a: K of 4096 to 12288
    with more than 64 rows per multiprocessor, and K with activations that do not fit into shared memory.
    """
    if N > ROWS_N or not LOOP.takes(K):
        return None
    found = small_blocks(N, K, sms, early)
    if found is not None:
        return found
    if 4096 <= K <= 12288 and 64 * sms < N:
        return None
    wave = one_wave(N, K, sms)
    if wave is None and K < 4096:
        return gemv_shape(1, N, K, sms)
    return wave or looping(N, sms)


def _gemv(kind: int, call: Call) -> tuple[Step, ...]:
    M, N, K = call.axes["M"], call.axes["N"], call.axes["K"]
    if M > 1:
        shared = cuda_gemv_shared.shared_shape(M, N, K, call.info.sms, reads_early(call))
        return cuda_gemv_shared.launch(shared, kind, call) if shared else _gemv_mma(kind, call)
    chosen = rows_shape(N, K, call.info.sms, reads_early(call))
    if isinstance(chosen, Shape):
        return _gemv_mma(kind, call)
    return _gemv_dp4a(kind, call) if chosen is None else _launch_rows(chosen, kind, call)


def _gemv_by_name(kind: int, axes: Axes, info: DeviceInfo) -> dict[str, Steps]:
    """The instances that take the product, the built-in choice first: those of gemv_mma.cu; for M = 1 also those of
    gemv_rows.cu with blocks of several sizes and those for dp4a; for other M also those of gemv_shared.cu."""
    M, N, K = axes["M"], axes["N"], axes["K"]
    early = info.capability >= OVERLAPPING
    shapes: list[Shape | Shared | tuple[Rows, int, int]] = [shape for shape in SHAPES if shape.takes(M, K)]
    chosen: Shape | Shared | tuple[Rows, int, int] | None
    if M == 1:
        chosen = rows_shape(N, K, info.sms, early)
        shapes += _rows_shapes(N, K, info.sms) if N <= ROWS_N else []
    else:
        chosen = cuda_gemv_shared.shared_shape(M, N, K, info.sms, early) or gemv_shape(M, N, K, info.sms)
        shapes += [shape for shape in cuda_gemv_shared.SHAPES if shape.takes(M, K)]
    made: dict[str, Steps] = {}
    for shape in shapes if chosen is None else (chosen, *shapes):
        if isinstance(shape, Shape):
            made.setdefault(instance_name(GEMV[shape]), partial(_launch_mma, shape, kind))
        elif isinstance(shape, Shared):
            name = instance_name(cuda_gemv_shared.KERNELS[shape])
            made.setdefault(name, partial(cuda_gemv_shared.launch, shape, kind))
        else:
            name = instance_name(GEMV_ROWS[shape[0]], warps=shape[1], rows=shape[2])
            made.setdefault(name, partial(_launch_rows, shape, kind))
    dp4a = _dp4a_by_name(kind, axes, info) if M == 1 else {}
    return {**dp4a, **made} if chosen is None else {**made, **dp4a}


def _rows_shapes(N: int, K: int, sms: int) -> list[tuple[Rows, int, int]]:
    """Instances of gemv_rows.cu for M = 1 with their warps and the rows of a block, for one to four blocks per
    multiprocessor; if a block does not loop over its rows, also for as many blocks as 4 and 8 warps need."""
    found = []
    for shape in ROWS_SHAPES if LOOP.takes(K) else ():
        if shape.takes(K) and not shape.loop:
            found += [(shape, warps, warps * shape.tile) for warps in (4, 8)]
        for blocks in (sms, 2 * sms, 3 * sms, 4 * sms) if shape.takes(K) else ():
            share = -(-N // blocks)
            warps = -(-share // shape.tile)
            if shape.loop:
                found.append((shape, min(shape.threads // WARP, warps), share))
            elif warps <= shape.threads // WARP:
                found.append((shape, warps, warps * shape.tile))
    return found


def _launch_rows(chosen: tuple[Rows, int, int], kind: int, call: Call) -> tuple[Step, ...]:
    shape, warps, each = chosen
    N, K = call.axes["N"], call.axes["K"]
    kernel = GEMV_ROWS[shape]
    launch = call.params(kernel, -(-N // each), WARP * warps, shared=shape.shared(warps, K))
    weight_scale, _, *numbers = scalars(call, kind)
    args = (*arrays(call), weight_scale, *numbers, np.int32(each), constant(call))
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


MAKERS: tuple[
    tuple[str, Tier, str, tuple[Kernel, ...], Callable[..., tuple[Step, ...]], tuple[MaxSize | MinSize, ...], int], ...
] = (
    (
        "tiled",
        Tier.BASELINE,
        "square tiles in shared memory, one output a thread",
        tuple(TILED.values()),
        _tiled,
        (),
        1,
    ),
    (
        "dp4a",
        Tier.HIGHLY_OPTIMIZED,
        "64 x 64 outputs a block, 4 x 4 a thread, dp4a",
        (GEMM,),
        _gemm,
        (MinSize("M", 2),),
        4,
    ),
    (
        "mma",
        Tier.HIGHLY_OPTIMIZED,
        "int8 tensor cores, each weight decoded once for 16 or 32 rows of activations",
        (*(cuda_gemm.KERNELS[instance] for instance in cuda_gemm.MMA), cuda_gemm.ALIGN),
        partial(cuda_gemm.launched, cuda_gemm.MMA),
        (MinSize("M", 2), MaxSize("K", cuda_gemm.MAX_K)),
        16,
    ),
    (
        "gemv_dp4a",
        Tier.HIGHLY_OPTIMIZED,
        "each weight read once, dp4a",
        tuple(GEMV_DP4A.values()),
        _gemv_dp4a,
        (MaxSize("M", 1),),
        16,
    ),
    (
        "gemv",
        Tier.EXTREMELY_OPTIMIZED,
        "each weight read once, int8 tensor cores or dp4a, by the measured time for the shape",
        (*GEMV_ROWS.values(), *GEMV.values(), *cuda_gemv_shared.KERNELS.values(), *GEMV_DP4A.values()),
        _gemv,
        (MaxSize("M", GEMV_M),),
        16,
    ),
    (
        "gemm",
        Tier.EXTREMELY_OPTIMIZED,
        "int8 tensor cores, mma or wgmma, by the predicted time for the shape",
        (*cuda_gemm.KERNELS.values(), cuda_gemm.ALIGN),
        partial(cuda_gemm.launched, (*cuda_gemm.MMA, *cuda_gemm.WGMMA)),
        (MinSize("M", GEMV_M + 1), MaxSize("K", cuda_gemm.MAX_K)),
        16,
    ),
)

BY_NAME: dict[str, Callable[..., dict[str, Steps]]] = {
    "mma": partial(cuda_gemm.by_name, cuda_gemm.MMA),
    "gemv_dp4a": _dp4a_by_name,
    "gemv": _gemv_by_name,
    "gemm": partial(cuda_gemm.by_name, (*cuda_gemm.MMA, *cuda_gemm.WGMMA)),
}
"""The instances of variants that have several."""

VARIANTS = tuple(
    variant(
        KernelKey(DEVICE, OP.name, FORMAT, dtype),
        name,
        tier,
        summary,
        kernels,
        partial(steps, KINDS[dtype]),
        constraints=(*constraints, MaxSize("K", MAX_K)),
        workspace=cuda_gemm.workspace if cuda_gemm.ALIGN in kernels else None,
        alignment=alignment,
        rank=rank,
        instances=partial(BY_NAME[name], KINDS[dtype]) if name in BY_NAME else None,
    )
    for dtype in dtypes(FORMAT, DEVICE)
    for rank, (name, tier, summary, kernels, steps, constraints, alignment) in enumerate(MAKERS)
)
