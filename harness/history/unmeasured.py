"""Commits that a history lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def unmeasured(commits: Mapping[str, int], measured: Iterable[str], every: int) -> list[str]:
    """Every `every`-th commit after the newest measured one, the oldest first; the last commit if none was measured.

    `commits`: position of each commit in the branch, the oldest 0. Measured commits of other branches do not count.
    """
    ordered = sorted(commits, key=commits.__getitem__)
    known = [commits[commit] for commit in measured if commit in commits]
    return ordered[max(known) + every :: every] if known else ordered[-1:]
