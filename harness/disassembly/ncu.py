"""Adds counters from Nsight Compute's CSV, `--page raw` or `--page details`, to a Record, by the names of the metrics.

Columns are found by name. The file is third-party input: reading gives counters, or a UsageError with the line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.record import Code, Function, Record, Run

MOST_BYTES = 256 << 20
SOURCE = "Nsight Compute"
COMMAND = "ncu --csv --page raw --set full tritmark run --suite ONE.toml --in-process > FILE.csv"
"""ONE.toml holds the workload, without `measure`: ncu runs each launch dozens of times."""

DENIED = "ERR_NVGPUCTRPERM"
MEND = (
    f"{SOURCE}'s counters are not available: the driver denies this user access ({DENIED}); next: run ncu as root, "
    "or put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/ and restart the host (a "
    "container needs CAP_SYS_ADMIN)"
)

KERNEL, GRID, BLOCK = "Kernel Name", "Grid Size", "Block Size"
NAME, UNIT, VALUE = "Metric Name", "Metric Unit", "Metric Value"
DURATION = "gpu__time_duration.sum"
_FIRST = ("ID", "Process ID", "Process Name", "Host Name", KERNEL, "Context", "Stream", BLOCK, GRID, "Device", "CC")

LABELS: Mapping[tuple[str, bool], str] = {
    ("Compute (SM) Throughput", True): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("Memory Throughput", True): "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ("Memory Throughput", False): "dram__bytes.sum.per_second",
    ("Issued Warp Per Scheduler", False): "smsp__issue_active.avg.per_cycle_active",
    ("Warp Cycles Per Issued Instruction", False): "smsp__average_warp_latency_per_inst_issued.ratio",
    ("Theoretical Occupancy", True): "sm__maximum_warps_per_active_cycle_pct",
    ("Achieved Occupancy", True): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("L1/TEX Hit Rate", True): "l1tex__t_sector_hit_rate.pct",
    ("L2 Hit Rate", True): "lts__t_sector_hit_rate.pct",
    ("Registers Per Thread", False): "launch__registers_per_thread",
    ("Duration", False): DURATION,
    ("Average SM Active Cycles", False): "sm__cycles_active.avg",
    ("Average L2 Active Cycles", False): "lts__cycles_active.avg",
}
"""From a name on the details page, and whether its unit is percent, to the metric on the raw page."""

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "k": 1e3, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SCALED = re.compile(r"^([KMGTkmun]?)(byte|second|s|sec|hz|Hz)(?:/.*)?$")
_NUMBER = re.compile(r"^[+-]?(\d{1,3}(,\d{3})+|\d+)?(\.\d+)?([eE][+-]?\d+)?$")


@dataclass(frozen=True, slots=True)
class Counted:
    """One profiled launch."""

    kernel: str
    """The function's name, without arguments and namespaces."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counters: Mapping[str, float]


def with_counters(record: Record, path: Path) -> Record:
    """The Record with the counters of a file at the functions that its Runs launched, or with a note that the driver
    denied access.

    Raises UsageError for a file that is not such a CSV, is truncated, or has none of the Record's kernels.
    """
    launches, denied = read(path)
    if denied and not launches:
        return _each(record, lambda run: _noted(run, MEND))
    meant = [(launch, _meant(record, launch)) for launch in launches]

    def counted(run: Run) -> Run:
        for launch, workloads in meant:
            if run.workload.id in workloads and _launched(run, launch):
                run = _with(run, launch)
        return run

    found = _each(record, counted)
    if not any(workloads for _, workloads in meant):
        has = sorted({launch.kernel for launch in launches})
        known = sorted({name for run in record.runs if run.receipt is not None for name in run.receipt.functions})
        raise UsageError(
            f"{path}: has {', '.join(has[:5]) or 'no kernel'}; legal: counters of kernels that the Record ran with "
            f"the same grid and block ({', '.join(known[:8]) or 'no kernel ran on a GPU'})"
        )
    return found


def read(path: Path) -> tuple[tuple[Counted, ...], bool]:
    """Every launch in the file, and whether the driver denied access. Raises UsageError with the line."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(
                f"{path}: {path.stat().st_size} bytes; legal: at most {MOST_BYTES}; next: profile fewer launches"
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); legal: the output of `{COMMAND}`") from None
    denied = DENIED in text
    rows = _rows(path, text)
    head = next(rows, None)
    if head is None:
        if denied:
            return (), True
        raise UsageError(f"{path}: has no row that begins with ID and has {KERNEL}; legal: the output of `{COMMAND}`")
    line, names = head
    for name in (KERNEL, GRID, BLOCK):
        if name not in names:
            raise _error(path, line, f"no column {name!r}", f"the columns of `{COMMAND}`")
    launches = _details(path, names, rows) if NAME in names else _raw(path, line, names, rows)
    if not launches and not denied:
        raise _error(path, line, "no launch below the column names", f"the complete output of `{COMMAND}`")
    return launches, denied


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows after it, with line numbers. Skips output before the header, and ncu's own lines."""
    lines = text.splitlines()
    start = next(
        (number for number, line in enumerate(lines) if line.lstrip().startswith(('"ID",', "ID,")) and KERNEL in line),
        None,
    )
    if start is None:
        return
    kept = [line for line in lines[start:] if not line.startswith("==")]
    numbers = [start + 1 + number for number, line in enumerate(lines[start:]) if not line.startswith("==")]
    reader = csv.reader(io.StringIO("\n".join(kept)), strict=True)
    wide = least = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _error(
                path, numbers[min(reader.line_num, len(numbers)) - 1], str(error), "a complete CSV row"
            ) from None
        line = numbers[min(reader.line_num, len(numbers)) - 1]
        if not row:
            continue
        if not wide:
            # On the details page, ncu omits the rule columns in rows without a rule.
            wide, least = len(row), row.index(VALUE) + 1 if VALUE in row else len(row)
        if not least <= len(row) <= wide:
            raise _error(
                path, line, f"{len(row)} fields", f"{wide}, one for each column name (was the file truncated?)"
            )
        yield line, row + [""] * (wide - len(row))


def _raw(path: Path, line: int, names: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> tuple[Counted, ...]:
    units = next(rows, None)
    if units is None:
        return ()
    line, unit = units
    at = names.index("ID") if "ID" in names else 0
    if unit[at].strip():
        raise _error(
            path,
            line,
            f"{unit[at]!r} in the row of units",
            "a row of units below the column names (ncu --print-units base or auto)",
        )
    found = []
    for number, row in rows:
        cells = zip(names, unit, row, strict=True)
        counters = {
            name: value
            for name, kind, cell in cells
            if name not in _FIRST and (value := _value(cell, kind)) is not None
        }
        found.append(_launch(path, number, dict(zip(names, row, strict=True)), counters))
    return tuple(found)


def _details(path: Path, names: Sequence[str], rows: Iterator[tuple[int, list[str]]]) -> tuple[Counted, ...]:
    for needed in (UNIT, VALUE):
        if needed not in names:
            raise UsageError(f"{path}: no column {needed!r}; legal: the columns of `ncu --csv --page details`")
    found: dict[str, Counted] = {}
    for number, row in rows:
        cells = dict(zip(names, row, strict=True))
        launch = found.setdefault(cells.get("ID", "") + "\0" + cells[KERNEL], _launch(path, number, cells, {}))
        value = _value(cells[VALUE], cells[UNIT])
        name = LABELS.get((cells[NAME], cells[UNIT] == "%"), cells[NAME])
        if name and value is not None:
            assert isinstance(launch.counters, dict)
            launch.counters[name] = value
    return tuple(found.values())


def _launch(path: Path, line: int, cells: Mapping[str, str], counters: dict[str, float]) -> Counted:
    name = re.sub(r"[(<].*", "", cells[KERNEL], flags=re.DOTALL).strip().rpartition("::")[2].rpartition(" ")[2]
    if not name:
        raise _error(path, line, f"{cells[KERNEL][:60]!r} as {KERNEL}", "a function's name")
    return Counted(name, _dimensions(path, line, cells, GRID), _dimensions(path, line, cells, BLOCK), counters)


def _dimensions(path: Path, line: int, cells: Mapping[str, str], column: str) -> tuple[int, ...]:
    found = re.fullmatch(r"\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?", cells[column].strip())
    if found is None:
        raise _error(path, line, f"{cells[column][:60]!r} as {column}", "three numbers such as (128, 1, 1)")
    return tuple(int(each) for each in found.groups())


def _value(cell: str, unit: str) -> float | None:
    """A number in bytes, seconds or hertz; None for other text, such as n/a. Commas may separate thousands."""
    text = cell.strip()
    if not text or not _NUMBER.match(text):
        return None
    value = float(text.replace(",", ""))
    scaled = _SCALED.match(unit.strip())
    value = value * _PREFIXES[scaled[1]] if scaled else value
    return value if math.isfinite(value) else None


def _error(path: Path, line: int, found: str, legal: str) -> UsageError:
    return UsageError(f"{path}:{line}: {found}; legal: {legal}")


def _each(record: Record, change: Callable[[Run], Run]) -> Record:
    return record.model_copy(update={"runs": tuple(change(run) for run in record.runs)})


def _launched(run: Run, launch: Counted) -> bool:
    """Whether the Run launched this function, with this grid and block if its receipt has them."""
    receipt = run.receipt
    if receipt is None or launch.kernel not in receipt.functions:
        return False
    if not receipt.launched:
        return True
    return any(
        (each.function, each.grid, each.block) == (launch.kernel, launch.grid, launch.block)
        for each in receipt.launched
    )


def _meant(record: Record, launch: Counted) -> frozenset[str]:
    """The workloads whose Runs launched it. If several have the same grid and block: the workload whose time is closest
    to the launch's duration."""
    runs = [run for run in record.runs if _launched(run, launch)]
    took = launch.counters.get(DURATION, 0.0) * 1e9
    timed = [
        (run, figure.timing.median_ns)
        for run in runs
        if (figure := run.performance.cold or run.performance.hot) is not None
    ]
    if len({run.workload.id for run in runs}) < 2 or took <= 0 or not timed:
        return frozenset(run.workload.id for run in runs)
    nearest, _ = min(timed, key=lambda each: abs(math.log(took / max(each[1], 1e-3))))
    return frozenset((nearest.workload.id,))


def _noted(run: Run, note: str) -> Run:
    if run.receipt is None or not run.receipt.functions:
        return run
    code = run.code or Code()
    return run.model_copy(update={"code": code.model_copy(update={"notes": (*code.notes, note)})})


def _with(run: Run, launch: Counted) -> Run:
    """The Run with the counters at the function. Of several launches, the last one counts."""
    code = run.code or Code()
    known = {function.name: function for function in code.functions}
    function = known.get(launch.kernel, Function(name=launch.kernel, target=""))
    known[launch.kernel] = function.model_copy(update={"counters": dict(launch.counters)})
    used = tuple(dict.fromkeys((*code.tools, SOURCE)))
    return run.model_copy(update={"code": code.model_copy(update={"functions": tuple(known.values()), "tools": used})})
