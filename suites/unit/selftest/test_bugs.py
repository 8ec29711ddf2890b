"""The corpus of publicly reported bugs: a guard or rule of its entry detects each, and its fixed twin passes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tritmark.harness.advise.rules import RULES
from tritmark.harness.cli.console import console
from tritmark.harness.cli.selftest import selftest
from tritmark.harness.cli.selftest_bugs import QuietProgress, document
from tritmark.harness.errors import UsageError
from tritmark.harness.providers import Installed, load
from tritmark.harness.record import Status
from tritmark.harness.selftest import bugs
from tritmark.harness.selftest.bugs import Bug, BugResult, BugVerdict, corpus, execute
from tritmark.harness.validate.guard_names import Guard

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")]

INSTALLED = load()
FOLDER, BUGS = next(iter(corpus(INSTALLED).items()))
SUITE = """\
title = "few"
[[workloads]]
op = "ternary_matmul"
drawn = 16
[[workloads]]
op = "ternary_matmul"
shapes = [{ N = 3, K = 2176 }]
axes = { M = [1, 5] }
families = ["constant"]
[[workloads]]
op = "activation_quantize"
drawn = 16
[[workloads]]
op = "ternary_quantize"
drawn = 24
"""


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    monkeypatch.delenv("TRITMARK_FORCE_ISA", raising=False)


PARTS = 6
"""Of the corpus in each dimension, so that a sample of the tests judges one part."""


def part_of(dimension: str, part: int, monkeypatch: pytest.MonkeyPatch, parts: int = PARTS) -> list[Bug]:
    """Every `parts`-th bug of a dimension, to which the corpus is restricted."""
    chosen = [bug for bug in BUGS if bug.dimension == dimension][part::parts]
    assert chosen
    monkeypatch.setattr(bugs, "corpus", lambda installed: {FOLDER: chosen})
    return chosen


@pytest.mark.parametrize("part", range(PARTS))
def test_every_fault_in_values_is_caught_and_every_fixed_twin_passes(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = part_of("accuracy", part, monkeypatch)
    suite = tmp_path / "few.toml"
    suite.write_text(SUITE, encoding="utf-8")
    found = execute(
        INSTALLED, seed=3, observer=QuietProgress(console(stderr=True)), suite=str(suite), dimensions=("accuracy",)
    )  # fmt: skip
    assert [each.bug for each in found] == chosen
    assert [(each.bug.file, each.faulty) for each in found if not each.caught] == []
    assert [(each.bug.file, each.fixed) for each in found if not each.cleared] == []


@pytest.mark.nightly  # by day suites/unit/advise shows that each rule proposes, and the tests below what counts
@pytest.mark.timing
def test_every_fault_in_time_is_proposed_to_be_mended_and_no_fixed_twin_is_accused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = part_of("performance", 0, monkeypatch, parts=1)
    found = execute(INSTALLED, seed=3, observer=QuietProgress(console(stderr=True)), dimensions=("performance",))
    assert [each.bug for each in found] == chosen
    assert [(each.bug.file, each.faulty) for each in found if not each.caught] == []
    assert [(each.bug.file, each.fixed) for each in found if not each.cleared] == []


def test_each_kernel_of_the_folder_has_one_entry() -> None:
    sources = {path.name for path in FOLDER.iterdir() if path.suffix in {".c", ".cpp", ".cu"}}
    assert sources == {bug.file for bug in BUGS}
    assert len(BUGS) == len(sources)
    for name in sources:
        assert re.search(r"#ifdef FIXED|defined\(FIXED\)", (FOLDER / name).read_text(encoding="utf-8")), name
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#[0-9]+", name) for bug in BUGS for name in bug.reported)
    assert all(bug.guards or bug.rules for bug in BUGS)
    assert {name for bug in BUGS for name in bug.rules} <= {rule.name for rule in RULES}


VALUES = Bug(
    file="a.c", kind="a", reported=("a/b#1",), dimension="accuracy", verdicts=("fail",), guards=(Guard.VALUES,)
)
WRONG = BugVerdict(Status.FAIL, ("values",), (), "")
RIGHT = BugVerdict(Status.PASS, (), (), "")


@pytest.mark.parametrize(
    ("faulty", "caught"),
    [
        (WRONG, True),
        (RIGHT, False),
        (None, False),
        (replace(WRONG, guards=("crash",)), False),
        (replace(WRONG, status=Status.ERROR), False),
    ],
)
def test_only_the_verdict_and_the_guard_that_are_named_are_a_catch(faulty: BugVerdict | None, caught: bool) -> None:
    assert BugResult(VALUES, faulty, RIGHT).caught is caught


CLIFF = VALUES.model_copy(update={"dimension": "performance", "verdicts": ("pass",), "guards": (), "rules": ("cliff",)})
ACCUSED = replace(RIGHT, rules=("cliff",))


@pytest.mark.parametrize(
    ("faulty", "fixed", "caught", "cleared"),
    [(ACCUSED, RIGHT, True, True), (ACCUSED, ACCUSED, True, False), (RIGHT, RIGHT, False, True)],
)
def test_a_fault_in_time_is_caught_by_a_proposal(
    faulty: BugVerdict, fixed: BugVerdict, caught: bool, cleared: bool
) -> None:
    found = BugResult(CLIFF, faulty, fixed)
    assert (found.caught, found.cleared) == (caught, cleared)


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
def test_what_is_measured_is_asked_again_until_it_is_as_it_has_to_be(
    monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """The first `answers - 1` measurements miss the fault of one of two kernels."""
    other = CLIFF.model_copy(update={"file": "b.c"})
    asked: list[list[str]] = []

    def judged(folder: Path, chosen: list[Bug], *_: object) -> list[BugResult]:
        asked.append([bug.file for bug in chosen])
        missed = len(asked) < answers
        return [BugResult(bug, RIGHT if missed and bug is other else ACCUSED, RIGHT) for bug in chosen]

    monkeypatch.setattr(bugs, "corpus", lambda installed: {FOLDER: [CLIFF, other]})
    monkeypatch.setattr(bugs, "_judged", judged)
    found = execute(INSTALLED, seed=0, observer=QuietProgress(console(stderr=True)))
    assert asked == [["a.c", "b.c"], *[["b.c"]] * (min(answers, bugs.TRIES) - 1)]
    assert [each.caught for each in found] == [True, answers <= bugs.TRIES]


@pytest.mark.parametrize(("fixed", "cleared"), [(RIGHT, True), (WRONG, False), (None, False)])
def test_a_fixed_twin_has_to_pass(fixed: BugVerdict | None, cleared: bool) -> None:
    assert BugResult(VALUES, WRONG, fixed).cleared is cleared


def test_a_harness_that_fails_everything_or_nothing_is_seen() -> None:
    good, alarm, miss = (BugResult(VALUES, *each) for each in ((WRONG, RIGHT), (WRONG, WRONG), (RIGHT, RIGHT)))
    elsewhere = BugResult(VALUES, None, None, "the device is missing")
    assert document([good, elsewhere], 1)["passed"]
    assert document([good, elsewhere], 1)["share"] == 1
    for bad in (alarm, miss):
        assert not document([good, bad], 1)["passed"]
    assert document([good, miss], 1)["share"] == 0.5


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("result", "status"), [(BugResult(VALUES, WRONG, RIGHT), 0), (BugResult(VALUES, RIGHT, RIGHT), 1)]
)
def test_the_command_says_what_came(
    monkeypatch: pytest.MonkeyPatch, result: BugResult, status: int, as_json: bool
) -> None:
    def given(installed: Installed, **options: object) -> list[BugResult]:
        assert options["seed"] == 5
        return [result]

    monkeypatch.setattr(bugs, "execute", given)
    app = typer.Typer()
    app.command()(selftest)
    found = CliRunner().invoke(app, ["--bugs", "--seed", "5", *(["--json"] if as_json else [])])
    assert found.exit_code == status
    if as_json:
        assert json.loads(found.stdout)["caught"] == 1 - status
    else:
        assert ("Faults detected: 1 of 1, 100.0 %" in found.output) is (status == 0)
        assert ("Not detected: a.c: PASS" in found.output) is (status == 1)


def test_a_corpus_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_up_bugs").mkdir()
    (tmp_path / "made_up_bugs" / "__init__.py").touch()
    (tmp_path / "made_up_bugs" / "corpus.toml").write_text("[[bugs]]\nfile = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    provider = INSTALLED.providers["builtin"]
    with pytest.raises(UsageError, match=r"(?s)corpus.toml.*legal: a table \[\[bugs\]\] for each kernel"):
        corpus(Installed({"builtin": replace(provider, bugs="made_up_bugs")}))
    with pytest.raises(UsageError, match="no installed package has a corpus"):
        execute(
            Installed({"builtin": replace(provider, bugs="")}), seed=0, observer=QuietProgress(console(stderr=True))
        )
