"""Time, error and memory of each precision of a product on a device, and the fastest within an admitted error. Times
are in nanoseconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tritmark.harness.record.model import Model

Shape = tuple[int, int, int]
"""(M, N, K)."""


class PrecisionResult(Model):
    """One mode on one shape."""

    mode: str
    shape: Shape
    """(M, N, K)."""
    kernel: str
    """Id of the variant."""
    samples_ns: tuple[float, ...]
    """Device time of one product in each sample, on the same factors, without their conversion. Samples of all modes
    are interleaved."""
    conversion_ns: float
    """Device time of the conversion of both factors; 0 without one."""
    call_ns: float
    """A whole call of the public function, from host arrays to a host array."""
    relative_error: float
    """Frobenius norm of the difference from the float64 product of the float32 factors, over that product's."""
    largest_error: float
    """Largest absolute difference of an element."""
    share_of_bound: float
    """Largest ratio of an element's difference to the a-priori bound; at most 1."""
    device_bytes: int
    """Peak device memory of the call."""
    uploaded: int
    """Bytes copied to the device in one call."""
    downloaded: int
    """Bytes copied from the device in one call."""
    launches: int
    """Launches of one call."""

    @property
    def product_ns(self) -> float:
        """The median of the samples."""
        return median(self.samples_ns)

    @property
    def tflops(self) -> float:
        """Rate of the product without conversions."""
        M, N, K = self.shape
        return 2e-3 * M * N * K / self.product_ns


class PrecisionTotal(Model):
    """The sums of one mode over all shapes."""

    mode: str
    shapes: int
    """Number of shapes in the sums."""
    product_ns: float
    """Of the medians."""
    conversion_ns: float
    call_ns: float
    device_bytes: int
    """The largest peak, not the sum."""
    uploaded: int
    downloaded: int
    launches: int


class PrecisionTable(Model):
    """The output file of `tritmark precision`."""

    created: str
    """UTC, ISO 8601."""
    tritmark: str
    device: str
    """Name of the device."""
    seed: int
    error: float | None
    """The largest admitted relative error; None for any."""
    results: tuple[PrecisionResult, ...]
    chosen: dict[str, str | None]
    """For each shape, as MxNxK, the mode; None if no mode is exact enough."""
    totals: tuple[PrecisionTotal, ...] = ()
    """In the order of the modes; empty in files of earlier versions."""


@dataclass(frozen=True, slots=True)
class Precisions:
    """Measurements of a provider."""

    device: str
    """Name of the device."""
    results: tuple[PrecisionResult, ...]


def named(shape: Shape) -> str:
    """The shape as MxNxK."""
    return "x".join(map(str, shape))


def totals(results: Sequence[PrecisionResult]) -> tuple[PrecisionTotal, ...]:
    """The sums of each mode."""
    modes: dict[str, list[PrecisionResult]] = {}
    for each in results:
        modes.setdefault(each.mode, []).append(each)
    return tuple(
        PrecisionTotal(
            mode=mode,
            shapes=len({each.shape for each in its}),
            product_ns=sum(each.product_ns for each in its),
            conversion_ns=sum(each.conversion_ns for each in its),
            call_ns=sum(each.call_ns for each in its),
            device_bytes=max(each.device_bytes for each in its),
            uploaded=sum(each.uploaded for each in its),
            downloaded=sum(each.downloaded for each in its),
            launches=sum(each.launches for each in its),
        )
        for mode, its in modes.items()
    )


def fastest(results: Sequence[PrecisionResult], error: float | None = None) -> dict[str, str | None]:
    """For each shape, the fastest mode with a relative error of at most `error`; None if there is none."""
    found: dict[str, str | None] = {}
    for shape in dict.fromkeys(each.shape for each in results):
        admitted = [each for each in results if each.shape == shape and (error is None or each.relative_error <= error)]
        found[named(shape)] = min(admitted, key=lambda each: each.product_ns).mode if admitted else None
    return found
