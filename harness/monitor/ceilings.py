"""The ceilings of a machine, if a Record has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tritmark.harness.errors import TritmarkError
from tritmark.harness.monitor.data import Series
from tritmark.harness.monitor.work import key_of

MEASURE = "tritmark run --suite smoke"
"""The command that measures them and keeps them in a Record."""
_MOST_RECORDS = 5


@dataclass(frozen=True, slots=True)
class DeviceCeilings:
    """Rates of one device; None if not measured."""

    read: float | None
    """Reads from memory, bytes per second."""
    compute: float | None
    """Operations per second."""
    record: str

    def share(self, series: Series) -> float | None:
        """The time that the device needs at least for a mean call, over the median time. Above 1 if the data came from
        a cache, since `read` is that of the memory."""
        if series.nbytes is None or series.operations is None or not series.median_ns or not series.calls:
            return None
        if series.key.asynchronous or series.key.simulated:
            return None
        seconds = [
            done / series.calls / rate
            for done, rate in ((series.nbytes, self.read), (series.operations, self.compute))
            if rate
        ]
        return max(seconds) / series.median_ns * 1e9 if seconds else None


def stored(folder: Path) -> Mapping[str, DeviceCeilings]:
    """The ceilings of this machine's devices in the newest Record that has them, by device; {} without one."""
    from tritmark.harness.record.facts import machine_facts
    from tritmark.harness.report.roofline import roofs
    from tritmark.harness.store import Store, read

    store = Store(folder)
    ids = store.records()
    if not ids:
        return {}
    here = machine_facts().id
    for id in sorted(ids, reverse=True)[:_MOST_RECORDS]:
        try:
            record = read(store.path(id))
        except TritmarkError:
            continue
        if record.machine.id != here or not record.machine.ceilings:
            continue
        found = {}
        for device in {each.device for each in record.machine.ceilings}:
            rates = {(each.name, each.level): each.rate for each in roofs(record, device)}
            compute = max((rate for (name, _), rate in rates.items() if name == "compute"), default=None)
            found[device] = DeviceCeilings(rates.get(("read", "memory")), compute, id)
        return found
    return {}


def share(ceilings: Mapping[str, DeviceCeilings], series: Series) -> float | None:
    """See DeviceCeilings.share; None without ceilings of the kernel's device."""
    key = key_of(series.key.kernel)
    found = ceilings.get(key.device) if key is not None else None
    return found.share(series) if found is not None else None
