"""Outputs of both builds on drawn cases: changes that show rarely, harmless changes, and which build fails."""

from __future__ import annotations

from pathlib import Path

import gate_sites
import pytest
from gate_requests import TASK, Silent

from tritmark.harness.gate import compared
from tritmark.harness.gate.benchmarks import BenchmarkFilter
from tritmark.harness.gate.build_host import LocalBuildHost, RemoteBuildHost
from tritmark.harness.gate.compared import CASES, LEAST, cases_each
from tritmark.harness.gate.drawn_cases import DrawnComparison, compare_drawn
from tritmark.harness.gate.json_rpc import Stage
from tritmark.harness.gate.result import GateResult, Outcome
from tritmark.harness.gate.run import GateRequest, run
from tritmark.harness.gate.verdict import GateLimits
from tritmark.harness.gate.wording import compared as told
from tritmark.harness.record import Status

pytestmark = pytest.mark.long

IDLE = "lambda y: None"
RARE = {
    "sizes": "lambda y: where(y, y.size % 16 == 5)",
    "long": "lambda y: where(y, y.size > 2048)",
    "one element": "lambda y: where(y, y.size == 1 or y.size % 32 == 0)",
    "values": "lambda y: where(y, y.size > 1 and y.min() >= 0)",
    "zeros": "lambda y: where(y, not y.any())",
    "signs of zeros": "lambda y: y.__setitem__(y == 0, 0.0)",
    "addresses": "lambda y: where(y, y.ctypes.data % 64 == 4)",
    "calls": "now_and_then",
    "outside": "past_the_end",
}
"""Changes that the timed workload, n = 100 with normal values, does not show."""


def sites(folder: Path, base: str, head: str, family: str = "EXACT") -> list[Path]:
    return [
        gate_sites.site(folder / name, gate_sites.source(family, v=work))
        for name, work in (("base", base), ("head", head))
    ]


def compare(folder: Path, base: str, head: str, family: str = "EXACT", count: int = 250) -> DrawnComparison:
    ours, theirs = (LocalBuildHost(site) for site in sites(folder, base, head, family))
    return compare_drawn(ours, theirs, TASK.model_copy(update={"seed": 3}), count, lambda stage, of="": None)


def gated(folder: Path, base: str, head: str) -> GateResult:
    one, two = sites(folder, base, head)
    wanted = BenchmarkFilter(suite=gate_sites.suite(folder), seed=3)
    return run(GateRequest(base=str(one), head=str(two), wanted=wanted, limits=GateLimits(seconds=0.2)), Silent())


@pytest.mark.parametrize("rare", RARE)
def test_a_change_that_shows_rarely_differs(tmp_path: Path, rare: str) -> None:
    found = compare(tmp_path, IDLE, RARE[rare])
    assert found.outcome is Outcome.DIFFERS, found
    assert "repeat with --seed 3" in found.reason
    assert (found.first is None) == (rare == "outside")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("base", "head", "family"),
    [
        ("lambda y: None", "lambda y: y.copy()", "EXACT"),
        ("lambda y: None", "off", "ROUNDED"),
        (RARE["sizes"], "lambda y: None", "EXACT"),
        (RARE["outside"], "lambda y: past_the_end(y)", "EXACT"),
        ("lambda y: None", "lambda y: spin(50_000)", "EXACT"),
    ],
    ids=["other code", "within one ulp", "became right", "writes outside as before", "slower"],
)
def test_what_is_no_change_for_the_worse_does_not_differ(tmp_path: Path, base: str, head: str, family: str) -> None:
    found = compare(tmp_path, base, head, family)
    assert (found.outcome, found.reason, found.cases) == (None, "", 250)


def test_the_same_code_is_not_run(tmp_path: Path) -> None:
    found = compare(tmp_path, IDLE, IDLE)
    assert (found.identical, found.cases) == (True, 0)


@pytest.mark.nightly
def test_cases_that_base_fails_are_left_out(tmp_path: Path) -> None:
    found = compare(tmp_path, "lambda y: 1 / (y.size % 4)", "lambda y: None")
    assert found.outcome is None
    assert 0 < found.cases < 250


def test_where_base_fails_all_that_is_said(tmp_path: Path) -> None:
    found = compare(tmp_path, "fail", IDLE)
    assert (found.outcome, found.cases) == (None, 0)
    assert "BASE fails on n=" in found.reason
    assert "no <such> luck" in found.reason


NARROWER = """
from dataclasses import replace
from tritmark.harness.spec import MultipleOf

PROVIDER = replace(PROVIDER, variants=tuple(
    replace(each, constraints=(MultipleOf("n", 2),)) for each in PROVIDER.variants
))
"""


@pytest.mark.nightly
def test_what_head_no_longer_takes_is_noted(tmp_path: Path) -> None:
    texts = {"base": gate_sites.source(v=IDLE), "head": gate_sites.source(v=IDLE) + NARROWER}
    ours, theirs = (LocalBuildHost(gate_sites.site(tmp_path / name, text)) for name, text in texts.items())
    task = TASK.model_copy(update={"seed": 3})
    found = compare_drawn(ours, theirs, task, 100, lambda stage, of="": None)
    assert (found.outcome, found.cases + found.refused) == (None, 100)
    assert 20 < found.refused < 80
    assert next(compared.remarks({"v": found})).startswith(f"v: HEAD refuses {found.refused} of 100 drawn cases")
    wider = compare_drawn(theirs, ours, task, 100, lambda stage, of="": None)
    assert (wider.outcome, wider.cases, wider.refused) == (None, 100, 0)
    assert list(compared.remarks({"v": wider})) == []


def test_a_head_that_fails_where_base_does_not_is_an_error(tmp_path: Path) -> None:
    found = compare(tmp_path, IDLE, "lambda y: 1 / (y.size % 8)")
    assert found.outcome is Outcome.ERROR
    assert "HEAD fails and BASE does not, on n=" in found.reason


@pytest.mark.nightly
def test_builds_in_two_processes_are_compared_alike(tmp_path: Path) -> None:
    ours, theirs = sites(tmp_path, IDLE, RARE["sizes"])
    with RemoteBuildHost(ours) as base, RemoteBuildHost(theirs) as head:
        task = TASK.model_copy(update={"seed": 3})
        stages: list[tuple[Stage, str]] = []
        apart = compare_drawn(base, head, task, 250, lambda stage, of="": stages.append((stage, of)))
    together = compare_drawn(LocalBuildHost(ours), LocalBuildHost(theirs), task, 250, lambda stage, of="": None)
    assert apart == together
    assert apart.outcome is Outcome.DIFFERS
    assert {stage for stage, of in stages if of} == {Stage.RUNNING_BASE, Stage.RUNNING_HEAD, Stage.COMPARING}


def test_the_gate_fails_by_a_rare_change_and_measures_nothing(tmp_path: Path) -> None:
    result = gated(tmp_path, IDLE, RARE["sizes"])
    (found,) = result.benchmarks
    assert (found.outcome, found.seconds, result.status) == (Outcome.DIFFERS, 0.0, Status.FAIL)
    assert found.cases > 0
    assert f"{found.cases} drawn cases of 1 kernel; repeat with --seed 3" in told(result)[0]
    assert found == gated(tmp_path / "again", IDLE, RARE["sizes"]).benchmarks[0]


@pytest.mark.nightly
def test_the_gate_names_the_case_that_head_dies_in(tmp_path: Path) -> None:
    result = gated(tmp_path, IDLE, "lambda y: y.size % 16 == 5 and die(y)")
    (found,) = result.benchmarks
    assert found.outcome is Outcome.ERROR
    assert "SIGSEGV while running HEAD on n=" in found.reason


@pytest.mark.nightly
def test_a_base_that_dies_is_noted_and_no_fault_of_head(tmp_path: Path) -> None:
    result = gated(tmp_path, "lambda y: y.size % 16 == 5 and die(y)", IDLE)
    (found,) = result.benchmarks
    assert found.outcome in {Outcome.SAME, Outcome.AMBIGUOUS, Outcome.FASTER, Outcome.SLOWER}
    assert found.cases == 0
    assert "plain/double/none/float32/v: no outputs were compared:" in result.notes[0]
    assert "SIGSEGV while running BASE on n=" in result.notes[0]


def test_few_kernels_get_as_many_cases_as_a_check_draws_and_many_as_a_run() -> None:
    assert [cases_each(count) for count in (1, 8, 16, 1000)] == [CASES, CASES, CASES // 2, LEAST]


@pytest.mark.nightly
def test_an_interruption_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[compared._Launches] = []
    init = compared._Launches.__init__

    def kept(self: compared._Launches, base: Path, head: Path) -> None:
        init(self, base, head)
        launches.append(self)

    class Interrupting(Silent):
        def advanced(self, done: int) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(compared._Launches, "__init__", kept)
    one, two = (
        gate_sites.site(tmp_path / name, gate_sites.source(a=IDLE, b=IDLE, c=work))
        for name, work in (("base", IDLE), ("head", "lambda y: 1"))
    )
    wanted = BenchmarkFilter(suite=gate_sites.suite(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run(GateRequest(base=str(one), head=str(two), wanted=wanted), Interrupting())
    assert launches
    assert all(each._process.returncode is not None for launch in launches for each in launch._all)
