"""The command line from outside: what it prints, where, and with which status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import save_file

from tritmark.harness import cli, providers
from tritmark.harness.cli import exit_status
from tritmark.harness.judge import runner
from tritmark.harness.judge.judges import Limits
from tritmark.harness.judge.request import Request
from tritmark.harness.measure import ceilings
from tritmark.harness.providers import Installed
from tritmark.harness.record import Record, Status
from tritmark.harness.spec import Launch, Provider, Variant
from tritmark.harness.worker import Workers
from tritmark.kernels import PROVIDER
from tritmark.kernels.cpu import FORCE, KERNELS
from tritmark.kernels.ternary_matmul.cpu import FORMATS

pytestmark = pytest.mark.long

SUITE = """
title = "for tests"
[[workloads]]
op = "i2s_quantize"
shapes = [{ n = 65 }, { n = 3 }]
[[workloads]]
op = "ternary_matmul"
axes = { M = 2, N = 32, K = 256 }
dtypes = ["float32"]
"""


@dataclass
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def tritmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs a command in a folder that has suite.toml, without measuring ceilings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FORCE, raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # tests side by side are given one
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: [])
    Path("suite.toml").write_text(SUITE)

    def command(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tritmark", *arguments])
        status = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        told = capsys.readouterr()
        return Outcome(status, told.out, told.err)

    return command


RUN = ("run", "--suite", "suite.toml")
PRODUCTS = sum(len(KERNELS[table]) for table, _ in FORMATS.values())
COUNT = 2 * len(KERNELS["i2s_quantize"]) + PRODUCTS
"""Its Runs."""
SETS = ", ".join(isa.name for isa in KERNELS["i2s_quantize"])


def only_record(folder: Path = Path("results")) -> Record:
    (path,) = (folder / "runs").iterdir()
    return Record.model_validate_json(path.read_text())


def with_variants(monkeypatch: pytest.MonkeyPatch, change: Callable[[Variant], Variant]) -> None:
    """Put something in the place of the variants that are installed."""
    provider: Provider = replace(PROVIDER, variants=tuple(change(variant) for variant in PROVIDER.variants))
    only_here(monkeypatch, provider)


def only_here(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> None:
    """Have that provider in place of what is installed. No other process knows it, so kernels run in this one."""
    monkeypatch.setattr(providers, "load", lambda candidates=(): Installed({"builtin": provider}))
    monkeypatch.setattr(
        runner, "Workers", lambda *arguments, **options: Workers(*arguments, **{**options, "isolated": False})
    )
    monkeypatch.setattr(runner, "Limits", lambda candidates, isolated, *rest: Limits(candidates, False, *rest))


def test_a_run_that_passes(tritmark: Callable[..., Outcome]) -> None:
    outcome = tritmark(*RUN, "--seed", "5")
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert record.passed
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
    for word in ("PASS: ", "i2s_quantize", "4/4", *paths, "Time: "):
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


def test_json_is_alone_on_standard_output(tritmark: Callable[..., Outcome]) -> None:
    outcome = tritmark(*RUN, "--json", "--out", "elsewhere", "--op", "i2s*", "--variant", "scalar")
    assert outcome.status == 0
    record = Record.model_validate_json(outcome.out)
    assert record == only_record(Path("elsewhere"))
    assert {run.variant for run in record.runs} == {"scalar"}
    assert "Report: elsewhere/html/" in outcome.err
    assert not Path("results").exists()


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


class Zeros:
    """Wraps a launch and undoes what it did."""

    def __init__(self, launch: Launch, outputs: Any) -> None:
        self._launch, self._outputs = launch, outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)

    def run(self) -> None:
        self._launch.run()
        for output in self._outputs.values():
            output[...] = 0


def test_a_wrong_kernel_is_status_1(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    def break_one(variant: Variant) -> Variant:
        if variant.id != "cpu/i2s_quantize/none/int8/scalar":
            return variant
        return replace(
            variant, bind=lambda inputs, outputs, *rest: Zeros(variant.bind(inputs, outputs, *rest), outputs)
        )

    with_variants(monkeypatch, break_one)
    outcome = tritmark(*RUN)
    assert outcome.status == 1
    assert "FAIL cpu/i2s_quantize/none/int8/scalar" in outcome.err
    record = only_record()
    assert f"Repeat with --seed {record.environment.seed}\n" in outcome.err
    assert record.counts["accuracy"]["fail"] == 2
    assert {run.variant for run in record.runs if run.accuracy.status is Status.FAIL} == {"scalar"}
    assert not record.passed


def test_a_kernel_that_raises_is_status_1_and_the_others_go_on(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any) -> Launch:
        raise RuntimeError("[red]\x1b[31mboom")

    with_variants(monkeypatch, lambda variant: replace(variant, bind=explode) if variant.name == "scalar" else variant)
    outcome = tritmark(*RUN)
    assert outcome.status == 1
    assert "[red]\\x1b[31mboom" in outcome.err
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
        ((*RUN, "--resume"), "nothing to resume"),
        ((*RUN, "--resume", "20250101T000000Z-00000000"), "no such interrupted run"),
        ((*RUN, "--resume", "../../etc/passwd"), "is no id of a run"),
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


# Devices


def with_npu(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, *, simulated: bool = False, cpu_variants: bool = True
) -> None:
    """A further device, whose one kernel is the CPU's plain one under another name."""

    def bind(*arguments: Any) -> Launch:
        launch: Any = plain.bind(*arguments)
        return cast(Launch, Renamed(launch))

    class Renamed:
        ran = "plain"
        runs = 0
        threads_used = 1
        pointer = None

        def __init__(self, launch: Launch) -> None:
            self._launch = launch

        def run(self) -> None:
            self._launch.run()
            self.runs += 1

        @property
        def bad(self) -> int:
            return self._launch.bad

    def features() -> frozenset[str]:
        assert missing is None, "a missing device was asked for its features"
        return frozenset()

    plain = next(variant for variant in PROVIDER.variants if variant.id == "cpu/i2s_quantize/none/int8/scalar")
    cpu = next(device for device in PROVIDER.devices if device.type == "cpu")
    npu = replace(
        cpu, type="npu", features=features, forced=lambda: None, missing=lambda: missing, simulated=lambda: simulated
    )
    variant = replace(plain, key=replace(plain.key, device="npu"), name="plain", bind=bind)
    others = tuple(each for each in PROVIDER.variants if each.key.device == "cpu") if cpu_variants else ()
    provider = replace(PROVIDER, devices=(cpu, npu), variants=(*others, variant), workloads="")
    only_here(monkeypatch, provider)


WHY = "no npu is plugged in; next: plug one in"


def test_a_missing_device_is_left_out_and_said(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, WHY)
    outcome = tritmark(*RUN)
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert {run.device for run in record.runs} == {"cpu"}
    assert [(lane.device, lane.ran, lane.reason) for lane in record.lanes] == [("cpu", True, ""), ("npu", False, WHY)]
    assert f"npu: not run: {WHY}" in outcome.out


@pytest.mark.parametrize("arguments", [("--device", "npu"), ("--variant", "npu/*"), ("--device", "n*")])
def test_a_missing_device_that_was_asked_for_is_status_3(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    with_npu(monkeypatch, WHY)
    outcome = tritmark(*RUN, *arguments)
    assert outcome.status == exit_status.UNAVAILABLE == 3
    assert f"npu is missing: {WHY}" in outcome.err
    record = only_record()
    assert record.runs == ()
    assert not record.passed
    (lane,) = (lane for lane in record.lanes if lane.device == "npu")
    assert (lane.ran, lane.reason) == (False, WHY)


def test_one_device_of_several(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    with_npu(monkeypatch, None)
    assert tritmark(*RUN, "--device", "npu").status == 0
    record = only_record()
    assert {run.kernel for run in record.runs} == {"npu/i2s_quantize/none/int8/plain"}
    assert all(run.accuracy.status is Status.PASS for run in record.runs)
    assert [(lane.device, lane.ran) for lane in record.lanes] == [("cpu", False), ("npu", True)]
    assert tritmark(*RUN, "--device", "cpu", "--out", "cpu").status == 0
    assert {run.device for run in only_record(Path("cpu")).runs} == {"cpu"}
    outcome = tritmark(*RUN, "--device", "tpu")
    assert outcome.status == 2
    assert "--device 'tpu' matches nothing that is installed; did you mean 'npu'? legal: cpu, npu" in outcome.err


def test_a_simulated_device_says_so_everywhere(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, None, simulated=True)
    Path("suite.toml").write_text(SUITE.replace("shapes", "measure = true\nshapes"))
    outcome = tritmark(*RUN, "--device", "npu")
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert {run.performance.reason for run in record.runs} == {"simulated: it has no speed"}
    (lane,) = (lane for lane in record.lanes if lane.device == "npu")
    assert (lane.ran, lane.simulated, lane.reason) == (True, True, "simulated: it has no speed")
    assert "npu: ran, simulated: it has no speed" in outcome.out


def test_the_list_of_variants_says_what_is_missing(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, WHY)
    assert WHY in " ".join(tritmark("list", "variants").out.split())


def test_a_run_is_resumed_on_the_devices_it_was_begun_on(
    tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_npu(monkeypatch, None)
    options = runner._options(providers.load(), Request(suite=None))
    assert options.devices == ("cpu", "npu")
    with_npu(monkeypatch, WHY)
    assert runner._options(providers.load(), Request(suite=None)).devices == ("cpu",)
    with_npu(monkeypatch, None, simulated=True)
    assert runner._options(providers.load(), Request(suite=None)).devices == ("cpu", "npu (simulated)")


@pytest.fixture
def interrupted(tritmark: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> Iterator[Outcome]:
    """A run that Ctrl-C ended at the fourth binding, in the second Run."""
    bound = 0

    def interrupt_fourth(variant: Variant) -> Variant:
        def bind(*arguments: Any) -> Launch:
            nonlocal bound
            bound += 1
            if bound == 4:
                raise KeyboardInterrupt
            return variant.bind(*arguments)

        return replace(variant, bind=bind)

    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        with_variants(patched, interrupt_fourth)
        outcome = tritmark(*RUN, "--seed", "41")
    yield outcome
    signal.signal(signal.SIGINT, handler)


def test_an_interrupted_run_can_be_resumed(
    tritmark: Callable[..., Outcome], interrupted: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interrupted.status == 130
    (partial,) = Path("results/runs").iterdir()
    id = partial.name.removesuffix(".partial")
    kept = [json.loads(path.read_text()) for path in partial.glob("run-*.json")]
    told = (
        f"Interrupted; {len(kept)} finished and kept. Go on with:\n  tritmark run --suite suite.toml --seed "
        f"41 --resume {id}\n"
    )
    assert told in interrupted.err
    (before,) = (run for run in kept if run.get("receipt"))  # the others are of kernels that this CPU cannot run
    bound: list[str] = []

    def count(variant: Variant) -> Variant:
        def bind(*arguments: Any) -> Launch:
            bound.append(variant.id)
            return variant.bind(*arguments)

        return replace(variant, bind=bind)

    with_variants(monkeypatch, count)
    outcome = tritmark(*RUN, "--resume")
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert record.id == id
    assert record.environment.seed == 41, "that of the run that was interrupted"
    assert record.complete
    assert len(record.runs) == COUNT
    assert [json.loads(run.model_dump_json()) for run in record.runs if run.id == before["id"]] == [before]
    ran = [run for run in record.runs if run.receipt is not None]
    assert len(bound) == 2 * (len(ran) - 1), "what was finished is not run again"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--resume"), "option suite was 'suite.toml' and is 'quick'"),
        ((*RUN, "--seed", "1", "--resume"), "option seed was 41 and is 1"),
        ((*RUN, "--threads", "1", "--resume"), "option threads was 0 and is 1"),
        ((*RUN, "--variant", "scalar", "--resume"), "option variant was '*' and is 'scalar'"),
    ],
)
@pytest.mark.usefixtures("interrupted")
def test_a_run_is_resumed_as_it_was_begun(
    tritmark: Callable[..., Outcome], arguments: tuple[str, ...], told: str
) -> None:
    outcome = tritmark(*arguments)
    assert outcome.status == 2
    assert told in outcome.err
    assert "It was begun with: tritmark run --suite suite.toml --seed 41" in outcome.err


@pytest.mark.usefixtures("interrupted")
def test_another_suite_under_the_same_name_is_another_suite(tritmark: Callable[..., Outcome]) -> None:
    Path("suite.toml").write_text(SUITE + "# changed\n")
    outcome = tritmark(*RUN, "--resume")
    assert outcome.status == 2
    assert "option suite_digest" in outcome.err


@pytest.mark.usefixtures("interrupted")
def test_another_machine_or_version_is_refused(tritmark: Callable[..., Outcome]) -> None:
    (header,) = Path("results/runs").glob("*.partial/header.json")
    told = json.loads(header.read_text())
    told["machine"]["id"] = "another"
    told["environment"]["tritmark"] = "0.0.1"
    header.write_text(json.dumps(told))
    outcome = tritmark(*RUN, "--resume")
    assert outcome.status == 2
    assert "machine was 'another'" in outcome.err
    assert "tritmark was '0.0.1'" in outcome.err


@pytest.fixture
def weights() -> str:
    """A file with two matrices and a vector, in the folder of the test."""
    rng = np.random.default_rng(0)
    tensors = {
        "a.weight": rng.standard_normal((16, 256), dtype=np.float32),
        "a.bias": np.zeros(16, np.float32),
        "[b]\x1b.weight": rng.standard_normal((5, 30), dtype=np.float32),
    }
    save_file(tensors, "model.safetensors")
    return "model.safetensors"


def test_weights_are_studied_alone(tritmark: Callable[..., Outcome], weights: str) -> None:
    outcome = tritmark("run", "--weights", weights)
    assert outcome.status == 0, outcome.err
    record = only_record()
    assert record.weights_path == weights
    assert record.runs == ()
    assert record.suite == ""
    assert {layer.name: layer.shape for layer in record.layers} == {"a.weight": (16, 256), "[b]\x1b.weight": (5, 30)}
    assert {layer.status for layer in record.layers} == {Status.PASS}
    assert ("cpu", True) in [(lane.device, lane.ran) for lane in record.lanes]
    assert "[b]\\x1b.weight" in outcome.out
    assert "\x1b" not in outcome.out


def test_weights_and_kernels(tritmark: Callable[..., Outcome], weights: str) -> None:
    outcome = tritmark(*RUN, "--op", "i2s*", "--weights", weights, "--json")
    assert outcome.status == 0, outcome.err
    record = Record.model_validate_json(outcome.out)
    assert len(record.layers) == 2
    assert {run.op for run in record.runs} == {"i2s_quantize"}


def test_interrupted_between_layers(
    tritmark: Callable[..., Outcome], weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[str] = []
    evaluate_matrix = PROVIDER.evaluate_matrix
    assert evaluate_matrix is not None

    def once(source: Any, info: Any, **options: Any) -> Any:
        if len(evaluated) == 1:
            raise KeyboardInterrupt
        evaluated.append(info.name)
        return evaluate_matrix(source, info, **options)

    def again(source: Any, info: Any, **options: Any) -> Any:
        evaluated.append(info.name)
        return evaluate_matrix(source, info, **options)

    handler = signal.getsignal(signal.SIGINT)
    for each, expected in ((once, 130), (again, 0)):
        provider = replace(PROVIDER, evaluate_matrix=each)
        monkeypatch.setattr(
            providers, "load", lambda candidates=(), provider=provider: Installed({"builtin": provider})
        )
        assert tritmark("run", "--weights", weights, *(("--resume",) if expected == 0 else ())).status == expected
    signal.signal(signal.SIGINT, handler)
    assert sorted(evaluated) == ["[b]\x1b.weight", "a.weight"]
    assert sorted(layer.name for layer in only_record().layers) == sorted(evaluated)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "0 bytes"), (b"\xff" * 16, "a header of"), (b"\x80\x04." + bytes(20), "model.safetensors")],
)
def test_hostile_weights_are_status_2(tritmark: Callable[..., Outcome], content: bytes, told: str) -> None:
    Path("model.safetensors").write_bytes(content)
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    assert told in outcome.err
    assert not Path("results").exists()


def test_weights_without_a_matrix(tritmark: Callable[..., Outcome]) -> None:
    save_file({"bias": np.zeros(3, np.float32)}, "model.safetensors")
    outcome = tritmark("run", "--weights", "model.safetensors")
    assert outcome.status == 2
    assert "no 2-D tensor of floats" in outcome.err


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


def test_version_and_help(tritmark: Callable[..., Outcome]) -> None:
    assert tritmark("--version").out.startswith("tritmark 0.")
    for arguments in (("--help",), ("run", "-h")):
        outcome = tritmark(*arguments)
        assert outcome.status == 0
        assert "Usage" in outcome.out


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
