"""Counts of work on a simulated device in its Runs, which are not timed."""

from __future__ import annotations

import pytest

from tritmark.harness.judge.judging import Group, Judgement, Judging, ListedWorkload, listed_run
from tritmark.harness.providers import installed
from tritmark.harness.record import DIMENSIONS, Record, Run, Status
from tritmark.harness.report.gpu import _stats
from tritmark.harness.spec import Workload
from tritmark.harness.worker import Workers

pytestmark = pytest.mark.cuda


def judged(device: str, measure: bool = False) -> tuple[Judgement, Run]:
    """A judgement of the simplest kernel, and the Run of it if it is not to be measured."""
    here = installed()
    op = here.ops["i2s_dequantize"]
    variant = next(each for each in here.registry.variants if (each.key.device, each.key.op) == (device, op.name))
    workload = Workload(op=op.name, axes={"n": 300}, family="uniform", measure=measure)
    listed = ListedWorkload(variant.key, workload, 0, 1, frozenset(DIMENSIONS) - {"memory", "cross"})
    with Workers(here, isolated=False) as workers:
        found = Judging(workers, listed).judge(variant)
        assert found.accuracy.status is Status.PASS, found.accuracy.reason
        return found, listed_run(Group(op, variant.key, workload, (variant,)), variant, listed, found)


@pytest.mark.parametrize("measure", [False, True])
def test_a_simulated_run_has_the_counts_of_its_judgement(measure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    _, run = judged("cuda", measure)
    stats = run.device_stats
    assert stats is not None
    assert (stats.device, stats.simulated) == ("cuda:0", True)
    assert stats.launches >= 1
    assert stats.bytes_uploaded >= 300
    assert Run.model_validate_json(run.model_dump_json(exclude_defaults=True)) == run, "it survives a Record"
    (row,) = _stats([run, run])
    assert (row["simulated"], row["runs"], row["launches"]) == (True, 2, 2 * stats.launches)
    assert row["most_held"] == stats.pool.most_held


def test_the_host_counts_nothing() -> None:
    found, run = judged("cpu")
    assert (found.device_stats, run.device_stats) == (None, None)


def test_an_old_record_has_no_counts(simulated_record: Record) -> None:
    assert _stats(simulated_record.runs) == []
