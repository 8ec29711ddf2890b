"""The CUDA variants of ternary_linear, all with row16 weights: the kernels of both ops in sequence, and a fused kernel
for one row of activations."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tritmark.harness.spec import Axes, KernelKey, MaxSize, MinSize, Tier, Variant
from tritmark.kernels.activation_quantize import cuda as activations
from tritmark.kernels.activation_quantize.spec import OP as ACTIVATION_QUANTIZE
from tritmark.kernels.cuda.device_type import DEVICE
from tritmark.kernels.cuda.kernel import Step
from tritmark.kernels.cuda.launch.launch import STEPS, Call, variant
from tritmark.kernels.cuda.tiles.product import WARP, constant, reads_early
from tritmark.kernels.ternary_linear.reference import NAMES, read_as
from tritmark.kernels.ternary_linear.spec import OUTPUTS
from tritmark.kernels.ternary_matmul import cuda as products
from tritmark.kernels.ternary_matmul import cuda_gemm
from tritmark.kernels.ternary_matmul.cuda_arguments import KINDS, SHARED, scalars
from tritmark.kernels.ternary_matmul.spec import MAX_K as PRODUCT_K

FORMAT = products.FORMAT

# --- both ops' kernels, in sequence
# ----------------------------------------------------------------------------------------------------------------------

ALIGNMENT = 256
"""Alignment of the arrays in the workspace."""
_PRODUCTS = {(each.key.dtype, each.name): each for each in products.VARIANTS}


def _rooms(axes: Axes) -> tuple[int, int]:
    """Bytes of the codes in the workspace, and of each array with one number for each row."""
    codes, numbers = (-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in (axes["M"] * axes["K"], 4 * axes["M"]))
    return codes, numbers


def _multiply(names: tuple[str, str], dtype: str, axes: Axes) -> Variant:
    """The product for one to GEMV_M rows of activations, or for more."""
    return _PRODUCTS[dtype, names[axes["M"] > products.GEMV_M]]


def _workspace(names: tuple[str, str], dtype: str, axes: Axes) -> int:
    codes, numbers = _rooms(axes)
    return codes + 2 * numbers + _multiply(names, dtype, axes).workspace(axes)


def _both(quantize: str, names: tuple[str, str], dtype: str, call: Call) -> tuple[Step, ...]:
    M, K = call.axes["M"], call.axes["K"]
    (codes, numbers), room, product = _rooms(call.axes), call.workspace, _multiply(names, dtype, call.axes)
    assert room is not None
    rows = {
        "q": room.view((M, K), "int8"),
        "scale": room.view((M,), "float32", codes),
        "sum": room.view((M,), "int32", codes + numbers),
    }
    first = replace(call, inputs={"x": call.inputs["x"]}, outputs=rows, axes={"M": M, "K": K}, workspace=None)
    of_product = {name: call.inputs[name] for name in ("weights", "weight_scale")}
    space = product.workspace(call.axes)
    second = replace(
        call,
        inputs={**of_product, "activations": rows["q"], "act_scale": rows["scale"]},
        workspace=room.view((space,), "uint8", codes + 2 * numbers) if space else None,
    )
    return *STEPS[quantize](first), *STEPS[product.id](second)


# --- fused: M = 1
# ----------------------------------------------------------------------------------------------------------------------

INPUTS = {"float32": 32, "float16": 16, "bfloat16": 8}
"""The macro INPUT of rows.cuh."""
FIVES = products.LOOPS[1]
"""For K of 4096 to 5120, where LOOP would need a second pass for the end."""
HELD = {
    products.SHORT: 4,
    **dict.fromkeys(products.LONG, 8),
    products.TALL: 4,
    **dict.fromkeys(products.FOURS, 4),
    products.LOOP: 4,
    products.LOOPS[0]: 4,
    FIVES: 5,
}
"""For each instance of gemv_rows.cu: how many times four elements of x a thread keeps between the maximum and the
codes. Other elements are loaded again, after the weights. In LOOP, 8 cost more than these loads at K of 3200 to
8192."""
SMALL = (products.TALL, *products.FOURS, products.LOOPS[0])
"""Instances that are faster in small blocks."""
STATIC = 128
"""Bytes of static shared memory of a block, in addition to the dynamic ones."""
MAX_K = max(K for K in range(0, SHARED + 1, 64) if products.LOOP.shared(32, K) + STATIC <= SHARED)
"""The most elements of x with codes that fit a block's shared memory."""


FUSED = {
    dtype: {
        shape: products.instance("gemv_rows", "linear_rows", shape, INPUT=bits, HELD=held)
        for shape, held in HELD.items()
    }
    for dtype, bits in INPUTS.items()
}
"""For each dtype of x, the instances of gemv_rows.cu that quantize it."""


def fused_shape(N: int, K: int, sms: int, early: bool = True) -> tuple[products.Rows, int, int]:
    """The instance of gemv_rows.cu, its warps and the rows of a block, for a device with that many multiprocessors.

    Chosen by the times in the header of the source: small blocks where they are faster for weights that are read
    `early`, else as measured on the H200's 132 multiprocessors. With few rows, a block has warps without rows, so that
    all of x is kept.
    """
    small = products.small_blocks(N, K, sms, early) if early else None
    wave = products.one_wave(N, K, sms)
    if small is not None and small[0] in SMALL and (wave is not None or small[0] is not products.TALL):
        shape, warps, each = small
    elif wave is not None:
        shape, warps, each = wave
    elif 4096 < K <= 5120:
        shape, each = FIVES, -(-N // (2 * sms))
        warps = -(-each // shape.tile)
    else:
        shape, warps, each = products.looping(N, sms)
    keeping = -(-K // (4 * HELD[shape] * WARP))
    return shape, min(shape.threads // WARP, max(warps, keeping)), each


def _fused(dtype: str, kind: int, call: Call) -> tuple[Step, ...]:
    N, K = call.axes["N"], call.axes["K"]
    shape, warps, each = fused_shape(N, K, call.info.sms, reads_early(call))
    kernel = FUSED[dtype][shape]
    launch = call.params(kernel, -(-N // each), WARP * warps, shared=shape.shared(warps, K))
    weight_scale, _, *numbers = scalars(call, kind)
    args = (
        *(call.inputs["x"], call.inputs["weights"], call.outputs["out"], weight_scale),
        *(*numbers, np.int32(each), constant(call), call.bad),
    )
    return (Step(kernel=kernel, grid=launch.grid, block=launch.block, args=args, shared=launch.shared),)


# --- the variants
# ----------------------------------------------------------------------------------------------------------------------


def _variants(x_dtype: str, dtype: str) -> tuple[Variant, ...]:
    key = KernelKey(DEVICE, NAMES[x_dtype], FORMAT, dtype)
    quantize = KernelKey(DEVICE, ACTIVATION_QUANTIZE.name, read_as(key.op), "int8")
    v1, kept, long = activations.OF_FORMAT[quantize.format]
    of_pair = (
        *(kept, long, *products.GEMV_ROWS.values(), *products.GEMV.values(), *products.GEMV_DP4A.values()),
        *(*(cuda_gemm.KERNELS[instance] for instance in cuda_gemm.MMA), cuda_gemm.ALIGN),
    )
    simple, fast, fastest = ("tiled", "tiled"), ("gemv", "mma"), ("gemv", "gemm")
    return (
        variant(
            key,
            "v1",
            Tier.BASELINE,
            "v1 of activation_quantize, then square tiles in shared memory",
            (v1, *products.TILED.values()),
            partial(_both, f"{quantize}/v1", simple, dtype),
            constraints=(*activations.LIMITS, MaxSize("K", PRODUCT_K)),
            workspace=partial(_workspace, simple, dtype),
        ),
        variant(
            key,
            "pair",
            Tier.HIGHLY_OPTIMIZED,
            "activation_quantize, then the product on int8 tensor cores",
            of_pair,
            partial(_both, f"{quantize}/vector", fast, dtype),
            constraints=(*activations.LIMITS, MaxSize("K", cuda_gemm.MAX_K)),
            alignment=16,
            workspace=partial(_workspace, fast, dtype),
        ),
        variant(
            key,
            "gemm",
            Tier.EXTREMELY_OPTIMIZED,
            "activation_quantize, then the product by mma or wgmma, by the predicted time for the shape",
            (kept, long, *cuda_gemm.KERNELS.values(), cuda_gemm.ALIGN),
            partial(_both, f"{quantize}/vector", fastest, dtype),
            constraints=(
                *activations.LIMITS,
                MinSize("M", products.GEMV_M + 1),
                MaxSize("K", cuda_gemm.MAX_K),
            ),
            alignment=16,
            workspace=partial(_workspace, fastest, dtype),
            rank=-1,
        ),
        variant(
            key,
            "fused",
            Tier.EXTREMELY_OPTIMIZED,
            "one kernel: every block quantizes the activations while its weights are loaded",
            tuple(FUSED[x_dtype].values()),
            partial(_fused, x_dtype, KINDS[dtype]),
            constraints=(MaxSize("M", 1), MaxSize("N", products.ROWS_N), MaxSize("K", MAX_K)),
            alignment=16,
        ),
    )


VARIANTS = tuple(each for x_dtype in NAMES for dtype in OUTPUTS for each in _variants(x_dtype, dtype))
