"""The Records of one or several sets, by machine. Each Run counts once: of several, the newest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.fleet.kinds import MachineKind
from tritmark.harness.fleet.sets import read_set
from tritmark.harness.record import Record, Run
from tritmark.harness.store import Store
from tritmark.harness.text.distrust import distrust
from tritmark.harness.verify import believed


@dataclass(frozen=True, slots=True)
class FleetColumn:
    """The Runs of one device of one machine."""

    kind: str
    """DEVICE/NAME as the fleet named it; "" for Records that no fleet made."""
    device: str
    record: Record
    """The newest of its Records, with the Runs of all."""
    records: tuple[str, ...]
    hosts: tuple[str, ...]

    @property
    def place(self) -> tuple[str, str]:
        """The machine and the device. Figures compare if both are equal."""
        return self.record.machine.id, self.device


@dataclass(frozen=True, slots=True)
class MergedSets:
    """Sets as one."""

    names: tuple[str, ...]
    columns: tuple[FleetColumn, ...]
    not_run: tuple[str, ...]
    """Jobs without a Record, and why."""
    left_out: tuple[str, ...]
    """Records that cannot be read or are not believed, and why."""
    repeated: int
    """Runs that were left out because a newer Record has the same Run."""


@dataclass(slots=True)
class _Gathered:
    records: dict[str, tuple[str, Record]] = field(default_factory=dict)
    """Kind and Record, by id."""
    not_run: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def merged(folders: Sequence[Path]) -> MergedSets:
    """The sets in these folders as one.

    Raises UsageError if there is no Record, and RecordError for a set.json that cannot be read.
    """
    found = _Gathered()
    for folder in folders:
        _gather(folder, found)
    by_column: dict[tuple[str, str, str], list[Record]] = {}
    for kind, record in sorted(found.records.values(), key=lambda each: (each[1].created, each[1].id)):
        for device in dict.fromkeys(run.device for run in record.runs):
            by_column.setdefault((device, kind, record.machine.id), []).append(record)
    if not by_column:
        why = "; ".join((*found.left_out, *found.not_run))
        raise UsageError(f"{', '.join(map(str, folders))}: no Record with Runs{f': {why}' if why else ''}")
    columns, repeated = [], 0
    for (device, kind, _), records in sorted(by_column.items()):
        runs, more = _newest(run for record in records for run in record.runs if run.device == device)
        repeated += more
        columns.append(
            FleetColumn(
                kind=kind,
                device=device,
                record=records[-1].model_copy(update={"runs": runs}),
                records=tuple(record.id for record in records),
                hosts=tuple(dict.fromkeys(record.machine.hostname for record in records)),
            )
        )
    return MergedSets(
        names=tuple(folder.name for folder in folders),
        columns=tuple(columns),
        not_run=tuple(dict.fromkeys(found.not_run)),
        left_out=tuple(dict.fromkeys(found.left_out)),
        repeated=repeated,
    )


def _gather(folder: Path, into: _Gathered) -> None:
    known = read_set(folder)
    kinds = {job.record: job.kind for job in known.jobs} if known else {}
    store = Store(folder)
    there = store.records()
    for id in there:
        try:
            record, faults = believed(store.path(id))
        except RecordError as error:
            into.left_out.append(str(error))
            continue
        if faults:
            into.left_out.append(distrust(faults, id))
        else:
            into.records.setdefault(id, (kinds.get(id, ""), record))
    if known:
        into.not_run += [f"{job.op} on {job.kind}: {known.why(job)}" for job in known.missing]
        gone = [job for job in known.jobs if job.record and job.record not in there]
        into.left_out += [f"{store.runs / job.record}.json: is missing; {job.op} on {job.kind}" for job in gone]


def _newest(runs: Iterable[Run]) -> tuple[tuple[Run, ...], int]:
    """The last Run of each place, and the number of the others."""
    every = list(runs)
    found = {run.place: run for run in every}
    return tuple(found.values()), len(every) - len(found)


def labels(columns: Sequence[FleetColumn]) -> list[str]:
    """A name for each column: its kind, or device and machine. Kinds of the same name on other machines, which come
    from different sets, have the machine too."""
    names = [each.kind or str(MachineKind(each.device, each.record.machine.id)) for each in columns]
    return [
        f"{name} ({each.record.machine.id})" if names.count(name) > 1 else name
        for name, each in zip(names, columns, strict=True)
    ]
