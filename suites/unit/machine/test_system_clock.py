"""A system clock that is set while a run goes on is reported, and a correction of it is not."""

from __future__ import annotations

import time

import pytest

from tritmark.harness.machine.system_clock import SystemClock


@pytest.mark.parametrize(
    ("jumps_s", "warned"),
    [([0.0], 0), ([0.5, 0.9], 0), ([3600.0], 1), ([-5.0], 1), ([0.0, 7200.0, -7200.0, 1e6], 1), ([1e9, 0.0], 1)],
)
def test_a_clock_that_was_set_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, jumps_s: list[float], warned: int
) -> None:
    real, steady = time.time(), 100.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: steady)
    monkeypatch.setattr(time, "time", lambda: real)
    clock = SystemClock()
    for jump in jumps_s:
        monkeypatch.setattr(time, "time", lambda jump=jump: real + jump)
        clock.warn_if_set()
    monkeypatch.undo()
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == warned
    assert clock.warned == bool(warned)
    if warned:
        first = next(each for each in jumps_s if abs(each) > 1)
        assert f"the system clock was set by {first:+.0f} s" in said[0]
        assert "next: synchronize the clock" in said[0]
