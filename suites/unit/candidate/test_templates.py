"""Templates of `tritmark new`: in a process of its own, each is correct and uses no more memory than it declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tritmark.harness.candidate.new import templates, write
from tritmark.harness.candidate.opening import open_candidate
from tritmark.harness.providers import load
from tritmark.harness.record import Status
from tritmark.harness.validate.accuracy import judge
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.memory import confirmed_use, watched
from tritmark.harness.worker import Workers

pytestmark = pytest.mark.long

INSTALLED = load()
TEMPLATES = [(op, kind) for op in INSTALLED.ops for kind in templates(INSTALLED, op) if kind != "cu"]
MEASURED = {
    each.workload.op: each.workload for each in reversed(INSTALLED.suite("quick").selected) if each.workload.measure
}
"""The first workload of each op that `tritmark check` measures."""
LONGEST = 1 << 19
"""Number of values: their bytes are well above the error of a memory reading, and more would take seconds in Python."""


@pytest.mark.parametrize(("op", "kind"), TEMPLATES)
def test_a_template_leaves_nothing_and_takes_what_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, kind: str
) -> None:
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    candidate = open_candidate(write(INSTALLED, op, kind, tmp_path)[0])
    workload = MEASURED[op]
    workload = replace(workload, axes={name: min(size, LONGEST) for name, size in workload.axes.items()})
    (variant,) = candidate.variants(INSTALLED)
    with Workers(load((candidate,)), (candidate,), timeout_s=60.0) as workers:
        worker = workers.of(variant)
        cases = Material(INSTALLED.ops[op], workload, 0).cases(variant.key)
        judged = judge(
            INSTALLED.ops[op],
            worker.variant,
            cases,
            workload.axes,
            layout="aligned",
            threads=1,
            seed=0,
            device=worker.device,
        )
        assert judged.accuracy.status is Status.PASS, judged.accuracy.reason
        found = confirmed_use(
            lambda again: watched(workers, variant, again), cases.first.inputs, workload.axes, threads=1
        )
    assert found.status is Status.PASS, found.reason
