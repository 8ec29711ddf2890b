"""Quality of the choices that `tritmark tune variants` keeps, and their cost in a call.

    python suites/performance/selection.py [--device cpu] [--cases 0:200] [--minutes 15] [--out cases.jsonl]

Each case is a drawn question (op, format or any format, shape, threads, latency or throughput). It is tuned as the
command does it. Then, with other data and a number of rows drawn from the class, the variant of select_best is timed,
interleaved with the built-in choice and with every other candidate whose hot calls take at most twice its time (four
times for latency, since non-temporal stores are slow in the caches and pay in memory). A case prints the time of the
choice over the fastest, and the same for the built-in choice. The end prints in how many cases each is within 3 %, also
by op and format. `--cases A:B` runs a part, no case begins after `--minutes`, and `--out` appends to a file, whose
cases are then counted together. `--device cuda` or `cuda:1` draws cases for a GPU: other ops, up to 512 rows, arrays on
the GPU, and the GPU's clock. `--contested` draws only cases with several candidates.

Protection against noise: other load affects both halves of a pair of samples, and the median of the pairs' ratios
counts. A choice is within 3 % only if every such median is. A candidate with an interval that reaches beyond 3 % is
timed again, longer and with other arrays, and only the second time counts, because the fastest of many is partly luck.
The end also prints in how many cases the choice is within 3 % by the whole of every 95 % interval, and in how many by
some part of each.

At the end: the cost of an existing choice in us. For a call with a plan: the check that the basis of the choice is
unchanged. For the long path: `dispatch.select`, with choices kept and with TRITMARK_TUNED=off. Figures are minima over
rounds, since other load can only add time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np

from tritmark.harness import tuned
from tritmark.harness.autotune.tune import untimed
from tritmark.harness.league.turns import by_turns_task
from tritmark.harness.machine.cpu import bind_threads
from tritmark.harness.numbered import kind_of
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Ratio
from tritmark.harness.registry import ROWS, Question, fewest, shape_class
from tritmark.harness.selection.measure import SLOWER, measure
from tritmark.harness.selection.tasks import trial_task
from tritmark.harness.spec import Axes, KernelKey, Requirement, Variant, Workload
from tritmark.harness.validate.cases import Material
from tritmark.harness.worker import Workers
from tritmark.harness.worker.site import Site
from tritmark.kernels.activation_quantize.plans import quantize_plans
from tritmark.kernels.dispatch import dispatch

WITHIN = 1.03
SIZES = (256, 512, 640, 1024, 1536, 2560, 4096, 6912)
"""N and K are multiples of it: legal for every format."""
CPU_OPS = ("ternary_matmul",) * 6 + ("activation_quantize", "i2s_quantize", "i2s_dequantize", "absmean_quantize")
DEVICE_OPS = (
    *("ternary_matmul",) * 6,
    *("ternary_matmul_bf16", "ternary_matmul_fp16", "ternary_linear_fp32", "ternary_linear_bf16"),
    *("activation_quantize", "i2s_quantize", "i2s_dequantize", "absmean_quantize", "float_narrow", "float_widen"),
)
MOST_ROWS = 32
MOST_ROWS_ON_DEVICE = 512
COLD_SHARE = 0.3
"""Of the cases: arrays that fill the last cache several times over take seconds to make."""
SLOWER_COLD = 2 * SLOWER
"""As SLOWER, for arrays in memory: a kernel with non-temporal stores takes up to three times as long in the caches
(i2s_dequantize, 5 MB, two threads on a Zen 4), and may still be the fastest."""
RACE_S = 0.25
AGAIN_S = 1.0
OVER = ("over_fastest", "builtin_over_fastest")
"""Fields of a row: the time of the choice, and of the built-in choice, over the fastest."""


@dataclass(frozen=True, slots=True)
class DrawnCase:
    """A question, and the shape at which its answer is checked."""

    keys: tuple[KernelKey, ...]
    axes: Axes
    requirement: Requirement
    threads: int


def drawn(installed: Installed, index: int, device: str, *, contested: bool) -> DrawnCase:
    """The case of that number on a device; with `contested`, of several draws the first with several candidates."""
    for again in range(100 if contested else 1):
        case = _drawn(installed, device, [16, index] if not again else [16, index, again])
        question = installed.registry.question(case.keys, case.axes, case.requirement, case.threads)
        if len(question.candidates) > 1:
            break
    return case


def _drawn(installed: Installed, device: str, seed: list[int]) -> DrawnCase:
    rng = np.random.default_rng(seed)
    on_device = installed.registry.devices[device].memory is not None
    cores = installed.registry.devices[device].cores()
    threads = int(rng.integers(1, cores + 1))
    requirement = Requirement.LATENCY if rng.random() < COLD_SHARE else Requirement.THROUGHPUT
    op = installed.ops[str(rng.choice(list(DEVICE_OPS if on_device else CPU_OPS)))]
    keys = [key for key in installed.keys(op.name) if key.device == device]
    if op.stored is not None:
        keys = [key for key in keys if key.dtype == op.stored.dtype]
    axes = {axis: int(rng.choice(SIZES)) for axis in op.axes}
    if "n" in axes:
        axes["n"] *= int(rng.integers(1, 512))
    if ROWS in axes:
        axes[ROWS] = int(2 ** rng.uniform(0, np.log2(MOST_ROWS_ON_DEVICE if on_device else MOST_ROWS)))
    fitting = [key for key in keys if installed.registry.has_kernel_for(device, op.name, key.format, key.dtype, axes)]
    if op.interchangeable is not None and rng.random() < 0.25:
        axes[ROWS] = 1
        return DrawnCase(
            tuple(key for key in fitting if op.interchangeable(axes, key.format)), axes, requirement, threads
        )
    most, least = shape_class(axes), fewest(axes)
    key = fitting[int(rng.integers(len(fitting)))]
    for axis in op.axes:
        axes[axis] = int(rng.integers(least[axis], most[axis] + 1))
    return DrawnCase((key,), axes, requirement, threads)


class Bench:
    """Times variants on one shape's data."""

    def __init__(self, installed: Installed, case: DrawnCase, seed: int) -> None:
        op = installed.ops[case.keys[0].op]
        self._installed, self._case, self._seed = installed, case, seed
        self._material = Material(op, Workload(op=op.name, axes=case.axes, family=op.input_families[0]), seed)
        self._material.forget_second()

    def inputs(self, variant: Variant) -> dict[str, Any]:
        return dict(self._material.encoded(variant.key.format)[0])

    def alone(self, variant: Variant) -> float:
        """Approximate time of a hot call."""
        site = Site(self._installed, variant)
        return trial_task(site, self.inputs(variant), self._case.axes, self._case.threads, True).call_ns

    def over(self, variant: Variant, other: Variant, seconds: float) -> Ratio:
        """The interleaved ratio of two times."""
        site, cold = Site(self._installed, variant), self._case.requirement is Requirement.LATENCY
        own, theirs, axes = self.inputs(variant), self.inputs(other), dict(self._case.axes)
        for each in (True, False) if cold else (False,):
            ratio = by_turns_task(site, other.id, own, theirs, axes, self._case.threads, self._seed, each, seconds)
            if ratio is not None:
                return ratio
        raise AssertionError("a hot call is always timed")


def behind(bench: Bench, question: Question, chosen: Variant) -> dict[str, Ratio]:
    """The time of the built-in choice, and of each candidate that is not clearly slower, over the chosen one."""
    alone = {each.id: bench.alone(each) for each in question.candidates}
    most = (SLOWER_COLD if question.requirement is Requirement.LATENCY else SLOWER) * alone[chosen.id]
    found = {}
    for each in question.candidates:
        if each.id != chosen.id and (each is question.builtin or alone[each.id] <= most):
            found[each.id] = bench.over(each, chosen, RACE_S)
            if found[each.id].low < 1 / WITHIN:
                found[each.id] = bench.over(each, chosen, AGAIN_S)
    return found


def looked_at(installed: Installed, index: int, device: str, *, contested: bool) -> dict[str, Any]:
    """Tune, keep the choice, and check the selected variant."""
    case, registry = drawn(installed, index, device, contested=contested), installed.registry
    question = registry.question(case.keys, case.axes, case.requirement, case.threads)
    for each in question.candidates:
        question.device.code_hash(each.id)  # compiles, which the time limit of a choice need not cover
    begin = perf_counter()
    with Workers(installed, isolated=False) as workers:
        found = measure(workers, question, seconds=60, seed=index)
    took = perf_counter() - begin
    chosen = registry.measured(case.keys, case.axes, case.requirement, case.threads) or question.builtin
    ratios = behind(Bench(installed, case, 1000 + index), question, chosen)
    fastest = min([1.0, *(each.median for each in ratios.values())])
    builtin = 1.0 if chosen.id == question.builtin.id else ratios[question.builtin.id].median
    return {
        "case": index,
        "place": question.place,
        "axes": dict(case.axes),
        "threads": case.threads,
        "candidates": len(question.candidates),
        "timed": len(ratios) + 1,
        "chosen": chosen.id.partition("/")[2],
        "builtin": chosen.id == question.builtin.id,
        "over_fastest": 1 / fastest,
        "at_least": 1 / min([1.0, *(each.high for each in ratios.values())]),
        "at_most": 1 / min([1.0, *(each.low for each in ratios.values())]),
        "builtin_over_fastest": builtin / fastest,
        "note": found.note,
        "seconds": took,
    }


def cost(device: str) -> dict[str, float]:
    """us for an existing choice."""
    format = "tile64" if device == "cpu" else "row16"
    key = KernelKey(device, "ternary_matmul", format, "float32")
    axes, found = {"M": 1, "N": 256, "K": 256}, {}
    asked = dispatch.registry().question((key,), axes, Requirement.LATENCY, None)
    with Workers(load(), isolated=False) as workers:
        measure(workers, asked, seconds=60, seed=0)
    known, plans = dispatch.registry(), quantize_plans()
    if device == "cpu":
        found["plan"] = _least(lambda: plans.current(known))
    for told in ("on", "off"):
        os.environ[tuned.SELECT] = told
        found[told] = _least(lambda: dispatch.select(key, axes, None))
    del os.environ[tuned.SELECT]
    return found


def _least(call: Callable[[], object]) -> float:
    """us of a call."""
    call()
    rounds = []
    for _ in range(200):
        begin = perf_counter()
        for _ in range(100):
            call()
        rounds.append((perf_counter() - begin) / 100 * 1e6)
    return min(rounds)


def summary(rows: list[dict[str, Any]]) -> None:
    """Print in how many cases the choice and the built-in one are within 3 % of the fastest, and the other cases."""

    def near(some: list[dict[str, Any]], what: str) -> str:
        count = sum(row[what] <= WITHIN for row in some)
        return f"{count} of {len(some)} ({count / max(1, len(some)):.1%})"

    places: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        places.setdefault(row["place"].partition("/")[2], []).append(row)
    print(f"\n{'within 3 %, and the most over the fastest:':44}cases  chosen        built in")
    for place, some in sorted(places.items()):
        told = (f"{sum(row[what] <= WITHIN for row in some):4} {max(row[what] for row in some):6.3f}" for what in OVER)
        print(f"{place:44}{len(some):5}  {'   '.join(told)}")
    chosen, builtin = (near(rows, each) for each in OVER)
    print(f"\nthe choice is within 3 % of the fastest in {chosen}, the built-in choice in {builtin}")
    print(f"the choice, by the whole of each interval {near(rows, 'at_most')}, by some {near(rows, 'at_least')}")
    contested = [row for row in rows if row["timed"] > 1]
    print(
        f"where another one is not clearly slower: {near(contested, OVER[0])}, "
        f"the built-in choice {near(contested, OVER[1])}"
    )


def part(told: str) -> range:
    """The cases of A:B."""
    first, end = map(int, told.split(":"))
    return range(first, end)


def kept(where: Path | None, device: str) -> list[dict[str, Any]]:
    """The cases in a file. Exits if the file has cases of another version or device, which cannot be counted
    together."""
    if where is None or not where.exists():
        return []
    rows = [json.loads(line) for line in where.read_text(encoding="utf-8").splitlines()]
    if any("at_most" not in row for row in rows):
        raise SystemExit(f"{where}: has cases of an older version; next: name another file")
    if any(row["place"].partition("/")[0] != kind_of(device) for row in rows):
        raise SystemExit(f"{where}: has cases of another device than {device}; next: name another file")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--device", default="cpu", metavar="NAME")
    parser.add_argument("--contested", action="store_true")
    parser.add_argument("--cases", type=part, default="0:200", metavar="A:B")
    parser.add_argument("--minutes", type=float, default=inf)
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    bind_threads()
    begin, rows, device = perf_counter(), kept(told.out, told.device), told.device
    done = {row["case"] for row in rows}
    # Only the choices are apart: the cache of compiled kernels is used.
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(tuned, "path") as place:
        place.return_value = Path(folder, "choices")
        os.environ.pop(tuned.SELECT, None)
        installed = load()
        there = installed.registry.device(device, f"cases on {device!r}")
        why = there.missing() or untimed(there)
        if why:
            raise SystemExit(f"{device}: {why}")
        for index in told.cases:
            if index in done:
                continue
            if perf_counter() - begin >= 60 * told.minutes:
                print(f"stopped before case {index}: time limit reached")
                break
            row = looked_at(installed, index, device, contested=told.contested)
            rows.append(row)
            print(json.dumps(row), flush=True)
            if told.out is not None:
                with told.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        spent = cost(device)
    print(f"{len(rows)} cases in {(perf_counter() - begin) / 60:.1f} minutes")
    summary(rows)
    if "plan" in spent:
        print(f"an existing choice: {spent['plan']:.2f} us in a call with a plan")
    print(f"the long path: {spent['on']:.2f} us, with {tuned.SELECT}=off {spent['off']:.2f} us")


if __name__ == "__main__":
    main()
