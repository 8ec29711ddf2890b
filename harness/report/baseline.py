"""The earlier Record that a report compares with if the caller names none."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tritmark.harness.errors import RecordError
from tritmark.harness.record import Record
from tritmark.harness.store import Store
from tritmark.harness.text import groups
from tritmark.harness.text.outcome import FAILED, outcome
from tritmark.harness.verify import believed


@dataclass(frozen=True, slots=True)
class Baseline:
    """The Record to compare with, or why there is none."""

    record: Record | None
    missing: str = ""


def latest_passing(record: Record, store: Store) -> Baseline:
    """The newest complete Record in the store before this one, of the same machine and suite, without FAIL and ERROR,
    that `tritmark verify` does not refute, and in which a Run of this one was measured. Ids have no order within a
    second, so Records of the same second are not earlier."""
    earlier = [id for id in store.records() if id.partition("-")[0] < record.id.partition("-")[0]]
    # Records are large: only those whose bytes have all of these are parsed.
    wanted = [f'"{name}":{json.dumps(value, ensure_ascii=False)}'.encode() for name, value in _same(record)]
    measured = _measured(record)
    others = 0
    for id in reversed(earlier):
        path = store.path(id)
        try:
            data = path.read_bytes()
            if not all(each in data for each in wanted):
                continue
            found, faults = believed(path)
        except (OSError, RecordError):
            continue
        if not faults and found.complete and _same(found) == _same(record) and not outcome(found).count(*FAILED):
            if not measured or measured & _measured(found):
                return Baseline(found)
            others += 1
    kernels = " that measured the same kernels" if others else ""
    missing = f"no earlier Record of this machine and suite {record.suite}{kernels} passed in {store.runs}"
    return Baseline(None, missing)


def _measured(record: Record) -> set[tuple[str, str, int]]:
    """The places of the Runs with figures, see compare."""
    return {run.place for run in groups.sound(record)}


def _same(record: Record) -> list[tuple[str, str]]:
    return [("id", record.machine.id), ("suite", record.suite), *_weights(record)]


def _weights(record: Record) -> list[tuple[str, str]]:
    return [("weights_path", record.weights_path)] if record.weights_path else []
