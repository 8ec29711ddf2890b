"""The command line from outside: what it prints, where, and with which status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import COUNT, RUN, SETS, SUITE, Outcome, only_record, with_variants
from constant_launch import writing

from tritmark.harness.machine.cpu import affinity
from tritmark.harness.record import Record, Status
from tritmark.harness.spec import Launch, Variant
from tritmark.harness.text.outcome import outcome as outcome_of
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import FORCE

pytestmark = pytest.mark.long


def test_a_run_that_passes(tritmark: Callable[..., Outcome]) -> None:
    outcome = tritmark(*RUN, "--seed", "5")
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert outcome_of(record).passed
    assert record.complete
    assert record.environment.seed == 5
    assert record.environment.command == ("tritmark", *RUN, "--seed", "5")
    assert record.suite == "suite.toml"
    assert {run.op for run in record.runs} == {"i2s_quantize", "ternary_matmul"}
    assert len(record.runs) == COUNT
    for run in record.runs:
        if run.accuracy.status is Status.NOT_RUN:
            assert "lacks" in run.accuracy.reason
            continue
        assert run.accuracy.status is Status.PASS
        assert run.receipt is not None
        assert run.receipt.ran == run.variant
        assert len(run.receipt.code_hash) == 64
        assert run.performance.status is Status.NOT_RUN
        assert run.memory.reason == run.cross.reason == "the suite asks for accuracy only here"
    paths = (f"Record: results/runs/{record.id}.json (", f"Report: results/html/{record.id}.html (")
    right = len({run.variant for run in record.runs if run.op == "i2s_quantize" and run.receipt is not None})
    for word in ("PASS: ", "i2s_quantize", f"{right}/{right}", *paths, "Time: "):
        assert word in outcome.out
    assert Path(f"results/html/{record.id}.html").is_file()
    assert ("cpu", True) in [(lane.device, lane.ran) for lane in record.lanes]


def test_what_is_not_timed_is_judged_in_all_that_needs_no_clock(tritmark: Callable[..., Outcome]) -> None:
    table = '[[workloads]]\nop = "i2s_quantize"\nshapes = [{ n = 2048 }]\nmeasure = true\ntimed = false\nfastest = 1\n'
    Path("untimed.toml").write_text(f'title = "no clock"\n{table}')
    outcome = tritmark("run", "--suite", "untimed.toml", "--device", "cpu")
    assert outcome.status == 0, outcome.err
    (run,) = only_record().runs
    assert (run.accuracy.status, run.memory.status, run.cross.status) == (Status.PASS,) * 3
    assert (run.performance.status, run.performance.reason) == (Status.NOT_RUN, "the suite does not time it here")
    assert [peer.speedup for peer in run.cross.peers] == [None] * len(run.cross.peers)


@pytest.mark.nightly
def test_what_others_did_while_a_run_was_timed_is_in_the_record(tritmark: Callable[..., Outcome]) -> None:
    table = '[[workloads]]\nop = "i2s_quantize"\nshapes = [{ n = 2048 }]\nmeasure = true\nfastest = 1\n'
    Path("timed.toml").write_text(f'title = "timed"\n{table}')
    outcome = tritmark("run", "--suite", "timed.toml", "--device", "cpu")
    assert outcome.status == 0, outcome.err
    (run,) = only_record().runs
    assert run.performance.hot is not None
    assert run.load is not None
    assert run.load.cores == len(affinity())
    assert 0 < run.load.seconds < run.seconds
    assert run.load.others is not None
    assert run.load.stolen is not None
    assert 0 <= run.load.stolen <= run.load.others


def test_json_is_alone_on_standard_output(tritmark: Callable[..., Outcome]) -> None:
    outcome = tritmark(*RUN, "--json", "--out", "elsewhere", "--op", "i2s*", "--variant", "scalar")
    assert outcome.status == 0
    record = Record.model_validate_json(outcome.out)
    assert record == only_record(Path("elsewhere"))
    assert {run.variant for run in record.runs} == {"scalar"}
    assert "Report: elsewhere/html/" in outcome.err
    assert not Path("results").exists()


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_verdicts(tritmark: Callable[..., Outcome]) -> None:
    first, second = (
        Record.model_validate_json(tritmark(*RUN, "--json", "--seed", "3", "--threads", threads).out)
        for threads in ("1", "2")
    )
    for one, other in zip(first.runs, second.runs, strict=True):
        assert one.accuracy == other.accuracy
        assert (one.threads, other.threads) == (1, 2)


def test_each_run_draws_its_seed_and_keeps_it(tritmark: Callable[..., Outcome]) -> None:
    runs = [
        Record.model_validate_json(tritmark(*RUN, "--json", "--op", "i2s*", "--variant", "scalar").out)
        for _ in range(3)
    ]
    seeds = [record.environment.seed for record in runs]
    assert len(set(seeds)) == 3
    for record in runs:
        assert {run.workload.seed for run in record.runs} == {record.environment.seed}


def test_a_wrong_kernel_is_status_1(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    def break_one(variant: Variant) -> Variant:
        return writing(0, variant) if variant.id == "cpu/i2s_quantize/none/int8/scalar" else variant

    with_variants(monkeypatch, break_one)
    outcome = tritmark(*RUN)
    assert outcome.status == 1
    record = only_record()
    told = outcome.out + outcome.err
    assert told.count("cpu/i2s_quantize/none/int8/scalar: accuracy FAIL: ") == 1
    assert " 2 failed " in outcome.err
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("Next: "))
    assert "--variant cpu/i2s_quantize/none/int8/scalar" in line
    assert f"--seed {record.environment.seed} " in line
    assert record.counts["accuracy"]["fail"] == 2
    assert {run.variant for run in record.runs if run.accuracy.status is Status.FAIL} == {"scalar"}
    assert not outcome_of(record).passed


def test_a_kernel_that_raises_is_status_1_and_the_others_go_on(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any) -> Launch:
        raise RuntimeError("[red]\x1b[31mboom")

    with_variants(monkeypatch, lambda variant: replace(variant, bind=explode) if variant.name == "scalar" else variant)
    outcome = tritmark(*RUN)
    assert outcome.status == 1
    assert "[red]\\x1b[31mboom" in outcome.out
    record = only_record()
    assert {run.accuracy.status for run in record.runs if run.variant == "scalar"} == {Status.ERROR}
    assert any(run.accuracy.status is Status.PASS for run in record.runs)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--suite", "quik"), "unknown suite 'quik'; did you mean 'quick'?"),
        (("run", "--suite", "none.toml"), "none.toml: no such file"),
        (
            (*RUN, "--op", "ternary_quantize"),
            "suite suite.toml; did you mean 'ternary_matmul'? legal: i2s_quantize, ternary_matmul",
        ),
        (
            (*RUN, "--variant", "avx1024"),
            f"--variant 'avx1024' matches nothing for these ops; did you mean 'avx512'? legal: {SETS}",
        ),
        (
            (*RUN, "--variant", "cpu/ternary_matmul/tile46/float32/avx2"),
            "mean 'cpu/ternary_matmul/tile64/float32/avx2'? legal: scalar",
        ),
        ((*RUN, "--variant", "cpu/*/tile64/bfloat16/*"), "leave nothing of suite suite.toml"),
        ((*RUN, "--threads", "0"), "--threads"),
        ((*RUN, "--seed", "-1"), "--seed"),
        ((*RUN, "--sed", "1"), "--sed"),
        ((*RUN, "--weights", "none.safetensors"), "none.safetensors"),
        ((*RUN, "20250101T000000Z-00000000"), "add --resume"),
        ((*RUN, "--resume"), "holds no interrupted run"),
        ((*RUN, "--resume", "20250101T000000Z-00000000"), "no such interrupted run"),
        ((*RUN, "--resume", "../../etc/passwd"), "is not an id of a run"),
        (("report",), "holds no Record"),
        (("report", "none.json"), "No such file"),
        (("report", "suite.toml"), "not JSON"),
        (("list", "planets"), "planets"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_bad_usage_is_status_2_and_one_message(
    tritmark: Callable[..., Outcome], arguments: tuple[str, ...], told: str
) -> None:
    outcome = tritmark(*arguments)
    assert outcome.status == 2
    assert told in " ".join(outcome.err.replace("│", " ").split())
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert not Path("results/runs").exists()


def test_a_bad_suite_file_is_told_with_its_key(tritmark: Callable[..., Outcome]) -> None:
    Path("suite.toml").write_text(SUITE.replace("shapes", "shpaes"))
    outcome = tritmark(*RUN)
    assert outcome.status == 2
    assert outcome.err == (
        "tritmark: suite.toml: unknown key workloads[0].shpaes; did you mean 'shapes'? legal: op, shapes, models, "
        "axes, families, layouts, formats, dtypes, devices, measure, timed, drawn, fastest, peers, title\n"
    )


def test_a_forced_instruction_set_is_the_only_one(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORCE, "scalar")
    assert tritmark(*RUN).status == 0
    for run in only_record().runs:
        if run.variant == "scalar":
            assert run.accuracy.status is Status.PASS
        else:
            assert run.accuracy.status is Status.NOT_RUN
            assert run.accuracy.reason == "the environment allows only scalar on this cpu"
            assert run.receipt is None


def test_an_instruction_set_that_does_not_exist(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORCE, "avx1024")
    outcome = tritmark(*RUN)
    assert outcome.status == 2
    assert "TRITMARK_FORCE_ISA is 'avx1024'; did you mean 'avx512'? legal: scalar" in outcome.err


def test_where_nothing_can_run_nothing_passes(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORCE, "scalar")
    outcome = tritmark(*RUN, "--variant", "avx2")
    assert outcome.status == 2
    assert "no kernel could be run: the environment allows only scalar" in outcome.err


@pytest.mark.parametrize(
    ("what", "expected"), [("ops", "ternary_matmul"), ("variants", "cpu/i2s_quantize/none/int8/avx2")]
)
def test_lists(tritmark: Callable[..., Outcome], what: str, expected: str) -> None:
    outcome = tritmark("list", what)
    assert outcome.status == 0
    assert expected in outcome.out


def test_formats_and_workloads_are_listed(tritmark: Callable[..., Outcome]) -> None:
    formats = tritmark("list", "formats").out
    assert all(name in formats for name in PROVIDER.formats)
    workloads = tritmark("list", "workloads").out
    assert all(name in workloads for name in ("quick", "full", "smoke", *(op.name for op in PROVIDER.ops)))


def test_the_schema_is_that_of_the_records(tritmark: Callable[..., Outcome]) -> None:
    told = json.loads(tritmark("schema").out)
    assert told["title"] == "Record"
    assert set(told["properties"]) == set(Record.model_fields)


def test_the_machine(tritmark: Callable[..., Outcome]) -> None:
    told = json.loads(tritmark("machine", "--json").out)
    assert told["logical_cores"] >= 1
    assert told["ceilings"] == []
    table = tritmark("machine").out
    assert told["cpu"] in table
    assert "page size" in table


def test_reports_are_built_again(tritmark: Callable[..., Outcome]) -> None:
    assert tritmark(*RUN, "--op", "i2s*", "--variant", "scalar").status == 0
    record = only_record()
    page = Path(f"results/html/{record.id}.html")
    before = page.read_bytes()
    for name in ((), (record.id,), (f"results/runs/{record.id}.json",)):
        page.unlink()
        outcome = tritmark("report", *name)
        assert outcome.status == 0
        assert outcome.out == f"{page}\n"
        assert page.read_bytes() == before


def test_the_newest_record_is_verified_unless_told(tritmark: Callable[..., Outcome]) -> None:
    refused = tritmark("verify")
    assert refused.status == 2
    assert "no Record" in refused.err
    assert tritmark(*RUN, "--op", "i2s*", "--variant", "scalar").status == 0
    first = only_record().id
    assert tritmark("verify", "--json").status == 0
    time.sleep(1)  # ids tell seconds
    assert tritmark(*RUN, "--op", "i2s*", "--variant", "scalar").status == 0
    found = json.loads(tritmark("verify", "--json").out)
    assert found["passed"]
    assert found["record"] != first
    assert json.loads(tritmark("verify", first, "--json").out)["record"] == first


@pytest.mark.nightly
@pytest.mark.parametrize("command", [RUN, ("check", "none.c"), ("league",), ("gate", "a.whl", "b.whl")])
def test_more_threads_than_cores_are_warned_of(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("tritmark.harness.machine.cpu.usable_cores", lambda: 2)
    nothing = ("--op", "none") if command[0] in {"run", "gate"} else ("--device", "none")
    for threads, warned in (("99", True), ("3", True), ("2", False), ("1", False)):
        outcome = tritmark(*command, *nothing, "--threads", threads)
        assert outcome.status == 2
        assert (f"--threads {threads}: this process may use 2 cores" in outcome.err) is warned
    refused = tritmark(*command, "--threads", "99999")
    assert refused.status == 2
    assert "99999 is more than 4096" in refused.err


def test_version_and_help(tritmark: Callable[..., Outcome]) -> None:
    assert tritmark("--version").out.startswith("tritmark 0.")
    for arguments in (("--help",), ("run", "-h")):
        outcome = tritmark(*arguments)
        assert outcome.status == 0
        assert "Usage" in outcome.out


@pytest.mark.nightly
def test_what_lists_import() -> None:
    """The costly libraries stay out of the quick commands."""
    code = (
        "import sys; sys.argv = ['tritmark', 'list', sys.argv[1]]\nfrom tritmark.harness.cli import main\ntry: "
        "main()\nexcept SystemExit: pass\nprint(*sorted({'matplotlib', 'pandas', 'scipy', 'jinja2', 'gguf', "
        "'ml_dtypes', 'cpuinfo'} & set(sys.modules)), file=sys.stderr)"
    )
    for what in ("ops", "variants", "formats", "workloads"):
        done = subprocess.run([sys.executable, "-c", code, what], capture_output=True, text=True, check=True)
        assert done.stderr.strip() == "", what


@pytest.mark.nightly
@pytest.mark.timing
def test_ctrl_c_twice(tmp_path: Path) -> None:
    """In a process of its own, with real signals: the status, one message, no traceback, and what was finished is
    there."""
    sizes = ", ".join(f"{{ n = {n} }}" for n in range(200_000, 200_400))
    (tmp_path / "long.toml").write_text(f'title = "long"\n[[workloads]]\nop = "absmean_quantize"\nshapes = [{sizes}]\n')
    code = (
        # What runs in the background, as some CI does, has SIGINT ignored, and would here too.
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tritmark.harness import cli\nfrom tritmark.harness.measure import ceilings\nimport sys\n"
        "ceilings.measure_ceilings = lambda device: []\n"
        "sys.argv = ['tritmark', 'run', '--suite', 'long.toml', '--variant', 'scalar']\ncli.main()"
    )
    environment = {name: value for name, value in os.environ.items() if name != FORCE}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while len(list((tmp_path / "results").glob("runs/*.partial/run-*.json"))) < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err, err
    assert out == ""
    (partial,) = (tmp_path / "results" / "runs").iterdir()
    assert partial.name.endswith(".partial")
    assert len(list(partial.glob("run-*.json"))) >= 3
