"""The cost of each precision: time of a product, distance from the exact product, memory and copies (specification,
3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from time import perf_counter_ns

import numpy as np
import numpy.typing as npt

from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import DeviceError
from tritmark.harness.precision import PrecisionResult, Precisions, Shape
from tritmark.harness.spec import Launch
from tritmark.kernels.cuda.launch import DEVICE
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.matmul.api import PreparedProduct, bind, matmul
from tritmark.kernels.matmul.precision import PrecisionMode, supported_precisions
from tritmark.kernels.matmul.reference import narrowing_bound, product_bound

SAMPLES = 15
CALLS = 20
"""Products in one sample."""
WHOLE_CALLS = 3
ROWS = 256
"""The most rows of a product that are compared, spread evenly: float64 on the host takes far longer than the GPU."""

Matrix = npt.NDArray[np.float32]


def benchmark_precision_modes(shapes: Iterable[Shape], seed: int = 0) -> list[PrecisionResult]:
    """Time every mode that the GPU supports on each shape (M, N, K), interleaved, and compare its product of normal
    float32 matrices with the float64 product, in at most ROWS rows (specification, 3.5).

    Raises DeviceError in the simulator, which has no speed, and the errors of matmul.
    """
    from tritmark.kernels.cuda.context import cuda_context

    backend = cuda_context().backend
    if backend.simulated:
        raise DeviceError("a simulated device has no speed", next_step="unset TRITMARK_CUDA on a machine with a GPU")
    modes = supported_precisions(backend.info)
    return [result for shape in shapes for result in _measured(modes, shape, seed)]


def precisions(shapes: Iterable[Shape], seed: int) -> Precisions:
    """benchmark_precision_modes with the name of the device, for `tritmark precision`."""
    from tritmark.kernels.cuda.context import cuda_context

    return Precisions(cuda_context().backend.info.name, tuple(benchmark_precision_modes(shapes, seed)))


def _measured(modes: Sequence[PrecisionMode], shape: Shape, seed: int) -> list[PrecisionResult]:
    from tritmark.harness.measure.clocks import own_clock

    M, N, K = shape
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
    rows = np.linspace(0, M - 1, min(M, ROWS)).astype(np.intp)
    exact = a[rows].astype(np.float64) @ b.astype(np.float64)
    clock = own_clock(dispatch.registry().devices[DEVICE])

    def sample(launch: Launch) -> float:
        return float(clock.sample([launch], 0, CALLS)) / CALLS

    bound = {mode: bind(a, b, mode, None) for mode in modes}
    # Drop the first round: it may have recorded graphs.
    rounds = [{mode: sample(each.launch) for mode, each in bound.items()} for _ in range(SAMPLES + 1)][1:]
    results = []
    for mode, each in bound.items():
        conversion = sum(median([sample(launch) for _ in range(SAMPLES + 1)][1:]) for launch in each.conversions)
        samples = tuple(taken[mode] for taken in rounds)
        results.append(_result(mode, shape, each, samples, conversion, a, b, rows, exact))
    return results


def _result(
    mode: PrecisionMode,
    shape: Shape,
    bound: PreparedProduct,
    samples: tuple[float, ...],
    conversion: float,
    a: Matrix,
    b: Matrix,
    rows: npt.NDArray[np.intp],
    exact: npt.NDArray[np.float64],
) -> PrecisionResult:
    from tritmark.kernels.cuda.context import cuda_context

    here = cuda_context()
    difference, some = bound.c.numpy()[rows] - exact, a[rows]
    if mode is PrecisionMode.FP32:
        limit = product_bound(some, b)
    else:
        dtype = named_dtype(mode.dtype)
        limit = product_bound(some.astype(dtype), b.astype(dtype)) + narrowing_bound(some, b, mode.dtype)
    times = []
    with here.pool.watch() as watch:
        for _ in range(WHOLE_CALLS):
            before, begin = here.stats.copy(), perf_counter_ns()
            matmul(a, b, mode=mode)
            times.append(perf_counter_ns() - begin)
            moved = here.stats.since(before)
    return PrecisionResult(
        mode=str(mode),
        shape=shape,
        kernel=bound.variant.id,
        samples_ns=samples,
        conversion_ns=conversion,
        call_ns=median(times),
        relative_error=float(np.linalg.norm(difference) / np.linalg.norm(exact)),
        largest_error=float(np.abs(difference).max()),
        share_of_bound=float((np.abs(difference) / limit).max()),
        device_bytes=watch.peak,
        uploaded=moved.bytes_uploaded,
        downloaded=moved.bytes_downloaded,
        launches=moved.launches,
    )
