"""BASE and HEAD built at once, with progress by what is compiled."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol

from tritmark.harness.gate.build import BuildProgress, Built, built, must_exist
from tritmark.harness.gate.part import WHOLE, BuildPart

_LOOK_S = 1.0
"""How often is looked how far they are: a look goes through all files of both."""


class BuildObserver(Protocol):
    """Who wants to know how building goes on."""

    def planned(self, total: int) -> None:
        """So many files will be compiled, or so many pieces of other work done; what was counted before is over."""

    def started(self, what: str) -> None:
        """This is being done."""

    def advanced(self, done: int) -> None:
        """So many of what was planned are done."""


def both_built(
    base: str, head: str, folder: Path | None, observer: BuildObserver, part: BuildPart = WHOLE
) -> tuple[Built, Built]:
    """Both builds, of revisions `part`. Raises what `built` raises, of BASE first, once both have ended: what was built
    is kept."""
    making: list[BuildProgress] = []
    observer.started(f"finding {base} and {head}")
    for given in (base, head):
        must_exist(given, folder)  # a slip in one is reported before minutes go into the other
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(built, given, making.append, folder, part) for given in (base, head)]
        _follow(jobs, making, observer)
    return jobs[0].result(), jobs[1].result()


def _follow(jobs: list[Future[Built]], making: list[BuildProgress], observer: BuildObserver) -> None:
    """Report how far they are until they end."""
    known: list[BuildProgress] = []
    most: dict[Path, int] = {}
    while wait(jobs, _LOOK_S).not_done:
        if len(making) > len(known):
            known = list(making)
            observer.planned(sum(each.sources for each in known))
            observer.started(f"building {' and '.join(each.title for each in known)}")
        for each in known:
            # Its folder is removed at the end, and a build may compile more than its sources.
            most[each.source] = min(each.sources, max(most.get(each.source, 0), each.compiled()))
        if known:
            observer.advanced(sum(most.values()))
