"""The earlier Record that a report compares with if the caller names none."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tritmark.harness.errors import RecordError
from tritmark.harness.record import Record
from tritmark.harness.store import Store
from tritmark.harness.text.outcome import FAILED, outcome
from tritmark.harness.verify import believed


@dataclass(frozen=True, slots=True)
class Baseline:
    """The Record to compare with, or why there is none."""

    record: Record | None
    missing: str = ""


def latest_passing(record: Record, store: Store) -> Baseline:
    """The newest complete Record in the store before this one, of the same machine and suite, without FAIL and ERROR,
    that `tritmark verify` does not refute."""
    earlier = [id for id in store.records() if id < record.id]
    # Records are large: only those whose bytes have both are parsed.
    wanted = [f'"{name}":{json.dumps(value)}'.encode() for name, value in _same(record)]
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
            return Baseline(found)
    return Baseline(None, f"no earlier Record of this machine and suite {record.suite} passed in {store.runs}")


def _same(record: Record) -> list[tuple[str, str]]:
    return [("id", record.machine.id), ("suite", record.suite), *_weights(record)]


def _weights(record: Record) -> list[tuple[str, str]]:
    return [("weights_path", record.weights_path)] if record.weights_path else []
