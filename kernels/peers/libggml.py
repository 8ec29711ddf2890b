"""libggml through ctypes: the ternary quantizers, Q8_K and Q8_0, and dot products of ternary blocks with these.

The libraries are searched in the folder that TRITMARK_GGML names, then in llama-cpp-python, which its user builds, and
in the wheel of pywhispercpp, which the extra `peers` brings. Types that an older one lacks are missing alone. Layouts:
kernels/formats, and for activations `pack_q8_K` and `pack_q8_0`. A row is a multiple of the type's block long.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.candidate.elf import NotALibraryError, exported
from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.harness.extras import install
from tritmark.kernels.native.cpu import features
from tritmark.kernels.peers import isa
from tritmark.kernels.peers.launch import not_installed

FOLDER = "TRITMARK_GGML"
"""The environment variable that names a folder with libggml-base and libggml-cpu."""
BLOCK = 256
"""Values of a block of TQ1_0, TQ2_0 and Q8_K."""
Q8_K_BYTES, Q8_0_BYTES = 292, 34
"""Blocks of activations. Q8_K: float32 d, int8[256], int16[16] sums of 16 each. Q8_0: float16 d, int8[32]."""
_Q8_0 = 32
"""Values of a block of Q8_0."""


class BlockType(NamedTuple):
    """A type of ternary weights."""

    block: int
    """Weights of a row that share a block and its scale."""
    nbytes: int
    """Of a block."""
    activations: str
    """The type of activations in its products."""

    @property
    def addition(self) -> int:
        """Weights of a row for each addition in float32."""
        return BLOCK if self.activations == "q8_K" else _Q8_0

    @property
    def scaled_beside(self) -> bool:
        """Whether the activations' blocks cannot have the scale, as float16 cannot: it is multiplied afterwards."""
        return self.activations == "q8_0"


TYPES = {
    "tq1_0": BlockType(256, 54, "q8_K"),
    "tq2_0": BlockType(256, 66, "q8_K"),
    "q2_0": BlockType(64, 18, "q8_0"),
}
"""By the name of the format."""
NUMBERS = {"f32": 0, "q8_0": 8, "q8_K": 15, "i32": 26, "tq1_0": 34, "tq2_0": 35, "q2_0": 42}
"""Numbers of ggml's enum ggml_type. Files store them, so they never change."""
_NEEDS = {"ggml_cpu_has_avx2": "avx2", "ggml_cpu_has_f16c": "f16c", "ggml_cpu_has_avx512": "avx512f"}
"""Features for which libggml-cpu reports to be compiled, and the corresponding CPU features."""
_PACKAGES = ("llama-cpp-python", "pywhispercpp")
_PARTS = ("libggml-base", "libggml-cpu")

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_ROW: tuple[Any, list[Any]] = (None, [c_void_p, c_void_p, c_int64])
_BASE: dict[str, tuple[Any, list[Any]]] = {
    "ggml_version": (c_char_p, []),
    "quantize_row_tq1_0_ref": _ROW,
    "quantize_row_tq2_0_ref": _ROW,
    "quantize_row_q8_0_ref": _ROW,
}
_DOT: tuple[Any, list[Any]] = (None, [c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_int])
_CPU: dict[str, tuple[Any, list[Any]]] = {
    "ggml_cpu_init": (None, []),
    "ggml_cpu_has_avx2": (c_int, []),
    "ggml_cpu_has_f16c": (c_int, []),
    "ggml_cpu_has_avx512": (c_int, []),
    "quantize_row_q8_K": _ROW,
    "ggml_vec_dot_tq1_0_q8_K": _DOT,
    "ggml_vec_dot_tq2_0_q8_K": _DOT,
}
_NEWER: dict[str, tuple[str, tuple[Any, list[Any]]]] = {
    "quantize_row_q2_0_ref": ("base", _ROW),
    "ggml_vec_dot_q2_0_q8_0": ("cpu", _DOT),
}
"""Functions that older ones lack, and their library."""


class Found(NamedTuple):
    """The two libraries, and their owner."""

    paths: tuple[Path, Path]
    owner: str


class Library(NamedTuple):
    """The two libraries with their functions' signatures."""

    base: ctypes.CDLL
    cpu: ctypes.CDLL


def find() -> Found | str:
    """The location of the libraries, or why they are missing. Nothing is loaded."""
    folder = os.environ.get(FOLDER, "")
    if folder:
        paths = _chosen(sorted(Path(folder).glob("libggml-*")))
        return Found(paths, "") if paths else f"{FOLDER} is {folder!r}, and {' or '.join(_PARTS)} is not in it"
    return _of_packages()


@cache
def _of_packages() -> Found | str:
    from importlib.metadata import PackageNotFoundError, distribution

    for package in _PACKAGES:
        try:
            installed = distribution(package)
        except PackageNotFoundError:
            continue
        paths = _chosen([Path(str(installed.locate_file(file))) for file in installed.files or ()])
        if paths:
            return Found(paths, f"{package} {installed.version}")
    return not_installed()


def _chosen(files: Sequence[Path]) -> tuple[Path, Path] | None:
    """The two libraries among these files."""
    base, cpu = (
        [file for file in files if file.name.startswith(part) and ".so" in file.name and file.exists()]
        for part in _PARTS
    )
    return (base[0], cpu[0]) if base and cpu else None


@cache
def _loaded(paths: tuple[Path, Path]) -> Library | str:
    """The libraries, or why they cannot be used."""
    try:
        # libggml-cpu finds the loaded base by its name; RTLD_GLOBAL is for builds that do not name it.
        library = Library(ctypes.CDLL(str(paths[0]), mode=ctypes.RTLD_GLOBAL), ctypes.CDLL(str(paths[1])))
        for part, functions in zip(library, (_BASE, _CPU), strict=True):
            for name, (result, arguments) in functions.items():
                function = getattr(part, name)
                function.restype, function.argtypes = result, arguments
        for name, (part_name, (result, arguments)) in _NEWER.items():
            newer = getattr(getattr(library, part_name), name, None)
            if newer is not None:
                newer.restype, newer.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return f"cannot be used: {error}"
    lacking = [
        feature for name, feature in _NEEDS.items() if getattr(library.cpu, name)() and feature not in features()
    ]
    if lacking:
        return (
            f"{paths[1]} is compiled for {', '.join(lacking)}, which this CPU lacks; build llama.cpp here and "
            f"name its folder in {FOLDER}"
        )
    # Fills the tables that turn float16 into float32.
    library.cpu.ggml_cpu_init()
    return library


def missing(format: str = "tq2_0") -> str | None:
    """Why libggml cannot be used here for weights in that format and the next step, or None."""
    found = find()
    if isinstance(found, str):
        return found
    loaded = _loaded(found.paths)
    return loaded if isinstance(loaded, str) else installed(format)


def installed(format: str = "tq2_0") -> str | None:
    """Why libggml, or its product with weights in that format, is not installed and the next step, or None; nothing is
    loaded."""
    found = find()
    if isinstance(found, str):
        return found
    if _exports(found.paths[1], dot_symbol(format)):
        return None
    owner = found.owner or f"the one that {FOLDER} names"
    return (
        f"libggml of {owner} has no {format}: install a newer llama-cpp-python, or name the folder of a newer libggml "
        f"in {FOLDER}"
    )


@cache
def _exports(path: Path, symbol: str) -> bool:
    try:
        return symbol in exported(path.read_bytes())
    except (OSError, NotALibraryError):  # loading it reports why
        return True


def needs() -> frozenset[str] | str:
    """The CPU features for which it is compiled, or why they are unknown; nothing is loaded."""
    found = find()
    return found if isinstance(found, str) else isa.compiled(found.paths[1], found.paths[0])


def dot_symbol(format: str) -> str:
    """The name of its function for the product of two rows."""
    return f"ggml_vec_dot_{format}_{TYPES[format].activations}"


def address(opened: Library, symbol: str) -> int:
    """The address of a function of libggml-cpu."""
    return ctypes.cast(getattr(opened.cpu, symbol), c_void_p).value or 0


def version() -> str:
    """libggml's version, and the package that contains it or the SHA-256 of the files; nothing is loaded."""
    from hashlib import sha256

    found = find()
    if isinstance(found, str):
        return found
    number = isa.version(found.paths[1], found.paths[0])
    digests = ", ".join(sha256(path.read_bytes()).hexdigest() for path in found.paths)
    return f"{number} of {found.owner}" if found.owner else f"{number}, SHA-256 {digests}"


def library() -> Library:
    """The libraries. Raises DeviceUnavailableError if they are missing."""
    found = find()
    loaded = found if isinstance(found, str) else _loaded(found.paths)
    if isinstance(loaded, str):
        raise DeviceUnavailableError(
            f"libggml: {loaded}", next_step=f"{install('peers')}, or name its folder in {FOLDER}"
        )
    return loaded


def quantize(format: str, x: Floats) -> Bytes:
    """quantize_row_{format}_ref: blocks of a key of TYPES, uint8 (N, bytes), of float32 (N, K)."""
    kind = TYPES[format]
    return quantize_into(format, x, _room(x, kind.block, kind.nbytes))


def quantize_into(format: str, x: Floats, out: Bytes) -> Bytes:
    """quantize_row_{format}_ref into an existing array; `x` has whole blocks, and `out` as many blocks of the
    format."""
    kind = TYPES[format]
    check(f"quantize_row_{format}_ref", "x", x, np.float32, multiple=kind.block)
    if out.nbytes != x.size // kind.block * kind.nbytes or not out.flags.c_contiguous:
        legal = f"C-contiguous, {x.size // kind.block * kind.nbytes} bytes"
        raise InvalidArgumentError(
            op=f"quantize_row_{format}_ref", argument="out", found=f"{out.nbytes} bytes", legal=legal
        )
    getattr(library().base, f"quantize_row_{format}_ref")(x.ctypes.data, out.ctypes.data, x.size)
    return out


def quantize_row_q8_K(x: Floats) -> Bytes:  # noqa: N802
    """Blocks of Q8_K: uint8 (M, K/256*292) of float32 (M, K)."""
    out = _room(x, BLOCK, Q8_K_BYTES)
    check("quantize_row_q8_K", "x", x, np.float32)
    library().cpu.quantize_row_q8_K(x.ctypes.data, out.ctypes.data, x.size)
    return out


def quantize_row_q8_0_ref(x: Floats) -> Bytes:
    """Blocks of Q8_0: uint8 (M, K/32*34) of float32 (M, K)."""
    out = _room(x, _Q8_0, Q8_0_BYTES)
    check("quantize_row_q8_0_ref", "x", x, np.float32, multiple=_Q8_0)
    library().base.quantize_row_q8_0_ref(x.ctypes.data, out.ctypes.data, x.size)
    return out


def dots(format: str, weights: Bytes, activations: Bytes) -> Floats:
    """The product of two rows for each of activations (M, bytes), in the type that TYPES names, and weights (N, bytes):
    float32 (M, N)."""
    kind, op = TYPES[format], dot_symbol(format)
    blocks = weights.shape[1] // kind.nbytes
    check(op, "weights", weights, np.uint8, len(weights) * blocks * kind.nbytes)
    check(op, "activations", activations, np.uint8, len(activations) * activation_bytes(format, blocks * kind.block))
    function = getattr(library().cpu, op)
    out = np.empty((len(activations), len(weights)), np.float32)
    for m, row in enumerate(activations):
        for n, column in enumerate(weights):
            function(blocks * kind.block, out[m, n:].ctypes.data, 0, column.ctypes.data, 0, row.ctypes.data, 0, 1)
    return out


def activation_bytes(format: str, K: int) -> int:
    """Bytes of a row of K activations for weights in that format."""
    return K // BLOCK * Q8_K_BYTES if TYPES[format].activations == "q8_K" else K // _Q8_0 * Q8_0_BYTES


def pack_activations(format: str, codes: npt.NDArray[np.int8], d: Floats) -> Bytes:
    """Codes (M, K) for products with weights in that format: with the scales of rows d, (M,), unless they are
    `scaled_beside`."""
    return pack_q8_0(codes) if TYPES[format].scaled_beside else pack_q8_K(codes, d)


def pack_q8_K(codes: npt.NDArray[np.int8], d: Floats) -> Bytes:  # noqa: N802
    """Blocks of Q8_K from codes (M, K) and a scale for each row (M,): uint8 (M, K/256*292)."""
    M, K = codes.shape
    out = np.empty((M, K // BLOCK, Q8_K_BYTES), np.uint8)
    out[:, :, :4] = d.astype("<f4")[:, np.newaxis, np.newaxis].view(np.uint8)
    out[:, :, 4:260] = codes.reshape(M, -1, BLOCK).view(np.uint8)
    out[:, :, 260:] = codes.reshape(M, -1, 16, 16).sum(axis=3, dtype="<i2").view(np.uint8)
    return out.reshape(M, -1)


def unpack_q8_K(packed: Bytes) -> tuple[npt.NDArray[np.int8], Floats]:  # noqa: N802
    """Codes (M, K) and scales (M, K/256) of Q8_K."""
    blocks = packed.reshape(len(packed), -1, Q8_K_BYTES)
    scales = np.ascontiguousarray(blocks[:, :, :4]).view("<f4")[:, :, 0]
    return np.ascontiguousarray(blocks[:, :, 4:260]).view(np.int8).reshape(len(packed), -1), scales


def pack_q8_0(codes: npt.NDArray[np.int8]) -> Bytes:
    """Blocks of Q8_0 with scale 1 from codes (M, K): uint8 (M, K/32*34)."""
    M, K = codes.shape
    out = np.empty((M, K // _Q8_0, Q8_0_BYTES), np.uint8)
    out[:, :, :2] = np.array([1], "<f2").view(np.uint8)
    out[:, :, 2:] = codes.reshape(M, -1, _Q8_0).view(np.uint8)
    return out.reshape(M, -1)


def unpack_q8_0(packed: Bytes) -> tuple[npt.NDArray[np.int8], Floats]:
    """Codes (M, K) and scales (M, K/32) of Q8_0."""
    blocks = packed.reshape(len(packed), -1, Q8_0_BYTES)
    scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2")[:, :, 0].astype(np.float32)
    return np.ascontiguousarray(blocks[:, :, 2:]).view(np.int8).reshape(len(packed), -1), scales


def check(op: str, argument: str, array: Any, dtype: Any, nbytes: int | None = None, multiple: int = BLOCK) -> None:
    """Refuse arrays that C would read or write out of bounds: another dtype, strides, size, or a partial block."""
    right = isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.c_contiguous
    right = right and (array.size % multiple == 0 if nbytes is None else array.nbytes == nbytes)
    if not right:
        found = (
            f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        )
        size = f"a multiple of {multiple} long" if nbytes is None else f"{nbytes} bytes"
        raise InvalidArgumentError(
            op=op, argument=argument, found=found, legal=f"C-contiguous {np.dtype(dtype)}, {size}"
        )


def _room(x: Floats, block: int, nbytes: int) -> Bytes:
    """Memory for the blocks of rows (N, K)."""
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] % block:
        found = f"of shape {x.shape}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise InvalidArgumentError(
            op="libggml", argument="x", found=found, legal=f"two axes, the second a multiple of {block}"
        )
    return np.empty((x.shape[0], x.shape[1] // block * nbytes), np.uint8)
