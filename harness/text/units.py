"""Formats figures with three significant digits and a unit. A missing figure is a dash."""

from __future__ import annotations

from tritmark.harness.record import TOO_NOISY, Ratio, Timing, half_width

NONE = "–"
NOISY = "too noisy"
"""Replaces an interval that is wider than TOO_NOISY."""
_CLEAR = 2.0
"""A wide interval of a ratio is shown if all of it is at least this factor from 1."""
FILTERS = (
    "count",
    "number",
    "time",
    "size",
    "prefetch",
    "rate",
    "percent",
    "fraction",
    "times",
    "decibel",
    "cosine",
    "short",
    "counted",
    "timed",
    "spread",
    "share",
    "one_in",
)
"""Functions of this module that templates use as filters."""
_RATES = {"bytes/s": "B/s", "operations/s": "OP/s"}


def count(value: float) -> str:
    """1,234,567."""
    return f"{value:,}"


def counted(value: int, noun: str, plural: str = "") -> str:
    """1 Run, 1,234 Runs; `plural` is that of the noun, if an s does not make it."""
    return f"{value:,} {noun if value == 1 else plural or f'{noun}s'}"


def short(value: float) -> str:
    """A large count: 12.3 M; below 10,000 in full."""
    return f"{value:,}" if value < 10_000 else _scaled(value, 1000, ("", "k", "M", "G", "T", "P"))


def number(value: float | None) -> str:
    """Three significant digits, without a unit."""
    return NONE if value is None else _three(value)


def time(ns: float | None) -> str:
    """Nanoseconds as ns, µs, ms or s."""
    return NONE if ns is None else _scaled(ns, 1000, ("ns", "µs", "ms", "s"))


def size(nbytes: float | None) -> str:
    """Bytes as B, KiB, MiB, GiB or TiB."""
    return NONE if nbytes is None else _scaled(nbytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def rate(value: float | None, unit: str = "") -> str:
    """A rate in `unit` ("bytes/s", "operations/s"; any other is shown as it is) with a decimal prefix."""
    name = _RATES.get(unit, unit)
    return (
        NONE
        if value is None
        else _scaled(value, 1000, tuple(f"{prefix}{name}" for prefix in ("", "k", "M", "G", "T", "P")))
    )


def percent(fraction: float | None) -> str:
    """1.0 is 100 %."""
    return NONE if fraction is None else f"{100 * fraction:.1f} %"


def spread(half: float) -> str:
    """Half of an interval as a share: ±0.4 %, or "over ±25 %" if too noisy."""
    return f"over ±{100 * TOO_NOISY:.0f} %" if half > TOO_NOISY else f"±{percent(half)}"


def fraction(ratio: Ratio | None) -> str:
    """A share of the ceiling with its interval, in percent."""
    if ratio is None:
        return NONE
    middle = f"{100 * ratio.median:.1f} %"
    return f"{middle}, {NOISY}" if ratio.too_noisy else f"{middle} ({100 * ratio.low:.1f} to {100 * ratio.high:.1f})"


def timed(timing: Timing | None, unit: str = " %") -> str:
    """A time with half of its interval: 158 µs ±0.4 %; or 158 µs, too noisy."""
    if timing is None:
        return NONE
    if timing.too_noisy:
        return f"{time(timing.median_ns)}, {NOISY}"
    half = 100 * half_width(timing.median_ns, timing.low_ns, timing.high_ns)
    return f"{time(timing.median_ns)} ±{f'{half:.1f}' if half < 9.95 else f'{half:.0f}'}{unit}"


def share(ratio: Ratio | None) -> str:
    """A share of the ceiling with half of its interval, in percent: 96.1 ±0.4 %."""
    if ratio is None:
        return NONE
    if ratio.too_noisy:
        return f"{100 * ratio.median:.0f} %, {NOISY}"
    return f"{100 * ratio.median:.1f} ±{50 * (ratio.high - ratio.low):.1f} %"


def one_in(share: float) -> str:
    """The inverse of a share: 341 for 0.00293."""
    return f"{1 / share:,.0f}"


def times(ratio: Ratio | None) -> str:
    """A ratio with its interval: 3.1x (3.0 to 3.2). If that is too noisy: about 29.0x (12.0 to 40.0: wide) far from
    1, else 3.1x, too noisy."""
    if ratio is None:
        return NONE
    middle = f"{_three(ratio.median)}x"
    ends = f"{_three(ratio.low)} to {_three(ratio.high)}"
    if ratio.too_noisy:
        return f"about {middle} ({ends}: wide)" if clear(ratio.low, ratio.high) else f"{middle}, {NOISY}"
    return f"{middle} ({ends})"


def faster(ratio: Ratio | None) -> str:
    """A ratio without its interval: 3.1x. If it is too noisy, "about 3.1x" or "too noisy"."""
    if ratio is None:
        return NONE
    if ratio.too_noisy:
        return f"about {ratio.median:.1f}x" if clear(ratio.low, ratio.high) else NOISY
    return f"{ratio.median:.1f}x"


def clear(low: float, high: float) -> bool:
    """Whether the interval of a ratio, however wide, is far from 1."""
    return low >= _CLEAR or 0 < high <= 1 / _CLEAR


def speed(median: float, low: float, high: float) -> str:
    """A speed with a wide interval that is far from 1: about 29.0x slower (12.0x to 40.0x: wide); else ""."""
    if low <= 0 or not clear(low, high):
        return ""
    if high < 1:
        median, low, high = 1 / median, 1 / high, 1 / low
        return f"about {_three(median)}x slower ({_three(low)}x to {_three(high)}x: wide)"
    return f"about {_three(median)}x faster ({_three(low)}x to {_three(high)}x: wide)"


def prefetch(strategy: str) -> str:
    """A prefetch distance: 8 KiB into L2 for "L2 8192"."""
    level, _, distance = strategy.partition(" ")
    if distance.isdecimal():
        return f"{size(int(distance))} into {level}"
    return "nothing, hardware alone" if strategy == "none" else strategy


def decibel(value: float | None) -> str:
    """12.3 dB."""
    return NONE if value is None else f"{value:.1f} dB"


def cosine(value: float | None) -> str:
    """A cosine with four decimals, because cosines are close to 1."""
    return NONE if value is None else f"{value:.4f}"


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    scaled, last = float(value), len(units) - 1
    # At 999.5 or more, three digits would round up to the next unit.
    index = 0
    while abs(scaled) >= step - 0.5 and index < last:
        scaled /= step
        index += 1
    return f"{_three(scaled)} {units[index]}"


def _three(value: float) -> str:
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3g}"
