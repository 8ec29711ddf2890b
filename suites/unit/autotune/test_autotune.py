"""`tritmark tune instances` on a made-up device, whose clock says what the test wants: what is wrong, slower, or not
told apart from noise is never chosen, and the file of choices survives whatever becomes of who writes it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tritmark.harness import caches, tuned
from tritmark.harness.autotune import tune as tuning
from tritmark.harness.autotune.keep import keep
from tritmark.harness.autotune.tasks import Raced
from tritmark.harness.autotune.tune import Tuned, jobs, tune
from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import PASSED
from tritmark.harness.errors import UsageError
from tritmark.harness.gate import json_rpc
from tritmark.harness.providers import Installed
from tritmark.harness.record import Ratio
from tritmark.harness.spec import Arrays, Axes, Device, Instances, KernelKey, Launch, Provider, Tier, Variant
from tritmark.harness.tuned import Choice
from tritmark.harness.worker import Workers
from tritmark.kernels import OPS

(OP,) = (op for op in OPS if op.name == "i2s_dequantize")
KEY = KernelKey("made", OP.name, "none", "float32")
AXES = {"n": 1000}
IDENTITY = {"device": "a made-up one", "driver": "1", "code": "2"}


Spoil = Callable[[Any, Any], None]
"""Does something wrong to an output, given what it held before."""


class Made:
    """A launch of the op's reference, which takes as long as it is told."""

    pointer, threads_used, bad, ran = 1, 1, -1, "made"

    def __init__(
        self, spoil: Spoil | None, ns: float, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int
    ) -> None:
        self.ns, self.runs = ns, 0
        self._spoil, self._arguments = spoil, (inputs, outputs, axes)

    def run(self) -> None:
        inputs, outputs, axes = self._arguments
        if self.ns < 0:
            raise ValueError("it cannot be launched")
        for name, values in OP.reference(inputs, axes, KEY).items():
            before = outputs[name].copy()
            outputs[name][...] = values
            if self._spoil is not None:
                self._spoil(outputs[name], before)
        self.runs += 1


class Clock:
    """Says what a launch is told to take, and some noise."""

    name = "made-up time"

    def __init__(self, noise: float, seed: int) -> None:
        self._noise, self._rng = noise, np.random.default_rng(seed)

    def sample(self, launches: Sequence[Launch], first: int, calls: int) -> int:
        told = launches[first]
        assert isinstance(told, Made)
        return round(1000 * calls * told.ns * float(np.exp(self._noise * self._rng.standard_normal())))


def one_off(out: Any, before: Any) -> None:
    out[-1] = np.nextafter(out[-1], np.float32(np.inf), dtype=np.float32)


def zeros_not_written(out: Any, before: Any) -> None:
    out[out == 0] = before[out == 0]


def wrong_for_zeros(out: Any, before: Any) -> None:
    if not out.any():
        out[0] = 1


Kinds = Mapping[str, tuple[float, Spoil | None]]
KINDS: Kinds = {
    "built-in": (1.0, None),
    "slower": (1.3, None),
    "faster": (0.8, None),
    "fastest, wrong": (0.1, one_off),
    "fast, not written": (0.2, zeros_not_written),
    "broken": (-1.0, None),
}
"""Each instance with its time and what is wrong with it."""


def made(kinds: Kinds = KINDS, *, noise: float = 0.0, seed: int = 0, **more: Any) -> Installed:
    """A device with one variant of these instances."""
    bound = {name: partial(Made, spoil, ns) for name, (ns, spoil) in kinds.items()}
    first = next(iter(bound.values()))
    plain = Variant(key=KEY, name="made", tier=Tier.OPTIMIZED, summary="made up", bind=first)
    each = {name: replace(plain, bind=bind) for name, bind in bound.items()}
    variant = replace(plain, instances=lambda axes: Instances(each=each, identity=IDENTITY))
    device = Device(
        type="made", summary="", features=frozenset, cores=lambda: 1, clock=lambda: Clock(noise, seed), **more
    )
    return Installed({"made": Provider(ops=(OP,), variants=(variant,), devices=(device,))})


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of choices of its own."""
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    monkeypatch.setattr(tuning, "SCREENING_S", 0.02)
    monkeypatch.setattr(tuning, "CONFIRMING_S", 0.1)
    tuned.forget()
    return tuned.path()


def run(installed: Installed, seconds: float = 60, axes: Axes = AXES) -> Tuned:
    asked = list(jobs(installed, {OP.name: [(axes, "")]}))
    with Workers(installed, isolated=False) as workers:
        (found,) = tune(workers, asked, seconds=seconds, seed=0)
    return found


def kept(identity: Mapping[str, str] = IDENTITY, axes: Axes = AXES) -> str:
    found = tuned.chosen(str(KEY) + "/made", axes, lambda: identity)
    return "" if found is None else found.instance


def choice(instance: str = "faster", variant: str = "made", axes: Axes = AXES, **identity: str) -> Choice:
    return Choice(
        variant=f"{KEY}/{variant}",
        axes=axes,
        identity=IDENTITY | identity,
        instance=instance,
        builtin="built-in",
        ratio=(0.8, 0.79, 0.81),
        created="2026-01-01T00:00:00Z",
    )


def test_the_fastest_that_is_right_is_kept() -> None:
    found = run(made())
    assert found.chosen == kept() == "faster"
    assert found.builtin_ns == 1000
    assert found.won is not None
    assert found.won.median == pytest.approx(0.8, rel=1e-3)
    assert found.wrong.keys() == {"fastest, wrong", "fast, not written"}
    assert ", expected " in found.wrong["fastest, wrong"]
    assert found.broke == {"broken": "ValueError: it cannot be launched"}
    (stored,) = tuned.read(tuned.path())
    assert (stored.instance, stored.builtin, stored.identity) == ("faster", "built-in", IDENTITY)


def test_what_is_wrong_for_one_family_of_inputs_is_never_kept() -> None:
    found = run(made({"built-in": (1.0, None), "hasty": (0.5, wrong_for_zeros), "faster": (0.9, None)}))
    assert "hasty" in found.raced.keys() | found.wrong.keys()
    assert "1 of " in found.wrong["hasty"]
    assert kept() == "faster"


@pytest.mark.parametrize("ns", [1.0, 0.999, 1.02])
def test_what_is_no_faster_than_noise_is_not_kept(ns: float) -> None:
    keep(f"{KEY}/made", AXES, IDENTITY, choice())
    for seed in range(4):
        found = run(made({"built-in": (1.0, None), "other": (ns, None)}, noise=0.02, seed=seed))
        assert found.chosen == ""
        assert found.won is None
    # What was kept before is gone: the built-in choice was found to be as good.
    assert kept() == ""


@pytest.mark.parametrize(("first", "again", "chosen"), [(0.01, 0.01, "other"), (0.4, 0.01, ""), (0.01, 0.4, "")])
def test_what_is_too_noisy_is_not_chosen(
    first: float, again: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Surely faster, and by how much is not known: at first, or once more."""
    halves = iter([first, again])

    def raced(*arguments: Any) -> Raced:
        half = next(halves)
        return Raced(Ratio(median=0.5, low=0.5 * (1 - half), high=0.5 * (1 + half), pairs=9), 1000.0, cold=False)

    monkeypatch.setattr(tuning, "race_task", raced)
    assert run(made({"built-in": (1.0, None), "other": (0.5, None)})).chosen == chosen


def test_a_little_faster_is_seen_through_noise() -> None:
    assert run(made({"built-in": (1.0, None), "other": (0.95, None)}, noise=0.02)).chosen == "other"


@pytest.mark.parametrize("lucky", [0, 1])
def test_a_tie_goes_to_the_first_whichever_was_luckier(lucky: int) -> None:
    times = [0.8, 0.8]
    times[lucky] -= 0.0004
    first, second = times
    found = run(made({"built-in": (1.0, None), "zeta": (first, None), "alpha": (second, None)}))
    assert found.chosen == kept() == "zeta"
    assert found.tie == ("alpha" if lucky else "")
    assert run(made({"built-in": (1.0, None), "zeta": (0.85, None), "alpha": (0.8, None)})).chosen == "alpha"


def test_without_time_nothing_changes() -> None:
    keep(f"{KEY}/made", AXES, IDENTITY, choice())
    found = run(made(), seconds=0)
    assert "the time ended" in found.note
    assert (found.chosen, kept()) == ("", "faster")


def test_a_built_in_choice_that_is_wrong_is_told() -> None:
    found = run(made({"built-in": (1.0, one_off), "faster": (0.5, None)}))
    assert found.note == "the built-in choice is incorrect"
    assert kept() == ""


@pytest.mark.parametrize(
    ("more", "why"), [({"simulated": lambda: True}, "simulated"), ({"clock": None}, "brings no clock")]
)
def test_what_has_no_speed_is_judged_and_nothing_is_kept(more: dict[str, Any], why: str, place: Path) -> None:
    installed = made()
    device = replace(installed.registry.devices["made"], **more)
    variants = tuple(installed.registry.variants)
    found = run(Installed({"made": Provider(ops=(OP,), variants=variants, devices=(device,))}))
    assert why in found.note
    assert found.wrong.keys() == {"fastest, wrong", "fast, not written"}
    assert not found.raced
    assert not place.exists()


def test_a_choice_holds_for_what_it_was_measured_on() -> None:
    keep(f"{KEY}/made", AXES, IDENTITY, choice())
    assert kept() == "faster"
    for name in IDENTITY:
        assert kept(IDENTITY | {name: "another"}) == ""
    assert kept(axes={"n": 1001}) == ""


def test_choices_of_other_devices_stay(place: Path) -> None:
    first, second = choice(), choice("slower", device="another")
    keep(first.variant, AXES, first.identity, first)
    keep(second.variant, AXES, second.identity, second)
    later = choice("newer", driver="7")
    keep(later.variant, AXES, later.identity, later)
    assert tuned.read(place) == (second, later)


def test_choices_can_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(f"{KEY}/made", AXES, IDENTITY, choice())
    monkeypatch.setenv(tuned.SELECT, "off")
    assert kept() == ""
    monkeypatch.setenv(tuned.SELECT, "of")
    with pytest.raises(UsageError, match=r"TRITMARK_TUNED is 'of'; .*legal: on, off"):
        kept()
    assert isinstance(CliRunner().invoke(app, ["tune", "instances", "--shape", "1,16,128"]).exception, UsageError)


def test_the_gate_ignores_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tuned.SELECT, "on")
    keep(f"{KEY}/made", AXES, IDENTITY, choice())
    monkeypatch.setattr(os, "environ", json_rpc.environment())
    assert kept() == ""


@given(st.data())
def test_a_damaged_file_is_never_believed(data: st.DataObject) -> None:
    whole = tuned.text((choice(), choice("slower", "other")))
    cut = data.draw(st.integers(0, len(whole.rstrip()) - 1))
    where = tuned.path()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(whole[:cut])
    with pytest.raises(UsageError, match="not a file of choices"):
        tuned.read(where)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"choices": 5},
        {"choices": [{"variant": "x"}]},
        {"choices": [json.loads(tuned.text((choice(),)))["choices"][0] | {"ratio": [1.0]}]},
        {"choices": [json.loads(tuned.text((choice(),)))["choices"][0] | {"instance": 7}]},
        {"choices": [json.loads(tuned.text((choice(),)))["choices"][0] | {"axes": {"n": "1"}}]},
    ],
)
def test_a_file_that_says_something_else_is_told(
    change: dict[str, Any], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.parent.mkdir()
    place.write_text(json.dumps(json.loads(tuned.text((choice(),))) | change))
    with caplog.at_level(logging.WARNING):
        assert kept() == ""
    assert "built-in choices are used; next: remove it" in caplog.text
    with pytest.raises(UsageError, match="not a file of choices"):
        keep(f"{KEY}/made", AXES, IDENTITY, choice())


WRITER = """
import sys
from tritmark.harness.autotune.keep import keep
from tritmark.harness.tuned import Choice
variant, count = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(count):
    identity = {"device": "d", "driver": "", "code": str(turn)}
    made = Choice(variant=variant, axes={"n": turn % 20}, identity=identity, instance="i" * 1000, builtin="b",
                  ratio=(1.0, 1.0, 1.0), created="")
    keep(made.variant, made.axes, made.identity, made)
"""


@contextmanager
def writers(*variants: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that begin at the same time."""
    with ExitStack() as stack:
        commands = [[sys.executable, "-c", WRITER, variant, str(count)] for variant in variants]
        started = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
            )
            for command in commands
        ]
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in started:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        yield started


@pytest.mark.nightly
def test_two_processes_lose_nothing_and_a_killed_one_leaves_a_whole_file(place: Path) -> None:
    with writers("v1", "v2", count=20) as processes:
        assert [process.wait() for process in processes] == [0, 0]
    whole = {(variant, turn) for variant in ("v1", "v2") for turn in range(20)}
    assert {(each.variant, each.axes["n"]) for each in tuned.read(place)} == whole
    rng = np.random.default_rng(0)
    for turn in range(3):
        with writers("v3", count=1_000_000) as (process,):
            time.sleep(float(rng.uniform(0.05, 0.2)))
            process.kill()
        assert {(each.variant, each.axes["n"]) for each in tuned.read(place)} >= whole
        after = choice(axes={"n": turn})
        keep(after.variant, after.axes, after.identity, after)  # no lock is left behind
    assert len([each for each in tuned.read(place) if each.instance == "faster"]) == 3
    assert [path.name for path in place.parent.glob(".*.tmp")] == []


CUT_SHORT = """
import resource, signal, sys
from tritmark.harness import tuned
from tritmark.harness.autotune.keep import keep
(known,) = tuned.read(tuned.path())
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
keep("another", known.axes, known.identity, known)
"""


def test_who_is_killed_in_the_middle_of_writing_leaves_the_old_file(place: Path) -> None:
    keep(f"{KEY}/made", AXES, IDENTITY, choice())
    before = place.read_bytes()
    assert subprocess.run([sys.executable, "-c", CUT_SHORT], check=False).returncode == -signal.SIGXFSZ
    assert place.read_bytes() == before


def test_jobs_are_what_is_launched_or_what_is_named() -> None:
    installed = made()
    plain = replace(installed.registry.variants[0], name="better", tier=Tier.EXTREMELY_OPTIMIZED, instances=None)
    installed.add(plain)
    shapes = {OP.name: [(AXES, "")]}
    assert list(jobs(installed, shapes)) == []
    assert [job.variant.name for job in jobs(installed, shapes, variant="made")] == ["made"]
    assert [job.variant.name for job in jobs(installed, shapes, variant="*/none/float32/*")] == ["made"]
    assert list(jobs(installed, shapes, variant="made", device="other")) == []
    with Workers(installed, isolated=False) as workers, pytest.raises(UsageError, match="no kernel with several"):
        tune(workers, [], seconds=1, seed=0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shape", "16,2560"], "legal: sizes of 1 or more, separated by commas .*ternary_matmul: M,N,K"),
        (["--shape", "16,0,3"], "legal: sizes of 1 or more"),
        (["--shape", "1,2,3", "--suite", "smoke"], "legal: one of the two"),
        (["--op", "i2s_*"], "matches no op whose kernels have several instances; legal: ternary_matmul"),
    ],
)
def test_what_cannot_be_asked_for(arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["tune", "instances", *arguments])
    assert isinstance(found.exception, UsageError)
    with pytest.raises(UsageError, match=said):
        raise found.exception


@pytest.mark.cuda
def test_the_command_in_the_simulator(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    monkeypatch.delenv(caches.CACHE)
    found = CliRunner().invoke(
        app, ["tune", "instances", "--shape", "9,16,128", "--variant", "*/row16/int32/mma", "--seconds", "60"]
    )
    assert found.exit_code == PASSED, found.output
    assert "a simulated device has no speed: nothing is kept" in found.output
    assert not place.exists()
