"""The public league: a static site of the signed Records of many machines, for GitHub Pages or any web server.

Every link is relative, and the pages need no network and no build step. A row is a figure of one machine. Figures of
different machines are never combined.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.record import Measurement, Record, Run
from tritmark.harness.report import landing
from tritmark.harness.report.collected import AcceptedRecord, Collection, collect
from tritmark.harness.report.page import document, put
from tritmark.harness.signing import TrustedKeys, signature_path
from tritmark.harness.store import write_atomically
from tritmark.harness.text import groups, units

INDEX, MACHINES, RECORDS = "index.html", "machines", "records"
_ID = 8
"""Letters of a machine's id beside its name."""
_OURS = 'content="tritmark"'


@dataclass(frozen=True, slots=True)
class SiteFigure:
    """The newest figures of a kernel at one workload and thread count on one machine."""

    device: str
    """The GPU's name, or cpu."""
    op: str
    format: str
    dtype: str
    variant: str
    kernel: str
    shape: str
    place: tuple[str, str, int]
    threads: int
    nbytes: int
    """Least bytes that the workload moves."""
    cold: Measurement | None
    hot: Measurement | None
    record: SiteRecord

    @property
    def ns(self) -> float:
        """Time that orders kernels: cold, or else hot; noisy ones last."""
        footing = self.cold or self.hot
        return float("inf") if footing is None or footing.timing.too_noisy else footing.timing.median_ns


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """What the site shows of a Record, beside its figures."""

    row: landing.Row
    signers: tuple[str, ...]
    wheel: str
    tritmark: str
    cpu: str


@dataclass(frozen=True, slots=True)
class _Taken:
    """What is kept of a Record while the folder is read."""

    row: landing.Row
    wheel: str
    tritmark: str
    cpu: str
    figures: tuple[tuple[Run, str], ...]
    """Runs without samples, each with its device."""


@dataclass(frozen=True, slots=True)
class SiteMachine:
    """One machine: its Records from old to new, and the newest figures."""

    id: str
    name: str
    label: str
    """Short, and unique."""
    records: tuple[SiteRecord, ...]
    figures: tuple[SiteFigure, ...]

    @property
    def page(self) -> str:
        """Its page, seen from the index."""
        return f"{MACHINES}/{self.id}.html"

    @property
    def best(self) -> list[SiteFigure]:
        """For each device, op, dtype and format: the fastest kernel at the workload that moves the most bytes."""
        found: dict[tuple[str, str, str, str], SiteFigure] = {}
        for each in self.figures:
            key = (each.device, each.op, each.dtype, each.format)
            known = found.get(key)
            if known is None or (-each.nbytes, each.shape, each.ns) < (-known.nbytes, known.shape, known.ns):
                found[key] = each
        return list(found.values())


def build(folder: Path, keys: TrustedKeys, site: Path) -> tuple[Path | None, Collection[_Taken]]:
    """Collect the Records of a folder and write the site. Returns its index, and what was collected. Without an
    accepted Record nothing is written, and there is no index: a site that is published stays as it is.

    Raises UsageError for a folder that holds other files, or overlaps with the Records, and OSError if a file cannot
    be written.
    """
    _usable(folder, site)
    found = collect(folder, keys, _take)
    if not found.accepted:
        return None, found
    machines = _machines(found.accepted)
    written = {copy for each in found.accepted for copy in _copied(each, site / RECORDS)}
    written |= {put(site / MACHINES, f"{each.id}.html", _machine_page(each)) for each in machines}
    for path in (*(site / RECORDS).iterdir(), *(site / MACHINES).iterdir()):
        if path not in written:  # a Record that is no longer trusted must not stay published
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    put(site, ".nojekyll", "")
    return put(site, INDEX, _index(machines, found)), found


def _copied(each: AcceptedRecord[_Taken], folder: Path) -> tuple[Path, Path]:
    """Copy a Record and its signature byte for byte, for readers who check them."""
    data, signature = each.path.read_bytes(), signature_path(each.path).read_bytes()
    if sha256(data).hexdigest() != each.digest:
        raise UsageError(f"{each.path}: was changed while the site was written; next: run the command again")
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{each.id}.json"
    write_atomically(record, data)
    write_atomically(signature_path(record), signature)
    return record, signature_path(record)


def headline(found: Collection[_Taken]) -> str:
    """2 machines, 14 kernels, 3 Records; 1 file refused."""
    machines = {each.taken.row.machine_id for each in found.accepted}
    kernels = {run.kernel for each in found.accepted for run, _ in each.taken.figures}
    refused = f"; {units.counted(len(found.refused), 'file')} refused" if found.refused else ""
    records = units.counted(len(found.accepted), "Record")
    return f"{units.counted(len(machines), 'machine')}, {units.counted(len(kernels), 'kernel')}, {records}{refused}"


def _usable(folder: Path, site: Path) -> None:
    inner, outer = folder.resolve(), site.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise UsageError(f"--out {site}: overlaps with the Records in {folder}; legal: another folder")
    if not site.exists():
        return
    index = site / INDEX
    if not site.is_dir() or (
        any(site.iterdir()) and not (index.is_file() and _OURS in index.read_text(encoding="utf-8", errors="replace"))
    ):
        raise UsageError(f"--out {site}: holds files of something else; legal: a new folder, or a site of tritmark")


def _take(record: Record) -> _Taken:
    figures = []
    for run in groups.selectable(record):
        uuid = getattr(run.receipt, "uuid", "")
        gpu = next((each.name for each in record.machine.gpus if uuid and each.uuid == uuid), run.device)
        figures.append((_light(run), gpu))
    return _Taken(
        row=landing.row(record, f"../{RECORDS}/{record.id}.json"),
        wheel=record.environment.wheel,
        tritmark=record.environment.tritmark,
        cpu=record.machine.cpu,
        figures=tuple(figures),
    )


def _light(run: Run) -> Run:
    """The Run without samples, which are most of a Record."""
    performance = run.performance
    kept: dict[str, Measurement] = {}
    for name in ("cold", "hot"):
        found: Measurement | None = getattr(performance, name)
        if found is not None:
            timing = found.timing.model_copy(update={"samples_ns": ()})
            against = found.against.model_copy(update={"probe_ns": ()})
            kept[name] = found.model_copy(update={"timing": timing, "against": against})
    return run.model_copy(update={"performance": performance.model_copy(update=kept), "code": None})


def _machines(accepted: Sequence[AcceptedRecord[_Taken]]) -> list[SiteMachine]:
    """The machines by name, each with its newest figures."""
    by: dict[str, list[AcceptedRecord[_Taken]]] = {}
    for each in sorted(accepted, key=lambda each: (each.taken.row.created, each.id)):
        by.setdefault(each.taken.row.machine_id, []).append(each)
    machines = []
    for id, of in by.items():
        records, newest = [], dict[tuple[str, str, int], SiteFigure]()
        for each in of:
            taken = each.taken
            record = SiteRecord(taken.row, each.signers, taken.wheel, taken.tritmark, taken.cpu)
            records.append(record)
            for run, device in taken.figures:
                newest[run.place] = _figure(run, device, record)
        last = records[-1]
        figures = sorted(newest.values(), key=lambda each: (each.op, each.device, each.shape, each.dtype, each.ns))
        label = f"{_short(last.cpu)} ({id[:_ID]})"
        machines.append(SiteMachine(id, last.row.machine, label, tuple(records), tuple(figures)))
    return sorted(machines, key=lambda each: each.label)


def _short(cpu: str) -> str:
    """The name of a CPU without trademarks and the clock rate."""
    name = re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b| @ .*", " ", cpu, flags=re.IGNORECASE)
    return " ".join(name.split()) or cpu


def _figure(run: Run, device: str, record: SiteRecord) -> SiteFigure:
    performance = run.performance
    return SiteFigure(
        device=device,
        op=run.op,
        format=run.format,
        dtype=run.dtype,
        variant=run.variant,
        kernel=run.kernel,
        shape=groups.shape(run.workload),
        place=run.place,
        threads=run.threads,
        nbytes=performance.read + performance.written,
        cold=performance.cold,
        hot=performance.hot,
        record=record,
    )


def _index(machines: Sequence[SiteMachine], found: Collection[_Taken]) -> str:
    rows = [(machine, figure) for machine in machines for figure in machine.best]
    rows.sort(key=lambda row: (row[1].op, row[1].dtype, row[1].format, row[0].label))
    return document(
        "league_site.html",
        headline=headline(found),
        machines=machines,
        rows=rows,
        refused=found.refused,
        copies=found.copies,
        signers=_signers,
        records=RECORDS,
    )


def _machine_page(machine: SiteMachine) -> str:
    ops: dict[str, list[SiteFigure]] = {}
    for each in machine.figures:
        ops.setdefault(each.op, []).append(each)
    return document(
        "league_machine.html",
        headline=machine.name,
        machine=machine,
        ops=ops,
        speeds_over=landing.over_records([each.row for each in machine.records]),
        share=groups.fraction,
        signers=_signers,
        index=f"../{INDEX}",
    )


def _signers(record: SiteRecord) -> str:
    return ", ".join(record.signers)


def refusals(found: Collection[_Taken]) -> Iterable[str]:
    """A line for each refused file."""
    return (f"{each.name}: {each.reason}" for each in found.refused)
