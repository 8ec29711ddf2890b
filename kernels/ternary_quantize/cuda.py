"""The CUDA variants of ternary_quantize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tritmark.harness.spec import Axes, Constraint, KernelKey, Tier, Variant
from tritmark.kernels.cuda.kernel import Kernel, Step
from tritmark.kernels.cuda.launch import DEVICE, Call, variant
from tritmark.kernels.numerics.input_dtypes import INPUT, NARROW
from tritmark.kernels.ternary_quantize.spec import CODES, PACKED, ROW16, TQ2_0

KEYS = (replace(CODES, device=DEVICE), replace(PACKED, device=DEVICE), ROW16, TQ2_0)
NARROW_KEYS = tuple(replace(CODES, device=DEVICE, format=format) for format in NARROW)
BLOCKS = (32, 64, 128, 256)
"""The blocks for which tuned kernels exist."""
SPECIFIED: Mapping[tuple[int, int], int] = {(8, 6): 256, (8, 9): 256, (8, 0): 128, (8, 7): 128, (7, 5): 64, (7, 0): 64}
"""Block by compute capability (specification, 2.3); 32 for every other."""

_THREADS = 256
_DEFINES = (("THREADS", str(_THREADS)),)
_TILE = 512
"""Floats that a warp of the tuned kernels processes at a time."""
_PIECE = 8192
"""Floats of a quantization block that a thread block of the split kernels processes at a time."""
_SUFFIX = {"none": "int8", "i2_s_x86": "i2s", "row16": "row16", "tq2_0": "tq2_0"}


def block_for(capability: tuple[int, int], n: int) -> int:
    """The default block for `n` values on a device (specification, 2.3).

    On an H200 every block runs at the same rate (tuned.cu); 32, the default there, takes 2 % more time than 256, for
    the additional scales. A smaller block follows the values more closely; a larger one takes less memory for scales
    (1/8 of a byte per value at 32, 1/64 at 256).
    """
    block = SPECIFIED.get(capability, 32)
    return min(block, n) if n < 1024 else block


def block_here(n: int, index: int) -> int:
    """block_for the GPU of that number. Raises DeviceUnavailableError if there is none."""
    from tritmark.kernels.cuda.context import cuda_context

    return block_for(cuda_context(index).backend.info.capability, n)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The axis has one of these sizes."""

    axis: str
    sizes: tuple[int, ...]

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""
        if axes[self.axis] in self.sizes:
            return None
        return f"{self.axis} = {axes[self.axis]} is not {' or '.join(map(str, self.sizes))}"


@dataclass(frozen=True, slots=True)
class SeveralPieces:
    """A block, or the whole array if that is shorter, is more than one piece of the split kernels."""

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""
        block = min(axes["block"], axes["n"])
        return None if block > _PIECE else f"a block is {block} values, at most {_PIECE}: one thread block takes it"


def _kernel(file: str, name: str, registers: int, shared: int = 0) -> Kernel:
    file, name = f"ternary_quantize/{file}.cu", f"ternary_gpu_{name}"
    return Kernel(file=file, name=name, threads=_THREADS, registers=registers, shared=shared, defines=_DEFINES)


def _tuned_kernel(format: str, block: int) -> Kernel:
    made = _kernel("tuned", f"{_SUFFIX['none' if format in NARROW else format]}_{block}", 64)
    # Without this option the compiler spills one of 33 registers of a 16-bit kernel.
    options = (f"-maxrregcount={made.registers}",) if format in NARROW else ()
    return replace(made, defines=(*made.defines, ("INPUT", INPUT.get(format, INPUT["none"]))), options=options)


V1 = _kernel("v1", "v1", 32, 4 * _THREADS)
V1_WARP = _kernel("v1", "v1_warp", 32, 4 * _THREADS // 32)
SPLIT_BEGIN = _kernel("v1", "split_begin", 32)
SPLIT_SCALES = _kernel("v1", "split_scales", 32, 4 * _THREADS // 32)
SPLIT_CODES = _kernel("v1", "split_codes", 32)
PACKERS = {format: _kernel("v1", f"v1_pack_{suffix}", 32) for format, suffix in _SUFFIX.items() if format != "none"}
TUNED = {
    (format, block): _tuned_kernel(format, block)
    for format in (*_SUFFIX, *NARROW)
    for block in (BLOCKS if format != "tq2_0" else (256,))
}


def _step(call: Call, kernel: Kernel, blocks: int, *args: object) -> Step:
    params = call.params(kernel, blocks)
    return Step(kernel=kernel, grid=params.grid, block=params.block, args=args)


def _sizes(call: Call) -> tuple[np.uint64, np.uint64]:
    """n, and the block, which is at most that."""
    return np.uint64(call.axes["n"]), np.uint64(min(call.axes["block"], call.axes["n"]))


def _packing(call: Call, format: str) -> Step:
    """The step that packs codes after the scales are computed."""
    x, codes, scales = call.inputs["x"], call.outputs["codes"], call.outputs["scales"]
    return _step(call, PACKERS[format], -(-codes.nbytes // _THREADS), x, scales, codes, *_sizes(call))


def _together(kernel: Kernel, each: Callable[[int], int], call: Call, format: str) -> tuple[Step, ...]:
    """Scales and int8 codes in one pass; packed codes need a second pass. `each(block)` is the number of blocks of a
    thread block."""
    x, codes, scales = call.inputs["x"], call.outputs["codes"], call.outputs["scales"]
    n, block = _sizes(call)
    blocks = -(-scales.size // each(int(block)))
    if format == "none":
        return (_step(call, kernel, blocks, x, codes, scales, call.bad, n, block),)
    return _step(call, kernel, blocks, x, np.uint64(0), scales, call.bad, n, block), _packing(call, format)


def _v1(format: str, call: Call) -> tuple[Step, ...]:
    return _together(V1, lambda block: max(1, _THREADS // block), call, format)


def _v1_warp(format: str, call: Call) -> tuple[Step, ...]:
    return _together(V1_WARP, lambda block: _THREADS // 32 if block <= 1024 else 1, call, format)


def _split(format: str, call: Call) -> tuple[Step, ...]:
    x, codes, scales = call.inputs["x"], call.outputs["codes"], call.outputs["scales"]
    n, block = _sizes(call)
    pieces = scales.size * -(-int(block) // _PIECE)
    return (
        _step(call, SPLIT_BEGIN, -(-scales.size // _THREADS), scales, np.uint64(scales.size)),
        _step(call, SPLIT_SCALES, pieces, x, scales, call.bad, n, block),
        _step(call, SPLIT_CODES, pieces, x, scales, codes, n, block) if format == "none" else _packing(call, format),
    )


def _tuned(format: str, call: Call) -> tuple[Step, ...]:
    x, codes, scales = call.inputs["x"], call.outputs["codes"], call.outputs["scales"]
    n, _ = _sizes(call)
    kernel = TUNED[format, call.axes["block"]]
    return (_step(call, kernel, -(-int(n) // (_TILE * _THREADS // 32)), x, codes, scales, call.bad, n),)


def _tuned_variant(key: KernelKey, only: tuple[Constraint, ...] = ()) -> Variant:
    return variant(
        key,
        "tuned",
        Tier.HIGHLY_OPTIMIZED,
        "512 floats a warp, four loads in flight per lane, packed in the same pass",
        tuple(kernel for (of, _), kernel in TUNED.items() if of == key.format),
        partial(_tuned, key.format),
        constraints=only or (OneOf("block", BLOCKS),),
        alignment=16,
        rank=1,
    )


def _variants(key: KernelKey) -> tuple[Variant, ...]:
    format = key.format
    only: tuple[Constraint, ...] = (OneOf("block", (256,)),) if format == "tq2_0" else ()
    second = () if format == "none" else (PACKERS[format],)
    made = (
        variant(
            key,
            "v1",
            Tier.BASELINE,
            "a thread an element, maximum through shared memory; packed in a second pass",
            (V1, *second),
            partial(_v1, format),
            constraints=only,
        ),
        variant(
            key,
            "v1_warp",
            Tier.OPTIMIZED,
            "a warp a block, maximum through shuffles; packed in a second pass",
            (V1_WARP, *second),
            partial(_v1_warp, format),
            constraints=only,
        ),
        _tuned_variant(key, only),
    )
    if only:
        return made
    split = variant(
        key,
        "split",
        Tier.HIGHLY_OPTIMIZED,
        "large blocks by many thread blocks: maxima of their pieces, then codes",
        (SPLIT_BEGIN, SPLIT_SCALES, *(second or (SPLIT_CODES,))),
        partial(_split, format),
        constraints=(SeveralPieces(),),
    )
    return *made, split


VARIANTS = (*(each for key in KEYS for each in _variants(key)), *map(_tuned_variant, NARROW_KEYS))
