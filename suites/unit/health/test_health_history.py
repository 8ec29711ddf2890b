"""The history of probes: bounded, readable after damage, and who may not write it is told."""

from __future__ import annotations

import json
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.health import history
from tritmark.harness.health.finding import HealthFinding, Severity
from tritmark.harness.health.history import HealthHistory, PastFinding, PastProbe, since
from tritmark.harness.locks import locked


def probe(at: int, *bad: str, checked: tuple[str, ...] = ("GPU 0: power", "GPU 0: heat"), **more: Any) -> PastProbe:
    findings = tuple(PastFinding(unit="GPU 0", name=name, severity=Severity.WARNING, found="") for name in bad)
    known = {"host": platform.node(), "boot": "b", "overall": Severity.OK}
    return PastProbe(**known | more, at=f"2026-01-01T00:00:{at:02}Z", checked=checked, findings=findings)


def test_probes_come_back_in_their_order(tmp_path: Path) -> None:
    kept = HealthHistory(tmp_path / "deep" / "history.jsonl")
    assert kept.probes() == ([], 0)
    each = [probe(at, gpus={"GPU-0": {"corrected": at}}, log_us=at) for at in range(3)]
    for one in each:
        assert kept.add(one) == ""
    assert kept.probes() == (each, 0)


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = HealthHistory(tmp_path / "history.jsonl")
    monkeypatch.setattr(history, "MOST", 4)
    for at in range(9):
        kept.add(probe(at))
    assert [each.at[-3:-1] for each in kept.probes()[0]] == ["05", "06", "07", "08"]
    monkeypatch.setattr(history, "MOST", 1000)
    monkeypatch.setattr(history, "MOST_BYTES", 700)
    for at in range(9):
        kept.add(probe(at))
    assert kept.path.stat().st_size <= 700
    assert kept.probes()[0][-1].at.endswith("08Z")


def test_bytes_are_counted_and_separators_of_unicode_end_no_line(tmp_path: Path) -> None:
    kept = HealthHistory(tmp_path / "history.jsonl")
    found = PastFinding(unit="GPU 0", name="heat", severity=Severity.WARNING, found="\u2028\x85\x1e\xb0" * 9)
    for at in range(3):
        assert kept.add(probe(at).model_copy(update={"findings": (found,)})) == ""
    probes, broken = kept.probes()
    assert ([each.findings for each in probes], broken) == ([(found,)] * 3, 0)
    assert history._bounded(["\xe9" * (history.MOST_BYTES // 2)], "new") == ["new"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=9), max_size=9))
def test_the_newest_is_always_kept(lines: list[str]) -> None:
    assert history._bounded(lines, "x" * (history.MOST_BYTES + 1)) == ["x" * (history.MOST_BYTES + 1)]
    assert history._bounded(lines, "new") == [each for each in lines if each.strip()] + ["new"]


def test_damaged_lines_are_counted_and_other_hosts_are_left_out(tmp_path: Path) -> None:
    kept = HealthHistory(tmp_path / "history.jsonl")
    kept.add(probe(1))
    kept.add(probe(2, host="another"))
    text = kept.path.read_text()
    kept.path.write_bytes(text.encode() + b'{"at": 3}\n\xff\n{"at\n\n')
    assert kept.add(probe(4)) == ""
    probes, broken = kept.probes()
    assert ([each.at[-3:-1] for each in probes], broken) == (["01", "04"], 3)
    assert len(kept.probes("another")[0]) == 1


def test_a_newer_tritmark_may_add_fields(tmp_path: Path) -> None:
    kept = HealthHistory(tmp_path / "history.jsonl")
    kept.path.write_text(json.dumps(probe(1).model_dump(mode="json") | {"later": 1}) + "\n")
    assert kept.probes() == ([probe(1)], 0)


def test_where_nothing_can_be_written_the_reason_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in HealthHistory(tmp_path / "file" / "history.jsonl").add(probe(1))
    monkeypatch.setattr(history, "_LOCK_S", 0.0)
    kept = HealthHistory(tmp_path / "history.jsonl")
    with locked(kept.path.with_suffix(".lock")):
        assert "could not be acquired" in kept.add(probe(1))


def test_two_probes_at_once_are_both_kept(tmp_path: Path) -> None:
    kept = HealthHistory(tmp_path / "history.jsonl")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda at: kept.add(probe(at)), range(20))) == {""}
    probes, broken = kept.probes()
    assert (sorted(each.at for each in probes), broken) == ([probe(at).at for at in range(20)], 0)


def test_the_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_STATE", str(tmp_path))
    assert HealthHistory().path == tmp_path / "health" / "history.jsonl"
    monkeypatch.delenv("TRITMARK_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert HealthHistory().path == tmp_path / "state" / "tritmark" / "health" / "history.jsonl"


@pytest.mark.parametrize(
    ("past", "begun"),
    [
        ([], ""),
        ([probe(1)], ""),
        ([probe(1, "heat"), probe(2)], ""),
        ([probe(1), probe(2, "heat"), probe(3, "heat", "power")], "02"),
        ([probe(1, "heat"), probe(2, checked=()), probe(3, "heat")], "01"),
        ([probe(1, "heat"), probe(2, checked=())], "01"),
        ([probe(1, "power")], ""),
    ],
)
def test_since_when(past: list[PastProbe], begun: str) -> None:
    """A probe that did not make the check neither begins nor ends it."""
    finding = HealthFinding(unit="GPU 0", name="heat", severity=Severity.CRITICAL, found="")
    assert since(finding, past)[-3:-1] == begun
