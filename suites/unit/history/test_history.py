"""`tritmark history`: steps, asv's files, the order of commits, the command."""

from __future__ import annotations

import json
import subprocess
import sys
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("asv", reason="the history extra is not installed")

import typer
from asv.machine import Machine, MachineCollection
from asv.results import Results
from typer.testing import CliRunner

from tritmark.harness.cli.history import history
from tritmark.harness.errors import BadEnvironmentError, UsageError
from tritmark.harness.history.identity import machine_name, register
from tritmark.harness.history.regressions import order, regressions, since
from tritmark.harness.history.results import RATIO, values
from tritmark.harness.history.steps import rises
from tritmark.harness.history.unmeasured import unmeasured

NAME = "some-cpu-2-cores-0123456789ab"
KEY = f"anchor.Quantize.{RATIO}"


def noisy(levels, seed=0, spread=0.003):
    rng = np.random.default_rng(seed)
    return [float(level * np.exp(rng.normal(0, spread))) for level in levels]


def test_a_step_is_found_where_it_is():
    (step,) = rises(noisy([1.0] * 30 + [1.05] * 10))
    assert (step.before, step.after, step.reverted) == (29, 30, None)
    assert step.size == pytest.approx(0.05, abs=0.01)
    assert step.confidence > 0.999


def test_a_step_is_found_once_two_commits_have_it():
    assert [step.after for step in rises(noisy([1.0] * 20 + [1.05] * 2))] == [20]


@pytest.mark.parametrize(
    "levels", [[1.0] * 60, [1.0] * 30 + [0.9] * 30, [1.0] * 30 + [1.02] * 30, [1.0] * 30 + [1.5] + [1.0] * 29]
)
def test_nothing_is_found_where_nothing_got_slower(levels):
    assert rises(noisy(levels)) == []


def test_a_reverted_step_says_when():
    (step,) = rises(noisy([1.0] * 20 + [1.08] * 10 + [1.0] * 20))
    assert (step.after, step.reverted) == (20, 30)


def test_small_rises_add_up():
    found = rises(noisy([1.0] * 20 + [1.025] * 20 + [1.05] * 20, spread=0.001))
    assert [(step.before, step.after) for step in found] == [(19, 40)]


def test_a_second_step_counts_from_the_first():
    found = rises(noisy([1.0] * 20 + [1.06] * 20 + [1.15] * 20))
    assert [step.after for step in found] == [20, 40]
    assert found[1].size == pytest.approx(1.15 / 1.06 - 1, abs=0.01)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 5.0), st.integers(6, 40))
def test_only_ratios_count(seed, scale, at):
    series = noisy([1.0] * at + [1.06] * 12, seed)
    assert [(s.before, s.after) for s in rises(series)] == [
        (s.before, s.after) for s in rises([scale * each for each in series])
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), max_size=40))
def test_any_series_is_taken(series):
    for step in rises(series):
        assert 0 <= step.before < step.after < len(series)
        assert step.size > 0.03 * 0.999
        assert 0 <= step.confidence <= 1
        assert step.reverted is None or step.reverted > step.after
        assert log(step.new / step.old) > 0


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A clone with 24 commits and their full hashes, oldest first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tritmark.harness.history.identity.machine_name", lambda: NAME)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "n")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "n@example.org")
    tree = b"committer n <n@example.org> %d +0000\ndata 0\n\n"
    text = b"".join(b"commit refs/heads/main\n" + tree % (1_700_000_000 + 86400 * day) for day in range(24))
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    subprocess.run(["git", "fast-import", "--quiet"], input=text, check=True)
    return tmp_path, subprocess.run(
        ["git", "rev-list", "--reverse", "main"], capture_output=True, text=True, check=True
    ).stdout.split()


def written(folder, commits, ratios, machine=NAME):
    """asv's own files of those commits."""
    machine_file = Machine()
    machine_file.__dict__.update(
        {"machine": machine, "cpu": "some", "arch": "x86_64", "num_cpu": "2", "os": "", "ram": "1"}
    )
    machine_file.save(str(folder))
    for position, (commit, ratio) in enumerate(zip(commits, ratios, strict=True)):
        date = 1000 * (1_700_000_000 + 86400 * position)
        results = Results({"machine": machine, "python": "3.11"}, {}, commit, date, "3.11", "virtualenv-py3.11", {})
        results._results[KEY] = [ratio, None, float("nan")]
        results._benchmark_params[KEY] = [
            ["'i2s_quantize/none/int8'"],
            ["'cpu:avx2'", "'cpu:avx512'", "'cpu:none'"],
            ["65536"],
        ]
        results._benchmark_version[KEY] = "1"
        for kept in (results._samples, results._stats, results._started_at, results._duration):
            kept[KEY] = None
        results.save(str(folder))


def asked(*arguments):
    app = typer.Typer(add_completion=False)
    app.command()(history)
    return CliRunner().invoke(app, list(arguments))


def history_of(results):
    app = typer.Typer()
    app.command()(history)
    done = CliRunner().invoke(app, ["--results", str(results)])
    if isinstance(done.exception, BadEnvironmentError):
        raise done.exception
    return done.exit_code


def test_the_command_lists_what_stands(repository):
    folder, commits = repository
    written(folder / "results/asv", commits, noisy([1.0] * 14 + [1.07] * 10))
    found = asked()
    assert found.exit_code == 1
    line = found.stdout.splitlines()[0]
    for part in (
        f"{commits[13][:10]}..{commits[14][:10]}",
        "2023-11-28",
        "i2s_quantize/none/int8 cpu:avx2 65536",
        NAME,
        "% sure",
    ):
        assert part in line
    told = json.loads(asked("--json").stdout)
    assert told["commits"] == 24
    (regression,) = told["regressions"]
    assert (regression["good"], regression["bad"], regression["reverted"]) == (commits[13], commits[14], None)
    assert asked("--since", commits[13]).exit_code == 1
    assert asked("--since", commits[14]).exit_code == 0
    assert asked("--since", "2023-11-28").exit_code == 1
    assert asked("--since", "2023-11-30").exit_code == 0
    with pytest.raises(UsageError, match="neither a revision"):
        since("nowhere", folder, order(folder))


def test_a_reverted_regression_is_listed_only_when_asked(repository):
    folder, commits = repository
    written(folder / "results/asv", commits, noisy([1.0] * 8 + [1.07] * 8 + [1.0] * 8))
    found = asked()
    assert (found.exit_code, found.stdout) == (0, f"0 regressions not reverted, in 24 commits measured on {NAME}\n")
    assert f"reverted in {commits[16][:10]}" in asked("--all").stdout


OTHER = "another-cpu-2-cores-ba9876543210"


def test_a_fresh_clone_reports_its_own_state(repository):
    """Results of another machine are listed separately and do not change the status."""
    folder, commits = repository
    written(folder / "results/asv", commits, noisy([1.0] * 14 + [1.07] * 10), machine=OTHER)
    found = asked()
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == f"0 regressions not reverted, in 0 commits measured on {NAME}"
    assert "no measurements on this machine" in lines[1]
    assert f"Results of {OTHER}, which do not apply to this machine:" in lines
    assert any(commits[14][:10] in line and OTHER in line for line in lines)
    told = json.loads(asked("--json").stdout)
    assert (told["machine"], told["commits"], told["regressions"]) == (NAME, 0, [])
    assert [each["bad"] for each in told["regressions_elsewhere"]] == [commits[14]]


def test_this_machine_s_regression_counts_beside_another_s(repository):
    folder, commits = repository
    written(folder / "results/asv", commits, noisy([1.0] * 24), machine=OTHER)
    written(folder / "results/asv", commits, noisy([1.0] * 14 + [1.07] * 10))
    found = asked()
    assert found.exit_code == 1
    assert found.stdout.splitlines()[0].endswith(f"on {NAME}")
    assert "no regressions" in found.stdout


def test_a_tracked_file_is_left_as_it_is(repository):
    folder, commits = repository
    results = folder / "results/asv"
    written(results, commits, noisy([1.0] * 24))
    path = next((results / NAME).glob(f"{commits[3][:8]}*.json"))
    path.write_bytes(b"{")
    subprocess.run(["git", "add", "--", str(path)], check=True)
    before = subprocess.run(["git", "status", "--porcelain"], capture_output=True, check=True).stdout
    told: list[str] = []
    assert len(list(values(results, told.append))) == 23
    assert "git checkout" in told[0]
    assert path.read_bytes() == b"{"
    assert asked().exit_code == 0
    assert subprocess.run(["git", "status", "--porcelain"], capture_output=True, check=True).stdout == before


def test_two_machines_are_never_compared(repository):
    folder, commits = repository
    written(folder / "results/asv", commits[:12], noisy([1.0] * 12))
    written(folder / "results/asv", commits[12:], noisy([1.2] * 12), machine="another-cpu")
    assert asked("--all").stdout.startswith("0 regressions")


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"version": 99}', b"[]", b'{"version": 2, "results": {"a": 3}}', b"\xff\xfe"]
)
def test_a_damaged_file_is_set_aside_whole(repository, damage):
    folder, commits = repository
    results = folder / "results/asv"
    written(results, commits, noisy([1.0] * 24))
    path = next((results / NAME).glob(f"{commits[3][:8]}*.json"))
    aside = path.with_name(path.name + ".set-aside")
    for expected in (aside, aside.with_name(aside.name + "-2")):
        path.write_bytes(damage)
        told: list[str] = []
        assert len(list(values(results, told.append))) == 23
        assert len(told) == 1
        assert str(path) in told[0]
        assert expected.read_bytes() == damage
        assert not path.exists()


def test_commits_of_elsewhere_are_left_out(repository):
    folder, commits = repository
    written(folder / "results/asv", [*commits[:-1], "f" * 40], noisy([1.0] * 24))
    told: list[str] = []
    assert regressions(values(folder / "results/asv", told.append), order(folder), told.append) == []
    assert told == ["left out: results of 1 commit outside the history of HEAD"]


def test_in_a_shallow_clone_nothing_is_left_out_in_silence(repository, tmp_path, monkeypatch):
    """A shallow clone lacks early commits, so their regressions would be missing."""
    folder, commits = repository
    written(folder / "results/asv", commits, noisy([1.0] * 24))
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth", "5", folder.as_uri(), shallow], check=True)
    monkeypatch.chdir(shallow)
    with pytest.raises(BadEnvironmentError, match=r"is a shallow clone.*next: git fetch --unshallow"):
        history_of(folder / "results/asv")
    found = asked("--unmeasured", "3", "--results", str(folder / "results/asv"))
    assert isinstance(found.exception, BadEnvironmentError)
    assert found.stdout == ""
    with pytest.raises(BadEnvironmentError, match="shallow clone"):
        since(commits[0], shallow, order(shallow))
    subprocess.run(["git", "fetch", "--quiet", "--unshallow"], check=True)
    assert history_of(folder / "results/asv") == 0


def test_git_that_refuses_or_is_missing_is_named(repository, monkeypatch):
    folder, _ = repository
    (folder / ".git/config").write_text("[core\n")
    with pytest.raises(BadEnvironmentError, match=r"git refuses it: fatal: bad config line"):
        order(folder)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(BadEnvironmentError, match=r"git cannot be run.*next: install git"):
        order(folder)


def test_bad_usage_is_told(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no such folder"):
        list(values(tmp_path / "none", lambda text: None))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="in a clone"):
        order(tmp_path)
    monkeypatch.setitem(sys.modules, "asv.step_detect", None)
    with pytest.raises(UsageError, match=r"asv, .*history.* is not installed; next: .*history"):
        rises([1.0] * 8)


def test_asv_is_told_a_name_without_the_host(tmp_path):
    file = tmp_path / "asv.json"
    name = register(file)
    assert name == machine_name()
    told = MachineCollection.load(name, _path=str(file))
    import platform

    assert told["machine"] == name
    assert platform.node() not in name.split("-")
    assert Machine.load(_path=str(file)).machine == name
    file.write_text("{")
    with pytest.raises(UsageError, match="move it away"):
        register(file)


@given(st.integers(1, 60), st.sets(st.integers(0, 59)), st.integers(1, 12))
def test_every_nth_commit_after_the_newest_measured_one_is_unmeasured(count, positions, every):
    commits = {f"c{position}": position for position in range(count)}
    found = unmeasured(commits, [f"c{position}" for position in positions], every)
    known = [position for position in positions if position < count]
    if known:
        assert [commits[commit] for commit in found] == list(range(max(known) + every, count, every))
    else:
        assert found == [f"c{count - 1}"]


def test_the_command_prints_commits_for_asv(repository):
    folder, commits = repository
    (folder / "results/asv").mkdir(parents=True)

    def printed(every):
        found = asked("--unmeasured", str(every))
        assert found.exit_code == 0
        return found.stdout.split()

    assert printed(3) == commits[-1:]
    written(folder / "results/asv", commits[:2], [1.0, 1.0])
    written(folder / "results/asv", commits[20:21], [1.0], machine=OTHER)
    assert printed(10) == [commits[11], commits[21]]
    assert printed(100) == []
