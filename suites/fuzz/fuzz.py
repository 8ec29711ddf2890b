"""Fuzz everything that reads foreign bytes, for a given time: `python suites/fuzz/fuzz.py --minutes 30 [--target
GLOB]`.

Targets: weight-file readers, Records, suites, formats, ops (Python; atheris if installed, else hypothesis), and the C
code of every op under AddressSanitizer and UBSan (libFuzzer; needs clang). They run in rotation for equal times. Inputs
with new coverage are kept for the next run, and crashing inputs in `FOLDER/crashes/TARGET`. Exits with status 1 if a
target crashed or could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import native
import targets

TURN_S = 60.0
"""Longest time of a target before the next one."""
LEAST_S = 5.0
START_S = 90.0
"""Seconds that a target may take to start and to end, in addition to its time."""

_EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")
_COVERED = re.compile(r"cov: (\d+) ft: (\d+)")


@dataclass
class Tally:
    """The result of one target."""

    name: str
    engine: str = ""
    executions: int = 0
    seconds: float = 0.0
    first: int | None = None
    covered: int = 0
    features: int = 0
    crashes: set[str] = field(default_factory=set)
    problem: str = ""

    def line(self) -> str:
        """One line of the table."""
        new = self.covered - (self.first or 0)
        coverage = f"{self.covered} edges (+{new}), {self.features} features" if self.covered else "-"
        state = f"NOT RUN: {self.problem}" if self.problem else f"{len(self.crashes)} crashes"
        return (
            f"{self.name:28} {self.engine:10} {self.executions:>11,} executions {self.seconds:7.0f} s  "
            f"{coverage:38} {state}"
        )


class Fuzzing:
    """Targets, their corpora and their findings, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def turn(self, tally: Tally, seconds: float) -> None:
        """Let one target run."""
        corpus, crashes = (self.folder / kind / tally.name for kind in ("corpus", "crashes"))
        for each in (corpus, crashes, self.folder / "programs"):
            each.mkdir(parents=True, exist_ok=True)
        before = set(os.listdir(crashes))
        environment = dict(os.environ)
        if tally.name.startswith("native."):
            try:
                program = native.build(tally.name, self.folder / "programs")
            except native.NotBuiltError as error:
                tally.problem = str(error)
                return
            options = [
                f"-max_total_time={seconds:.0f}",
                "-max_len=128",
                "-timeout=20",
                "-print_final_stats=1",
                f"-artifact_prefix={crashes}/",
            ]
            command = [str(program), *options, str(corpus)]
            environment |= native.VARIABLES
        else:
            engine = Path(__file__).with_name("python_engine.py")
            command = [sys.executable, str(engine), tally.name, str(seconds), str(corpus), str(crashes)]
        start = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds + START_S,
                check=False,
            )
            output, status = done.stdout.decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired as error:
            output, status = (
                (error.stdout or b"").decode(errors="replace") + f"\nstill running after {error.timeout:.0f} s\n",
                1,
            )
        tally.seconds += time.monotonic() - start
        self._read(tally, output)
        found = {name for name in set(os.listdir(crashes)) - before if not name.endswith(".txt")}
        if status and not found:
            found = {f"status-{status}-{time.time_ns()}"}
        if found:
            name = sorted(found)[0]
            (crashes / f"{name}.log").write_text(output, encoding="utf-8")
            print(f"{tally.name}: {crashes / name}\n{output[-3000:]}", flush=True)
        tally.crashes |= found

    def _read(self, tally: Tally, output: str) -> None:
        executed, covered = _EXECUTED.findall(output), _COVERED.findall(output)
        if executed:
            tally.engine = "libFuzzer" if tally.name.startswith("native.") else "atheris"
            tally.executions += int(executed[-1])
        elif last := re.findall(r'^\{"engine".*\}$', output, re.MULTILINE):
            told = json.loads(last[-1])
            tally.engine = told["engine"]
            tally.executions += told["executions"]
        if covered:
            tally.first = int(covered[0][0]) if tally.first is None else tally.first
            tally.covered, tally.features = (
                max(tally.covered, int(covered[-1][0])),
                max(tally.features, int(covered[-1][1])),
            )


def main() -> int:
    """Fuzz, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--minutes", type=float, required=True, help="total time")
    parser.add_argument("--target", default="*", metavar="GLOB", help="only these; see --list")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="targets at a time (default: one per core)"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("build/fuzz"), help="folder for corpora and crashing inputs"
    )
    parser.add_argument("--list", action="store_true", help="print the targets and end")
    told = parser.parse_args()
    names = native.targets(told.target) + [target.name for target in targets.targets(told.target)]
    if told.list or not names:
        print("\n".join(names) or f"no target matches {told.target!r}")
        return 0 if names else 2
    tallies = [Tally(name) for name in names]
    fuzzing = Fuzzing(told.folder)
    end = time.monotonic() + told.minutes * 60
    rounds = max(1, round(told.minutes * 60 * told.jobs / len(names) / TURN_S))

    def turn(tally: Tally, left: int) -> None:
        # The remaining time is divided again before each target, so that slow starts take nothing from the others.
        seconds = (end - time.monotonic()) * told.jobs / max(1, left)
        if not tally.crashes and not tally.problem and (seconds > 1 or not tally.seconds):
            fuzzing.turn(tally, max(seconds, LEAST_S))
            print(tally.line(), flush=True)

    with ThreadPoolExecutor(told.jobs) as pool:
        queue = tallies * rounds
        for done in [pool.submit(turn, tally, len(queue) - index) for index, tally in enumerate(queue)]:
            done.result()
    for tally in tallies:
        print(tally.line())
    found, lacking = sum(len(tally.crashes) for tally in tallies), sum(bool(tally.problem) for tally in tallies)
    total = sum(tally.executions for tally in tallies)
    print(f"{total:,} executions of {len(tallies)} targets; {found} crashes; {lacking} targets not run")
    return 1 if found or lacking else 0


if __name__ == "__main__":
    sys.exit(main())
