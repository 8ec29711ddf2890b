"""How often the gate calls an unchanged kernel slower, and how soon it finds a slowed one; see README.md in this
folder."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from math import expm1
from pathlib import Path
from typing import Any

import numpy as np
import others
from loads import EVERY, LOADS, LONG
from shown import show

from tritmark.harness.gate.measuring import longer
from tritmark.harness.gate.result import Outcome
from tritmark.harness.gate.run import CONFIRMATIONS
from tritmark.harness.gate.verdict import GateLimits, decide
from tritmark.harness.store import write_atomically

EXTRAS = (0.0, 0.02, 0.05)
"""Slow-downs, of which 0 is A/A."""
_BINDINGS = 5
"""A true slow-down is the median over this many bindings, each interleaved for half of the gate's limit."""
_OUT = Path("results/runs/power.json")
_SAVED_EVERY = 12
_CONFIRMED = 10
"""One of this many alarms for a slowed kernel is repeated in fresh processes; for an unchanged kernel every alarm
is."""


def main() -> None:
    """Run the missing trials, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=_OUT, help=f"JSON file for the raw results (default {_OUT})")
    parser.add_argument(
        "--trials", type=int, default=300, help="trials of each slow-down, over the four workloads (default 300)"
    )
    parser.add_argument("--seconds", type=float, default=GateLimits().seconds, help="the gate's limit for a benchmark")
    parser.add_argument(
        "--block", type=float, default=0.4, help="seconds of pytest-benchmark for each side (default 0.4)"
    )
    parser.add_argument(
        "--long", action="store_true", help="calls of a millisecond or more, for which the gate takes more time"
    )
    parser.add_argument("--resume", action="store_true", help="continue the trials in --out")
    parser.add_argument("--launch", nargs=2, metavar=("WORKLOAD", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.launch:
        print(_launch(given.launch[0], int(given.launch[1]), GateLimits(given.seconds)))
        return
    if given.out.exists() and not given.resume:
        parser.error(f"{given.out} exists; --resume continues it")
    found = json.loads(given.out.read_text()) if given.resume and given.out.exists() else _begun(given)
    for name, value in (("seconds", given.seconds), ("block", given.block)):
        if found[name] != value:
            parser.error(f"{given.out} was begun with --{name} {found[name]:g}; continue it with the same value")
    for done, (name, extra) in enumerate(_missing(found, given.trials), 1):
        _trial(found, name, extra)
        print(f"\r{len(found['trials'])} of {len(EXTRAS) * given.trials} trials ", end="", file=sys.stderr, flush=True)
        if done % _SAVED_EVERY == 0:
            _save(found, given.out)
    print(file=sys.stderr)
    _save(found, given.out)
    show(found)


def _begun(given: argparse.Namespace) -> dict[str, Any]:
    """Results without trials: sizes for each slow-down, and their true slow-downs, from long interleaved
    measurements."""
    rng = np.random.default_rng()
    found: dict[str, Any] = {"seconds": given.seconds, "block": given.block, "loads": {}, "trials": [], "noise": {}}
    for name, load in (LONG if given.long else LOADS).items():
        print(f"\r{name}: how much slower does extra work make it?   ", end="", file=sys.stderr, flush=True)
        sizes, true = [], []
        for extra in EXTRAS:
            size = round(load.base * (1 + extra))
            if extra:  # the overhead of a call makes it smaller, and caches may make it larger
                first, _ = _true(name, size, given.seconds, rng)
                size = max(load.base + 1, round(load.base * (1 + extra * extra / max(first, extra / 2))))
            slower, call_ns = _true(name, size, given.seconds, rng)
            sizes.append(size)
            true.append(slower)
        found["loads"][name] = {
            "title": load.title,
            "call_ns": call_ns,
            "base": load.base,
            "sizes": sizes,
            "true": true,
        }
        found["noise"][name] = {"aa": []}
    return found


def _true(name: str, size: int, seconds: float, rng: np.random.Generator) -> tuple[float, float]:
    """The slow-down of `size`, the median over fresh bindings, and nanoseconds of a call of the unchanged kernel."""
    medians, calls = [], []
    for _ in range(_BINDINGS):
        pair = EVERY[name].pair(size, rng)
        pair.take_for(longer(GateLimits(seconds), pair.call_ns).seconds / 2)
        medians.append(float(np.median(pair.logs())))
        calls.append(pair.call_ns)
    return expm1(float(np.median(medians))), min(calls)


def _missing(found: dict[str, Any], trials: int) -> Iterator[tuple[str, float]]:
    """The missing trials, interleaved, so that all cells see the same states of the machine."""
    loads = found["loads"]
    share = {name: trials // len(loads) + (at < trials % len(loads)) for at, name in enumerate(loads)}
    done = [(each["load"], each["extra"]) for each in found["trials"]]
    counts = {cell: done.count(cell) for cell in product(loads, EXTRAS)}
    for turn in range(max(share.values())):
        yield from (cell for cell in counts if counts[cell] <= turn < share[cell[0]])


def _trial(found: dict[str, Any], name: str, extra: float) -> None:
    """One pair of fresh bindings: the gate, then directly the other tools, on the same bindings and samples."""
    size = found["loads"][name]["sizes"][EXTRAS.index(extra)]
    pair = EVERY[name].pair(size, np.random.default_rng())
    decision = decide(pair.take, longer(GateLimits(found["seconds"]), pair.call_ns))
    # every tool gets at least as many samples as pytest-benchmark has of one side
    pair.take_for(found["block"] - decision.seconds)
    said = others.interleaved(pair) | others.blocks(pair, found["block"])
    trial = {
        "load": name,
        "extra": extra,
        "verdict": decision.verdict.value,
        "median": decision.ratio.median - 1,
        "low": decision.ratio.low - 1,
        "high": decision.ratio.high - 1,
        "smallest": decision.smallest,
        "seconds": decision.seconds,
        "pairs": decision.pairs,
        "others": said,
    }
    nth = sum(each["load"] == name and each["extra"] == extra for each in found["trials"])
    if decision.verdict is Outcome.SLOWER and (extra == 0 or nth % _CONFIRMED == _CONFIRMED - 1):
        trial["confirmed"] = [_fresh(name, size, found["seconds"]) for _ in range(CONFIRMATIONS)]
    found["trials"].append(trial)
    if extra == 0:
        found["noise"][name]["aa"].append([round(value, 6) for value in pair.logs()])


def _launch(name: str, size: int, limits: GateLimits) -> str:
    pair = EVERY[name].pair(size, np.random.default_rng())
    return decide(pair.take, longer(limits, pair.call_ns)).verdict.value


def _fresh(name: str, size: int, seconds: float) -> str:
    """The result of a fresh process for the same pair."""
    command = [sys.executable, __file__, "--seconds", str(seconds), "--launch", name, str(size)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _save(found: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
