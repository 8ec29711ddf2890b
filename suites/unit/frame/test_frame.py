"""Records as a table: equal columns for each schema version, figures equal to those of the Record, and inert cells."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from command_line import Outcome, outcome_of
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.derived import cache_efficiency, simd_efficiency
from tritmark.harness.errors import RecordError, UsageError
from tritmark.harness.frame import table
from tritmark.harness.frame.columns import COLUMNS, SAMPLES
from tritmark.harness.record import (
    SCHEMA_VERSION,
    PeerComparison,
    Ratio,
    Record,
    Run,
    Scaled,
    Status,
    read_digest,
    with_digest,
)
from tritmark.harness.store import Store

BASELINES = Path(__file__).parents[3] / "results" / "baselines"
NAMES = [column.name for column in COLUMNS]


def kept(folder: Path, record: Record) -> Path:
    path = folder / "runs" / f"{record.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_digest(record))
    return path


def as_version(record: Record, version: int, path: Path) -> Path:
    """The Record in an earlier schema version: without the fields that were added later."""
    later = {2: ["receipt.uuid"], 4: ["scaling", "plain", "code"]}
    told = json.loads(record.model_copy(update={"schema_version": version}).model_dump_json())
    for run in told["runs"]:
        for since, fields in later.items():
            for field in fields if version < since else ():
                inside, _, name = field.rpartition(".")
                (run[inside] if inside else run).pop(name)
    for field in ("proposals", "unadvised", "addresses") if version < 4 else ():
        told.pop(field)
    told.pop("digest")
    unsealed = json.dumps(told)[:-1] + ',\n "digest": "sha256:' + "0" * 64 + '"\n}\n'
    found = read_digest(unsealed.encode()) if version > 1 else None
    path.write_text(unsealed.replace(found.claimed, found.found) if found is not None else json.dumps(told))
    return path


def test_a_row_for_each_run_with_the_figures_of_the_record(tmp_path: Path, gpu_record: Record) -> None:
    found = table.table([kept(tmp_path, gpu_record)])
    assert len(found) == len(gpu_record.runs)
    assert list(found.columns) == [*NAMES, "axis_K", "axis_M", "axis_N", "axis_n"]
    for (_, row), run in zip(found.iterrows(), gpu_record.runs, strict=True):
        assert (row["run"], row["device"], row["threads"]) == (run.id, run.device, run.threads)
        assert {name: row[f"axis_{name}"] for name in "KMNn" if not pd.isna(row[f"axis_{name}"])} == dict(
            run.workload.axes
        )
        cold = run.performance.cold
        if cold is None:
            assert pd.isna(row["cold_ns"])
            assert pd.isna(row["cold_fraction"])
        else:
            assert (row["cold_ns"], row["cold_rate"]) == (cold.timing.median_ns, cold.against.rate)
            assert (row["cold_fraction_low"], row["cold_fraction_high"]) == (
                cold.against.fraction.low,
                cold.against.fraction.high,
            )
        assert (row["gpu"] == "Made-up GPU") if run.device == "cuda" else pd.isna(row["gpu"])


def test_derived_figures_are_those_of_the_record(tmp_path: Path, gpu_record: Record) -> None:
    found = table.table([kept(tmp_path, gpu_record)])
    for (_, row), run in zip(found.iterrows(), gpu_record.runs, strict=True):
        simd, cache = simd_efficiency(gpu_record, run), cache_efficiency(gpu_record, run)
        if isinstance(simd, str):
            assert row["simd_missing"] == simd
            assert all(pd.isna(row[name]) for name in NAMES if name.startswith("simd_") and name != "simd_missing")
        else:
            assert (row["simd_missing"], row["simd_speedup"], row["simd_lanes"]) == ("", simd.speedup, simd.lanes)
            assert row["simd_speedup_low"] < row["simd_speedup"] < row["simd_speedup_high"]
            assert row["simd_efficiency"] == simd.speedup / simd.lanes
        if isinstance(cache, str):
            assert row["cache_missing"] == cache
            assert all(pd.isna(row[name]) for name in ("cache_level", "cache_efficiency", "cache_source"))
        else:
            assert (row["cache_missing"], row["cache_level"], row["cache_source"]) == ("", cache.level, "ceiling")
            assert row["cache_efficiency"] == cache.efficiency
    assert found["simd_efficiency"].notna().any()


def test_a_row_for_each_sample(tmp_path: Path, gpu_record: Record) -> None:
    found = table.table([kept(tmp_path, gpu_record)], samples=True)
    assert list(found.columns)[-len(SAMPLES) :] == [name for name, *_ in SAMPLES]
    run = next(run for run in gpu_record.runs if run.performance.hot is not None)
    assert run.performance.hot is not None
    rows = found[(found["run"] == run.id) & (found["temperature"] == "hot")]
    assert tuple(rows["sample_ns"]) == run.performance.hot.timing.samples_ns
    assert tuple(rows["probe_ns"]) == run.performance.hot.against.probe_ns
    assert list(rows["sample"]) == list(range(len(rows)))
    measured = sum(each.performance.cold is not None for each in gpu_record.runs)
    assert len(found) == 2 * 30 * measured


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_the_columns_are_the_same_for_every_schema(tmp_path: Path, gpu_record: Record, version: int) -> None:
    newest = table.table([kept(tmp_path, gpu_record)])
    found = table.table([as_version(gpu_record, version, tmp_path / "old.json")])
    assert list(found.columns) == list(newest.columns)
    assert found.dtypes.to_dict() == newest.dtypes.to_dict()
    assert set(found["schema_version"]) == {version}


@pytest.mark.skipif(not BASELINES.is_dir(), reason="the tests run without the repository's results")
def test_real_records_of_several_schemas() -> None:
    """The committed Records, in the schema versions in which they were written."""
    paths = sorted(path for path in BASELINES.rglob("*.json") if path.parent.name not in {"criteria", "models"})
    found = table.table(paths)
    assert list(found.columns)[: len(NAMES)] == NAMES
    assert {1, 4, 5, 7} <= set(found["schema_version"])
    assert found["cold_fraction"].dropna().between(0, 1.2).all()


def test_what_later_schemas_have(tmp_path: Path, gpu_record: Record) -> None:
    def ratio(median: float) -> Ratio:
        return Ratio(median=median, low=median - 0.1, high=median + 0.1, pairs=30)

    def peer(name: str, speedup: float) -> PeerComparison:
        return PeerComparison(status=Status.PASS, peer=name, speedup=ratio(speedup))

    run = gpu_record.runs[0]
    changed = run.model_copy(
        update={
            "plain": ratio(3.0),
            "scaling": (
                Scaled(threads=2, speedup=ratio(1.9)),
                Scaled(threads=4, speedup=ratio(2.5), efficiency=0.625, balance=0.9),
            ),
            "cross": run.cross.model_copy(update={"peers": (peer("slow", 9.0), peer("fast", 1.5))}),
        }
    )
    (row,) = table.table([kept(tmp_path, gpu_record.model_copy(update={"runs": (changed,)}))]).to_dict("records")
    assert (row["plain_over_graph"], row["scaling_threads"], row["scaling"]) == (3.0, 4, 2.5)
    assert (row["efficiency"], row["balance"]) == (0.625, 0.9)
    assert pd.isna(row["utilization"])
    assert row["best_threads"] == 4
    assert (row["peers"], row["peer"], row["peer_over_kernel"]) == (2, "fast", 1.5)


def changed(record: Record, **texts: str) -> Record:
    run: Run = record.runs[0].model_copy(update=texts)
    return record.model_copy(update={"runs": (run,)})


@pytest.mark.nightly
@given(st.text(max_size=20))
def test_no_cell_is_a_formula_or_moves_the_cursor(text: str) -> None:
    cell = table.inert(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert all(char.isprintable() or char == "\n" for char in cell)


def test_numbers_are_left_as_they_are() -> None:
    frame = pd.DataFrame(
        {"text": pd.array(["-1", None], dtype="string"), "number": pd.array([-1.5, None], dtype="Float64")}
    )
    assert table.csv(frame) == "text,number\n'-1,-1.5\n,\n"


def test_names_with_formulas_and_escapes(tmp_path: Path, gpu_record: Record) -> None:
    told = table.csv(
        table.table([kept(tmp_path, changed(gpu_record, variant="=cmd|' /C calc'!A0", op="\x1b[31m\u202eop"))])
    )
    row = next(csv.DictReader(io.StringIO(told)))
    assert row["variant"] == "'=cmd|' /C calc'!A0"
    assert row["op"] == "\\x1b[31m\\u202eop"


def test_parquet_keeps_types_and_names(tmp_path: Path, gpu_record: Record) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    found = table.table([kept(tmp_path, changed(gpu_record, variant="=1+1"))])
    data = table.parquet(found)
    back = pd.read_parquet(io.BytesIO(data))
    pd.testing.assert_frame_equal(back, found)
    assert back["variant"][0] == "=1+1"
    field = pq.read_schema(io.BytesIO(data)).field("cold_ns")
    assert field.metadata[b"description"] == b"median time of a call, arrays come from memory [ns]"


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow .*frame"):
        table.parquet(pd.DataFrame())


def test_which_records(tmp_path: Path, gpu_record: Record) -> None:
    store = Store(tmp_path)
    ids = ("20250101T000000Z-00000001", "20250102T000000Z-00000002")
    first, second = (kept(tmp_path, gpu_record.model_copy(update={"id": id})) for id in ids)
    assert table.find([], store) == [first, second]
    assert table.find([ids[1]], store) == [second]
    assert table.find(["20250102*"], store) == [second]
    assert table.find([str(tmp_path / "runs" / "*1.json"), ids[0], str(second)], store) == [first, second], "each once"
    with pytest.raises(UsageError, match=r"'2024\*' matches no Record"):
        table.find(["2024*"], store)
    with pytest.raises(UsageError, match="holds no Record; make one"):
        table.find([], Store(tmp_path / "none"))
    with pytest.raises(RecordError):
        table.table([tmp_path / "missing.json"])


@pytest.fixture
def tritmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Outcome:
        return outcome_of(monkeypatch, capsys, *arguments)

    return command


def test_the_command(tritmark: Callable[..., Outcome], gpu_record: Record) -> None:
    kept(Path("results"), gpu_record)
    status, out, err = tritmark("frame")
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == len(gpu_record.runs)
    assert tritmark("frame", "--out", "x.csv")[:2] == (0, "")
    assert Path("x.csv").read_text() == out
    status, out, err = tritmark("frame", "--to", "parquet")
    assert (status, out) == (2, "")
    assert "--to parquet without --out" in err
    status, _, err = tritmark("frame", "--out", "nowhere/x.csv")
    assert status == 2
    assert "nowhere/x.csv: cannot be written: No such file or directory" in err
    assert [path.name for path in Path().iterdir() if path.is_file()] == ["x.csv"]


def test_every_column_is_described(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # pytest-xdist sets 80, which would wrap descriptions
    _, out, _ = tritmark("frame", "--columns")
    told = {line.split()[0] for line in out.splitlines()[2:] if line.strip()}
    assert {*NAMES, "axis_*", *(name for name, *_ in SAMPLES)} == told
    assert len(set(NAMES)) == len(NAMES)
    assert all(column.description for column in COLUMNS)
