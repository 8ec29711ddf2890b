"""The machine's ceilings in a run: measured once, of what will be timed, and kept for a resumption."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_records import MACHINE

from tritmark.harness.judge.runner import _roofs
from tritmark.harness.measure import ceilings
from tritmark.harness.measure.ceilings import _places
from tritmark.harness.providers import load
from tritmark.harness.record import CeilingFacts, Environment
from tritmark.harness.spec import Device
from tritmark.harness.store import Header, Options, Store, new_id
from tritmark.kernels.native.cpu import DEVICE

HEADER = Header(
    id=new_id(),
    created="2026-01-01T00:00:00+00:00",
    options=Options(suite="quick", suite_digest="d", op="*", variant="*", forced={}, weights="", threads=0, seed=0),
    environment=Environment(
        tritmark="0", python="3", packages={}, compiler="", variables={}, commit=None, command=(), seed=0
    ),
    machine=MACHINE.model_copy(update={"ceilings": ()}),
)


class Silent:
    """An observer that keeps what is begun."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def started(self, what: str) -> None:
        self.said.append(what)


def test_they_are_measured_once_and_kept_for_a_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CeilingFacts(device="cpu", name="read", level="memory", threads=1, nbytes=1, rate=1e9, unit="bytes/s")
    measured: list[Device] = []

    def measure(device: Device) -> list[CeilingFacts]:
        measured.append(device)
        return [found]

    monkeypatch.setattr(ceilings, "measure_ceilings", measure)
    installed, store, seen = load(), Store(tmp_path), Silent()
    with store.begin(HEADER) as partial:
        _roofs(installed, [], partial, seen)  # type: ignore[arg-type]  # it asks no more of it
        assert not measured
        assert not seen.said
        _roofs(installed, ["cpu"], partial, seen)  # type: ignore[arg-type]
        assert partial.header.machine.ceilings == (found,)
    with store.resume() as partial:
        _roofs(installed, ["cpu"], partial, seen)  # type: ignore[arg-type]
        assert partial.header == HEADER.model_copy(update={"machine": partial.header.machine})
        assert partial.header.machine.ceilings == (found,)
    assert len(measured) == len(seen.said) == 1


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(("l2", "l3"), [(2 << 20, 300 << 20), (1 << 20, 32 << 20), (512 << 10, 96 << 20), (0, 8 << 20)])
def test_the_last_caches_probe_lies_in_it_and_mostly_outside_the_threads_own(threads: int, l2: int, l3: int) -> None:
    probe = next(each for each in DEVICE.ceilings().values() if each.name == "read")
    found = {level: nbytes for level, nbytes, _ in _places(probe, {"L2": l2, "L3": l3}, threads, 4 << 20, 1 << 16)}
    assert ("L3" in found) is (l3 // 2 > 2 * threads * l2)
    assert 2 * threads * l2 < found.get("L3", l3) <= l3
    assert found.get("L3", 0) <= (8 * threads * l2 or l3 // 2)
