"""A gate's result as text, JSON, GitHub workflow commands and JUnit XML, with names that contain markup of each."""

from __future__ import annotations

import io
import re
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_records import MACHINE
from rich.console import Console

from tritmark.harness.errors import UsageError
from tritmark.harness.gate.form import OutputFormat, tell
from tritmark.harness.gate.render_github import SUMMARY, commands, markdown, summary
from tritmark.harness.gate.render_junit import junit
from tritmark.harness.gate.result import Benchmark, Build, Confirmation, GateResult, Outcome
from tritmark.harness.gate.wording import ORDER, sorted_benchmarks
from tritmark.harness.record import Divergence, Environment, Ratio, Status

HOSTILE = "\x1b[31m\u202e</script>|`*_<b>&\"'\x00\ufffe%0A::error::,\r\n=cmd"
ALLOWED = {
    "testsuites": set(),
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "skipped": {"message"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "system-out": set(),
}
"""Legal elements and attributes of the Jenkins schema."""


def benchmark(outcome: Outcome, variant: str = "avx2", **further: object) -> Benchmark:
    measured = outcome in {Outcome.SLOWER, Outcome.FASTER, Outcome.SAME, Outcome.AMBIGUOUS}
    facts: dict[str, object] = {
        "id": f"cpu/op/none/int8/{variant}/n64/{outcome.value}",
        "op": "op",
        "format": "none",
        "dtype": "int8",
        "device": "cpu",
        "variant": variant,
        "axes": {"N": 64},
        "family": "normal",
        "layout": "contiguous",
        "threads": 1,
        "outcome": outcome,
        "reason": f"because it is {outcome.value}",
        "ratio": Ratio(median=1.051, low=1.048, high=1.053, pairs=150) if measured else None,
        "smallest": 0.0132 if measured else None,
        "seconds": 0.25 if measured else 0.0,
    }
    return Benchmark(**(facts | further))  # type: ignore[arg-type]


def result(*benchmarks: Benchmark, strict: bool = False, text: str = "plain") -> GateResult:
    build = Build(given=text, commit="0123456789abcdef", subject=text, packages={"tritmark": "0.1.0"}, digest="d")
    environment = Environment(
        tritmark="0", python="3", packages={}, compiler="", variables={}, commit=None, command=("gate",), seed=0
    )
    return GateResult(
        created="2031-05-06T07:08:09+00:00",
        seconds=1.5,
        base=build,
        head=build,
        suite="quick",
        strict=strict,
        budget=1.0,
        together=True,
        machine=MACHINE,
        environment=environment,
        benchmarks=benchmarks,
    )


ALL = result(*(benchmark(outcome) for outcome in reversed(ORDER)))
EVIL = result(
    *(
        benchmark(
            outcome,
            HOSTILE,
            title=HOSTILE,
            reason=HOSTILE,
            first=Divergence(output=HOSTILE, index=(1,), expected="1", found=HOSTILE),
        )
        for outcome in ORDER
    ),
    text=HOSTILE,
)


def told(found: GateResult, form: OutputFormat = OutputFormat.TEXT, *, terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=200, color_system="standard" if terminal else None
    )
    tell(found, form, console, {})
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_every_outcome_has_its_place_in_the_order() -> None:
    assert set(ORDER) == set(Outcome)
    assert [each.outcome for each in sorted_benchmarks(ALL)] == list(ORDER)


def test_text_says_what_changed_by_how_much_and_why() -> None:
    found = result(
        benchmark(Outcome.SAME),
        benchmark(Outcome.SAME, "sse41", identical=True, ratio=None, smallest=None),
        benchmark(
            Outcome.SLOWER,
            confirmed=(Confirmation(outcome=Outcome.SLOWER), Confirmation(outcome=None, reason="it crashed")),
        ),
        benchmark(Outcome.DIFFERS, first=Divergence(output="q", index=(3, 4), expected="1", found="2")),
    )
    text = told(found)
    assert re.search(r"SLOWER +cpu/op/none/int8/avx2 +N=64 +\+5\.10 % \(\+4\.80 to \+5\.30\) +1\.32 % +0\.25", text)
    assert "same code" in text
    assert "a fresh process reports SLOWER" in text
    assert "a fresh process reports no verdict: it crashed" in text
    assert "first at q[3, 4]: BASE 1, HEAD 2" in text
    assert "1 DIFFERS, 1 SLOWER, 2 SAME. The gate fails: 2 of 4 benchmarks slower or incorrect." in text
    assert "\x1b" not in text  # no colours without a terminal


@pytest.mark.parametrize(
    ("outcomes", "strict", "said"),
    [
        ((Outcome.SAME,), True, "The gate passes."),
        ((Outcome.SAME, Outcome.AMBIGUOUS), False, "passes, with 1 of 2 benchmarks AMBIGUOUS"),
        ((Outcome.SAME, Outcome.AMBIGUOUS), True, "is ambiguous: 1 of 2"),
        ((Outcome.ERROR, Outcome.AMBIGUOUS), True, "fails: 1 of 2"),
        ((), False, "no benchmarks. The gate passes."),
    ],
)
def test_the_conclusion_is_that_of_the_exit_status(outcomes: tuple[Outcome, ...], strict: bool, said: str) -> None:
    found = result(*map(benchmark, outcomes), strict=strict)
    for text in (told(found), told(found, OutputFormat.GITHUB)):
        assert said in text
    assert ("passes" in said) == (found.status is Status.PASS)


def test_hostile_names_are_inert_on_a_terminal() -> None:
    plain, coloured = told(EVIL), told(EVIL, terminal=True)
    assert not re.search(r"[^\n\x20-\uffff]|[\u202e\ufffe]", plain)
    assert set(re.findall(r"\x1b\[([\d;]*)m", coloured)) <= {"0", "1", "2", "32", "33", "1;31", "3"}
    assert "\u202e" not in coloured


def test_json_is_the_result() -> None:
    assert GateResult.model_validate_json(told(EVIL, OutputFormat.JSON)) == EVIL


def test_annotations_name_every_change_one_a_line() -> None:
    lines = commands(ALL).splitlines()
    kinds = [line.split(" ", 1)[0] for line in lines[:-1]]
    assert kinds == ["::error"] * 3 + ["::warning", "::notice"]
    assert lines[2].startswith("::error title=SLOWER cpu/op/none/int8/avx2::N=64: +5.10 %25 (+4.80 to +5.30); because")
    assert commands(result(benchmark(Outcome.AMBIGUOUS), strict=True)).startswith("::error title=AMBIGUOUS")
    assert commands(result(benchmark(Outcome.SAME))) == "1 SAME. The gate passes.\n"


def test_hostile_names_make_no_annotations() -> None:
    for line in commands(EVIL).splitlines()[:-1]:
        level, title, text = re.fullmatch(r"::(error|warning|notice) title=([^:,\r\n]*)::(.*)", line).groups()  # type: ignore[union-attr]
        assert level
        assert "%0A::error::," in unquote(title)
        assert "%0A::error" in unquote(text)
        assert "\x1b" not in line


def test_the_summary_is_appended_to_the_file_that_github_names(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    console = Console(file=io.StringIO())
    tell(ALL, OutputFormat.GITHUB, console, {SUMMARY: str(path)})
    tell(ALL, OutputFormat.TEXT, console, {SUMMARY: str(path)})  # no summary for text
    assert path.read_text() == "before\n" + summary(ALL)
    with pytest.raises(UsageError, match="cannot be written"):
        tell(ALL, OutputFormat.GITHUB, console, {SUMMARY: str(tmp_path)})


def test_the_summary_is_a_table_that_names_cannot_break() -> None:
    text = summary(EVIL)
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| outcome")]
    assert len(rows) == len(ORDER)
    assert {row.count("|") for row in rows} == {7}
    assert set(re.findall(r"<[^>]*>", text)) == {
        "<code>",
        "</code>",
        "<details>",
        "</details>",
        "<summary>",
        "</summary>",
        "<br>",
    }
    assert "`" not in text
    assert "\u202e" not in text
    assert "<details><summary>1 SAME</summary>" in text


def test_a_huge_summary_is_cut_and_says_so() -> None:
    many = result(*(benchmark(Outcome.SLOWER, f"v{at}", reason="x" * 2000) for at in range(400)))
    text = summary(many)
    assert len(text.encode()) < 1 << 20
    shown = text.count("| SLOWER |")
    assert f"{400 - shown} more do not fit." in text


def test_junit_has_a_case_for_each_benchmark() -> None:
    root = ET.fromstring(junit(ALL))
    suite = root[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "9",
        "2",
        "1",
        "4",
    )
    assert suite.get("timestamp") == "2031-05-06T07:08:09"
    cases = {each.outcome: case for each, case in zip(ALL.benchmarks, suite.findall("testcase"), strict=True)}
    for outcome, case in cases.items():
        verdicts = [child.tag for child in case if child.tag != "system-out"]
        expected = {
            Outcome.SLOWER: ["failure"],
            Outcome.DIFFERS: ["failure"],
            Outcome.ERROR: ["error"],
            Outcome.SAME: [],
            Outcome.FASTER: [],
        }
        assert verdicts == expected.get(outcome, ["skipped"])
    assert cases[Outcome.AMBIGUOUS][0].get("message") == "AMBIGUOUS: because it is AMBIGUOUS"
    assert "+5.10 %" in (cases[Outcome.SLOWER][0].text or "")


@pytest.mark.parametrize("found", [ALL, EVIL], ids=["plain", "hostile"])
def test_junit_holds_nothing_that_the_schema_lacks(found: GateResult) -> None:
    for element in ET.fromstring(junit(found)).iter():
        assert set(element.keys()) <= ALLOWED[element.tag]


def test_hostile_names_are_text_in_junit() -> None:
    document = junit(EVIL)
    names = [case.get("name") or "" for case in ET.fromstring(document).iter("testcase")]
    assert all("\\x1b[31m\\u202e</script>" in name for name in names)
    assert "<b>" not in document


@settings(max_examples=20)
@given(st.text())
def test_any_text_comes_through_every_form(text: str) -> None:
    found = result(benchmark(Outcome.SLOWER, text, title=text, reason=text or "-"), text=text)
    ET.fromstring(junit(found))
    assert len(commands(found).splitlines()) == 2
    assert not re.search(r"[<>|`*\[\]@]", markdown(text).replace("<br>", ""))
    told(found).encode()
