"""What each precision of a product costs on a device, and the fastest whose error is admitted. Times are nanoseconds,
sizes bytes."""

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
    """Device time of one product in each sample, on the same factors again and again, without their conversion; samples
    of all modes were taken by turns."""
    conversion_ns: float
    """Device time of the conversion of both factors; 0 where there is none."""
    call_ns: float
    """A whole call of the public function, from the host's arrays and back to them."""
    relative_error: float
    """Frobenius norm of the difference from the float64 product of the float32 factors, over that product's."""
    largest_error: float
    """Largest absolute difference of an element."""
    share_of_bound: float
    """Largest ratio of an element's difference to the bound that was known beforehand; at most 1."""
    device_bytes: int
    """Most of the device's memory that the call held."""
    uploaded: int
    """Bytes to the device in one call."""
    downloaded: int
    """Bytes back."""
    launches: int
    """Of one call."""

    @property
    def product_ns(self) -> float:
        """The median of the samples."""
        return median(self.samples_ns)

    @property
    def tflops(self) -> float:
        """Rate of the product alone."""
        M, N, K = self.shape
        return 2e-3 * M * N * K / self.product_ns


class PrecisionTable(Model):
    """What `tritmark precision` writes."""

    created: str
    """UTC, ISO 8601."""
    tritmark: str
    device: str
    """Its name."""
    seed: int
    error: float | None
    """The largest relative error that was admitted; None for any."""
    results: tuple[PrecisionResult, ...]
    chosen: dict[str, str | None]
    """For each shape, as MxNxK, the mode; None where no mode is exact enough."""


@dataclass(frozen=True, slots=True)
class Precisions:
    """What a provider measures."""

    device: str
    """Its name."""
    results: tuple[PrecisionResult, ...]


def named(shape: Shape) -> str:
    """As MxNxK."""
    return "x".join(map(str, shape))


def fastest(results: Sequence[PrecisionResult], error: float | None = None) -> dict[str, str | None]:
    """For each shape the mode whose product takes the least time among those whose relative error is at most `error`;
    None where there is none."""
    found: dict[str, str | None] = {}
    for shape in dict.fromkeys(each.shape for each in results):
        admitted = [each for each in results if each.shape == shape and (error is None or each.relative_error <= error)]
        found[named(shape)] = min(admitted, key=lambda each: each.product_ns).mode if admitted else None
    return found
