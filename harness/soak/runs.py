"""Runs of tritmark with a planted fault each: every kind in each block of runs, in a random order."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import monotonic

from tritmark.harness.machine.cpu import affinity
from tritmark.harness.providers import Installed
from tritmark.harness.soak.ground import Ground
from tritmark.harness.soak.kinds import FaultTrial, Kind, Soaked
from tritmark.harness.soak.trials import TrialFolder, absent, trial

_MOST = 8
"""The most runs at a time."""


def soak_runs(
    installed: Installed,
    runs: int,
    *,
    seed: int,
    legal: frozenset[int],
    report: Callable[[Soaked], None] = lambda state: None,
) -> Soaked:
    """Make `runs` runs. `legal`: the exit statuses of a command that ended well or with a message. `report` is called
    after every run. Raises UsageError if nothing can run here, and BadEnvironmentError if a run fails without a
    fault."""
    began = monotonic()
    found = Soaked()
    with tempfile.TemporaryDirectory(prefix="tritmark-soak-") as name:
        ground = Ground(installed, Path(name), seed)
        ground.fill()
        found.absent = dict(absent(ground))
        with ThreadPoolExecutor(min(_MOST, len(affinity()))) as pool:
            todo = [
                pool.submit(_one, ground, kind, seed, number, legal)
                for number, kind in enumerate(drawn(runs, seed, frozenset(found.absent)))
            ]
            try:
                for each in as_completed(todo):
                    found.trials.append(each.result())
                    found.seconds = monotonic() - began
                    report(found)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return found


def drawn(runs: int, seed: int, without: frozenset[Kind]) -> list[Kind]:
    """The kind of each run."""
    rng = random.Random(f"{seed}/kinds")
    kinds = [kind for kind in Kind if kind not in without]
    order: list[Kind] = []
    while len(order) < runs:
        order += rng.sample(kinds, len(kinds))
    return order[:runs]


def _one(ground: Ground, kind: Kind, seed: int, number: int, legal: frozenset[int]) -> FaultTrial:
    folder = ground.folder / str(number)
    folder.mkdir()
    found = trial(kind, TrialFolder(ground, folder, random.Random(f"{seed}/{number}"), legal))
    shutil.rmtree(folder, ignore_errors=True)
    return found
