"""What is held at once while a stored matrix is timed: the memory of `run --weights` is bounded by two tensors
(`suites/large/large_weights.py --run` measures that on a whole model)."""

from __future__ import annotations

import sys
import weakref
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tritmark.harness.judge import stored
from tritmark.harness.judge.judging import Judging, ListedWorkload
from tritmark.harness.judge.request import Request
from tritmark.harness.judge.timing import GroupTiming
from tritmark.harness.providers import installed
from tritmark.harness.record import Run, Status
from tritmark.harness.spec import Axes, Workload
from tritmark.harness.validate import cases, cross
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.collect import known
from tritmark.harness.validate.compare import expectations
from tritmark.harness.weights import TernaryWeights, holders_of, open_weights
from tritmark.harness.worker import Workers

sys.path.append(str(Path(__file__).parents[1] / "helpers"))
models = import_module("made_up_models")


def timed(path: Path) -> Run:
    """The Run of one matrix and 512 tokens."""
    here, request = installed(), Request(suite=None, weights=str(path))
    with open_weights(path) as source:
        weights = TernaryWeights(source, holders_of(here))
        plan = stored.planned(here, request, weights, [here.registry.devices["cpu"]])
    group = max(stored.groups(plan), key=lambda each: each.workload.axes["M"] * each.workload.axes["N"])
    listed = ListedWorkload(group.key, group.workload, 0, 1, request.dimensions)
    (variant,) = group.variants
    with Workers(here) as workers:
        judgement = Judging(workers, listed).judge(variant)
        material = Material(group.op, group.workload, 0)
        timing = GroupTiming(workers, group, material, listed, roofs={}, peers=known(here))
        return timing.run(variant, judgement, None)


@pytest.mark.timing
@pytest.mark.parametrize("keeping", [False, True], ids=["honest", "all expected values and whole bounds are kept"])
def test_one_set_of_expected_values_and_no_whole_bound(
    keeping: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = models.write_gguf(tmp_path / "m.gguf", models.SMALL)
    alive: list[weakref.ref[Any]] = []
    most, bounds = 0, set()
    make, outside = expectations, cross._admitted

    def counted(*args: Any) -> Any:
        nonlocal most
        made = make(*args)
        alive.extend(weakref.ref(each.exact) for each in made)
        most = max(most, sum(ref() is not None for ref in alive))
        return made

    def noted(expected: Any, bound: Any) -> Any:
        bounds.add(expected.values.shape)
        return outside(expected, bound)

    # Judging beforehand has a process of its own.
    monkeypatch.setattr(Judging, "judge", _unwatched(Judging.judge, monkeypatch, counted))
    monkeypatch.setattr(cross, "_admitted", noted)
    monkeypatch.setattr(cross, "_PART", 1 << 30 if keeping else 512 * 128)
    if keeping:
        monkeypatch.setattr(cases._LazyExpected, "_made", cache(cases._LazyExpected._made))
    run = timed(path)
    assert (run.performance.status in {Status.PASS, Status.AMBIGUOUS}, run.cross.status) == (True, Status.PASS)
    assert (most > 1) == keeping
    assert bounds == {(512, 512 if keeping else 128)}


def _unwatched(judge: Any, monkeypatch: pytest.MonkeyPatch, counted: Any) -> Any:
    def judged(self: Judging, variant: Any) -> Any:
        found = judge(self, variant)
        self._cases = self._material = None
        monkeypatch.setattr(cases, "expectations", counted)
        return found

    return judged


def test_what_is_expected_is_made_anew_after_the_other_was_looked_at() -> None:
    here = installed()
    op = here.ops["i2s_quantize"]
    key = next(each.key for each in here.registry.variants if each.key.op == op.name)
    axes: Axes = {"n": 100}
    material = Material(op, Workload(op=op.name, axes=axes, family="uniform"), 0)
    whole, turns = material.cases(key), material.cases(key, by_turns=True)
    assert whole.second is not None
    assert turns.second is not None
    for _ in range(2):
        for one, other in ((whole.first, turns.first), (whole.second, turns.second)):
            assert len(one.expected) == len(other.expected)
            for this, that in zip(one.expected, other.expected, strict=True):
                assert np.array_equal(this.values, that.values)
                assert other.expected[0].name == this.name
