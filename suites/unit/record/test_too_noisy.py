"""When a figure is too noisy to compare: one rule for times, fractions of a ceiling and ratios."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import footing

from tritmark.harness.record import TOO_NOISY, CeilingComparison, Measurement, Ratio, Timing, half_width

POSITIVE = st.floats(1e-9, 1e9)


def timing_of(median: float, low: float, high: float) -> Timing:
    made = footing(Random(1), "cpu", (1 << 20, 1 << 18, 1 << 20), 0.5, hot=False).timing
    return made.model_copy(update={"median_ns": median, "low_ns": low, "high_ns": high})


def of(timing: Timing, fraction: Ratio, *, lost: bool) -> Measurement:
    made = footing(Random(1), "cpu", (1 << 20, 1 << 18, 1 << 20), 0.5, hot=False)
    against: CeilingComparison = made.against.model_copy(update={"fraction": fraction, "lost": lost})
    return made.model_copy(update={"timing": timing, "against": against})


@given(median=POSITIVE, share=st.floats(0, 2), skew=st.floats(0, 1))
def test_times_and_ratios_have_the_same_rule(median: float, share: float, skew: float) -> None:
    """The width of the interval decides, not its position around the median."""
    low, high = median * (1 - 2 * share * skew), median * (1 + 2 * share * (1 - skew))
    ratio, timing = Ratio(median=median, low=low, high=high, pairs=9), timing_of(median, low, high)
    assert ratio.too_noisy is timing.too_noisy
    if not math.isclose(share, TOO_NOISY, rel_tol=1e-6):
        assert ratio.too_noisy is (share > TOO_NOISY)


@pytest.mark.parametrize(
    ("median", "low", "high", "noisy"),
    [
        (0.958, 0.958, 4826.0, True),  # an observed interval of two pairs
        (204e3, 1e3, 407e3, True),
        (100.0, 75.0, 125.0, False),
        (100.0, 74.9, 125.0, True),
        (0.0, 0.0, 0.0, False),
        (0.0, -1.0, 1.0, True),
    ],
)
def test_examples(median: float, low: float, high: float, noisy: bool) -> None:
    assert Ratio(median=median, low=low, high=high, pairs=2).too_noisy is noisy
    assert half_width(median, low, high) >= 0


@pytest.mark.parametrize("time", [True, False])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_figure_is_too_noisy_by_its_time_or_by_the_part_that_is_shown(time: bool, share: bool, lost: bool) -> None:
    timing = timing_of(100.0, 40.0 if time else 99.0, 101.0)
    fraction = Ratio(median=0.5, low=0.2 if share else 0.49, high=0.51, pairs=9)
    assert of(timing, fraction, lost=lost).too_noisy is (time or (share and not lost))
