"""The report of a made-up week, as text, JSON and a page; and the command."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from command_line import outcome_of
from made_up_sessions import DAY, START, samples, series, session, week
from rich.console import Console

from tritmark.harness.monitor.ceilings import DeviceCeilings
from tritmark.harness.monitor.data import SessionData
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.page import build, render
from tritmark.harness.monitor.summary import Report, as_json, summarize
from tritmark.harness.monitor.text import show, sparkline

END = START + 15 * DAY
CEILINGS = {"cpu": DeviceCeilings(60e9, 4e12, "20250615T000000Z-00000000")}
DOWN = "M=1 N=2560 K=6912"


def kept(folder: Path, sessions: Sequence[SessionData]) -> Database:
    database = Database(folder / "sessions.sqlite")
    for each in sessions:
        # Sessions older than a year are deleted, and the made-up ones have a fixed time.
        database.save(each)
    return database


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritmark.harness.monitor.database.OLDEST_S", float("inf"))
        database = kept(tmp_path_factory.mktemp("week"), week())
        return summarize(database, since=END - 7 * DAY, until=END, ceilings=CEILINGS)


def printed(report: Report, width: int = 100) -> str:
    out = StringIO()
    show(report, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_the_week_names_the_slower_kernel_and_no_other(report: Report) -> None:
    assert [each.series.key.shape for each in report.slower] == [DOWN]
    assert "1 series SLOWER" in report.headline
    text = printed(report)
    assert re.search(r"SLOWER \+2[0-9] %|SLOWER \+3[0-9] %", text)
    assert "tritmark 0.2.0 is new" in text
    assert "tritmark gate OLD NEW" in text


def test_what_the_report_counts(report: Report) -> None:
    inside = [each for each in week() if END - 7 * DAY <= each.started <= END]
    assert len(report.sessions) == len(inside)
    assert sum(each.calls for each in report.rows) == sum(each.calls for each in inside)
    assert sum(each.share_of_time for each in report.rows) == pytest.approx(1)
    assert sum(each.errors for each in report.rows) == 17


def test_nested_sessions_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program, a part of it under another name, and a part of that under the program's name."""
    monkeypatch.setattr("tritmark.harness.monitor.database.OLDEST_S", float("inf"))
    outer = session(0, [series(1e5, calls=100)])
    part = replace(session(1, [series(1e5, calls=40)], program="decode", at=START + 10), within=(outer.id,))
    again = replace(session(2, [series(2e5, calls=30)], at=START + 20), within=(outer.id, part.id))
    database = kept(tmp_path, [outer, part, again])
    found = summarize(database, since=START, until=END)
    assert "100 calls" in found.headline
    assert {each.program: each.calls for each in found.rows} == {"serve.py": 100, "decode": 40}
    assert next(each for each in found.rows if each.program == "serve.py").share_of_time == pytest.approx(1)
    (point,) = next(each for each in found.rows if each.program == "serve.py").trend.points
    assert point.session == outer.id, "the session inside is no earlier one of its own program"
    assert [(each.data.id, each.nested) for each in found.sessions] == [
        (again.id, True),
        (part.id, True),
        (outer.id, False),
    ]
    assert "2 sessions were inside another one" in printed(found)
    assert "(nested)" in printed(found)
    assert [each["nested"] for each in as_json(found)["sessions"]] == [True, True, False]
    # The outer one is not shown, so the inner one counts.
    assert "40 calls" in summarize(database, since=START, until=END, program="decode").headline
    assert "30 calls" in summarize(database, since=START + 15, until=END).headline


def test_sessions_that_overlap_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritmark.harness.monitor.database.OLDEST_S", float("inf"))
    first = session(0, [series(1e5)])
    late = replace(session(1, [series(1e5)], at=START + 30), pid=first.pid)
    other = session(2, [series(1e5)], at=START + 40)  # of another process
    after = replace(session(3, [series(1e5)], at=START + 100), pid=first.pid)
    found = summarize(kept(tmp_path, [first, late, other, after]), since=START, until=END)
    assert [each for each in found.notes if "both have the calls between" in each] == [
        "1 session began while another one of the process ran, and ended later: both have the calls between"
    ]


def test_health_and_advice(report: Report) -> None:
    health = " ".join(f"{each.what} {each.evidence}" for each in report.health)
    assert "12 times in 1 sample" in health
    assert "InvalidArgumentError 17 times" in health
    assert "sw_power_cap" in health
    assert "did not end" in health
    assert "memory of" not in health
    assert "Other processes" not in health  # they were busy in one session of many
    advice = " ".join(f"{each.what} {each.next_step}" for each in report.advice)
    assert "far from the ceiling" in advice
    assert "tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560" in advice


def test_a_program_that_grows_and_a_busy_machine(tmp_path: Path) -> None:
    seen = samples(grows=1 << 20, other_cores=2.0)
    now = time.time()
    sessions = [session(number, [series(1e5)], seen=seen, at=now - number) for number in range(3)]
    found = summarize(kept(tmp_path, sessions), since=now - 60)
    assert [each.what for each in found.health if each.bad] == [
        "Other processes were busy during calls.",
        "The memory of serve.py grew.",
    ]


def test_without_ceilings_the_percent_is_unknown(tmp_path: Path) -> None:
    found = summarize(kept(tmp_path, [session(0, [series(1e5)], at=time.time())]), since=0)
    assert found.rows[0].ceiling is None
    assert "tritmark run --suite smoke" in [each.next_step for each in found.advice]


def test_the_share_of_the_ceiling(report: Report) -> None:
    row = next(each for each in report.rows if each.series.key.shape == "M=1 N=2560 K=2560" and each.ceiling)
    median = row.series.median_ns
    assert median is not None
    nbytes, operations = 2560 * 2560 // 4 + 2560 * 5, 2 * 2560 * 2560
    assert row.ceiling == pytest.approx(max(nbytes / 60e9, operations / 4e12) / median * 1e9)


def test_calls_that_do_not_wait_have_neither_rate_nor_share(report: Report) -> None:
    row = next(each for each in report.rows if each.series.key.asynchronous)
    assert row.series.bytes_per_second is None
    assert row.ceiling is None
    assert "torch.linear *" in printed(report)
    assert any("do not wait for the device" in each for each in report.notes)


def test_other_machines_are_named_and_not_mixed(tmp_path: Path) -> None:
    now = time.time()
    sessions = [session(0, [series(1e5)], machine="a", at=now - 2), session(1, [series(1e5)], machine="b", at=now - 1)]
    found = summarize(kept(tmp_path, sessions), since=0)
    assert found.machine == "b"
    assert len(found.sessions) == 1
    assert any("1 sessions of 1 other machines" in each for each in found.notes)


def test_the_baseline_is_older_than_the_report(tmp_path: Path) -> None:
    now = time.time()
    sessions = [session(number, [series(1e5, seed=number)], at=now - 20 * DAY + number) for number in range(10)]
    sessions.append(session(10, [series(1.5e5)], at=now))
    found = summarize(kept(tmp_path, sessions), since=now - DAY)
    assert len(found.sessions) == 1
    assert len(found.slower) == 1


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sessions.sqlite").write_text("words")
    found = summarize(Database(tmp_path / "sessions.sqlite"), since=0)
    assert any("set aside" in each for each in found.notes)
    assert "set aside" in printed(found)


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    one = series(1e5)
    bad = "\x1b[31m\n[bold]x[/bold]"
    found = replace(one, key=replace(one.key, entry=bad, kernel=bad, shape=bad))
    data = session(0, [found], program=bad, at=time.time())
    text = printed(summarize(kept(tmp_path, [replace(data, host=bad)]), since=0))
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_the_page(report: Report, tmp_path: Path) -> None:
    path = build(report, tmp_path / "html")
    page = path.read_text(encoding="utf-8")
    assert report.headline in page
    assert page.count("<svg") == 5
    assert 'class="mark slower">SLOWER' in page
    assert "tritmark gate OLD NEW" in re.sub("<[^>]+>", "", page)
    assert "http:" not in page.replace("http://www.w3.org", "")


def test_a_page_of_many_sessions_has_an_end(tmp_path: Path) -> None:
    now = time.time()
    many = [session(number, [series(1e5, calls=30, seed=number)], at=now - number) for number in range(64)]
    page = render(summarize(kept(tmp_path, many), since=0))
    assert "34 earlier sessions" in page
    assert page.count("did not end") == 0
    shown, _, folded = page.partition('id="sessions"')[2].partition("<details")
    assert (shown.count('<th scope="row">'), folded.count('<th scope="row">')) == (30, 34)
    assert "without 14 earlier sessions" in page, "of the plot's table"


def test_a_page_without_sessions(tmp_path: Path) -> None:
    page = render(summarize(Database(tmp_path / "none.sqlite"), since=0))
    assert "TRITMARK_MONITOR=1" in page
    assert "<svg" not in page


def test_names_cannot_write_to_the_page(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>\x1b[31m"
    sessions = []
    for number in range(2):
        one = series(1e5, seed=number, errors={bad: 1})
        found = replace(one, key=replace(one.key, entry=bad, kernel=bad, shape=bad))
        made = session(number, [found], program=bad, at=time.time() + number - 5, version=bad)
        sessions.append(replace(made, host=bad))
    page = render(summarize(kept(tmp_path, sessions), since=0))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "alert(1)" in page


@pytest.mark.parametrize("width", [60, 80, 120])
def test_text_fits_the_terminal(report: Report, width: int) -> None:
    assert max(map(len, printed(report, width).splitlines())) <= width


def test_json_has_every_figure(report: Report) -> None:
    found = json.loads(json.dumps(as_json(report), allow_nan=False))
    assert found["version"] == 1
    slower = [each for each in found["series"] if each["newest_verdict"] == "SLOWER"]
    assert [each["shape"] for each in slower] == [DOWN]
    assert len(found["sessions"]) == len(report.sessions)
    assert all(len(each["points"]) >= 1 for each in slower)
    assert found["ceilings"]["cpu"]["read"] == 60e9


def test_sparkline() -> None:
    assert sparkline([1.0]) == "–"
    assert sparkline([1.0, 1.01, 1.02]) == "▃▃▃"
    assert sparkline([1.0, 2.0]) == "▁█"
    assert len(sparkline([float(each) for each in range(1, 100)])) == 8


def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Exit status and all output."""
    status, out, err = outcome_of(monkeypatch, capsys, *arguments)
    return status, out + err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    sessions = [session(number, [series(1e5, seed=number)], at=now - 100 + number) for number in range(8)]
    database = kept(tmp_path, sessions)
    asked = ("monitor", "report", "--database", str(database.path), "--out", str(tmp_path))
    status, out = command(capsys, monkeypatch, *asked)
    assert (status, "8 sessions" in out) == (0, True)
    database.save(session(8, [series(1.4e5, seed=8)], at=now))
    status, out = command(capsys, monkeypatch, *asked, "--format", "json", "--since", "1h")
    assert status == 1
    assert json.loads(out)["series"][0]["newest_verdict"] == "SLOWER"
    status, out = command(capsys, monkeypatch, *asked, "--program", "other")
    assert (status, "No sessions" in out) == (0, True)
    status, out = command(capsys, monkeypatch, *asked, "--since", "yesterday")
    assert (status, "7d" in out) == (2, True)
