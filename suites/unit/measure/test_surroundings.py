"""What others do to the machine while a Run is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep

import pytest

from tritmark.harness.measure import surroundings
from tritmark.harness.measure.surroundings import MachineWatch
from tritmark.harness.measure.system_load import SHORTEST_S

CPU_S = 0.5
BURN = f"""
from time import process_time
while process_time() < {CPU_S}:
    pass
"""


def test_a_process_of_another_is_seen(tmp_path: Path) -> None:
    """Its parent ends at once, so that nothing leads from it to this process."""
    done = tmp_path / "done"
    program = f"{BURN}\nopen({str(done)!r}, 'w').close()"
    watched = MachineWatch()
    subprocess.run(["sh", "-c", '"$0" -c "$1" &', sys.executable, program], check=True)
    until = perf_counter() + 60
    while not done.exists() and perf_counter() < until:
        sleep(0.01)
    assert done.exists()
    found = watched.load()
    assert found.others is not None
    assert found.stolen is not None
    assert found.others * found.seconds >= CPU_S - 0.05  # the system counts in hundredths of a second, on each core
    assert 0 <= found.stolen <= found.others


@pytest.mark.parametrize("awaited", [True, False])
def test_what_this_process_began_is_its_own(awaited: bool) -> None:
    before = surroundings._own()
    program = f"{BURN}\nprint('done', flush=True)\n" + ("" if awaited else "input()")
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"done\n"
    if awaited:
        child.wait()
    spent = surroundings._own() - before
    child.communicate(b"\n")
    assert spent >= CPU_S - 0.02


@pytest.mark.parametrize(
    ("own", "busy", "stolen", "others", "steal"),
    [
        (1.5, 2.0, 0.0, 0.25, 0.0),
        (1.5, 3.5, 0.5, 1.0, 0.25),
        (2.0, 1.9, 0.0, 0.0, 0.0),  # counters of different precision
        (2.0, 1.9, 0.4, 0.2, 0.2),
    ],
)
def test_counters_become_shares_of_cores(
    own: float, busy: float, stolen: float, others: float, steal: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(
        [
            surroundings._Reading(10.0, 1.0, 5.0, 2.0, (2_000_000_000, 3_100_000_000), 1_980_000_000),
            surroundings._Reading(12.0, 1.0 + own, 5.0 + busy, 2.0 + stolen, (2_600_000_000,), 1_200_000_000),
        ]
    )
    monkeypatch.setattr(surroundings, "_read", lambda gpu: next(readings))
    found = MachineWatch("GPU-1").load()
    assert (found.seconds, found.others, found.stolen) == pytest.approx((2.0, others, steal))
    assert (found.clock_low_hz, found.clock_high_hz) == (2_000_000_000, 3_100_000_000)
    assert (found.device_clock_low_hz, found.device_clock_high_hz) == (1_200_000_000, 1_980_000_000)


def test_too_short_a_time_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([surroundings._Reading(at, 0.0, at, 0.0, (), None) for at in (1.0, 1.0 + SHORTEST_S / 2)])
    monkeypatch.setattr(surroundings, "_read", lambda gpu: next(readings))
    found = MachineWatch().load()
    assert (found.others, found.stolen, found.clock_low_hz, found.device_clock_high_hz) == (None,) * 4
