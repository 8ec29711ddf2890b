"""Medians and their intervals. Nothing is assumed of the distribution; samples are taken as independent of each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrik

LEAST_SAMPLES = 6
"""With fewer samples even the lowest and the highest miss the median more often than in 5 % of all cases (2 * 0.5^5 = 6 %)."""

ENOUGH_SAMPLES = 30
"""Samples from which on a bootstrap of the median, and an interval that was looked at again and again, can be relied on."""

RESAMPLES = 1000
_SLAB = 1 << 20


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two in the middle."""
    return float(np.median(samples))


def binomial_quantile(share: float, count: int) -> int:
    """The smallest k so that of `count` throws of a coin at most k are heads with probability `share` or more.

    As scipy.stats.binom.ppf, whose import takes a second.
    """
    near = bdtrik(share, count, 0.5)
    above = 0 if np.isnan(near) else int(np.ceil(near))
    below = max(above - 1, 0)
    return below if bdtr(below, count, 0.5) >= share else above


@lru_cache(maxsize=512)
def _rank(count: int) -> int:
    """The largest k so that the median lies below the k-th lowest of `count` samples in at most 2.5 % of cases; at least 1."""
    return max(1, binomial_quantile(0.025, count))


def order_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median from the order statistics (binomial, exact for independent samples); below LEAST_SAMPLES, their range."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    rank = _rank(len(ordered))
    return float(ordered[rank - 1]), float(ordered[-rank])


def bootstrap_interval(samples: npt.ArrayLike, rng: np.random.Generator) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the median, from RESAMPLES resamples; it always holds the median itself."""
    values = np.asarray(samples, dtype=np.float64)
    rows = max(1, _SLAB // len(values))
    medians = np.concatenate(
        [
            np.median(values[rng.integers(0, len(values), (min(rows, RESAMPLES - done), len(values)))], axis=1)
            for done in range(0, RESAMPLES, rows)
        ]
    )
    low, high = np.quantile(medians, (0.025, 0.975))
    middle = median(values.tolist())
    return min(float(low), middle), max(float(high), middle)
