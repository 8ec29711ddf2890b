"""libggml through ctypes: the ternary quantizers, Q8_K, dot products of ternary blocks with Q8_K, and whole products in
ggml's graph.

The libraries are searched in the folder that TRITMARK_GGML names, then in the wheels of pywhispercpp and
llama-cpp-python, which bundle them. Layouts: kernels/formats, and for Q8_K `Q8_K_BYTES`. The length of a row is a
multiple of 256 values.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import DeviceUnavailableError, InvalidArgumentError
from tritmark.harness.extras import install
from tritmark.kernels.native.cpu import features
from tritmark.kernels.peers import isa
from tritmark.kernels.peers.launch import not_installed

FOLDER = "TRITMARK_GGML"
"""The environment variable that names a folder with libggml-base and libggml-cpu."""
BLOCK = 256
"""Values of a row that share a block."""
BLOCK_BYTES = {"tq1_0": 54, "tq2_0": 66}
Q8_K_BYTES = 292
"""A block of Q8_K: float32 d, int8[256], int16[16] sums of 16 each."""
_TYPES = {"f32": 0, "q8_K": 15, "tq1_0": 34, "tq2_0": 35}
"""Numbers of ggml's enum ggml_type. Files store them, so they never change."""
_NEEDS = {"ggml_cpu_has_avx2": "avx2", "ggml_cpu_has_f16c": "f16c", "ggml_cpu_has_avx512": "avx512f"}
"""Features for which libggml-cpu reports to be compiled, and the corresponding CPU features."""
_PACKAGES = ("pywhispercpp", "llama-cpp-python")
_PARTS = ("libggml-base", "libggml-cpu")

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


_BASE: dict[str, tuple[Any, list[Any]]] = {
    "ggml_version": (c_char_p, []),
    "quantize_row_tq1_0_ref": (None, [c_void_p, c_void_p, c_int64]),
    "quantize_row_tq2_0_ref": (None, [c_void_p, c_void_p, c_int64]),
    "ggml_init": (c_void_p, [_InitParams]),
    "ggml_free": (None, [c_void_p]),
    "ggml_tensor_overhead": (c_size_t, []),
    "ggml_graph_overhead": (c_size_t, []),
    "ggml_new_tensor_2d": (c_void_p, [c_void_p, c_int, c_int64, c_int64]),
    "ggml_mul_mat": (c_void_p, [c_void_p, c_void_p, c_void_p]),
    "ggml_mul": (c_void_p, [c_void_p, c_void_p, c_void_p]),
    "ggml_new_graph": (c_void_p, [c_void_p]),
    "ggml_build_forward_expand": (None, [c_void_p, c_void_p]),
    "ggml_backend_alloc_ctx_tensors": (c_void_p, [c_void_p, c_void_p]),
    "ggml_backend_buffer_free": (None, [c_void_p]),
    "ggml_backend_free": (None, [c_void_p]),
    "ggml_backend_tensor_set": (None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_tensor_get": (None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_graph_compute": (c_int, [c_void_p, c_void_p]),
}
_DOT: tuple[Any, list[Any]] = (None, [c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_int])
_CPU: dict[str, tuple[Any, list[Any]]] = {
    "ggml_cpu_init": (None, []),
    "ggml_cpu_has_avx2": (c_int, []),
    "ggml_cpu_has_f16c": (c_int, []),
    "ggml_cpu_has_avx512": (c_int, []),
    "quantize_row_q8_K": (None, [c_void_p, c_void_p, c_int64]),
    "ggml_vec_dot_tq1_0_q8_K": _DOT,
    "ggml_vec_dot_tq2_0_q8_K": _DOT,
    "ggml_backend_cpu_init": (c_void_p, []),
    "ggml_backend_cpu_set_n_threads": (None, [c_void_p, c_int]),
}


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


def missing() -> str | None:
    """Why libggml cannot be used here and the next step, or None."""
    found = find()
    if isinstance(found, str):
        return found
    loaded = _loaded(found.paths)
    return loaded if isinstance(loaded, str) else None


def installed() -> str | None:
    """Why libggml is not installed and the next step, or None; nothing is loaded."""
    found = find()
    return found if isinstance(found, str) else None


def needs() -> frozenset[str] | str:
    """The CPU features for which it is compiled, or why they are unknown; nothing is loaded."""
    found = find()
    return found if isinstance(found, str) else isa.compiled(found.paths[1], found.paths[0])


def address(opened: Library, symbol: str) -> int:
    """The address of a function of libggml-cpu."""
    return ctypes.cast(getattr(opened.cpu, symbol), c_void_p).value or 0


def version() -> str:
    """libggml's version, and the package that contains it or the SHA-256 of the files."""
    from hashlib import sha256

    found, number = find(), library().base.ggml_version().decode()
    assert isinstance(found, Found)
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


def quantize_row_tq1_0_ref(x: Floats) -> Bytes:
    """Blocks of TQ1_0: uint8 (N, K/256*54) of float32 (N, K)."""
    return quantize_into("tq1_0", x, _blocks(x, BLOCK_BYTES["tq1_0"]))


def quantize_row_tq2_0_ref(x: Floats) -> Bytes:
    """Blocks of TQ2_0: uint8 (N, K/256*66) of float32 (N, K)."""
    return quantize_into("tq2_0", x, _blocks(x, BLOCK_BYTES["tq2_0"]))


def quantize_into(format: str, x: Floats, out: Bytes) -> Bytes:
    """quantize_row_{format}_ref into an existing array; `x` has whole blocks, and `out` as many blocks of the
    format."""
    _check(f"quantize_row_{format}_ref", "x", x, np.float32)
    if out.nbytes != x.size // BLOCK * BLOCK_BYTES[format] or not out.flags.c_contiguous:
        legal = f"C-contiguous, {x.size // BLOCK * BLOCK_BYTES[format]} bytes"
        raise InvalidArgumentError(
            op=f"quantize_row_{format}_ref", argument="out", found=f"{out.nbytes} bytes", legal=legal
        )
    getattr(library().base, f"quantize_row_{format}_ref")(x.ctypes.data, out.ctypes.data, x.size)
    return out


def quantize_row_q8_K(x: Floats) -> Bytes:  # noqa: N802
    """Blocks of Q8_K: uint8 (M, K/256*292) of float32 (M, K)."""
    out = _blocks(x, Q8_K_BYTES)
    _check("quantize_row_q8_K", "x", x, np.float32)
    library().cpu.quantize_row_q8_K(x.ctypes.data, out.ctypes.data, x.size)
    return out


def ggml_vec_dot_tq1_0_q8_K(weights: Bytes, activations: Bytes) -> Floats:  # noqa: N802
    """activations (M, K/256*292), Q8_K, times weights (N, K/256*54), TQ1_0, transposed: float32 (M, N)."""
    return _dots("tq1_0", weights, activations)


def ggml_vec_dot_tq2_0_q8_K(weights: Bytes, activations: Bytes) -> Floats:  # noqa: N802
    """activations (M, K/256*292), Q8_K, times weights (N, K/256*66), TQ2_0, transposed: float32 (M, N)."""
    return _dots("tq2_0", weights, activations)


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


class GgmlProduct:
    """A product of ternary weights (N, K), packed, and activations (M, K) in Q8_K, by ggml's graph on the CPU; or of
    both in float32, for format `f32`. With `row_scales`, float32 (N,), the product is multiplied by them.

    All arrays are in ggml's memory: weights are copied there once, activations by each `run`, and the product (M, N),
    float32, back.
    """

    def __init__(
        self,
        format: str,
        weights: Bytes | Floats,
        N: int,
        K: int,
        M: int,
        threads: int,
        row_scales: Floats | None = None,
    ) -> None:
        floats = format == "f32"
        self._dtype = np.float32 if floats else np.uint8
        size = 4 * N * K if floats else N * K // BLOCK * BLOCK_BYTES[format]
        _check("ggml_mul_mat", "weights", weights, self._dtype, size)
        base, cpu = self._library = library()
        context = base.ggml_init(_InitParams(5 * base.ggml_tensor_overhead() + base.ggml_graph_overhead(), None, True))
        matrix = base.ggml_new_tensor_2d(context, _TYPES[format], K, N)
        self._activations = base.ggml_new_tensor_2d(context, _TYPES["f32" if floats else "q8_K"], K, M)
        self._product = base.ggml_mul_mat(context, matrix, self._activations)
        if row_scales is not None:
            _check("ggml_mul", "row_scales", row_scales, np.float32, 4 * N)
            scales = base.ggml_new_tensor_2d(context, _TYPES["f32"], N, 1)
            self._product = base.ggml_mul(context, self._product, scales)
        self._graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(self._graph, self._product)
        self._backend = cpu.ggml_backend_cpu_init()
        cpu.ggml_backend_cpu_set_n_threads(self._backend, threads)
        buffer = base.ggml_backend_alloc_ctx_tensors(context, self._backend)
        weakref.finalize(self, _free, base, context, buffer, self._backend)
        if not buffer:
            raise MemoryError(f"libggml has no memory for a product of {M} x {N} x {K}")
        self._sizes = 4 * M * K if floats else M * K // BLOCK * Q8_K_BYTES, 4 * M * N
        base.ggml_backend_tensor_set(matrix, weights.ctypes.data, 0, weights.nbytes)
        if row_scales is not None:
            base.ggml_backend_tensor_set(scales, row_scales.ctypes.data, 0, row_scales.nbytes)

    def run(self, activations: Bytes | Floats, out: Floats) -> None:
        """Multiply. Raises RuntimeError if ggml reports an error."""
        _check("ggml_mul_mat", "activations", activations, self._dtype, self._sizes[0])
        _check("ggml_mul_mat", "out", out, np.float32, self._sizes[1])
        base = self._library.base
        base.ggml_backend_tensor_set(self._activations, activations.ctypes.data, 0, activations.nbytes)
        status = base.ggml_backend_graph_compute(self._backend, self._graph)
        if status:
            raise RuntimeError(f"ggml_backend_graph_compute returned {status}")
        base.ggml_backend_tensor_get(self._product, out.ctypes.data, 0, out.nbytes)


def _free(base: ctypes.CDLL, context: int, buffer: int | None, backend: int) -> None:
    if buffer:
        base.ggml_backend_buffer_free(buffer)
    base.ggml_backend_free(backend)
    base.ggml_free(context)


def _check(op: str, argument: str, array: Any, dtype: Any, nbytes: int | None = None) -> None:
    """Refuse arrays that C would read or write out of bounds: another dtype, strides, size, or a partial block."""
    right = isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.c_contiguous
    right = right and (array.size % BLOCK == 0 if nbytes is None else array.nbytes == nbytes)
    if not right:
        found = (
            f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        )
        size = f"a multiple of {BLOCK} long" if nbytes is None else f"{nbytes} bytes"
        raise InvalidArgumentError(
            op=op, argument=argument, found=found, legal=f"C-contiguous {np.dtype(dtype)}, {size}"
        )


def _blocks(x: Floats, size: int) -> Bytes:
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] % BLOCK:
        found = f"of shape {x.shape}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise InvalidArgumentError(
            op="libggml", argument="x", found=found, legal=f"two axes, the second a multiple of {BLOCK}"
        )
    return np.empty((x.shape[0], x.shape[1] // BLOCK * size), np.uint8)


def _dots(format: str, weights: Bytes, activations: Bytes) -> Floats:
    op = f"ggml_vec_dot_{format}_q8_K"
    blocks = weights.shape[1] // BLOCK_BYTES[format]
    _check(op, "weights", weights, np.uint8, len(weights) * blocks * BLOCK_BYTES[format])
    _check(op, "activations", activations, np.uint8, len(activations) * blocks * Q8_K_BYTES)
    function = getattr(library().cpu, op)
    out = np.empty((len(activations), len(weights)), np.float32)
    for m, row in enumerate(activations):
        for n, column in enumerate(weights):
            function(blocks * BLOCK, out[m, n:].ctypes.data, 0, column.ctypes.data, 0, row.ctypes.data, 0, 1)
    return out
