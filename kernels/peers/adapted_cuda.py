"""Products of libraries that the user has built for CUDA; see adapters.

`bitlinear_int8xint2` of microsoft/BitNet@16da220: void (int8_t *activations, int8_t *weights, bfloat16 *out, bfloat16
*s, bfloat16 *ws, int M, int N, int K, cudaStream_t): the sums of a row over its s[0], times the ws of the row's
linear layer; up to six layers are concatenated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tritmark.harness.spec import Arrays, Axes, Launch, Variant
from tritmark.kernels.cuda.backend import Stream
from tritmark.kernels.cuda.context import cuda_context
from tritmark.kernels.formats import BUILT_IN
from tritmark.kernels.peers import launch_cuda, products
from tritmark.kernels.peers.launch import gamma
from tritmark.kernels.ternary_matmul import cuda

CALL = "bitlinear_int8xint2"
DTYPE = "bfloat16"
_FUSED = 6
"""The most linear layers, each with a scale, in one call."""
_ARGUMENTS: list[Any] = [*[c_void_p] * 5, *[c_int] * 3, c_void_p]


@dataclass(frozen=True, slots=True)
class CompiledShapes:
    """(M, N, K) is one of the shapes for which a library was compiled."""

    shapes: tuple[tuple[int, int, int], ...]

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""
        asked = (axes["M"], axes["N"], axes["K"])
        if asked in self.shapes:
            return None
        known = ", ".join(str(each) for each in self.shapes)
        return f"it is not compiled for (M, N, K) = {asked}, only for {known}"


def variants(
    own: str,
    source: str,
    symbol: str,
    weights: str,
    shapes: tuple[tuple[int, int, int], ...],
    path: Path,
    digest: str,
    load: Callable[[], ctypes.CDLL],
) -> Sequence[Variant]:
    """The product `own` of the library with that SHA-256, in the format of tritmark's fastest kernels and, if tritmark
    has kernels for it, in its own format `weights`; `load` opens the library."""
    ours = {each.key.format for each in cuda.VARIANTS}
    return [
        launch_cuda.variant(
            own,
            DTYPE,
            f"{source}: {symbol} of {path.name}",
            partial(_bind, own, symbol, weights, path, load, format),
            launch_cuda.unsimulated,
            load,
            format=format,
            constraints=(CompiledShapes(shapes),),
            code_hash=digest,
            error_bound=partial(_bound, own),
        )
        for format in dict.fromkeys((launch_cuda.FASTEST, weights))
        if format in ours
    ]


def _bind(
    own: str,
    symbol: str,
    packing: str,
    path: Path,
    load: Callable[[], ctypes.CDLL],
    format: str,
    inputs: Arrays,
    outputs: Arrays,
    axes: Axes,
    threads: int,
) -> Launch:
    here, host = cuda_context(), launch_cuda.on_host(inputs)
    function = load()[symbol]
    function.argtypes, function.restype = _ARGUMENTS, None
    weights = host["weights"]
    if format != packing:
        weights = products.packed(format, packing, partial(_packed, packing), host, axes)
    scale, scales = _narrow(host)
    taken = [here.upload(np.ascontiguousarray(each)) for each in (host["activations"], weights, scale, scales)]
    arrays = (*taken[:2], outputs["out"], *taken[2:])
    sizes = axes["M"], axes["N"], axes["K"]

    def call(stream: Stream) -> None:
        function(*(each.pointer for each in arrays), *sizes, stream.handle)

    return launch_cuda.CudaPeerLaunch(own, call, outputs, lambda: [path])


def _packed(format: str, codes: products.Codes) -> products.Bytes:
    return BUILT_IN[format].pack(codes, 1.0)


def _narrow(inputs: Arrays) -> tuple[Any, Any]:
    """The scales in bfloat16: of the activations, and of the weights, repeated as often as the library may read
    them."""
    with np.errstate(over="ignore"):
        scale = inputs["act_scale"].astype(ml_dtypes.bfloat16)
        return scale, np.full(_FUSED, inputs["weight_scale"]).astype(ml_dtypes.bfloat16)


def _bound(own: str, inputs: Arrays, axes: Axes) -> Mapping[str, Any]:
    """The bound of an exact sum. Scales are rounded to bfloat16 (a known error); the sum, its quotient and the product
    are rounded to float32, and the output to bfloat16. Raises InvalidArgumentError if float32 does not hold one of
    these."""
    scale, sums, _ = launch_cuda.terms(own, inputs)
    narrow, wide = (np.asarray(each, np.float64) for each in _narrow(inputs))
    products.held(own, narrow, np.ones((len(narrow), 1)))
    products.held(own, wide[:1], np.ones((1, 1)))
    products.held(own, 1 / narrow, np.abs(sums))
    its = wide[0] / narrow[:, np.newaxis]
    products.held(own, its[:, 0], np.abs(sums))
    off = np.abs(sums) * (np.abs(its - scale) + gamma(3) * its)
    return launch_cuda.rounded_once(scale * sums, off)
