"""Make the table and write it to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import UsageError
from tritmark.harness.extras import install
from tritmark.harness.frame.columns import AXES, BELIEVED, COLUMNS, SAMPLES, Kind
from tritmark.harness.record import Run
from tritmark.harness.store import Store, write_atomically
from tritmark.harness.text.visible import visible
from tritmark.harness.verify import believed

if TYPE_CHECKING:
    import pandas as pd

_DTYPES: dict[Kind, str] = {"text": "string", "integer": "Int64", "number": "Float64", "yes/no": "boolean"}
_SUFFIXES = (".csv", ".parquet")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def find(names: Sequence[str], store: Store) -> list[Path]:
    """The files of Records named by path, id, or a pattern of either; all Records of the store if none is named.

    Raises UsageError for a pattern without a match, and if there is no Record.
    """
    ids = store.records()
    if not names and not ids:
        raise UsageError(f"{store.runs}: holds no Record; make one with `tritmark run`, or name files of Records")
    found: dict[Path, Path] = {}
    for path in _named(names, ids, store) if names else map(store.path, ids):
        found.setdefault(path.resolve(), path)
    return list(found.values())


def _named(names: Sequence[str], ids: Sequence[str], store: Store) -> Iterator[Path]:
    from fnmatch import fnmatchcase

    for name in names:
        if not has_magic(name) or Path(name).exists():
            yield store.find(name)
            continue
        matching = [store.path(id) for id in ids if fnmatchcase(id, name)] or [
            Path(each) for each in sorted(glob(name, recursive=True))
        ]
        if not matching:
            raise UsageError(
                f"{name!r} matches no Record; legal: paths of files, ids, or patterns of either; Records in "
                f"{store.runs}: {len(ids)}"
            )
        yield from matching


def table(paths: Iterable[Path], *, samples: bool = False) -> pd.DataFrame:
    """One table of the Records in these files: one row per Run, or with `samples` one row per sample of a timed Run.

    COLUMNS and SAMPLES list the columns. Raises RecordError for a file that is not a Record or was changed.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    axes: dict[str, None] = {}
    for path in paths:
        record, faults = believed(path)
        for run in record.runs:
            row = {column.name: column.value(record, run) for column in COLUMNS}
            row[BELIEVED.name] = not faults
            for axis, size in run.workload.axes.items():
                axes[f"axis_{axis}"] = None
                row[f"axis_{axis}"] = size
            rows += [row | each for each in _samples(run)] if samples else [row]
    kinds: dict[str, Kind] = {column.name: column.kind for column in COLUMNS}
    kinds |= dict.fromkeys(sorted(axes), AXES[1])
    if samples:
        kinds |= {name: kind for name, kind, _, _ in SAMPLES}
    return pd.DataFrame(
        {name: pd.array([row.get(name) for row in rows], dtype=_DTYPES[kind]) for name, kind in kinds.items()}
    )


def _samples(run: Run) -> Iterator[dict[str, Any]]:
    for temperature in ("cold", "hot"):
        footing = getattr(run.performance, temperature)
        if footing is None:
            continue
        probe = footing.against.probe_ns
        for index, sample in enumerate(footing.timing.samples_ns):
            yield {
                "temperature": temperature,
                "sample": index,
                "sample_ns": sample,
                "calls": footing.timing.calls_per_sample,
                "probe_ns": probe[index] if index < len(probe) else None,
            }


def inert(text: str) -> str:
    """The text for a cell. Text that a spreadsheet would read as a formula gets a leading apostrophe, and unprintable
    characters are escaped."""
    return visible(f"'{text}" if text.startswith(_FORMULAS) else text)


def csv(found: pd.DataFrame) -> str:
    """The table as CSV, with inert texts."""
    texts = found.select_dtypes("string")
    changed = found.assign(**{str(name): texts[name].map(inert, na_action="ignore") for name in texts})
    return str(changed.to_csv(index=False, lineterminator="\n"))


def parquet(found: pd.DataFrame) -> bytes:
    """The table as Parquet, with the descriptions of the columns in the file's metadata.

    Raises UsageError if pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError(f"--to parquet needs pyarrow ({error}); next: {install('frame')}, or use --to csv") from None
    reported = {
        column.name: f"{column.description} [{column.unit}]" if column.unit else column.description
        for column in COLUMNS
    }
    made = pa.Table.from_pandas(found, preserve_index=False)
    fields = [
        field.with_metadata({"description": reported[field.name]}) if field.name in reported else field
        for field in made.schema
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(made.cast(pa.schema(fields, metadata=made.schema.metadata)), sink)
    return bytes(sink.getvalue().to_pybytes())


def write(path: Path, data: bytes) -> None:
    """Write the file atomically. Raises UsageError if it cannot be written."""
    write_atomically(path, data)


def suffix_checked(path: Path, option: str) -> None:
    """Raises UsageError for a suffix other than .csv and .parquet, without the folder, and without pyarrow for Parquet:
    before anything is measured."""
    from importlib.util import find_spec

    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{option} {path}: its suffix is {path.suffix!r}; legal: {', '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}; next: make it")
    if path.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise UsageError(f"{option} {path}: Parquet needs pyarrow; next: {install('frame')}, or use .csv")


def write_table(path: Path, found: pd.DataFrame) -> None:
    """Write the table as CSV or Parquet, by the suffix. Raises UsageError."""
    suffix_checked(path, "table")
    write(path, csv(found).encode() if path.suffix.lower() == ".csv" else parquet(found))
