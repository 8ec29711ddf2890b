"""The kill rate: mutants must survive a judgement that checks less, and no mutant may count as equivalent by
mistake."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tritmark.harness.cli.selftest import _show, document, selftest
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Status
from tritmark.harness.selftest import run
from tritmark.harness.selftest.consequence import Consequence, of_outputs, of_runs
from tritmark.harness.selftest.mutants import generic
from tritmark.harness.selftest.population import COUNT, DrawnMutants, MutantFate
from tritmark.harness.selftest.run import MissedMutant, MutantOutcome, PlantedMutant, Result, execute
from tritmark.harness.selftest.site import MutantSite, admits, site
from tritmark.harness.selftest.stand_in import MutantPlan, variant
from tritmark.harness.spec import EquivalentMutants, KernelKey, ToleranceKind, Workload
from tritmark.harness.validate.accuracy import Judged, judge
from tritmark.harness.validate.cases import Material
from tritmark.harness.validate.compare import Expected, compare
from tritmark.harness.validate.guards import GuardedArray
from tritmark.harness.validate.trial import Tally, Trial
from tritmark.kernels import OPS
from tritmark.kernels.provider.mutants import MUTANTS

pytestmark = pytest.mark.long

SUITE = """
title = "Two ops"

[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 1 }, { n = 128 }, { n = 133 }]
families = ["ties"]

[[workloads]]
op = "ternary_matmul"
shapes = [{ M = 3, N = 9, K = 70 }]
layouts = ["unaligned"]
dtypes = ["float32", "bfloat16"]
"""


@pytest.fixture(scope="module")
def installed() -> Installed:
    """The installed packages, with the mutants of tritmark's ops."""
    return Installed({name: replace(provider, mutants=lambda: MUTANTS) for name, provider in load().providers.items()})


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("selftest") / "two.toml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture(scope="module")
def result(installed: Installed, suite: str) -> Result:
    return execute(installed, suite, count=0)


def at(op: str, axes: dict[str, int], family: str = "normal", dtype: str = "", format: str = "none") -> MutantSite:
    found = next(each for each in OPS if each.name == op)
    material = Material(found, Workload(op=op, axes=axes, family=family), 0)
    return site(material, KernelKey("cpu", op, format, dtype))


def outcomes(result: Result, mutant: str, workload: str = "") -> set[MutantOutcome]:
    return {each.outcome for each in result.planted if each.mutant == mutant and each.workload.startswith(workload)}


def survivors(result: Result) -> set[str]:
    return {each.mutant for each in result.planted if each.outcome is MutantOutcome.SURVIVED}


def test_the_judgement_kills_every_mutant_that_does_harm(result: Result) -> None:
    assert not survivors(result)
    assert not result.alarms
    assert {op: each.share for op, (each, _) in result.ops().items()} == {"i2s_quantize": 1.0, "ternary_matmul": 1.0}
    assert sum(each.outcome is MutantOutcome.KILLED for each in result.planted) > 200


def test_a_small_suite_misses_what_its_data_does_not_show(result: Result) -> None:
    """No sum comes near the range of int16: no mutant survives, and the mutants that need it are missed."""
    missed = {each.mutant for each in result.missed() if each.key.op == "ternary_matmul"}
    assert "int16 sums, wrapping after 32768 values" in missed
    assert result.ops()["ternary_matmul"][1].share < 1
    assert not result.passed


@pytest.mark.parametrize(
    ("mutant", "workload", "outcome"),
    [
        ("input x: read one element early", "i2s_quantize[n=1]", MutantOutcome.EQUIVALENT),
        ("input x: read one element early", "i2s_quantize[n=133]", MutantOutcome.KILLED),
        ("output q: tail never written", "i2s_quantize[n=128]", MutantOutcome.EQUIVALENT),
        ("output q: tail never written", "i2s_quantize[n=133]", MutantOutcome.KILLED),
        ("the first result ever, kept", "i2s_quantize[n=133]", MutantOutcome.KILLED),
        ("inputs changed", "i2s_quantize[n=1]", MutantOutcome.KILLED),
        ("output q: one element too many", "i2s_quantize[n=1]", MutantOutcome.KILLED),
        ("the last NaN or infinity reported, not the first", "i2s_quantize[n=1]", MutantOutcome.EQUIVALENT),
        ("the last NaN or infinity reported, not the first", "i2s_quantize[n=133]", MutantOutcome.KILLED),
        ("input activations: rows taken for dense", "ternary_matmul", MutantOutcome.KILLED),
    ],
)
def test_what_becomes_of_a_mutant_depends_on_the_data(
    result: Result, mutant: str, workload: str, outcome: MutantOutcome
) -> None:
    assert outcomes(result, mutant, workload) == {outcome}


def test_one_unit_of_float32_is_admitted_in_bfloat16(result: Result) -> None:
    mutant = "input weight_scale: one unit of the last place larger"
    whole = {key.dtype: outcome for (key, name), outcome in result.mutants().items() if name == mutant}
    assert whole == {"float32": MutantOutcome.KILLED, "bfloat16": MutantOutcome.HARMLESS}


def first_data_only(*args: Any, **options: Any) -> Judged:
    op, candidate, cases, axes = args
    return judge(op, candidate, replace(cases, second=None, in_place=False), axes, **options)


def one_error_admitted(*args: Any, **options: Any) -> Judged:
    judged = judge(*args, **options)
    few = judged.accuracy.mismatches <= 6
    return (
        replace(judged, accuracy=judged.accuracy.model_copy(update={"status": Status.PASS, "reason": ""}))
        if few
        else judged
    )


WEAK: dict[str, tuple[Any, dict[tuple[Any, str], Any], set[str]]] = {
    "one set of data": (first_data_only, {}, {"the first result ever, kept", "the result before this one"}),
    "no zones": (
        judge,
        {(GuardedArray, "broken"): lambda self: ""},
        {"output q: one element too many", "output q: one element before the first"},
    ),
    "no NaN": (
        judge,
        {(Trial, "run_nonfinite"): lambda *_: None},
        {"NaN and infinity not reported", "NaN or infinity reported one index late"},
    ),
    "a few errors": (
        one_error_admitted,
        {},
        {"output q: last element never written", "input x: two neighbours swapped"},
    ),
    "no comparison": (
        judge,
        {(Tally, "add"): lambda *_: None},
        {"output q: all zero", "rounded down", "output q: never written"},
    ),
}


@pytest.mark.parametrize("weakness", WEAK)
def test_a_weaker_judgement_has_a_lower_rate(
    weakness: str, installed: Installed, suite: str, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaker, patches, mutants = WEAK[weakness]
    for (where, name), what in patches.items():
        monkeypatch.setattr(where, name, what)
    found = execute(installed, suite, "i2s_quantize", judge=weaker, count=0)
    assert mutants <= survivors(found)
    assert found.ops()["i2s_quantize"][0].share < result.ops()["i2s_quantize"][0].share
    assert not found.passed
    assert mutants <= {each.mutant for each in found.missed()}


def test_a_judgement_that_fails_a_right_kernel_is_an_alarm(installed: Installed, suite: str) -> None:
    def strict(*args: Any, **options: Any) -> Judged:
        judged = judge(*args, **options)
        return replace(
            judged, accuracy=judged.accuracy.model_copy(update={"status": Status.FAIL, "reason": "on principle"})
        )

    found = execute(installed, suite, "i2s_quantize", judge=strict, count=0)
    assert len(found.alarms) == 3
    assert "on principle" in found.alarms[0]
    assert not found.passed


def test_a_look_at_the_first_data_agrees_with_the_whole_judgement(installed: Installed) -> None:
    """Mutants are first judged on part of the data. A mutant that fails there also fails the whole judgement."""
    there = at("ternary_quantize", {"n": 133, "block": 32}, dtype="int8")
    bench = run._MutantBench(there, "unaligned", judge)
    for plan in generic(there.op, there.key, there.axes):
        outputs = None if plan.outputs is None else tuple(plan.outputs(there, nth) for nth in (0, 1)).__getitem__
        brief = bench.judged(plan, outputs)
        candidate = variant(there, plan, outputs)
        whole = judge(there.op, candidate, there.cases, there.axes, layout="unaligned", threads=1, seed=0).accuracy
        assert bool(brief) == (whole.status is Status.FAIL), plan.name


class TestConsequence:
    def test_a_right_candidate_does_nothing(self) -> None:
        for layout in ("aligned", "unaligned"):
            there = at("activation_quantize", {"M": 3, "K": 7}, dtype="int8")
            made = there.right.__getitem__
            assert of_runs(there, lambda: variant(there, MutantPlan("none"), made), layout, 1) is Consequence.NONE  # noqa: B023
            assert of_outputs(there, made) is Consequence.NONE

    def test_each_mutant_of_effect_is_seen(self) -> None:
        """Without the judgement: on data that shows all mutants, none counts as equivalent."""
        there = at("activation_quantize", {"M": 3, "K": 133}, dtype="int8")
        for plan in generic(there.op, there.key, there.axes):
            if plan.outputs is None:
                found = of_runs(there, lambda: variant(there, plan, None), "unaligned", 1)  # noqa: B023
                assert found is Consequence.HARM, plan.name

    def test_what_is_admitted(self) -> None:
        there = at("ternary_matmul", {"M": 2, "N": 5, "K": 7}, dtype="float32", format="tile64")
        for steps, expected in ((1, Consequence.ADMITTED), (2, Consequence.HARM)):
            off = [{"out": (right["out"].view(np.int32) + steps).view(np.float32)} for right in there.right]
            assert of_outputs(there, off.__getitem__) is expected
        zero = at("ternary_matmul", {"M": 2, "N": 5, "K": 7}, "zero", "float32", "tile64")
        assert (
            of_outputs(zero, lambda nth: {"out": np.float32(-0.0) * np.ones((2, 5), np.float32)})
            is Consequence.ADMITTED
        )
        assert of_outputs(zero, lambda nth: {"out": np.full((2, 5), np.nan, np.float32)}) is Consequence.HARM

    @pytest.mark.parametrize("off", [1, -1])
    def test_what_a_bound_admits(self, off: int) -> None:
        there = at("matmul_fp32", {"M": 3, "N": 4, "K": 9}, dtype="float32")
        for part, expected in ((0.5, Consequence.ADMITTED), (1.5, Consequence.HARM)):
            off_by = [
                {"c": (each["c"].exact + off * part * each["c"].error_bound).astype(np.float32)}  # type: ignore[operator]
                for each in (there.expected(0), there.expected(1))
            ]
            assert of_outputs(there, off_by.__getitem__) is expected


@pytest.mark.parametrize("family", [ToleranceKind.ROUNDED, ToleranceKind.BOUNDED])
def test_a_nan_is_admitted_where_one_is_expected(family: ToleranceKind) -> None:
    """A NaN of any sign and payload is admitted, as in the judgement. Otherwise any changed NaN would be harm."""
    values = np.array([1.0, np.nan, np.inf], np.float32)
    bound = np.zeros(3) if family is ToleranceKind.BOUNDED else None
    expected = Expected("y", family, values, values.astype(np.float64), bound)
    other = np.array([0x3F800000, 0xFFC00123, 0x7F800000], np.uint32).view(np.float32)
    assert np.isnan(other[1])
    for found, fits in (
        (values, True),
        (other, True),
        (np.array([1, 2, np.inf], np.float32), False),
        (np.array([np.nan, np.nan, np.inf], np.float32), False),
        (np.array([1, np.nan, np.nan], np.float32), False),
        (np.array([1, np.nan, -np.inf], np.float32), False),
    ):
        assert admits(expected, found) is fits
        assert (not compare(expected, found).wrong.size) is fits, "the judgement says the same"


KEY = KernelKey("cpu", "an_op", "none", "int8")


def made_of(*planted: tuple[str, str, MutantOutcome], **options: Any) -> Result:
    return Result(
        "x", 0.98, [PlantedMutant(workload, KEY, mutant, outcome) for workload, mutant, outcome in planted], **options
    )


def test_a_mutant_that_no_workload_shows_is_not_caught() -> None:
    found = made_of(
        ("a", "f", MutantOutcome.KILLED), ("a", "g", MutantOutcome.EQUIVALENT), ("b", "g", MutantOutcome.ADMITTED)
    )
    assert found.share == 0.5
    assert found.missed() == [MissedMutant(KEY, "g", MutantOutcome.ADMITTED, "")]


def test_what_survives_anywhere_is_told_though_it_is_killed_elsewhere() -> None:
    found = made_of(("a", "f", MutantOutcome.KILLED), ("b", "f", MutantOutcome.SURVIVED))
    assert found.workloads()["an_op", "b"].share == 0
    assert found.share == 0.5
    assert found.missed() == [MissedMutant(KEY, "f", MutantOutcome.SURVIVED, "b")]


def test_harmless_excuses_no_survivor() -> None:
    quiet = made_of(
        ("a", "f", MutantOutcome.EQUIVALENT), ("a", "g", MutantOutcome.KILLED), harmless={(KEY, "f"): "why"}
    )
    assert quiet.passed
    assert not quiet.missed()
    loud = made_of(("a", "f", MutantOutcome.SURVIVED), ("a", "g", MutantOutcome.KILLED), harmless={(KEY, "f"): "why"})
    assert not loud.passed
    assert loud.missed()


def test_every_excuse_is_for_a_mutant_that_exists(installed: Installed) -> None:
    from fnmatch import fnmatchcase

    axes = {"M": 2, "E": 3, "N": 4, "K": 256, "n": 256, "block": 256}
    for rule in MUTANTS:
        if isinstance(rule, EquivalentMutants):
            op = installed.ops[rule.op]
            keys = [key for key in installed.keys(op.name) if rule.only(key)]
            mine = {axis: axes[axis] for axis in op.axes}
            assert keys
            assert any(fnmatchcase(plan.name, rule.mutant) for key in keys for plan in generic(op, key, mine)), rule


def test_every_op_has_mutants_of_its_own() -> None:
    assert {each.op for each in MUTANTS} == {op.name for op in OPS}


@pytest.mark.nightly
def test_several_processes_find_the_same(suite: str) -> None:
    installed = load()
    one, two = (execute(installed, suite, "i2s_quantize", processes=count, seed=5, count=14) for count in (1, 2))
    assert one.planted == two.planted
    # Reasons contain figures that vary, such as addresses.
    fates = [[(each.key, each.number, each.text, each.killed) for each in found.drawn.fates] for found in (one, two)]
    assert fates[0] == fates[1]
    assert len(fates[0]) >= 14


def test_large_workloads_are_left_out_with_a_line(installed: Installed, tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text('title = "x"\n[[workloads]]\nop = "i2s_quantize"\nshapes = [{ n = 1 }, { n = 4194304 }]\n')
    assert execute(installed, str(path), count=0).left_out == ["i2s_quantize[n=4194304]/normal/aligned: 20 MiB"]


def test_every_key_of_an_op_has_workloads_that_its_kernels_take(installed: Installed) -> None:
    """Of 24 shapes drawn for the op's first key, only 3 were multiples of 256, which tq2_0 requires. None of these
    showed seven of its mutants."""
    selected = [each for each in installed.suite("quick").selected if each.workload.op == "ternary_quantize"]
    groups = run._groups(installed, [each for each in selected if each.workload.drawn], Result("quick", 0.98))
    count = Counter(key for _, keys, _ in groups for key in keys)
    assert min(count.values()) >= run.LEAST
    assert {key.format for key in count} >= {"none", "tq2_0"}
    met = {(key, workload.family) for workload, keys, _ in groups for key in keys}
    assert met == {(key, family) for key in count for family in installed.ops["ternary_quantize"].input_families}


@pytest.mark.nightly
def test_the_goal_is_reached_for_formats_that_take_few_shapes(installed: Installed) -> None:
    found = execute(installed, "quick", "ternary_quantize", count=0)
    assert found.share >= found.goal


def invoked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr("tritmark.harness.machine.cpu.physical_cores", lambda: 1)
    monkeypatch.delenv("COLUMNS", raising=False)
    app = typer.Typer()
    app.command()(selftest)
    return CliRunner().invoke(app, arguments)


def test_the_command(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = invoked(monkeypatch, "--suite", suite, "--op", "i2s_quantize", "--json")
    found = json.loads(told.stdout)
    assert told.exit_code == (0 if found["passed"] else 1)
    assert found["drawn"]["count"] >= COUNT
    assert found["ops"]["i2s_quantize"]["everywhere"]["share"] == 1
    assert [each["workload"] for each in found["workloads"]] == [
        f"i2s_quantize[n={n}]/ties/aligned" for n in (1, 128, 133)
    ]


@pytest.mark.nightly
def test_the_command_shows_the_rates(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = invoked(monkeypatch, "--suite", suite, "--op", "i2s_quantize")
    (row,) = (line for line in shown.stdout.splitlines() if line.startswith("i2s_quantize "))
    assert "100.0 %" in row
    assert "Kill rate: " in shown.stdout
    assert "repeat with --seed " in shown.stdout


@pytest.mark.parametrize("width", ["80", "120"])
def test_the_command_prints_one_page(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    keys = [KernelKey("cpu", op.name, "i2_s_x86", "bfloat16") for op in OPS]
    planted = [
        PlantedMutant(f"{key.op}[n=4099]/normal/unaligned", key, f"{kind} of {number}", outcome)
        for key in keys
        for number, (kind, outcome) in enumerate(
            [("killed", MutantOutcome.KILLED), ("tie", MutantOutcome.SURVIVED)] * 9
        )
    ]
    fates = [
        MutantFate(key, number, "two triggers", "adds 1 where the row is odd and K is 15 " * 2, "", 3)
        for key in keys
        for number in range(30)
    ]
    lines = [f"{key.op}[n=9]: {'an alarm ' * 12}" for key in keys]
    _show(Result("quick", 0.98, planted, lines, lines, drawn=DrawnMutants(5, fates, 3, lines)), 36.4)
    told = capsys.readouterr().out.splitlines()
    assert sum(max(1, -(-len(line) // int(width))) for line in told) <= 60
    assert all(sum(line.startswith(f"{key.op} ") for line in told) == 1 for key in keys)
    assert told[-1].startswith("Kill rate: ")
    assert told[-1].endswith("; 36 s")
    # Names stay whole, however narrow the terminal is.
    assert sum("i2_s_x86/bfloat16: " in line or "i2_s_x86/bfloat16 no. " in line for line in told) == 6


def test_what_numpy_warns_of_in_mutants_is_not_told(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in this test."""

    def overflowing(*_: Any) -> tuple[list[PlantedMutant], list[str]]:
        huge = np.full(3, 3e38, np.float32)
        assert np.isinf(huge * huge).all()
        assert np.isnan(huge * huge - huge * huge).all()
        assert np.isinf(huge.astype(np.float16)).all()
        return [], []

    monkeypatch.setattr(run, "_planted", overflowing)
    with pytest.raises(RuntimeWarning, match="overflow"):
        overflowing()
    assert run._one(
        installed, (Workload(op="i2s_quantize", axes={"n": 1}, family="normal", layout="aligned"), (), ()), judge
    ) == ([], [])


def test_a_document_tells_all(result: Result) -> None:
    found = json.loads(json.dumps(document(result)))
    assert found["passed"] is False
    assert {each["outcome"] for each in found["mutants"]} >= {"killed", "harmless", "equivalent"}
    assert all(each["reason"] for each in found["mutants"] if each["outcome"] == "harmless")
    assert len(found["missed"]) == len(result.missed())
