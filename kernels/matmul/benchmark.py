"""What each precision costs: the time of a product, and how far it is from the exact one (specification, 3.5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceError
from tritmark.kernels import dispatch
from tritmark.kernels.matmul.api import bind
from tritmark.kernels.matmul.precision import PrecisionMode, supported_precisions
from tritmark.kernels.matmul.reference import narrowing_bound, product_bound

SAMPLES = 15
CALLS = 20
"""Products in one sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionResult:
    """One mode on one shape."""

    mode: PrecisionMode
    shape: tuple[int, int, int]
    """(M, N, K)."""
    kernel: str
    """Id of the variant."""
    median_ns: float
    """Device time of one product, without the conversion of its factors."""
    largest_error: float
    """Against the float64 product of the float32 matrices."""
    share_of_bound: float
    """Largest ratio of an error to the bound that was known beforehand; at most 1."""
    fastest: bool
    """Whether no mode was faster on this shape."""


def benchmark_precision_modes(shapes: Iterable[tuple[int, int, int]], seed: int = 0) -> list[PrecisionResult]:
    """Time every mode that the GPU supports on each shape (M, N, K), and compare its product of normal float32 matrices
    with float64's (specification, 3.5).

    Raises DeviceError in the simulator, which has no speed, and what matmul raises.
    """
    from tritmark.kernels.cuda.context import cuda_context

    backend = cuda_context().backend
    if backend.simulated:
        raise DeviceError("a simulated device has no speed", next_step="unset TRITMARK_CUDA on a machine with a GPU")
    results: list[PrecisionResult] = []
    for shape in shapes:
        modes = [_measured(mode, shape, seed) for mode in supported_precisions(backend.info)]
        best = min(result.median_ns for result in modes)
        results += [replace(result, fastest=result.median_ns == best) for result in modes]
    return results


def _measured(mode: PrecisionMode, shape: tuple[int, int, int], seed: int) -> PrecisionResult:
    from tritmark.harness.measure.clocks import own_clock

    M, N, K = shape
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
    bound = bind(a, b, mode, None)
    clock = own_clock(dispatch.registry().devices[bound.variant.key.device])
    launches = [bound.launch]
    times = [clock.sample(launches, 0, CALLS) / CALLS for _ in range(SAMPLES + 1)]
    error = np.abs(bound.c.numpy() - a.astype(np.float64) @ b.astype(np.float64))
    if mode is PrecisionMode.FP32:
        limit = product_bound(a, b)
    else:
        dtype = named_dtype(mode.dtype)
        limit = product_bound(a.astype(dtype), b.astype(dtype)) + narrowing_bound(a, b, mode.dtype)
    return PrecisionResult(
        mode=mode,
        shape=shape,
        kernel=bound.variant.id,
        median_ns=median(times[1:]),  # the first one may have recorded a graph
        largest_error=float(error.max()),
        share_of_bound=float((error / limit).max()),
        fastest=False,
    )
