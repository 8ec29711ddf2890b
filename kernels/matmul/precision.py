"""In which precision to multiply: what a device can do, what is best on it, and what each costs (specification, 3.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

import numpy as np

from tritmark.harness.errors import DeviceError, InvalidArgumentError
from tritmark.harness.machine.gpu import DeviceInfo

_LOG = logging.getLogger(__name__)

SAMPLES = 15
CALLS = 20
"""Products in one sample."""


class PrecisionMode(StrEnum):
    """What the factors are rounded to; sums and products are float32 in every mode. The 16-bit modes use tensor cores where there are."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    AUTO = "auto"
    """The best that the device has."""

    @property
    def dtype(self) -> str:
        """Name of the factors' dtype; AUTO has none."""
        return {PrecisionMode.FP32: "float32", PrecisionMode.FP16: "float16", PrecisionMode.BF16: "bfloat16"}[self]


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


def supported_precisions(info: DeviceInfo) -> tuple[PrecisionMode, ...]:
    """FP32, FP16 from compute capability 6.1, BF16 from 8.0."""
    modes = [PrecisionMode.FP32]
    if info.fp16:
        modes.append(PrecisionMode.FP16)
    if info.bf16:
        modes.append(PrecisionMode.BF16)
    return tuple(modes)


def detect_best_precision(info: DeviceInfo) -> PrecisionMode:
    """BF16 where there is one (float32's range), else FP16, else FP32."""
    supported = supported_precisions(info)
    return next(mode for mode in (PrecisionMode.BF16, PrecisionMode.FP16, PrecisionMode.FP32) if mode in supported)


def effective_precision(mode: PrecisionMode | str, info: DeviceInfo) -> tuple[PrecisionMode, str]:
    """The mode that will be used, and why it is not the one asked for ("" where it is, or where AUTO chose).

    FP32 takes the place of a mode that the device lacks; that is logged. Raises InvalidArgumentError for no mode.
    """
    try:
        asked = PrecisionMode(mode)
    except ValueError:
        raise InvalidArgumentError(op="matmul", argument="mode", found=repr(mode), legal=", ".join(PrecisionMode)) from None
    if asked is PrecisionMode.AUTO:
        return detect_best_precision(info), ""
    if asked in supported_precisions(info):
        return asked, ""
    major, minor = info.capability
    note = f"{asked} was asked for, {info.name} (compute capability {major}.{minor}) lacks it, fp32 took its place"
    _LOG.warning("matmul: %s", note)
    return PrecisionMode.FP32, note


def benchmark_precision_modes(shapes: Iterable[tuple[int, int, int]], seed: int = 0) -> list[PrecisionResult]:
    """Time every mode that the GPU supports on each shape (M, N, K), and compare its product of normal float32 matrices with float64's
    (specification, 3.5).

    Raises DeviceError in the simulator, which has no speed, and what matmul raises.
    """
    from tritmark.kernels.cuda.room import room

    backend = room().backend
    if backend.simulated:
        raise DeviceError("a simulated device has no speed", next_step="unset TRITMARK_CUDA on a machine with a GPU")
    results: list[PrecisionResult] = []
    for shape in shapes:
        modes = [_measured(mode, shape, seed) for mode in supported_precisions(backend.info)]
        best = min(result.median_ns for result in modes)
        results += [replace(result, fastest=result.median_ns == best) for result in modes]
    return results


def _measured(mode: PrecisionMode, shape: tuple[int, int, int], seed: int) -> PrecisionResult:
    from tritmark.kernels import dispatch
    from tritmark.kernels.matmul.api import bind
    from tritmark.kernels.matmul.reference import narrowing_bound, product_bound

    M, N, K = shape
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
    bound = bind(a, b, mode, None)
    clock = dispatch.registry().devices[bound.variant.key.device].clock()
    launches = [bound.launch]
    times = [clock.sample(launches, 0, CALLS) / CALLS for _ in range(SAMPLES + 1)]
    error = np.abs(bound.c.numpy() - a.astype(np.float64) @ b.astype(np.float64))
    if mode is PrecisionMode.FP32:
        limit = product_bound(a, b)
    else:
        from tritmark.harness.dtypes import named_dtype

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
