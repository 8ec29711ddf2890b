"""The whole gate on kernels in Python: builds that differ in their kernels, in their outputs, and in how they end."""

from __future__ import annotations

from pathlib import Path

import gate_sites
import pytest
from gate_requests import TASK, Silent

from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.bound_kernel import ballast
from tritmark.harness.gate.build_host import LocalBuildHost
from tritmark.harness.gate.measuring import benchmark
from tritmark.harness.gate.measuring import gate as measure
from tritmark.harness.gate.result import Benchmark, GateResult, Outcome
from tritmark.harness.gate.run import SEVERAL, GateRequest, confirmed, run
from tritmark.harness.gate.verdict import GateLimits
from tritmark.harness.record import Status

pytestmark = pytest.mark.long


def gate(tmp_path: Path, base: str, head: str, *, apart: bool = False, threads: int = 1) -> GateResult:
    sites = [gate_sites.site(tmp_path / name, text) for name, text in (("base", base), ("head", head))]
    wanted = BenchmarkFilter(suite=gate_sites.suite(tmp_path), threads=threads)
    request = GateRequest(
        base=str(sites[0]), head=str(sites[1]), wanted=wanted, limits=GateLimits(seconds=0.5), apart=apart
    )
    return run(request, Silent())


def outcomes(result: GateResult) -> dict[str, Outcome]:
    return {each.variant: each.outcome for each in result.benchmarks}


def test_what_differs_dies_fails_comes_and_goes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.gate.run.CONFIRMATIONS", 1)
    idle, slow = "lambda y: None", "lambda y: spin(100_000)"
    base = gate_sites.source(
        slow=slow, wrong=idle, dies=idle, fails=idle, base_dies="die", base_fails="fail", gone=idle
    )
    head = gate_sites.source(
        slow="die_later", wrong="wrong", dies="die", fails="fail", base_dies=idle, base_fails=idle, new=idle
    )
    result = gate(tmp_path, base, head)
    assert outcomes(result) == {
        "slow": Outcome.AMBIGUOUS,
        "wrong": Outcome.DIFFERS,
        "dies": Outcome.ERROR,
        "fails": Outcome.ERROR,
        "base_dies": Outcome.NOT_RUN,
        "base_fails": Outcome.NOT_RUN,
        "new": Outcome.ADDED,
        "gone": Outcome.REMOVED,
    }
    by_name = {each.variant: each for each in result.benchmarks}
    # The process that repeats the alarm was killed.
    assert [each.outcome for each in by_name["slow"].confirmed] == [None]
    assert "SIGKILL" in by_name["slow"].confirmed[0].reason
    assert by_name["wrong"].first is not None
    assert by_name["wrong"].first.index == (3,)
    assert "SIGSEGV while running HEAD" in by_name["dies"].reason
    assert "no <such> luck" in by_name["fails"].reason
    assert "SIGSEGV while running BASE" in by_name["base_dies"].reason
    assert result.status is Status.FAIL
    assert GateResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.nightly
def test_builds_apart_take_turns(tmp_path: Path) -> None:
    base, head = (gate_sites.source("ROUNDED", one=f"lambda y: ({work}, spin(200_000))") for work in ("None", "off(y)"))
    result = gate(tmp_path, base, head, apart=True)
    (found,) = result.benchmarks
    assert found.outcome in {Outcome.SAME, Outcome.AMBIGUOUS, Outcome.FASTER, Outcome.SLOWER}
    assert found.ratio is not None
    assert found.ratio.pairs == len(found.logs) > 10
    assert (result.together, result.why) == (False, "--apart was given")


@pytest.mark.nightly
def test_builds_of_several_threads_are_apart(tmp_path: Path) -> None:
    text = gate_sites.source(one="lambda y: None")
    results = []
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        results.append(gate(folder, text, f"{text}# differs\n", threads=threads))
    assert [(result.together, result.why) for result in results] == [(True, ""), (False, SEVERAL)]


def judged(tmp_path: Path, base: str, head: str) -> Benchmark:
    """One benchmark, both builds in this process."""
    ours, theirs = houses = [
        LocalBuildHost(gate_sites.site(tmp_path / name, text)) for name, text in (("base", base), ("head", head))
    ]
    task = TASK.model_copy(update={"axes": {"n": 100}})
    assert [host.refusals([task]) for host in houses] == [[None], [None]]
    return measure(ours, theirs, task, GateLimits(seconds=0.5), lambda stage: None)


def test_the_same_build_twice_is_the_same_without_measuring(tmp_path: Path) -> None:
    text = gate_sites.source(v="lambda y: None")
    found = judged(tmp_path, text, text)
    assert (found.outcome, found.identical, found.logs, found.seconds) == (Outcome.SAME, True, (), 0.0)
    assert found.code["base"] == found.code["head"]


def test_a_kernel_three_times_as_slow_is_slower_and_what_an_op_admits_is_no_difference(tmp_path: Path) -> None:
    base = gate_sites.source("ROUNDED", v="lambda y: spin(100_000)")
    head = gate_sites.source("ROUNDED", v="lambda y: (off(y), spin(300_000))")
    found = judged(tmp_path, base, head)
    assert found.outcome is Outcome.SLOWER, found.reason
    assert found.ratio is not None
    assert 2 < found.ratio.median < 4
    assert found.ratio.pairs == len(found.logs)
    assert len(found.noise) > 0


@pytest.mark.parametrize("family", ["EXACT", "ROUNDED"])
def test_a_wrong_kernel_differs_whatever_the_family(tmp_path: Path, family: str) -> None:
    found = judged(tmp_path, gate_sites.source(family, v="lambda y: None"), gate_sites.source(family, v="wrong"))
    assert found.outcome is Outcome.DIFFERS
    assert found.first is not None
    assert found.first.index == (3,)


def test_one_launch_that_disagrees_takes_an_alarm_back() -> None:
    alarm, calm = benchmark(TASK, Outcome.SLOWER, "first"), benchmark(TASK, Outcome.SAME, "again")
    assert confirmed(alarm, [alarm, alarm]).outcome is Outcome.SLOWER
    taken_back = confirmed(alarm, [alarm, calm])
    assert taken_back.outcome is Outcome.AMBIGUOUS
    assert "1 of 2" in taken_back.reason


def test_small_objects_lie_elsewhere_in_each_launch() -> None:
    def place() -> int:
        kept = ballast()
        return id(bytes(200)) if kept else 0

    assert len({place() for _ in range(20)}) > 10
    assert len({id(bytes(200)) for _ in range(20)}) == 1  # without it
