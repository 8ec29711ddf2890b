"""Nsight Compute's CSV: both pages, units, thousands, several kernels, denied counters, hostile files; and the rules
on its counters."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tritmark.harness.advise.advise import of_run
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.advise.rules import RULES
from tritmark.harness.disassembly import ncu
from tritmark.harness.errors import UsageError
from tritmark.harness.record import Code, Function, Ratio, Record, Run
from tritmark.harness.spec import Launched, Receipt
from tritmark.harness.store import read

ROOT = Path(__file__).parents[3]

RULE = {rule.name: rule for rule in RULES}
FIXED = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]
SM, MEMORY = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)
METRICS = {
    "dram__bytes_read.sum": ("Mbyte", "1,234.5"),
    "gpu__time_duration.sum": ("us", "12.75"),
    SM: ("%", "31.2"),
    "launch__cluster": ("", "n/a"),
}


def text(rows: list[list[str]], before: str = "==PROF== Connected to process 77\nworking\n") -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return before + out.getvalue() + "==PROF== Disconnected from process 77\n"


def fixed(kernel: str, grid: int = 10, nth: int = 0) -> list[str]:
    return [str(nth), "77", "python", "127.0.0.1", kernel, "1", "7", "(256, 1, 1)", f"({grid}, 1, 1)", "0", "9.0"]


def raw(*kernels: tuple[str, int]) -> str:
    head = [*FIXED, *METRICS]
    units = [*([""] * len(FIXED)), *(unit for unit, _ in METRICS.values())]
    return text(
        [
            head,
            units,
            *(
                [*fixed(name, grid, nth), *(value for _, value in METRICS.values())]
                for nth, (name, grid) in enumerate(kernels)
            ),
        ]
    )


def details() -> str:
    head = [*FIXED, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    rows = [
        ("Memory Throughput", "%", "55.0"),
        ("Memory Throughput", "Gbyte/s", "1,500.5"),
        ("Theoretical Occupancy", "%", "62.5"),
    ]
    return text([head, *([*fixed("gemm_a(int, float *)"), "Section", *row] for row in rows)])


def write(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(content)
    return path


@pytest.fixture
def record(gpu_record: Record) -> Record:
    """A Run on the host, and one on the GPU that launched gemm_a in ten blocks, far above its ceiling and as long as
    many empty launches."""
    runs = [
        next(run for run in gpu_record.runs if run.device == device and run.performance.hot is not None)
        for device in ("cuda", "cpu")
    ]
    launch = Launched(function="gemm_a", binary="ab" * 32, grid=(10, 1, 1), block=(256, 1, 1))
    receipt = Receipt(
        kernel="a",
        ran="a",
        runs=1,
        threads=1,
        uuid=gpu_record.machine.gpus[0].uuid,
        functions=("gemm_a",),
        launched=(launch,),
    )
    hot = runs[0].performance.hot
    assert hot is not None
    slow = Ratio(median=0.1, low=0.1, high=0.1, pairs=30)
    long = hot.timing.model_copy(update=dict.fromkeys(("median_ns", "low_ns", "high_ns"), 100_000.0))
    hot = hot.model_copy(update={"timing": long, "against": hot.against.model_copy(update={"fraction": slow})})
    performance = runs[0].performance.model_copy(update={"hot": hot, "read": 1000})
    first = runs[0].model_copy(update={"receipt": receipt, "performance": performance})
    return gpu_record.model_copy(update={"runs": (first, runs[1])})


def test_the_raw_page(tmp_path: Path, record: Record) -> None:
    path = write(tmp_path, raw(("gemm_a(const int *, int)", 10), ("other", 10), ("gemm_a", 20)))
    launches, denied = ncu.read(path)
    assert not denied
    assert [launch.kernel for launch in launches] == ["gemm_a", "other", "gemm_a"]
    assert launches[0].grid == (10, 1, 1)
    assert launches[0].counters == {
        "dram__bytes_read.sum": pytest.approx(1.2345e9),
        "gpu__time_duration.sum": pytest.approx(12.75e-6),
        SM: 31.2,
    }
    found = ncu.with_counters(record, path)
    code = found.runs[0].code
    assert code is not None
    assert code.tools == (ncu.SOURCE,)
    assert code.functions[0].counters == launches[0].counters
    assert found.runs[1] == record.runs[1]


def test_the_details_page(tmp_path: Path, record: Record) -> None:
    ((launch,), _) = ncu.read(write(tmp_path, details()))
    assert launch.counters == {
        MEMORY: 55.0,
        "dram__bytes.sum.per_second": 1.5005e12,
        "sm__maximum_warps_per_active_cycle_pct": 62.5,
    }


def test_counters_join_what_static_analysis_found(tmp_path: Path, record: Record) -> None:
    coded = record.runs[0].model_copy(
        update={
            "code": Code(functions=(Function(name="gemm_a", target="sm_90", registers=40),), tools=("nvdisasm 13",))
        }
    )
    found = ncu.with_counters(record.model_copy(update={"runs": (coded,)}), write(tmp_path, raw(("gemm_a", 10))))
    assert found.runs[0].code is not None
    (function,) = found.runs[0].code.functions
    assert (function.registers, function.counters[SM]) == (40, 31.2)


def test_denied_counters_say_so_with_the_mend(tmp_path: Path, record: Record) -> None:
    said = (
        "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
        "GPU Performance Counters\n"
    )
    found = ncu.with_counters(record, write(tmp_path, said))
    assert found.runs[0].code is not None
    (note,) = found.runs[0].code.notes
    assert "not available" in note
    assert "NVreg_RestrictProfilingToAdminUsers=0" in note
    assert found.runs[1].code is None
    assert all(rule.judge(Evidence(found, found.runs[0])) is None for rule in RULES if rule.number >= 29)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no row that begins with ID"),
        ("==WARNING== No kernels were profiled.\n", "has no row that begins with ID"),
        (raw(), ":3: no launch below the column names"),
        (raw(("gemm_a", 10)).replace('"Grid Size",', '"Grid",'), ":3: no column 'Grid Size'"),
        (raw(("gemm_a", 10)).replace('"(10, 1, 1)"', '"ten"'), ":5: 'ten' as Grid Size"),
        (raw(("gemm_a", 10)).replace('"gemm_a"', '""'), "as Kernel Name"),
        (raw(("gemm_a", 10)).rpartition('"31.2"')[0].rstrip(",") + "\n", ":5: 13 fields; legal: 15"),
        (raw(("gemm_a", 10)).rpartition('1.2"')[0], ":5: unexpected end of data"),
        (
            raw(("gemm_a", 10)).replace('"","","","","","","","","","",""', '"0","","","","","","","","","",""'),
            "in the row of units",
        ),
        (details().replace('"Metric Unit",', '"Unit",'), "no column 'Metric Unit'"),
        (raw(("gemm_z", 10)), "has gemm_z; legal: counters of kernels that the Record ran"),
        (raw(("gemm_a", 11)), "with the same grid and block"),
    ],
)
def test_a_bad_file_is_an_error_with_its_line(tmp_path: Path, record: Record, content: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        ncu.with_counters(record, write(tmp_path, content))
    assert words in str(error.value)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        ncu.read(tmp_path / "absent.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00ID")
    with pytest.raises(UsageError, match="cannot be read"):
        ncu.read(tmp_path / "binary.csv")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_file_holds_it_ends_in_counters_or_a_usage_error(tmp_path: Path, data: st.DataObject) -> None:
    content = data.draw(st.sampled_from([raw(("gemm_a", 10), ("b", 3)), details()]))
    at = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 40))
    inserted = data.draw(st.text(alphabet=st.sampled_from('",\n\r0;e-9(\0=ID'), max_size=12))
    path = tmp_path / "mutated.csv"
    path.write_text(content[:at] + inserted + content[at + length :], encoding="utf-8", newline="")
    try:
        launches, _ = ncu.read(path)
    except UsageError:
        return
    assert all(abs(value) < float("inf") for launch in launches for value in launch.counters.values())


STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WARPS, ACHIEVED = "sm__maximum_warps_per_active_cycle_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.per_cycle_active"
SECTORS = "memory_l2_theoretical_sectors_global"
BANKS, WAVES = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
OP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
LOCAL, L2 = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "lts__t_sectors_srcunit_tex.sum"
USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"


FAULTS: list[tuple[str, dict[str, float], float, dict[str, float]]] = [
    ("ncu-latency", {SM: 20.0, MEMORY: 40.0}, 2.5, {SM: 20.0, MEMORY: 70.0}),
    ("ncu-issue", {ISSUE: 0.3, SM: 20.0, MEMORY: 50.0}, 2.0, {ISSUE: 0.7, SM: 20.0, MEMORY: 50.0}),
    (
        "ncu-stall",
        {
            STALL.format("long_scoreboard"): 6.0,
            STALL.format("wait"): 2.0,
            STALL.format("selected"): 1.0,
            STALL.format("not_selected"): 1.0,
        },
        2.5,
        {STALL.format("long_scoreboard"): 1.0, STALL.format("wait"): 1.0, STALL.format("selected"): 8.0},
    ),
    ("ncu-registers", {WARPS: 50.0}, 2.0, {WARPS: 90.0}),
    ("ncu-occupancy", {WARPS: 100.0, ACHIEVED: 50.0}, 2.0, {WARPS: 50.0, ACHIEVED: 45.0}),
    ("ncu-sectors", {USED: 8.0}, 4.0, {USED: 32.0}),
    ("ncu-misses", {"dram__bytes_read.sum": 3000.0}, 3.0, {"dram__bytes_read.sum": 1100.0}),
    ("ncu-l2", {SECTORS: 200.0, f"{SECTORS}_ideal": 100.0}, 2.0, {SECTORS: 100.0, f"{SECTORS}_ideal": 100.0}),
    ("ncu-banks", {BANKS: 50.0, WAVES: 100.0}, 2.0, {BANKS: 0.0, WAVES: 100.0}),
    (
        "ncu-imbalance",
        {"sm__cycles_active.avg": 50.0, "sm__cycles_active.max": 100.0},
        2.0,
        {"lts__cycles_active.avg": 99.0, "lts__cycles_active.max": 100.0},
    ),
    (
        "ncu-fusion",
        {OP.format("fadd"): 4.0, OP.format("fmul"): 4.0, OP.format("ffma"): 0.0, SM: 90.0},
        2.0,
        {OP.format("ffma"): 8.0, SM: 90.0},
    ),
    ("ncu-local", {LOCAL: 50.0, L2: 100.0}, 2.0, {LOCAL: 1.0, L2: 100.0}),
]
"""For each rule: counters to which it applies, its largest predicted gain, and counters to which it does not apply."""


@pytest.mark.parametrize(("rule", "fault", "high", "mended"), FAULTS)
def test_each_rule_names_its_counter_and_is_silent_on_good_ones(
    record: Record, rule: str, fault: dict[str, float], high: float, mended: dict[str, float]
) -> None:
    def judged(counters: dict[str, float]) -> object:
        run: Run = record.runs[0].model_copy(
            update={"code": Code(functions=(Function(name="gemm_a", target="sm_90", counters=counters),))}
        )
        return RULE[rule].judge(Evidence(record.model_copy(update={"runs": (run,)}), run))

    found = judged(fault)
    assert found is not None
    assert found.gain.high == pytest.approx(high)  # type: ignore[attr-defined]
    assert len(found.evidence) > 1  # type: ignore[attr-defined]
    assert judged(mended) is None
    assert judged({}) is None
    assert judged({"something__else.sum": 1.0}) is None


REAL = Path(__file__).with_name("ncu")
"""Output of Nsight Compute of CUDA 13.0 on an H200. Raw page: the columns that rules use and some more, one launch for
each kernel and grid. Details page: one whole launch."""


def test_the_real_raw_page_has_what_the_rules_look_at() -> None:
    launches, denied = ncu.read(REAL / "h200.raw.csv")
    assert not denied
    assert len(launches) == 9
    v1 = launches[0]
    assert (v1.kernel, v1.grid, v1.block) == ("i2s_gpu_quantize_v1", (1056, 1, 1), (256, 1, 1))
    assert v1.counters["dram__bytes_read.sum"] == pytest.approx(4 * 2**27, rel=0.001)
    assert v1.counters[ncu.DURATION] == pytest.approx(317e-6, rel=0.01)
    for _, fault, _, mended in FAULTS:
        assert fault.keys() | mended.keys() <= v1.counters.keys()


def test_the_real_details_page_leaves_out_empty_columns_and_agrees_with_the_raw_one() -> None:
    ((launch,), _) = ncu.read(REAL / "h200.details.csv")
    raw_page = next(
        each for each in ncu.read(REAL / "h200.raw.csv")[0] if (each.kernel, each.grid) == (launch.kernel, launch.grid)
    )
    assert launch.block == raw_page.block
    shared = set(ncu.LABELS.values()) & launch.counters.keys()
    assert len(shared) >= 10
    for name in ("launch__registers_per_thread", "sm__maximum_warps_per_active_cycle_pct"):
        assert launch.counters[name] == raw_page.counters[name]


def test_counters_go_to_the_workload_that_takes_as_long_where_grids_are_the_same() -> None:
    record = read(ROOT / "results" / "baselines" / "nvidia-h200.matmul.json")
    found = ncu.with_counters(record, REAL / "h200.raw.csv")
    runs = [
        run
        for run in found.runs
        if run.code is not None
        and any(function.counters for function in run.code.functions)
        and run.op == "ternary_matmul"
    ]
    assert {run.variant for run in runs} == {"tiled", "gemv_dp4a", "gemv"}
    assert {(run.workload.axes["N"], run.workload.axes["K"]) for run in runs} == {(2560, 6912)}
    fired = {each.rule for run in runs for each in of_run(Evidence(found, run))}
    assert {"ncu-latency", "ncu-stall", "ncu-banks"} <= fired
