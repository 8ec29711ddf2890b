"""Medians and their intervals. With LEAST_SAMPLES or more, they assume no distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEAST_SAMPLES = 6
"""With fewer samples, even their whole range misses the median in more than 5 % of cases (2 * 0.5^5 = 6 %)."""

ENOUGH_SAMPLES = 30
"""With this many samples or more, an interval that is checked repeatedly while sampling is reliable."""

_BLOCKS = 16

_STUDENT = (12.7062047362, 4.30265272975, 3.18244630528, 2.7764451052)
"""The 97.5 % quantile of Student's t for 1, 2, ... degrees of freedom; test_measure.py compares it with scipy's."""

normal_quantile = NormalDist().inv_cdf
"""The quantile of the standard normal distribution for a probability."""


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two in the middle."""
    return float(np.median(samples))


def binomial_quantile(share: float, count: int) -> int:
    """The smallest k such that `count` coin throws have at most k heads with probability `share` or more.

    Like scipy.stats.binom.ppf, without the slow import of scipy.
    """
    factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))
    chances = np.exp(factorials[-1] - factorials - factorials[::-1] - count * log(2))
    return min(count, int(np.searchsorted(np.cumsum(chances), share)))


@lru_cache(maxsize=512)
def _rank(count: int) -> int:
    """The largest k such that the median is below the k-th lowest of `count` samples in at most 2.5 % of cases; at
    least 1."""
    return max(1, binomial_quantile(0.025, count))


def order_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median from the order statistics (binomial, exact for independent samples); below
    LEAST_SAMPLES, their range."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    rank = _rank(len(ordered))
    return float(ordered[rank - 1]), float(ordered[-rank])


def dependence(logs: npt.ArrayLike) -> float:
    """The number of dependent samples with the information of one independent sample, at least 1."""
    values = np.asarray(logs, np.float64)
    signs = np.sign(values - np.median(values))
    worst, length = 1.0, 2
    while len(signs) // length >= _BLOCKS:
        count = len(signs) // length
        sums = signs[: count * length].reshape(count, length).sum(axis=1)
        worst = max(worst, float(np.sum(sums**2)) / (length * (count - 1)))
        length *= 2
    return worst


def interval(samples: npt.ArrayLike) -> tuple[float, float]:
    """95 % interval of the median of at least two samples with additive noise, such as logarithms.

    With LEAST_SAMPLES or more: order statistics of the effective number of independent samples. With fewer, the range
    of the samples is not wide enough. Then it is Student's interval around the median, which assumes normal noise and
    is wide (6.4 times the difference of two samples on either side).
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    middle, count = float(np.median(ordered)), len(ordered)
    if count < LEAST_SAMPLES:
        around = _STUDENT[count - 2] * float(ordered.std(ddof=1)) / sqrt(count)
        return middle - around, middle + around
    worth = max(LEAST_SAMPLES, int(count / dependence(samples)))
    # The rank among the independent samples, scaled to all samples and rounded outwards.
    at = max(1, _rank(worth) * count // worth)
    return float(ordered[at - 1]), float(ordered[-at])


def least_share(successes: int, trials: int) -> float:
    """The lower end of the exact (Clopper-Pearson) one-sided 95 % interval of a share; 0 without trials."""
    if not trials:
        return 0.0
    from scipy.stats import binomtest

    return float(binomtest(successes, trials, alternative="greater").proportion_ci(0.95, method="exact").low)


def theil_sen(heights: npt.ArrayLike, places: npt.ArrayLike) -> tuple[float, float, float]:
    """The slope of `heights` over `places`, two or more points: the median slope of all pairs of points, and its 95 %
    interval (Theil; Sen, Journal of the American Statistical Association 63, 1968, equation 2.6 for ties).

    Like scipy.stats.theilslopes.
    """
    y, x = np.asarray(heights, np.float64), np.asarray(places, np.float64)
    apart = x[:, None] - x
    slopes = np.sort((y[:, None] - y)[apart > 0] / apart[apart > 0])
    count, pairs = len(y), len(slopes)
    tied = sum(_kendall(repeats) for side in (x, y) for repeats in np.unique(side, return_counts=True)[1].tolist())
    width = -normal_quantile(0.025) * sqrt(max(0.0, (_kendall(count) - tied) / 18))
    low, high = max(0, round((pairs - width) / 2) - 1), min(pairs - 1, round((pairs + width) / 2))
    return float(np.median(slopes)), float(slopes[low]), float(slopes[high])


def _kendall(count: int) -> int:
    """18 times the variance of Kendall's score of `count` points, or its reduction by `count` ties."""
    return count * (count - 1) * (2 * count + 5)
