"""ik_llama.cpp's libggml through ctypes: its quantizers of ternary weights, its int8 activations, and the address of
its product.

It comes with the wheel of ik-llama-cpp-python, in one file beside the libgomp with which it was linked. The length of a
row of weights is a multiple of 64 values. A row of activations has the scales and sums for the product, then int8.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.harness.extras import install
from tritmark.harness.spec import Axes
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.peers import isa
from tritmark.kernels.peers.launch import not_installed

PACKAGE = "ik-llama-cpp-python"
BLOCK = 64
"""Values of a row of weights that share a block."""
FEATURES = frozenset({"avx2", "fma"})
"""CPU features for which the wheel is compiled."""
MULTIPLY = "iqk_mul_mat"
TYPES = {
    "f16": (1, 0),
    "iq1_bn": (134, 136),
    "iq2_bn": (135, 136),
    "q4_0_r8": (202, 99),
    "iq2_bn_r4": (335, 147),
}
"""Numbers of its enum ggml_type for weights, and for the activations of their product: F32, Q8_K64, Q8_K64, Q8_2_X4,
Q8_K16."""
PRODUCTS = ("iq2_bn", "iq2_bn_r4")
"""The ternary formats among them."""
GROUPED = "q4_0_r8"
"""Its type that holds ternary weights with a scale for each group of a multiple of 32, in 4.5 bits. It has none with 2
bits for them."""
MULTIPLES = {"iq2_bn": (64, 1), "iq2_bn_r4": (64, 4), GROUPED: (128, 16)}
"""Columns and rows of which a matrix is a multiple, for every instruction set that a build may use."""
_LANE = {"iq2_bn": 4, "iq2_bn_r4": 16}
"""Activations have four scales, which rotate after this many columns."""

Codes = npt.NDArray[np.int8]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class Wheel(NamedTuple):
    """The library of the wheel, the OpenMP with which it was linked, and their owner."""

    library: Path
    openmp: Path
    owner: str


@cache
def find() -> Wheel | str:
    """The location of the library, or why it is missing. Nothing is loaded. Plans ask thousands of times."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return not_installed()
    files = [Path(str(installed.locate_file(file))) for file in installed.files or () if ".libs" in str(file)]
    library, openmp = (
        next((file for file in files if file.name.startswith(part) and file.exists()), None)
        for part in ("libggml-", "libgomp-")
    )
    if library is None or openmp is None:
        return f"{PACKAGE} {installed.version} is installed without libggml and libgomp in its .libs folder"
    return Wheel(library, openmp, f"{PACKAGE} {installed.version}")


def missing() -> str | None:
    """Why it is not installed and the next step, or None; nothing is loaded."""
    found = find()
    return found if isinstance(found, str) else None


def version() -> str:
    """The version of the package; the library itself has none."""
    found = find()
    return found if isinstance(found, str) else found.owner


def needs() -> frozenset[str] | str:
    """The CPU features for which it is compiled, or why they are unknown; nothing is loaded."""
    found = find()
    return found if isinstance(found, str) else isa.compiled(found.library, found.openmp)


@cache
def library() -> ctypes.CDLL:
    """The library. Raises DeviceUnavailableError if it is missing, cannot be loaded or lacks a function."""
    found = find()
    if isinstance(found, str):
        raise DeviceUnavailableError(f"ik_llama.cpp: {found}", next_step=install("peers"))
    try:
        ctypes.CDLL(str(found.openmp), mode=ctypes.RTLD_GLOBAL)
        # Another libggml with the same names may be loaded, even globally. DEEPBIND: this one finds its own first.
        return declare(ctypes.CDLL(str(found.library), mode=ctypes.RTLD_LOCAL | os.RTLD_DEEPBIND))
    except (OSError, AttributeError) as error:
        raise DeviceUnavailableError(
            f"ik_llama.cpp: {found.owner} cannot be used: {error}", next_step=f"install another {PACKAGE}"
        ) from None


def address() -> int:
    """The address of iqk_mul_mat, for PeerCall."""
    return ctypes.cast(getattr(library(), MULTIPLY), c_void_p).value or 0


def roundings(axes: Axes) -> int:
    """Roundings of a term: the scale; a sum as float32; its products with the weights' and the activations' scale; and
    nine additions: of four parallel sums, in two halves with AVX2, and of the activations' sum."""
    return 1 + 1 + 2 + 9


def declare(opened: ctypes.CDLL) -> ctypes.CDLL:
    """Set the signatures of its functions. Raises AttributeError for a missing one."""
    for name in PRODUCTS:
        getattr(opened, f"quantize_{name}")
    opened.ggml_row_size.restype, opened.ggml_row_size.argtypes = c_size_t, [c_int, c_int64]
    getattr(opened, MULTIPLY)
    return opened


def pack(format: str, codes: Codes, opened: ctypes.CDLL | None = None) -> Bytes:
    """Codes (N, K) packed by its own quantizer, with scale 1: uint8 (N, 4 + K/4). `opened`: another build of the
    library; None is the wheel's.

    A row of zeros gets scale 0. Raises InvalidArgumentError for shapes that it cannot pack.
    """
    return quantize(format, codes.astype(np.float32), opened)


def quantize(format: str, x: Floats, opened: ctypes.CDLL | None = None) -> Bytes:
    """quantize_{format} of float32 (N, K): uint8 (N, bytes), in the format of that name. `opened` as in `pack`.

    Raises InvalidArgumentError for shapes that it cannot pack.
    """
    N, K = x.shape
    rows = BUILT_IN[format].row_multiple
    if K % BLOCK or N % rows or not x.size:
        legal = f"a multiple of {rows} rows and of {BLOCK} columns"
        raise InvalidArgumentError(op=f"quantize_{format}", argument="codes", found=f"{N} x {K}", legal=legal)
    opened = library() if opened is None else declare(opened)
    out = np.empty(BUILT_IN[format].packed_shape((N, K)), np.uint8)
    reported = opened.ggml_row_size(TYPES[format][0], K)
    if reported != out.shape[1]:
        raise DeviceUnavailableError(
            f"ik_llama.cpp: a row of {K} {format} has {reported} bytes there, {out.shape[1]} were expected",
            next_step=f"install another {PACKAGE}",
        )
    values = np.ascontiguousarray(x, np.float32)
    function = getattr(opened, f"quantize_{format}")
    function.restype, function.argtypes = c_size_t, [c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_void_p]
    function(values.ctypes.data, out.ctypes.data, N, K, None, None)
    return out


def pack_q4_0_r8(codes: Codes, scales: Floats) -> Bytes:
    """Codes (N, K) with a float16 scale for each group of a multiple of 32, (N, groups), as Q4_0 with 8 interleaved
    rows: uint8 (N, K/32*18). The field of a weight is w + 8.

    For 8 rows and 32 columns: the scale of each row, then for each 4 of columns 0 to 15 the bytes of each row; the high
    half of a byte is the weight 16 columns on.
    """
    N, K = codes.shape
    if N % 8 or K % 32 or not codes.size:
        legal = "a multiple of 8 rows and of 32 columns"
        raise InvalidArgumentError(op="q4_0_r8", argument="codes", found=f"{N} x {K}", legal=legal)
    fields = (codes + np.int8(8)).view(np.uint8).reshape(N // 8, 8, K // 32, 2, 4, 4)
    joined = fields[:, :, :, 0] | fields[:, :, :, 1] << np.uint8(4)
    out = np.empty((N // 8, K // 32, 8 * 18), np.uint8)
    halves = np.repeat(scales, K // 32 // scales.shape[1], axis=1).astype("<f2")
    out[:, :, :16] = np.ascontiguousarray(halves.reshape(N // 8, 8, K // 32).transpose(0, 2, 1)).view(np.uint8)
    out[:, :, 16:] = joined.transpose(0, 2, 3, 1, 4).reshape(N // 8, K // 32, 128)
    return out.reshape(N, -1)


def pack_q8_2_x4(codes: Codes) -> Bytes:
    """int8 (M, K), K a multiple of 128, as Q8_2_X4 with scale 1: uint8 (M, K/128*144). A block has four scales in
    bfloat16, the sums of each 32 codes in int16, then the codes."""
    M, K = codes.shape
    out = np.empty((M, K // 128, 144), np.uint8)
    out[:, :, :8] = np.full(4, 0x3F80, "<u2").view(np.uint8)
    out[:, :, 8:16] = codes.reshape(M, -1, 4, 32).sum(axis=3, dtype="<i2").view(np.uint8)
    out[:, :, 16:] = codes.reshape(M, -1, 128).view(np.uint8)
    return out.reshape(M, -1)


def pack_activations(format: str, codes: Codes, d: Floats) -> Bytes:
    """int8 (M, K), K a multiple of 64, with a scale for each row (M,), packed for the product with weights of that
    format: uint8 (M, bytes).

    Q8_K64 has four scales and four sums of the codes times them, for columns that are 0 to 3, 4 to 7, 8 to 11, 12 to 15
    modulo 16; Q8_K16 has four scales, for columns 0 to 15, 16 to 31 and so on modulo 64, and the sum over all of them.
    """
    M, K = codes.shape
    sums = codes.reshape(M, -1, 4, _LANE[format]).sum(axis=(1, 3), dtype=np.int64) * d.astype(np.float64)[:, np.newaxis]
    if TYPES[format][1] == TYPES["iq2_bn_r4"][1]:
        sums = sums.sum(axis=1, keepdims=True)
    head = np.concatenate([np.repeat(d[:, np.newaxis], 4, axis=1), sums], axis=1).astype("<f4").view(np.uint8)
    # Rows of Q8_K64 that are long enough are as far apart as its ggml_row_size says.
    out = np.zeros((M, max(head.shape[1], K // 16 if head.shape[1] == 32 else 0) + K), np.uint8)
    out[:, : head.shape[1]] = head
    out[:, head.shape[1] : head.shape[1] + K] = codes.view(np.uint8)
    return out
