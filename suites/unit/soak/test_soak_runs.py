"""`tritmark soak --runs`: its faults strike, and a harness that survives them badly is found out."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from typer.testing import CliRunner

from tritmark.harness.caches import CACHE
from tritmark.harness.cli import exit_status
from tritmark.harness.cli.soak import soak as command
from tritmark.harness.measure.statistics import least_share
from tritmark.harness.providers import load
from tritmark.harness.record import Record, Status
from tritmark.harness.soak import preload, runs, trials
from tritmark.harness.soak.commands import Ended, run
from tritmark.harness.soak.ground import Command, Ground, record
from tritmark.harness.soak.kinds import FaultTally, FaultTrial, Kind, Soaked
from tritmark.harness.soak.planted import FaultPlan, PlantedLaunch, _State, source
from tritmark.harness.spec import KernelKey

pytestmark = pytest.mark.long

INSTALLED = load()
LEGAL = frozenset(exit_status.MEANINGS) - {exit_status.INTERRUPTED}
KEY = KernelKey("cpu", "i2s_dequantize", "none", "float32")
SEED = 5


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short path: runs put sockets into it, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="soak", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(command)
    return made


@pytest.mark.nightly
def test_every_kind_twice() -> None:
    """The real thing, in small: each kind strikes, and the harness survives all of them."""
    done = CliRunner().invoke(app(), ["--runs", str(2 * len(Kind)), "--seed", str(SEED)], env={"COLUMNS": "120"})
    assert done.exit_code in {exit_status.PASSED, exit_status.UNTRIED}, done.output
    rows = {line[:19].strip(): line[19:].split() for line in done.stdout.splitlines()}
    for kind in Kind:
        if f"not planted: {kind}" not in done.stdout:
            counted, planted, survived, to_name, named, wrong, lost = map(int, rows[kind.value])
            assert counted >= 2
            assert (survived, named, wrong, lost) == (planted, to_name, 0, 0)


@given(st.integers(1, 300), st.integers(0, 1 << 30), st.sets(st.sampled_from(list(Kind)), max_size=9))
def test_kinds_are_drawn_equally_often(count: int, seed: int, without: set[Kind]) -> None:
    drawn = runs.drawn(count, seed, frozenset(without))
    assert len(drawn) == count
    assert not without & set(drawn)
    counts = [drawn.count(kind) for kind in Kind if kind not in without]
    assert max(counts) - min(counts) <= 1
    assert drawn == runs.drawn(count, seed, frozenset(without))


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_bound_is_the_exact_one(both: tuple[int, int]) -> None:
    successes, trials_ = both
    exact = beta.ppf(0.05, successes, trials_ - successes + 1) if successes else 0.0
    assert least_share(successes, trials_) == pytest.approx(exact, abs=1e-9)


def struck(**fields: Any) -> FaultTrial:
    return FaultTrial(Kind.CRASH, "SIGSEGV", struck=True, named=True, **fields)


@pytest.mark.parametrize(
    ("bad", "failed"),
    [
        (FaultTrial(Kind.CRASH, "", struck=True, named=True), False),
        (FaultTrial(Kind.CRASH, "", struck=True, harmless=True), False),
        (FaultTrial(Kind.CRASH, "", struck=False), False),
        (struck(died="it ended with a traceback"), True),
        (struck(wrong=["a correct kernel: fail"]), True),
        (struck(lost=["cpu/x"]), True),
        (FaultTrial(Kind.CRASH, "", struck=True), True),
        (FaultTrial(Kind.CRASH, "", struck=False, died="it ended with signal 11"), True),
    ],
)
def test_one_bad_run_fails_the_soak(bad: FaultTrial, failed: bool) -> None:
    found = Soaked([*(struck() for _ in range(50)), bad], absent=dict.fromkeys(set(Kind) - {Kind.CRASH}, ""))
    assert (found.failed, found.passed) == (failed, not failed)
    assert (bad in found.bad) == failed


def test_a_kind_that_never_struck_is_not_passed() -> None:
    found = Soaked(
        [struck(), FaultTrial(Kind.HANG, "busy")], absent=dict.fromkeys(set(Kind) - {Kind.CRASH, Kind.HANG}, "")
    )
    assert (found.tried, found.failed, found.passed) == (False, False, False)
    assert FaultTally.of(found.trials).planted == 1


@pytest.mark.parametrize(
    ("ended", "died"),
    [
        (Ended(0, "PASS", 1.0), ""),
        (Ended(1, "FAIL", 1.0), ""),
        (Ended(6, "tritmark: no space; next: ...", 1.0), ""),
        (Ended(1, "Traceback (most recent call last):\n  ...", 1.0), "traceback"),
        (Ended(-11, "", 1.0), "signal 11"),
        (Ended(130, "", 1.0), "exit status 130"),
        (Ended(-9, "", 180.0, endless=True), "did not end"),
        (Ended(0, "PASS", 1.0, left=2), "2 processes"),
    ],
)
def test_how_a_command_died(ended: Ended, died: str) -> None:
    found = ended.died(LEGAL)
    assert died in found
    assert bool(found) == bool(died)


@pytest.fixture(scope="module")
def library() -> Path:
    return preload.library()


def test_the_clock_jumps_and_the_steady_one_does_not(library: Path, tmp_path: Path) -> None:
    code = "import time\nfor _ in range(8): print(time.time(), time.monotonic()); time.sleep(0.1)"
    done = run(["-c", code], tmp_path, preload.jumping(library, 7))
    system, steady = np.array([line.split() for line in done.text.splitlines()], float).T
    assert np.abs(np.diff(system)).max() > 60
    assert np.diff(steady).min() > 0
    assert np.ptp(steady) < 60


@given(calls=st.integers(0, 5))
def test_the_disk_is_full_after_so_many_calls(calls: int) -> None:
    folder = Path(tempfile.mkdtemp(dir=os.environ["FOLDER_OF_TEST"]))
    marker, there, elsewhere = folder / "marker", folder / "there", folder / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    code = (
        "import os\nfor number in range(3):\n for name in ('there', 'elsewhere'):\n"
        "  try:\n   with open(f'{name}/{number}', 'w') as file: file.write('hello')\n   print(name, 'ok')\n"
        "  except OSError as error: print(name, error.errno)"
    )
    done = run(["-c", code], folder, preload.full(preload.library(), there, calls, marker))
    said = [line.split() for line in done.text.splitlines()]
    # Two calls a file: the creation and the write.
    assert [what for name, what in said if name == "there"] == ["ok"] * (calls // 2) + ["28"] * (3 - calls // 2)
    assert [what for name, what in said if name == "elsewhere"] == ["ok"] * 3
    assert marker.exists()


class Inner:
    """A correct launch that writes 2.0, or reports a forbidden element."""

    threads_used = 1

    def __init__(self, outputs: dict[str, Any], bad: int) -> None:
        self.outputs, self.bad = outputs, bad

    def run(self) -> None:
        for each in self.outputs.values():
            each[...] = 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32"])
@pytest.mark.parametrize(("form", "bad"), [("wrong", -1), ("nan", -1), ("swallowed", 3), ("swallowed", -1)])
@given(place=st.floats(0, 1), call=st.integers(1, 4), share=st.sampled_from([0.0, 1.0]))
def test_a_fault_of_the_results_changes_one_element_when_it_says_so(
    dtype: str, form: str, bad: int, place: float, call: int, share: float
) -> None:
    marker = Path(os.environ["FOLDER_OF_TEST"], "marker")
    marker.write_bytes(b"")
    outputs = {"q": np.zeros((3, 5), dtype)}
    plan = FaultPlan(form=form, marker=str(marker), call=call, share=share, place=place)
    launch = PlantedLaunch("faulty", plan, _State(), Inner(outputs, bad), outputs)  # type: ignore[arg-type]
    for number in range(1, 7):
        launch.run()
        due = number == call or (number > call and share == 1.0)
        nan_of_integers = form == "nan" and not dtype.startswith("float")
        changed = np.count_nonzero(outputs["q"] != 2)
        assert changed == (due and bad < 0 and form != "swallowed" and not nan_of_integers)
        assert launch.bad == (-1 if due and form == "swallowed" else bad)
    due_at_all = (form == "swallowed") == (bad >= 0) and not nan_of_integers
    assert bool(marker.read_bytes()) == due_at_all


@pytest.fixture(autouse=True)
def folder_of_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER_OF_TEST", str(tmp_path))


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Without filled caches."""
    return Ground(INSTALLED, tmp_path_factory.mktemp("ground"), 0)


@pytest.fixture(scope="module")
def crashed(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> tuple[FaultTrial, Path]:
    """A real run with a crash, and its folder."""
    folder = tmp_path_factory.mktemp("crashed")
    return trials.trial(Kind.CRASH, trials.TrialFolder(ground, folder, random.Random(2), LEGAL)), folder


def test_a_crash_is_named(crashed: tuple[FaultTrial, Path]) -> None:
    found, _ = crashed
    assert (found.struck, found.named, found.died, found.wrong, found.lost) == (True, True, "", [], [])
    assert not found.bad


def spoil(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """What becomes of each Run of a Record on disk."""
    real = record

    def changed(folder: Path) -> Record | None:
        made = real(folder)
        return made and made.model_copy(update={"runs": tuple(filter(None, map(change, made.runs)))})

    monkeypatch.setattr(trials, "record", changed)


def again(crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch) -> FaultTrial:
    """The same run judged again, without running it."""
    _, folder = crashed
    place = trials.TrialFolder.__new__(trials.TrialFolder)
    place.ground, place.folder, place.rng, place.legal = ground, folder, random.Random(2), LEGAL
    place.marker, place.environment = folder / "struck", {}
    monkeypatch.setattr(trials.TrialFolder, "run", lambda *_: Ended(1, "FAIL", 1.0))
    return trials.trial(Kind.CRASH, place)


def with_accuracy(run: Any, **fields: Any) -> Any:
    return run.model_copy(update={"accuracy": run.accuracy.model_copy(update=fields)})


def test_the_same_record_is_judged_alike(
    crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not again(crashed, ground, monkeypatch).bad


def test_a_broken_kernel_that_passes_is_a_wrong_figure(
    crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda run: with_accuracy(run, status=Status.PASS, reason="", caught_by=()))
    found = again(crashed, ground, monkeypatch)
    assert "with a fault: accuracy pass" in found.wrong[0]
    assert not found.named


@pytest.mark.parametrize(
    "fields", [{"reason": "was killed by SIGKILL"}, {"caught_by": ("hang",)}, {"caught_by": ()}, {"reason": ""}]
)
def test_another_cause_is_no_name(
    crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    spoil(monkeypatch, lambda run: with_accuracy(run, **fields) if run.variant == "faulty" else run)
    found = again(crashed, ground, monkeypatch)
    assert not found.named
    assert found.bad


def test_a_lost_run_is_found(crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda run: run if run.variant == "faulty" else None)
    (lost,) = again(crashed, ground, monkeypatch).lost
    assert "/honest" in lost


def test_a_correct_kernel_that_fails_is_a_wrong_verdict(
    crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda run: with_accuracy(run, status=Status.FAIL, reason="x[0] is 1, expected 0"))
    assert any("a correct kernel" in each for each in again(crashed, ground, monkeypatch).wrong)


def test_a_record_that_was_changed_is_found(
    crashed: tuple[FaultTrial, Path], ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = crashed
    (path,) = (folder / "out" / "runs").glob("*.json")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"honest", b"honost", 1))
    try:
        assert "its Record cannot be read" in again(crashed, ground, monkeypatch).died
    finally:
        path.write_bytes(whole)


@pytest.mark.nightly
def test_a_device_that_is_lost_at_its_first_launch_is_named_as_simulated(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device in INSTALLED.registry.devices.values():
        if device.losing is not None:
            ground._simulate(device)
    if ground.on_device is None:
        pytest.skip(ground.no_device)
    rng = random.Random(0)
    monkeypatch.setattr(rng, "randint", lambda low, high: low)
    found = trials.trial(Kind.DEVICE, trials.TrialFolder(ground, tmp_path, rng, LEGAL))
    assert found.form.endswith("lost at launch 1")
    assert (found.struck, found.named, found.bad) == (True, True, False)


@pytest.mark.parametrize(("said", "named"), [("{file} is damaged", True), ("{folder}", False), ("", False)])
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("name", ["native", "gate"])
def test_a_corrupt_cache_is_named_by_its_file_and_not_by_its_folder(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, anew: bool, said: str, named: bool
) -> None:
    """Or by the folder of the build."""
    where = ground.filled / name / "key" / "file.so" if name == "gate" else ground.filled / name / "file.so"
    later = ground.cache / name / "later" / "file.so"  # of another run: this command never reads it
    for each in (where, later):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_bytes(bytes(range(100)))
    monkeypatch.setattr(ground, "cached", {name: Command((), {}, reads="**/file.so")})
    monkeypatch.setattr(ground, "digest", "d1")
    here = tmp_path / "cache" / name
    text = said.format(file=here / "key" if name == "gate" else here / "file.so", folder=here)
    there = here / "key" / "file.so" if name == "gate" else here / "file.so"

    def ran(*_: object) -> Ended:
        if anew:
            there.write_bytes(b"made anew")
        return Ended(0, f"{text}\nd1", 1.0)

    monkeypatch.setattr(trials.TrialFolder, "run", ran)
    found = trials.trial(Kind.CACHE, trials.TrialFolder(ground, tmp_path, random.Random(1), LEGAL))
    where.unlink()
    assert "later" not in found.form
    assert (found.struck, found.named, found.harmless) == (True, named, anew and not named)
    assert found.bad == (not named and not anew)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["choices.json", "prefetch.json"])
def test_a_damaged_file_of_choices_is_reported_by_every_run(ground: Ground, tmp_path: Path, name: str) -> None:
    """Also if only a worker would use it, whose log is not shown."""
    place = trials.TrialFolder(ground, tmp_path, random.Random(3), LEGAL)
    damaged = tmp_path / "cache" / "tuned" / name
    damaged.parent.mkdir(parents=True)
    damaged.write_text('{"version": 1')
    done = place.run(ground.check_native(place.rng), {CACHE: str(tmp_path / "cache")})
    assert f"{damaged}: not a file of" in done.text
    assert (done.status, done.died(LEGAL)) == (0, "")


@pytest.mark.parametrize("how", [trials._flipped, trials._truncated, trials._emptied, trials._overwritten])
@given(data=st.binary(min_size=20, max_size=200), seed=st.integers(0, 1 << 20))
def test_a_corrupt_file_differs(how: Any, data: bytes, seed: int) -> None:
    assert how(data, random.Random(seed)) != data


def test_the_source_is_a_candidate(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(source(KEY, FaultPlan(form="wrong", marker="m", number=-5)))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert [each.name for each in names["VARIANTS"]] == ["faulty", "honest"]
    assert all(each.key == KEY for each in names["VARIANTS"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--runs", "3", "--minutes", "1"], "legal: one of the two"), (["--runs", "3", "--device", "cpu"], "next: omit")],
)
def test_options_that_exclude_each_other(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app(), arguments)
    assert words in str(done.exception)


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (Soaked([struck()], dict.fromkeys(set(Kind) - {Kind.CRASH}, "no compiler")), exit_status.PASSED, "PASS: 1 "),
        (Soaked([struck(died="it ended with a traceback", seen="Tr")]), exit_status.FAILED, "ended with a traceback"),
        (Soaked([struck()]), exit_status.UNTRIED, "not every kind took effect"),
    ],
)
def test_the_command_shows_and_ends(monkeypatch: pytest.MonkeyPatch, found: Soaked, status: int, words: str) -> None:
    def soaked(*_: object, report: Callable[[Soaked], None], **__: object) -> Soaked:
        report(found)
        report(found)
        return found

    monkeypatch.setattr(runs, "soak_runs", soaked)
    done = CliRunner().invoke(app(), ["--runs", "1"])
    assert done.exit_code == status
    assert done.stdout.count(words) == 1
    assert "named: 1 of 1 (100.0 %; at least 5.00 % with 95 % confidence)" in done.stdout
