"""BASE and HEAD built concurrently, with progress in compiled files."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol

from tritmark.harness.gate.build import BuildProgress, Built, built, must_exist
from tritmark.harness.gate.part import WHOLE, BuildPart

_LOOK_S = 1.0
"""Seconds between updates of the progress: each one lists all files of both builds."""


class BuildObserver(Protocol):
    """Receives the progress of building."""

    def planned(self, total: int) -> None:
        """A new step begins, with `total` files to compile or other units of work."""

    def started(self, what: str) -> None:
        """The work that `what` describes begins."""

    def advanced(self, done: int) -> None:
        """`done` units of the planned total are complete."""


def both_built(
    base: str, head: str, folder: Path | None, observer: BuildObserver, part: BuildPart = WHOLE
) -> tuple[Built, Built]:
    """Build BASE and HEAD; of a revision, only `part`. Raises what `built` raises, BASE's error first, after both have
    ended, so that a successful build is kept."""
    making: list[BuildProgress] = []
    observer.started(f"finding {base} and {head}")
    for given in (base, head):
        must_exist(given, folder)  # a typing error in one is reported before minutes go into the other
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(built, given, making.append, folder, part) for given in (base, head)]
        _follow(jobs, making, observer)
    return jobs[0].result(), jobs[1].result()


def _follow(jobs: list[Future[Built]], making: list[BuildProgress], observer: BuildObserver) -> None:
    """Report progress until the jobs end."""
    known: list[BuildProgress] = []
    most: dict[Path, int] = {}
    while wait(jobs, _LOOK_S).not_done:
        if len(making) > len(known):
            known = list(making)
            observer.planned(sum(each.sources for each in known))
            observer.started(f"building {' and '.join(each.title for each in known)}")
        for each in known:
            # A build removes its folder when it ends, and may compile more files than were counted.
            most[each.source] = min(each.sources, max(most.get(each.source, 0), each.compiled()))
        if known:
            observer.advanced(sum(most.values()))
