"""Faults of the monitor itself, and names and clocks that it does not choose."""

from __future__ import annotations

import atexit
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_sessions import series, session

import tritmark
from tritmark.harness.errors import InvalidArgumentError, UsageError
from tritmark.harness.monitor import environment, hook
from tritmark.harness.monitor import session as module
from tritmark.harness.monitor.database import Database
from tritmark.harness.monitor.machine_samples import Sampler
from tritmark.kernels import i2s_quantize

X = np.linspace(-1, 1, 100, dtype=np.float32)


def call() -> None:
    i2s_quantize(X, 0.5, threads=1)


def fails(*given: object, **named: object) -> Any:
    raise RuntimeError("a sensor")


def test_a_sample_that_fails_at_the_end_costs_no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "take", fails)
    with tritmark.monitor(keep=False) as found:
        call()
    assert hook.active is None
    assert found.data is not None
    assert (found.data.calls, found.data.samples) == (1, ())


@pytest.mark.parametrize("name", ["since", "by_time", "_version"])
def test_a_fault_at_the_end_is_not_the_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tritmark.monitor(keep=False)

    def program() -> None:
        with found:
            call()
            monkeypatch.setattr(module, name, fails)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert hook.active is None
    assert "a sensor" in found.problem
    monkeypatch.undo()
    with tritmark.monitor(keep=False) as later:
        call()
    assert later.data is not None
    assert later.data.calls == 1


def test_a_fault_of_the_database_is_not_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "save", fails)
    with tritmark.monitor(database=tmp_path / "x.sqlite") as found:
        call()
    assert found.problem == "a sensor"


@pytest.mark.parametrize("name", ["a\udcff", "a\0b", "q'\"", "a\n\x1b[31m"])
def test_any_name_of_a_program_is_kept(name: str, tmp_path: Path) -> None:
    with tritmark.monitor(name, database=tmp_path / "x.sqlite") as found:
        call()
    assert found.problem == ""
    assert [each.program for each in Database(tmp_path / "x.sqlite").sessions()] == [found.program]


def test_counts_beyond_63_bits_are_kept(tmp_path: Path) -> None:
    """1e15 operations a second are that many after three hours."""
    big = replace(series(1e5), nbytes=1 << 64, operations=1 << 66)
    Database(tmp_path / "x.sqlite").save(session(0, [big], at=time.time()))
    (found,) = Database(tmp_path / "x.sqlite").sessions()
    assert (found.series[0].nbytes, found.series[0].operations) == (1 << 64, 1 << 66)


def generator() -> Iterator[None]:
    yield


async def coroutine() -> None: ...


async def asynchronous_generator() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("function", [generator, coroutine, asynchronous_generator, partial(coroutine)])
def test_what_returns_before_it_ran_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="inside it"):
        tritmark.monitor(function)
    with pytest.raises(InvalidArgumentError, match="inside it"):
        tritmark.monitor(keep=False)(function)


def test_a_decorated_partial_has_a_name(tmp_path: Path) -> None:
    tritmark.monitor(database=tmp_path / "x.sqlite")(partial(call))()
    assert [each.program for each in Database(tmp_path / "x.sqlite").sessions()] == ["partial"]


def test_a_clock_that_is_set_back_does_not_shorten_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with tritmark.monitor(keep=False) as found:
        call()
        monkeypatch.setattr(time, "time", lambda: 0.0)
    assert found.data is not None
    assert found.data.started <= found.data.ended < found.data.started + 60


def test_what_needs_a_running_session_is_refused_outside() -> None:
    found = tritmark.monitor(keep=False)
    with pytest.raises(UsageError, match="has not begun"):
        found.now()
    for _ in range(2):
        for use in (partial(found.prometheus, port=0), found.opentelemetry):
            with pytest.raises(UsageError, match="is not running"):
                use()
        with found if found.data is None else tritmark.monitor(keep=False):
            call()


def test_a_nested_session_reports_that_calls_were_already_sampled() -> None:
    with tritmark.monitor(keep=False, interval_s=600):
        assert hook.active is not None
        hook.active.every = 50
        with tritmark.monitor(keep=False, interval_s=600) as inner:
            call()
    assert inner.data is not None
    assert inner.data.every == 50


def test_packages_have_their_own_names(tmp_path: Path) -> None:
    """Otherwise all programs that run by `python -m` would be compared with each other."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        code = "import tritmark; print(tritmark.monitor(keep=False).program)"
        (tmp_path / name / "__main__.py").write_text(code)
        done = subprocess.run([sys.executable, "-m", name], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == name


def test_equal_sizes_of_other_axes_are_another_shape() -> None:
    class Made:
        id = "cpu/op/none/float32/made"

    one, other = (hook.chosen(Made, dict(zip(axes, (1, 512, 256), strict=True)), 1, False) for axes in ("MNK", "MKN"))
    assert dict(one.axes) != dict(other.axes)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("true", [None]), ("ON", [None]), ("1", [None]), (" x.sqlite ", ["x.sqlite"])]
    + [(word, []) for word in ("false", "Off", "no", "0", " ")],
)
def test_words_are_no_names_of_files(asked: str, expected: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """TRITMARK_MONITOR=false watched the program, and left a database of that name in the current folder."""
    begun: list[str | None] = []

    class Made:
        def __init__(self, database: str | None) -> None:
            begun.append(database)

        def __enter__(self) -> None: ...

        def __exit__(self, *given: object) -> None: ...

    monkeypatch.setattr(environment, "MonitorSession", Made)
    monkeypatch.setattr(atexit, "register", lambda *given: None)
    monkeypatch.setenv(hook.VARIABLE, asked)
    environment.begin()
    assert begun == expected
