"""Text about what was not judged: a sentence for the headline, and a line for each item."""

from __future__ import annotations

from tritmark.harness.record import NotJudged, NotJudgedKind, Record
from tritmark.harness.text import units

_MOST_NAMES = 3
_NOUNS = {
    NotJudgedKind.SIMULATED: ("simulated device", "{}"),
    NotJudgedKind.ACCURACY: ("kernel", "accuracy, in part, of {}"),
    NotJudgedKind.TENSORS: ("tensor", "{}"),
    NotJudgedKind.WORKLOADS: ("workload", "{}"),
    NotJudgedKind.MEMORY: ("kernel", "memory of {}"),
    NotJudgedKind.PERFORMANCE: ("kernel", "performance, in part, of {}"),
    NotJudgedKind.ORDER: ("format", "byte order of {}"),
}


def headline(record: Record) -> str:
    """Not judged: accuracy, in part, of 1 kernel; byte order of 3 formats. "" if everything was judged."""
    parts = []
    for kind, (noun, words) in _NOUNS.items():
        of_kind = [each for each in record.not_judged if each.kind is kind]
        names = dict.fromkeys(name for each in of_kind for name in each.about)
        if not of_kind:
            continue
        shares = [each.share for each in of_kind if each.share is not None]
        share = f" ({units.percent(sum(shares))} of the bytes)" if shares else ""
        parts.append(words.format(units.counted(len(names), noun)) + share)
    return f"Not judged: {'; '.join(parts)}" if parts else ""


def line(found: NotJudged) -> str:
    """byte order of tile64 and row16: why."""
    _, words = _NOUNS[found.kind]
    shown = ", ".join(found.about[:_MOST_NAMES])
    more = len(found.about) - _MOST_NAMES
    share = f" ({units.percent(found.share)} of the bytes)" if found.share is not None else ""
    return f"{words.format(shown + (f' and {more:,} more' if more > 0 else ''))}{share}: {found.told}"
