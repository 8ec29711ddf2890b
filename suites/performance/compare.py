"""Did calls become slower? Benchmarks of an earlier build, of the same build again, and of this one, in one session:
`python suites/performance/compare.py [--before PYTHON] [--op OP]`.

PYTHON is an interpreter with the earlier build, pytest, pytest-benchmark and hypothesis; by default this one, and
nothing may then be slower. Each round runs a selection of test_ops.py, and of test_cuda_ops.py on a GPU, three times,
and pytest-benchmark compares the least time of each benchmark with the run before:

- the earlier build again: if its two times differ by more than half of the limit (as a ratio), the round does not count
  for this benchmark;
- this build: slower if its time is longer by more than the limit.

The limit is the square root of 2, as far from no change as from a slow-down of 2. A benchmark is settled by one round
that counts and is not slower, or by three that are slower, because load may also begin within a round. Later rounds run
only what is not settled. All runs have one core, so that no time depends on a second core being idle. `tritmark gate`
finds smaller slow-downs.

Exit status: 0 no slow-down, 1 slower, 2 the benchmarks do not run, 3 too noisy to settle all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FILES = tuple(str(HERE / name) for name in ("test_ops.py", "test_cuda_ops.py"))
AGREE = 3
"""Rounds that must be slower."""
MOST = 8
"""Rounds at most."""
LIMIT = math.sqrt(2)
NOISE = math.sqrt(LIMIT)
"""Ratio of two times of one build up to which a round counts: half of the limit, as a logarithm."""
SELECTED = (
    "(test_vector_op and none and (n65536 or M25)) or "
    "(test_product and tile64-float32 and M1- and not scalar and not sse41) or on_gpu"
)
"""Calls of less than a millisecond that consist of kernels: the least of many is what other load did not delay."""
OPTIONS = (
    "--benchmark-only",
    "--benchmark-max-time=0.05",
    "--benchmark-min-rounds=9",
    "--benchmark-columns=min,median,rounds",
    "--benchmark-sort=fullname",
    "--benchmark-name=long",
)
_SLOWER = re.compile(r"^\s+(\S+) \([^)]*\) - Field 'min' has failed PercentageRegressionCheck", re.MULTILINE)


class CannotCompareError(Exception):
    """The benchmarks do not run, or the builds have none in common."""


@dataclass(frozen=True)
class Run:
    """One run of the benchmarks."""

    least: dict[str, float]
    """Seconds by the benchmark's name."""
    slower: frozenset[str] = frozenset()
    """Benchmarks that are slower than in the run before."""


@dataclass
class Verdict:
    """What is known of all benchmarks."""

    same: set[str]
    slower: dict[str, float]
    """With the ratio in the last round."""
    open: set[str]
    """Not settled: too noisy."""


Round = Callable[[Sequence[str]], tuple[Run, Run, Run]]
"""The earlier build twice, and this one, on these benchmarks; on all that are selected if there are none."""


def settled(round: Round) -> Verdict:
    """Run rounds until every benchmark is settled."""
    found = Verdict(set(), {}, set())
    agreed = Counter[str]()
    for number in range(MOST):
        first, again, latest = round(sorted(found.open))
        names = first.least.keys() & again.least.keys() & latest.least.keys()
        if not names:
            raise CannotCompareError("the two builds have no benchmark in common")
        if number == 0:
            found.open = set(names)
        for name in found.open & names:
            if abs(math.log(again.least[name] / first.least[name])) > math.log(NOISE):
                continue
            if name not in latest.slower:
                found.same.add(name)
            else:
                agreed[name] += 1
                if agreed[name] == AGREE:
                    found.slower[name] = latest.least[name] / again.least[name]
        found.open -= found.same | found.slower.keys()
        print(f"round {number + 1}: {len(found.same)} same, {len(found.slower)} slower, {len(found.open)} open")
        if not found.open:
            break
    return found


class Session:
    """Runs that are kept in one folder."""

    def __init__(self, folder: Path, before: str, after: str, selected: str) -> None:
        self._folder, self._before, self._after, self._selected = folder, before, after, selected
        self._count = 0

    def round(self, names: Sequence[str]) -> tuple[Run, Run, Run]:
        """See Round."""
        return self._run(self._before, names), self._run(self._before, names), self._run(self._after, names, True)

    def _run(self, python: str, names: Sequence[str], compared: bool = False) -> Run:
        self._count += 1
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(names or (*FILES, "-k", self._selected))]
        command += [*OPTIONS, f"--benchmark-storage=file://{self._folder}", f"--benchmark-save=run{self._count}"]
        if compared:
            percent = round((LIMIT - 1) * 100)
            command += [f"--benchmark-compare={self._count - 1:04}", f"--benchmark-compare-fail=min:{percent}%"]
        done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
        kept = list(self._folder.rglob(f"{self._count:04}_*.json"))
        slower = _slower(done.stdout + done.stderr)
        found = json.loads(kept[0].read_text(encoding="utf-8"))["benchmarks"] if len(kept) == 1 else []
        least = {each["fullname"]: each["stats"]["min"] for each in found}
        if not least or bool(done.returncode) != bool(slower) or not slower <= least.keys():
            raise CannotCompareError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return Run(least, slower)


def _slower(printed: str) -> frozenset[str]:
    return frozenset(_SLOWER.findall(printed))


def report(found: Verdict) -> int:
    """Print the verdict, and return the exit status."""
    for name, ratio in sorted(found.slower.items(), key=lambda each: -each[1]):
        print(f"slower: {name}: {ratio:.2f}x")
    for name in sorted(found.open):
        print(f"too noisy: {name}; next: compare on a machine without other load", file=sys.stderr)
    if found.slower:
        return 1
    if found.open:
        return 3
    print(f"no benchmark of {len(found.same)} is {LIMIT:.2f}x slower")
    return 0


def main(arguments: Iterable[str] | None = None) -> int:
    """Compare, and return the exit status."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--before", default=sys.executable, metavar="PYTHON", help="interpreter with the earlier build")
    asked.add_argument("--op", help="only benchmarks of this op")
    given = asked.parse_args(None if arguments is None else list(arguments))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    selected = f"({SELECTED}) and {given.op}" if given.op else SELECTED
    kept = HERE.parents[1] / "results" / "benchmarks"
    kept.mkdir(parents=True, exist_ok=True)
    # Below the working directory: pytest-benchmark cannot name another folder when it warns.
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        session = Session(Path(folder), given.before, sys.executable, selected)
        try:
            return report(settled(session.round))
        except CannotCompareError as problem:
            print(f"the benchmarks cannot be compared: {problem}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
