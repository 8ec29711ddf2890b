"""`tritmark league --collect`: a site of signed Records, and everything that must not get into it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, outcome_of
from made_up_records import HOSTILE
from ssh_keys import made_key, trusting

from tritmark.harness.cli.exit_status import PASSED, UNTRUSTED, USAGE
from tritmark.harness.record import Record, Status, with_digest
from tritmark.harness.report import landing
from tritmark.harness.signing import sign, signature_path

Command = Callable[..., Outcome]
IDS = [f"2025031{day}T000000Z-0000000{day}" for day in range(1, 8)]
OTHER = "00112233aabb"
"""The id of the second machine."""


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: made_key(folder / name) for name in ("alice", "bob", "mallory")}


@pytest.fixture
def records(tmp_path: Path, keys: dict[str, Path]) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    trusting(
        folder / "allowed_signers",
        ("alice@example.org", "", keys["alice"]),
        ("bob@example.org", "", keys["bob"]),
    )
    return folder


@pytest.fixture
def league(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `tritmark league`."""

    def run(*arguments: str | Path) -> Outcome:
        return outcome_of(monkeypatch, capsys, "league", *arguments)

    return run


def kept(path: Path, record: Record, number: int, key: Path | None, **change: Any) -> Path:
    """The Record as a file, with the id and day of that number, signed by the key."""
    update = {"id": IDS[number], "created": f"2025-03-1{number + 1}T00:00:00+00:00", **change}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_digest(record.model_copy(update=update)))
    if key is not None:
        sign(path, key)
    return path


def elsewhere(record: Record) -> dict[str, Any]:
    return {
        "machine": record.machine.model_copy(update={"id": OTHER, "cpu": "Another CPU", "gpus": ()}),
        "runs": (tuple(run for run in record.runs if run.device == "cpu")),
        "lanes": record.lanes[:1],
        "counts": {},
    }


def rows(page: Path, machine: str) -> list[str]:
    """The rows of the figures that link to this machine."""
    found = page.read_text().replace("<wbr>", "")
    table = found[found.index('id="figures"') : found.index('id="machines"')]
    return [row for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL) if f"machines/{machine}.html" in row]


def test_three_records_of_two_machines_of_which_one_is_forged(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    commit = gpu_record.environment.model_copy(update={"commit": "feedfacefeedface"})
    kept(records / "a.json", gpu_record, 0, keys["alice"])
    kept(records / "b" / "b.json", gpu_record, 1, keys["bob"], environment=commit, **elsewhere(gpu_record))
    forged = kept(records / "c.json", gpu_record, 2, keys["alice"])
    # With a digest of its own, nothing else shows it.
    faster = gpu_record.machine.model_copy(update={"cpu": "A Faster CPU"})
    forged.write_text(with_digest(gpu_record.model_copy(update={"id": IDS[2], "machine": faster})))

    status, out, err = league("--collect", records, "--out", tmp_path / "site")
    assert status == PASSED, err
    assert "2 machines" in out
    assert "2 Records; 1 file refused" in out
    assert "refused: c.json: FORGED: " in err
    index = tmp_path / "site" / "index.html"
    text = index.read_text().replace("<wbr>", "")
    assert text.index("c.json: FORGED") < text.index('id="figures"')
    assert "A Faster CPU" not in text
    assert IDS[2] not in text
    machine = gpu_record.machine.id
    here, there = rows(index, machine), rows(index, OTHER)
    assert here
    assert there
    for row in here:
        assert all(each in row for each in ("3f9a1c0d", "2025-03-11", "alice@example.org", f"records/{IDS[0]}.json"))
    for row in there:
        assert all(each in row for each in ("feedface", "2025-03-12", "bob@example.org", f"records/{IDS[1]}.json"))
    assert "Made-up GPU" in "".join(here)
    assert "Made-up GPU" not in "".join(there)
    assert {path.name for path in (tmp_path / "site" / "records").iterdir()} == {
        f"{id}.json{suffix}" for id in IDS[:2] for suffix in ("", ".sig")
    }
    copy = tmp_path / "site" / "records" / f"{IDS[0]}.json"
    assert copy.read_bytes() == (records / "a.json").read_bytes()
    assert signature_path(copy).read_bytes() == signature_path(records / "a.json").read_bytes()


def test_the_site_needs_no_network_and_its_links_are_relative(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    kept(records / "a.json", gpu_record, 0, keys["alice"])
    kept(records / "b.json", gpu_record, 1, keys["alice"])
    site = tmp_path / "site"
    assert league("--collect", records, "--out", site)[0] == PASSED
    assert (site / ".nojekyll").is_file()
    pages = [site / "index.html", *sorted((site / "machines").iterdir())]
    assert len(pages) == 2
    for page in pages:
        text = page.read_text()
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            if link.startswith("#"):
                assert f'id="{link[1:]}"' in text
            elif link != "data:,":
                assert not re.match(r"[a-z]+:|/", link)
                assert (page.parent / link).is_file(), link
    assert "Speed over the Records" in pages[1].read_text(), "two Records are a history"


def test_a_record_with_fewer_workloads_is_no_change_of_speed(gpu_record: Record) -> None:
    """Small workloads reach another share of the ceiling than large ones."""
    kernel = next(run.kernel for run in gpu_record.runs if run.performance.cold)
    first = next(run.id for run in gpu_record.runs if run.kernel == kernel and run.performance.cold)
    fewer = tuple(run for run in gpu_record.runs if run.id != first)
    assert sum(run.kernel == kernel and run.performance.cold is not None for run in fewer) > 0
    rows = [
        landing.row(gpu_record, "a.html"),
        landing.row(gpu_record.model_copy(update={"id": IDS[1], "runs": fewer}), "b.html"),
    ]
    (plot,) = (each for each in landing.over_records(rows)["plots"] if each["name"].startswith(f"{kernel},"))
    before, after = (value for _, value in plot["rows"])
    assert before == after


def test_what_is_not_signed_trusted_or_a_record_is_refused_and_listed(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    good = kept(records / "good.json", gpu_record, 0, keys["alice"])
    kept(records / "unsigned.json", gpu_record, 1, None)
    kept(records / "untrusted.json", gpu_record, 2, keys["mallory"])
    (records / "text.json").write_text("{}")
    shutil.copy(signature_path(good), records / "alone.json.sig")
    shutil.copy(signature_path(good), records / "borrowed.json.sig")
    kept(records / "borrowed.json", gpu_record, 3, None)
    (records / "link.json").symlink_to(good)
    (records / ".git").mkdir()
    (records / ".git" / "ignored.json").write_text("{}")
    first, *others = gpu_record.runs
    wrong = first.model_copy(update={"accuracy": first.accuracy.model_copy(update={"mismatches": 3})})
    assert wrong.accuracy.status is Status.PASS
    liar = kept(records / "liar.json", gpu_record, 4, None, runs=(wrong, *others))
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-n", "record@tritmark", "-f", str(keys["bob"]), str(liar)], check=True
    )
    status, out, err = league("--collect", records, "--out", tmp_path / "site")
    assert status == PASSED
    assert "1 Record; 7 files refused" in out
    text = (tmp_path / "site" / "index.html").read_text()
    for name, words in {
        "unsigned.json": "no signature",
        "untrusted.json": "which .* does not have",
        "text.json": "no signature",
        "alone.json.sig": "a signature without its Record",
        "borrowed.json": "FORGED",
        "link.json": "a symbolic link",
        "liar.json": "signed by bob@example.org, but contradicts itself",
    }.items():
        assert re.search(f"refused: {re.escape(name)}: .*{words}", err), name
        assert name in re.sub("<wbr>", "", text)
    assert "ignored" not in err


def test_the_same_record_counts_once_and_has_all_its_signers(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    kept(records / "a.json", gpu_record, 0, keys["alice"])
    kept(records / "copy" / "b.json", gpu_record, 0, keys["bob"])
    kept(records / "copy" / "c.json", gpu_record, 0, keys["alice"])
    status, out, err = league("--collect", records, "--out", tmp_path / "site")
    assert (status, "1 machine" in out, "1 Record\n" in out, err) == (PASSED, True, True, "")
    text = (tmp_path / "site" / "index.html").read_text()
    assert "2 further copies of the same Records counted once" in text
    for row in rows(tmp_path / "site" / "index.html", gpu_record.machine.id):
        assert "alice@example.org, bob@example.org" in row


def test_different_records_with_one_id_are_all_refused(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    kept(records / "a.json", gpu_record, 0, keys["alice"])
    kept(records / "b.json", gpu_record, 0, keys["bob"], suite="other")
    status, _, err = league("--collect", records, "--out", tmp_path / "site")
    assert status == UNTRUSTED
    assert err.count(f"several different Records have the id {IDS[0]}") == 2
    assert not (tmp_path / "site").exists()


def test_newer_figures_replace_older_ones_and_trust_that_ended_removes_them(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    kept(records / "a.json", gpu_record, 0, keys["alice"])
    kept(records / "b.json", gpu_record, 1, keys["bob"])
    site = tmp_path / "site"
    assert league("--collect", records, "--out", site)[0] == PASSED
    assert all("2025-03-12" in row for row in rows(site / "index.html", gpu_record.machine.id))
    only = trusting(tmp_path / "only", ("alice@example.org", "", keys["alice"]))
    assert league("--collect", records, "--trusted", only, "--out", site)[0] == PASSED
    assert all("2025-03-11" in row for row in rows(site / "index.html", gpu_record.machine.id))
    assert not (site / "records" / f"{IDS[1]}.json").exists()


def test_without_a_trusted_record_a_published_site_stays(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    file = kept(records / "a.json", gpu_record, 0, keys["alice"])
    site = tmp_path / "site"
    assert league("--collect", records, "--out", site)[0] == PASSED
    before = (site / "index.html").read_bytes()
    file.write_text(file.read_text().replace("bench-03", "bench-04"))
    status, _, err = league("--collect", records, "--out", site)
    assert (status, "no Record was accepted" in err) == (UNTRUSTED, True)
    assert (site / "index.html").read_bytes() == before


def test_names_in_a_record_are_inert(
    records: Path, keys: dict[str, Path], gpu_record: Record, tmp_path: Path, league: Command
) -> None:
    """A trusted signer may write them; the names of kernels cannot hold them, because `verify` compares these."""
    environment = gpu_record.environment.model_copy(update={"commit": HOSTILE, "tritmark": HOSTILE})
    machine = gpu_record.machine.model_copy(update={"cpu": HOSTILE})
    path = records / f"{HOSTILE.replace('/', ' ')}.json"
    kept(path, gpu_record, 0, keys["alice"], environment=environment, machine=machine, suite=HOSTILE)
    kept(records / "<b>.json", gpu_record, 1, None)
    status, _, err = league("--collect", records, "--out", tmp_path / "site")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 2
    for page in pages:
        assert "<script>alert" not in page.read_text()
        assert "<img src=http" not in page.read_text()
    assert status == PASSED, err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--collect", "records"), "--collect without --out SITE"),
        (("--collect", "records", "--out", "records/site"), "overlaps with the Records"),
        (("--collect", "records", "--out", "."), "overlaps with the Records"),
        (("--collect", "records", "--out", "mine"), "holds files of something else"),
        (("--collect", "nowhere", "--out", "site"), "the trusted keys cannot be read"),
        (("--collect", "records", "--suite", "quick", "--out", "site"), "beside a Record, or options of a measurement"),
        (("--trusted", "records/allowed_signers"), "--trusted without --collect"),
    ],
)
def test_other_uses_are_refused(
    records: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    league: Command,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("<p>mine</p>")
    status, _, err = league(*arguments)
    assert status == USAGE
    assert words in err
    assert (tmp_path / "mine" / "index.html").read_text() == "<p>mine</p>"
