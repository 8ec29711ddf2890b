"""`tritmark tune prefetch` with a clock that says what the test wants: what wins cold and loses nothing hot is chosen,
once it has won twice; noise is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tritmark.harness import caches, prefetched, tuned
from tritmark.harness.autotune import prefetch as tuning
from tritmark.harness.autotune.prefetch import COLD, HOT, TimedShape, fastest, over, tune_prefetch
from tritmark.harness.cli import app
from tritmark.harness.cli.exit_status import PASSED
from tritmark.harness.errors import UsageError
from tritmark.harness.measure.alternate import Timed
from tritmark.harness.measure.buffers import Rotation
from tritmark.harness.providers import load
from tritmark.harness.record import Ratio, TunedPrefetch
from tritmark.harness.record.facts import prefetch_facts
from tritmark.harness.spec import Device, Prefetching
from tritmark.harness.validate.ceiling import LAYOUT_NOISE
from tritmark.kernels.native import cpu
from tritmark.kernels.native.prefetch import PREFETCHING

NAMES = ("built in", "quick", "quicker", "none")
Costs = Mapping[str, tuple[float, float]]
"""Of each strategy the cold and the hot time."""
SLOW = dict.fromkeys(NAMES, (1.0, 1.0))


class Clock:
    """Says what the strategy that is told takes, and some noise."""

    name = "made-up time"

    def __init__(self, costs: Costs, told: Callable[[], str], hot: bool, noise: float) -> None:
        self._costs, self._told, self._hot = costs, told, hot
        self._rng, self._noise = np.random.default_rng(hot), noise

    def sample(self, launches: object, first: int, calls: int) -> int:
        return round(calls * 1e5 * self._costs[self._told()][self._hot] * exp(self._rng.normal(0, self._noise)))


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """What was found goes with the file, behind whatever a test changed: other tests' calls follow it too."""
    yield
    PREFETCHING.use("")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(caches.CACHE, str(tmp_path))
    monkeypatch.delenv(tuned.SELECT, raising=False)
    monkeypatch.setattr(tuning, "rotation", lambda memory: Rotation(nbytes=1 << 20, wanted=1 << 20))
    return tmp_path / "tuned" / "prefetch.json"


def asked(told: list[str]) -> Prefetching:
    real = cpu.DEVICE.prefetching()
    if not real:
        pytest.skip("no kernel here fetches ahead")
    return replace(
        real[0],
        shapes=[{"M": 1, "N": 64, "K": 256}, {"M": 1, "N": 128, "K": 256}],
        strategies=lambda: NAMES,
        use=lambda name: told.append(name or "built in"),
        used=lambda: told[-1],
        identity=lambda: {"device": "made up", "code": "1"},
    )


def found(costs: Costs, monkeypatch: pytest.MonkeyPatch, noise: float = 0.002) -> tuple[TunedPrefetch, list[str]]:
    told = ["built in"]

    def clock(device: Device, launches: list[object]) -> Clock:
        return Clock(costs, lambda: told[-1], len(launches) == 1, noise)

    monkeypatch.setattr(tuning, "clock_for", clock)
    installed = load()
    return tune_prefetch(installed, cpu.DEVICE, asked(told), threads=1, seconds=0.4, seed=3), told


def test_the_fastest_cold_is_chosen_and_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, told = found(SLOW | {"quick": (0.9, 1.0), "quicker": (0.8, 1.0), "none": (1.5, 0.9)}, monkeypatch)
    assert (it.builtin, it.chosen, it.note) == ("built in", "quicker", "")
    assert it.confirmed is not None
    assert it.confirmed.median == pytest.approx(0.8, rel=0.01)
    by_name = {each.strategy: each for each in it.figures}
    assert [*by_name] == ["none", "built in", "quick", "quicker"]
    assert by_name["quicker"].cold.median == pytest.approx(0.8 / 1.5, rel=0.01)
    assert by_name["quicker"].hot.median == pytest.approx(1 / 0.9, rel=0.01)
    assert by_name["none"].cold.median == 1
    assert told[-1] == "built in"  # as it was
    (kept,) = prefetched.read(here)
    assert TunedPrefetch.model_validate(kept) == it
    device = replace(cpu.DEVICE, prefetching=lambda: (asked(["quicker"]),))
    assert prefetch_facts(device) == (it.model_copy(update={"used": "quicker"}),)
    assert prefetched.chosen("cpu", it.op, lambda: it.identity, "built in") == "quicker"
    assert prefetched.chosen("cpu", it.op, lambda: it.identity, "another") == ""


def test_what_is_slower_hot_is_passed_over(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, _ = found(SLOW | {"quick": (0.9, 1.0), "quicker": (0.8, 1.1)}, monkeypatch)
    assert it.chosen == "quick"
    it, _ = found(SLOW | {"quicker": (0.8, 1.1)}, monkeypatch)
    assert it.chosen == ""
    assert it.note == "quicker is faster cold but slower hot"
    (kept,) = prefetched.read(here)  # in the place of what was kept before
    assert kept["chosen"] == ""


def test_what_wins_once_only_is_not_chosen(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lucky = iter([True])
    monkeypatch.setattr(tuning, "fastest", lambda trials, names: ("quick", "") if next(lucky) else ("", ""))
    it, _ = found(SLOW, monkeypatch)
    assert it.chosen == ""
    assert "was not faster than built in by more than noise" in it.note


def test_what_is_too_noisy_is_not_chosen(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faster in every round, and by how much is not known."""
    one = [1.0] * 12
    steady, shaky = [0.8] * 12, [0.3, 0.9] * 6
    ns = {(COLD, "a"): one, (COLD, "b"): shaky, (COLD, "c"): steady, (HOT, "a"): one, (HOT, "b"): one, (HOT, "c"): one}
    trial = TimedShape({}, {}, ns)
    assert over([trial], COLD, "b", "a").high < 1 - LAYOUT_NOISE
    assert fastest([trial], ("a", "b")) == ("", "")
    assert fastest([trial], ("a", "b", "c")) == ("c", "")
    again = Ratio(median=0.5, low=0.2, high=0.9, pairs=12)
    monkeypatch.setattr(tuning, "_once_more", lambda *arguments: again)
    it, _ = found(SLOW | {"quick": (0.9, 1.0)}, monkeypatch)
    assert (it.chosen, it.confirmed) == ("", again)


@given(
    noise=st.floats(0.001, 0.1),
    gain=st.floats(0.0, 0.3),
    loss=st.floats(0.0, 0.3),
    seed=st.integers(0, 2**32 - 1),
)
def test_only_a_gain_beyond_the_interval_counts(noise: float, gain: float, loss: float, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def samples(scale: float) -> list[float]:
        return list(scale * np.exp(rng.normal(0, noise, 40)))

    ns = {
        (COLD, "a"): samples(1),
        (COLD, "b"): samples(1 - gain),
        (HOT, "a"): samples(1),
        (HOT, "b"): samples(1 + loss),
    }
    trial = TimedShape({}, {}, ns)
    best, note = fastest([trial], ("a", "b"))
    cold, hot = over([trial], COLD, "b", "a"), over([trial], HOT, "b", "a")
    assert cold.low <= cold.median <= cold.high
    assert (best == "b") == (cold.high < 1 - LAYOUT_NOISE and hot.low <= 1 + LAYOUT_NOISE)
    assert bool(note) == (cold.high < 1 - LAYOUT_NOISE and not best)


@pytest.mark.nightly
def test_the_command(here: Path) -> None:
    if not cpu.DEVICE.prefetching():
        pytest.skip("no kernel here fetches ahead")
    done = CliRunner().invoke(app, ["tune", "prefetch", "--seconds", "1", "--threads", "1"])
    assert done.exit_code == PASSED, done.output
    for words in ("nothing, hardware alone", "8.00 KiB into L2", "built in", "MSR 0x1A4"):
        assert words in " ".join(done.output.split())
    (kept,) = prefetched.read(here)
    again = CliRunner().invoke(app, ["tune", "prefetch", "--seconds", "1", "--threads", "1", "--json"])
    assert [each["identity"] for each in json.loads(again.stdout)] == [kept["identity"]]
    assert cpu.DEVICE.prefetching()[0].identity() == kept["identity"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("cup", "did you mean .*legal: cpu"), ("cuda", "legal: cpu; .*tritmark tune instances --device cuda")],
)
def test_what_has_nothing_to_tune(name: str, said: str) -> None:
    done = CliRunner().invoke(app, ["tune", "prefetch", "--device", name])
    with pytest.raises(UsageError, match=said):
        raise done.exception or AssertionError


def test_the_kernel_of_the_forced_set_is_timed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    asking, bound, installed = asked(told), [], load()
    if not {"avx2"} <= cpu.features():
        pytest.skip("this processor has no AVX2, so nothing lower than its best fetches ahead")
    monkeypatch.setenv("TRITMARK_FORCE_ISA", "avx2")
    take = installed.registry.select_best

    def seen(*given: Any) -> Any:
        bound.append(take(*given))
        return bound[-1]

    monkeypatch.setattr(installed.registry, "select_best", seen)
    tuning._trial(installed, cpu.DEVICE, asking, asking.shapes[0], 1, 0, np.random.default_rng(0))
    assert [each.name for each in bound] == ["avx2"]


def test_samples_are_taken_with_the_strategy_that_is_told() -> None:
    told: list[str] = []

    class AuditedOutputs:
        """Remembers what was told when it was asked."""

        name = "seen"

        def __init__(self) -> None:
            self.at: list[str] = []

        def sample(self, launches: object, first: int, calls: int) -> int:
            self.at.append(told[-1])
            return 1

    clock = AuditedOutputs()
    timed = Timed([object()], clock)  # type: ignore[list-item]
    trial = TimedShape({}, {COLD: timed, HOT: timed})
    names = ("a", "b", "c")
    asking = replace(asked([]), use=told.append)
    tuning._sample(trial, asking, names, np.random.default_rng(0), 0)
    assert len(clock.at) == sum(map(len, trial.ns.values()))
    assert {name: clock.at.count(name) for name in names} == {
        name: sum(len(found) for (_, each), found in trial.ns.items() if each == name) for name in names
    }
