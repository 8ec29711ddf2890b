"""`tritmark criteria`: what it prints and writes, its exit statuses, and its plan."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up_device
import pytest
from planted_criteria import installed, on_device, plan, proof, variant, zeros
from typer.testing import CliRunner, Result

from tritmark import workloads
from tritmark.harness import providers, worker
from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import FAILED, PASSED, UNAVAILABLE, UNTRIED
from tritmark.harness.criteria import plan as plans
from tritmark.harness.criteria.file import read_report
from tritmark.harness.criteria.judge import JUDGES, device_of
from tritmark.harness.criteria.model import CriteriaReport
from tritmark.harness.criteria.plan import CriteriaPlan, installed_plan, read_plan
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import Installed
from tritmark.harness.record import Status
from tritmark.harness.worker import Workers

EXACT: dict[str, Any] = {"kind": "exact", "sizes": [1, 17]}
RESIDENT: dict[str, Any] = {"kind": "speedup", "threshold": 10, "data": "resident", "powers": [4, 5]}
(FOLDER,) = map(Path, workloads.__path__)
Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """run(found, *criteria, arguments=...): the command with these kernels, in this process."""

    def call(found: Installed, *criteria: dict[str, Any], arguments: tuple[str, ...] = ()) -> Result:
        each = [
            plan(**{"id": f"criterion {number}", **criterion}).criteria[0] for number, criterion in enumerate(criteria)
        ]
        its = plan(**criteria[0]).model_copy(update={"criteria": tuple(each)})
        monkeypatch.setattr(providers, "load", lambda: found)
        monkeypatch.setattr(plans, "installed_plan", lambda installed: its)
        monkeypatch.setattr(worker, "Workers", lambda installed: Workers(installed, isolated=False))
        return CliRunner().invoke(app, ["criteria", *arguments, "--out", str(tmp_path)])

    return call


def only(folder: Path) -> Path:
    (path,) = (folder / "criteria").iterdir()
    return path


def test_the_headline_counts_and_not_run_is_no_pass(run: Run, tmp_path: Path) -> None:
    absent = replace(made_up_device.DEVICE, missing=lambda: "not plugged in")
    result = run(installed(variant(), on_device(), device=absent), EXACT, RESIDENT)
    assert result.exit_code == PASSED
    assert "1 of 2 criteria judged on cpu: 1 PASS, 0 FAIL; 1 NOT RUN" in result.stdout
    assert "not plugged in" in result.stdout
    report = read_report(only(tmp_path))
    assert [each.status for each in report.criteria] == [Status.PASS, Status.NOT_RUN]


def test_a_criterion_that_is_not_met_is_status_1(run: Run, tmp_path: Path) -> None:
    result = run(installed(variant(zeros)), EXACT, arguments=("--device", "cpu", "--seed", "5"))
    assert result.exit_code == FAILED
    assert "0 PASS, 1 FAIL" in result.stdout
    assert "incorrect: cpu/double/none/int32/best" in result.stdout
    assert read_report(only(tmp_path)).seed == 5


def test_where_nothing_is_judged_nothing_passes(run: Run) -> None:
    result = run(installed(variant()), RESIDENT, arguments=("--device", "cpu"))
    assert result.exit_code == UNTRIED
    assert "0 of 1 criteria judged" in result.stdout


def test_standard_output_is_json_alone_where_asked_for(run: Run, tmp_path: Path) -> None:
    result = run(installed(variant()), EXACT, arguments=("--json", "--device", "cpu"))
    assert result.stdout == only(tmp_path).read_text()
    assert "1 of 1 criteria judged" in result.stderr


def test_a_present_accelerator_is_judged_and_a_simulated_one_by_name_only(run: Run) -> None:
    found = installed(variant(), on_device())
    assert "on made_up: 1 PASS" in run(found, EXACT).stdout
    simulated = replace(made_up_device.DEVICE, simulated=lambda: True, proof=proof)
    found = installed(variant(), on_device(), device=simulated)
    assert device_of(found, plan(**EXACT)).type == "cpu"
    result = run(found, EXACT, arguments=("--device", "made_up"))
    assert "on a simulated made_up: 1 PASS" in result.stdout
    assert "PASS, simulated" in result.stdout


def test_a_device_that_is_missing_or_unknown(run: Run) -> None:
    absent = replace(made_up_device.DEVICE, missing=lambda: "not plugged in")
    found = installed(variant(), on_device(), device=absent)
    result = run(found, EXACT, arguments=("--device", "made_up"))
    assert result.exit_code == UNAVAILABLE
    assert "not plugged in" in result.stderr
    refused = run(found, EXACT, arguments=("--device", "made_down")).exception
    assert isinstance(refused, UsageError)
    assert "made_up" in str(refused)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"not run"', '"pass"'),
        lambda text: text.replace('"seed": 5', '"seed": 6'),
        lambda text: text.replace('"digest": "sha256:', '"digest": "sha256:0'),
        lambda text: text.replace('"schema_version": 1', '"schema_version": 2'),
        lambda text: text[:-20],
        lambda text: "[]",
    ],
)
def test_a_report_that_was_changed_is_refused(run: Run, tmp_path: Path, change: Callable[[str], str]) -> None:
    run(installed(variant()), RESIDENT, arguments=("--device", "cpu", "--seed", "5"))
    path = only(tmp_path)
    assert read_report(path).seed == 5
    text = path.read_text()
    path.write_text(change(text))
    assert path.read_text() != text
    with pytest.raises(UsageError, match=str(path)):
        read_report(path)


def test_a_report_without_criteria_is_refused(run: Run, tmp_path: Path) -> None:
    run(installed(variant()), EXACT, arguments=("--device", "cpu"))
    report = read_report(only(tmp_path))
    with pytest.raises(ValueError, match="criteria"):
        CriteriaReport.model_validate({**report.model_dump(), "criteria": ()})


# The plan


def test_the_installed_plan_has_every_kind_and_cites_the_specification() -> None:
    found = installed_plan(providers.load())
    assert {each.kind for each in found.criteria} == set(JUDGES)
    assert all(each.source.startswith("specification, ") and each.words for each in found.criteria)
    (calls,) = (each for each in found.criteria if each.kind == "calls")
    assert (calls.calls, calls.threshold) == (10_000, 0.999)
    data = {each.data for each in found.criteria if each.kind == "speedup"}
    assert data == {"resident", "end to end"}


def test_the_plan_is_no_suite() -> None:
    assert "criteria" not in providers.load().suites()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('op = "i2s_quantize"', 'op = "i2s_quantise"', "did you mean 'i2s_quantize'"),
        ('dtype = "int8"', 'dtype = "int9"', "none/int8"),
        ('axis = "n"', 'axis = "m"', "legal: n"),
        ('family = "normal"', 'family = "ordinary"', "normal"),
        ('plain = "scalar"', 'plain = "scaler"', "did you mean 'scalar'"),
        ('device = "cpu"', 'device = "npu"', "cpu"),
        ('call = "tritmark i2s_quantize, out="', 'call = "quantize"', "tritmark i2s_quantize, out="),
        ("axes = { N = 2560, K = 2560 }", "axes = { N = 2560 }", "legal: exactly M, N, K"),
        ('kernel = "product"', 'kernel = "products"', "did you mean 'product'"),
        ('kind = "exact"', 'kind = "exakt"', "exakt"),
        ("calls = 10000", "calls = 0", "calls"),
        ("powers = [20, 26]", "powers = [26, 20]", "powers must rise"),
        ("threshold = 0.999", "threshold = nan", "threshold"),
        ("threshold = 0.999", "", "threshold"),
        ('id = "leaks"', 'id = "memory"', "same id"),
        ('id = "leaks"', 'id = "leaks"\nsized = 3', "sized"),
        ("[[criteria]]", "[[criteria", "cannot be read"),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = (FOLDER / "criteria.toml").read_text()
    assert old in text
    path = tmp_path / "criteria.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as refused:
        read_plan(path, providers.load())
    assert str(path) in str(refused.value)
    assert named in str(refused.value)


def test_a_package_without_a_plan() -> None:
    with pytest.raises(UsageError, match=r"criteria\.toml"):
        installed_plan(installed(variant()))


def test_the_plan_is_what_the_file_says() -> None:
    table = tomllib.loads((FOLDER / "criteria.toml").read_text())
    found = CriteriaPlan.model_validate(table)
    assert [each.id for each in found.criteria] == [each["id"] for each in table["criteria"]]
    assert json.loads(found.model_dump_json())
