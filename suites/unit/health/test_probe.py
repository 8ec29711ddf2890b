"""A device in use by a probe: what is wrong with its memory is planted, and honest devices pass."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any
from weakref import finalize

import numpy as np
import pytest

from tritmark.harness.errors import DeviceFaultError, InsufficientMemoryError
from tritmark.harness.health import pool
from tritmark.harness.health.finding import Severity
from tritmark.harness.health.pool import judged
from tritmark.harness.health.probe import NBYTES, Probed, probed
from tritmark.harness.spec import Ceiling, Device, DeviceStats, MemoryFigures


class Array(np.ndarray):
    """Memory of the device; unlike NumPy's own it can be watched."""


@dataclass
class Memory:
    """A device's memory, in the host's."""

    cache = None
    flips: bool = False
    leaks: bool = False
    grows: bool = False
    fragmentation: float = 0.0
    fails: Exception | None = None
    used: int = 0
    held: int = 0
    rounds: int = 0
    kept: list[Any] = field(default_factory=list)

    def available(self) -> int:
        return 1 << 40

    def allocate(self, nbytes: int) -> Array:
        if self.fails is not None:
            raise self.fails
        self.rounds += 1
        self.used += nbytes
        self.held = max(self.held, self.used) + (4096 if self.grows else 0)
        found = np.empty(nbytes, np.uint8).view(Array)
        finalize(found, self._freed, nbytes)
        if self.leaks:
            self.kept.append(found)
        return found

    def _freed(self, nbytes: int) -> None:
        self.used -= nbytes

    def write(self, array: Any, values: Any) -> None:
        array[...] = values

    def read(self, array: Any, into: Any) -> None:
        into[...] = array
        if self.flips:
            into[7] ^= 1

    def view(self, *given: Any) -> Any:
        raise AssertionError("a probe makes no views")

    def watch(self) -> Any:
        return Watch(self)


class Watch:
    """See Memory.watch of the harness."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._before = memory, memory.used

    @property
    def held(self) -> int:
        return self._memory.used - self._before

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


class Ran:
    """A launch of the probe."""

    ran, runs, threads_used, bad, pointer = "", 0, 1, -1, None

    def run(self) -> None:
        self.ran = "made_up_read"


def device(memory: Memory, *, counted: bool = True, problems: tuple[str, ...] = ()) -> Device:
    def stats() -> DeviceStats:
        return DeviceStats(device="d", pool=MemoryFigures(held=memory.held, fragmentation=memory.fragmentation))

    read = Ceiling(name="read", unit="bytes/s", summary="", bind=lambda buffer, threads: Ran(), work=int)
    return Device(
        type="d",
        summary="",
        features=frozenset,
        cores=lambda: 1,
        memory=lambda: memory,
        ceilings=lambda: {"read": read},
        stats=stats if counted else None,
        memory_problems=(lambda: problems) if counted else None,
    )


def finding(found: Probed) -> Any:
    return judged("GPU 0", 0, f"a driver's greeting\n{json.dumps(asdict(found))}\n", "")


PLANTED: dict[str, tuple[Callable[[], Device], Severity, str]] = {
    "a byte that changes": (lambda: device(Memory(flips=True)), Severity.CRITICAL, f"1 of {NBYTES} bytes came back"),
    "a leak": (lambda: device(Memory(leaks=True)), Severity.WARNING, "32.0 MiB are still in use"),
    "a pool that grows": (lambda: device(Memory(grows=True)), Severity.WARNING, "the pool grew by 8.00 KiB"),
    "a pool in pieces": (lambda: device(Memory(fragmentation=0.6)), Severity.WARNING, "60.0 % of the pool"),
    "a device that reports it": (lambda: device(Memory(), problems=("it is odd",)), Severity.WARNING, "it is odd"),
    "a fault": (
        lambda: device(Memory(fails=DeviceFaultError("an illegal address", next_step="restart"))),
        Severity.CRITICAL,
        "cannot be used: an illegal address",
    ),
    "any exception": (lambda: device(Memory(fails=OSError("no"))), Severity.CRITICAL, "OSError: no"),
    "a full device": (
        lambda: device(
            Memory(fails=InsufficientMemoryError(what="it", required=2, available=1, next_step="end others"))
        ),
        Severity.WARNING,
        "2 bytes of device memory",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name: str) -> None:
    make, severity, text = PLANTED[name]
    found = finding(probed(make()))
    assert found.severity is severity, found
    assert text in found.found
    assert found.next_step


@pytest.mark.parametrize("counted", [True, False])
def test_an_honest_device_is_in_order(counted: bool) -> None:
    memory = Memory(fragmentation=0.004)
    found = probed(device(memory, counted=counted))
    assert (found.error, found.leaked, found.grown, memory.used) == ("", 0, 0 if counted else None, 0)
    told = finding(found)
    assert (told.severity, told.next_step) == (Severity.OK, "")
    assert "16.0 MiB there and back, made_up_read ran" in told.found


@pytest.mark.parametrize(
    ("status", "out", "errors", "text"),
    [
        (-11, "", "", "by signal 11: it printed no result"),
        (1, "", "Traceback\nImportError: no module", "with status 1: ImportError: no module"),
        (0, "", "", "it printed no result"),
        (0, "not JSON", "oh", "oh"),
        (0, "0\n[1]\n{}\nnull", "", "it printed no result"),
        (0, "[" * 100_000, "", "it printed no result"),
    ],
)
def test_a_process_that_dies_is_critical(status: int, out: str, errors: str, text: str) -> None:
    found = judged("GPU 0", status, out, errors)
    assert found.severity is Severity.CRITICAL
    assert text in found.found


@pytest.mark.nightly
@pytest.mark.parametrize("more", ["0", "[1]", "{}", "closing the cache", ""])
def test_what_a_package_prints_at_exit_is_not_the_result(more: str) -> None:
    out = json.dumps(asdict(probed(device(Memory()))))
    assert judged("GPU 0", 0, f"loading\n{out}\n{more}\n", "") == judged("GPU 0", 0, out, "")
    assert judged("GPU 0", 0, out, "").severity is Severity.OK


def test_a_device_that_hangs_is_critical_and_its_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []
    honest = json.dumps(asdict(Probed(nbytes=1)))
    programs = {"hangs": "import time; time.sleep(600)", "works": f"print({honest!r})"}

    def start(device: Any) -> subprocess.Popen[str]:
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-c", programs[device]], text=True, **piped))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(pool, "_start", start)
    begun = perf_counter()
    found = list(pool.checks({"GPU 0": "hangs"}, longest_s=0.2))  # type: ignore[dict-item]
    assert [(each.unit, each.severity) for each in found] == [("GPU 0", Severity.CRITICAL)]
    assert "no answer" in found[0].found
    assert started[0].poll() is not None
    assert perf_counter() - begun < 300
    found = list(pool.checks({"GPU 0": "works", "GPU 1": "works"}))  # type: ignore[dict-item]
    assert [each.severity for each in found] == [Severity.OK] * 2


@pytest.mark.cuda
def test_the_simulator_is_probed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.harness.providers import load

    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    (found,) = pool.checks({"cuda (simulator)": load().registry.devices["cuda"]})
    assert found.severity is Severity.OK, found
    assert "4.00 KiB there and back in the simulator" in found.found
