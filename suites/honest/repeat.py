"""Run `tritmark run` repeatedly on honest kernels, and count the verdicts that are not PASS: the rate of false
verdicts. Each run draws its own seed. During every second run, busy processes run beside it, one for each core that it
may use.

    python suites/honest/repeat.py --runs 100 --out results/runs/honest.json

A quiet run takes about a minute on two cores, a busy one about two. The results are written to --out after each run,
and --resume continues.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from scipy.stats import binomtest

from tritmark.harness.machine.cpu import affinity
from tritmark.harness.record import DIMENSIONS, Record, Status
from tritmark.harness.store import read, write_atomically

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10_000))"
"""Ends when this process ends, for any reason."""


def main() -> None:
    """Do the missing runs, and print their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="total number of runs (default 100)")
    parser.add_argument("--out", type=Path, default=Path("results/runs/honest.json"), help="JSON file for the counts")
    parser.add_argument("--resume", action="store_true", help="continue the runs in --out")
    parser.add_argument("--quiet", action="store_true", help="no busy processes beside any run")
    parser.add_argument("further", nargs="*", help="options of `tritmark run`, after --")
    given = parser.parse_args()
    if given.out.exists() and not given.resume:
        parser.error(f"{given.out} exists; --resume continues it")
    found: list[dict[str, Any]] = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    while len(found) < given.runs:
        busy = not given.quiet and len(found) % 2 == 1
        with _busy(busy):
            found.append({"busy": busy, **_run(given.further)})
        write_atomically(given.out, json.dumps(found, indent=1))
        last = found[-1]
        print(
            f"{len(found)} of {given.runs}{' (busy)' if busy else ''}: {last['seconds']:.0f} s, {last['counts']}",
            flush=True,
        )
        for each in last["wrong"]:
            print(f"  {each}", flush=True)
    _told(found)


@contextmanager
def _busy(wanted: bool) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(len(affinity()) if wanted else 0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _run(further: list[str]) -> dict[str, Any]:
    tritmark = which("tritmark", path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"])))
    if tritmark is None:
        raise SystemExit("no command tritmark beside this Python or on the PATH; next: pip install .")
    begun = monotonic()
    with TemporaryDirectory() as folder:
        ended = subprocess.run(
            [tritmark, "run", "--out", folder, *further],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        paths = list(Path(folder, "runs").glob("*.json"))
        if not paths:
            raise SystemExit(
                f"tritmark run {shlex.join(further)} ended with {ended.returncode} and no Record:\n{ended.stderr}"
            )
        record = read(paths[0])
    return {
        "seconds": monotonic() - begun,
        "status": ended.returncode,
        "id": record.id,
        "seed": record.environment.seed,
        **_counted(record),
    }


def _counted(record: Record) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    wrong = []
    for run in record.runs:
        for dimension in DIMENSIONS:
            verdict = getattr(run, dimension)
            counts[verdict.status.value] += 1
            if verdict.status in {Status.FAIL, Status.ERROR, Status.AMBIGUOUS}:
                wrong.append(f"{verdict.status.value} {dimension} {run.id}: {verdict.reason}")
    timed = [run.performance for run in record.runs if run.performance.hot is not None]
    doubtful = sum(each.status is Status.AMBIGUOUS for each in timed)
    return {"counts": dict(counts), "wrong": wrong, "measured": len(timed), "ambiguous": doubtful}


def _told(found: list[dict[str, Any]]) -> None:
    """The table, with exact 95 % intervals (Clopper and Pearson)."""
    for what, runs in (
        ("quiet", [each for each in found if not each["busy"]]),
        ("busy", [each for each in found if each["busy"]]),
    ):
        if not runs:
            continue
        failed = sum(each["counts"].get("fail", 0) + each["counts"].get("error", 0) for each in runs)
        spoilt = sum(bool(each["counts"].get("fail", 0) + each["counts"].get("error", 0)) for each in runs)
        measured, ambiguous = sum(each["measured"] for each in runs), sum(each["ambiguous"] for each in runs)
        low, high = binomtest(spoilt, len(runs)).proportion_ci(0.95)
        seconds = sorted(each["seconds"] for each in runs)
        print(
            f"{what}: {len(runs)} runs of {seconds[len(seconds) // 2]:.0f} s; {spoilt} with a FAIL or ERROR "
            f"({failed} verdicts; 95 %: {low:.1%} to {high:.1%} of runs); "
            f"{ambiguous} of {measured} measured Runs AMBIGUOUS"
        )


if __name__ == "__main__":
    main()
