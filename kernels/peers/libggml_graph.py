"""Whole products in ggml's graph on the CPU: ggml_mul_mat, and ggml_mul_mat_id for experts."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import c_bool, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from tritmark.harness.errors import InvalidArgumentError
from tritmark.kernels.peers import libggml
from tritmark.kernels.peers.libggml import NUMBERS, TYPES, Bytes, Floats, check

_TENSORS = 8
"""Most tensors of a graph."""


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


_BASE: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (c_void_p, [_InitParams]),
    "ggml_free": (None, [c_void_p]),
    "ggml_tensor_overhead": (c_size_t, []),
    "ggml_graph_overhead": (c_size_t, []),
    "ggml_new_tensor_3d": (c_void_p, [c_void_p, c_int, c_int64, c_int64, c_int64]),
    "ggml_mul_mat": (c_void_p, [c_void_p, c_void_p, c_void_p]),
    "ggml_mul_mat_id": (c_void_p, [c_void_p, c_void_p, c_void_p, c_void_p]),
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
_CPU: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_cpu_init": (c_void_p, []),
    "ggml_backend_cpu_set_n_threads": (None, [c_void_p, c_int]),
}


def _declared() -> libggml.Library:
    """The libraries with the signatures of these functions. Raises DeviceUnavailableError if they are missing."""
    found = libggml.library()
    for part, functions in zip(found, (_BASE, _CPU), strict=True):
        for name, (result, arguments) in functions.items():
            function = getattr(part, name)
            function.restype, function.argtypes = result, arguments
    return found


class GgmlProduct:
    """A product of weights (N, K), packed in a format of libggml.TYPES, and activations (M, K) in its type; or of both
    in float32, for format `f32`.

    - `row_scales`, float32 (N,): the product is multiplied by them.
    - `out_scales`, float32 (M,): it is then multiplied by these.
    - `experts`, int32 (M,): weights are those of several matrices, one after another; row m is multiplied with the
      matrix experts[m].

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
        *,
        row_scales: Floats | None = None,
        out_scales: Floats | None = None,
        experts: npt.NDArray[np.int32] | None = None,
    ) -> None:
        floats = format == "f32"
        self._dtype = np.float32 if floats else np.uint8
        of_matrix = 4 * N * K if floats else N * K // TYPES[format].block * TYPES[format].nbytes
        self._name = "ggml_mul_mat" if experts is None else "ggml_mul_mat_id"
        E = 1 if experts is None else max(1, weights.nbytes // max(1, of_matrix))
        check(self._name, "weights", weights, self._dtype, E * of_matrix)
        base, cpu = self._library = _declared()
        size = _TENSORS * base.ggml_tensor_overhead() + base.ggml_graph_overhead()
        context = base.ggml_init(_InitParams(size, None, True))
        given: list[tuple[int, npt.NDArray[Any]]] = []

        def tensor(kind: str, *sizes: int) -> int:
            made: int = base.ggml_new_tensor_3d(context, NUMBERS[kind], *(*sizes, 1, 1)[:3])
            return made

        def filled(name: str, array: npt.NDArray[Any], kind: str, *sizes: int) -> int:
            check(self._name, name, array, np.int32 if kind == "i32" else np.float32, 4 * int(np.prod(sizes)))
            made = tensor(kind, *sizes)
            given.append((made, array))
            return made

        matrix = tensor(format, K, N, E)
        given.append((matrix, weights))
        own = "f32" if floats else TYPES[format].activations
        if experts is None:
            self._activations = tensor(own, K, M)
            self._product = base.ggml_mul_mat(context, matrix, self._activations)
        else:
            self._activations = tensor(own, K, 1, M)
            outside = experts[(experts < 0) | (experts >= E)]
            if outside.size:
                legal = f"0 to {E - 1}"
                raise InvalidArgumentError(op=self._name, argument="experts", found=str(outside[0]), legal=legal)
            chosen = filled("experts", experts, "i32", 1, M)
            self._product = base.ggml_mul_mat_id(context, matrix, self._activations, chosen)
        if row_scales is not None:
            self._product = base.ggml_mul(context, self._product, filled("row_scales", row_scales, "f32", N))
        if out_scales is not None:
            sizes = (1, M) if experts is None else (1, 1, M)
            self._product = base.ggml_mul(context, self._product, filled("out_scales", out_scales, "f32", *sizes))
        self._graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(self._graph, self._product)
        self._backend = cpu.ggml_backend_cpu_init()
        cpu.ggml_backend_cpu_set_n_threads(self._backend, threads)
        buffer = base.ggml_backend_alloc_ctx_tensors(context, self._backend)
        weakref.finalize(self, _free, base, context, buffer, self._backend)
        if not buffer:
            raise MemoryError(f"libggml has no memory for a product of {M} x {N} x {K}")
        self._sizes = 4 * M * K if floats else M * libggml.activation_bytes(format, K), 4 * M * N
        for at, array in given:
            base.ggml_backend_tensor_set(at, array.ctypes.data, 0, array.nbytes)

    def run(self, activations: Bytes | Floats, out: Floats) -> None:
        """Multiply. Raises RuntimeError if ggml reports an error."""
        check(self._name, "activations", activations, self._dtype, self._sizes[0])
        check(self._name, "out", out, np.float32, self._sizes[1])
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
