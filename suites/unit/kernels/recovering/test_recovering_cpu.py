"""A failure of a kernel on the CPU is answered by another way, which is reported; every strategy by a planted fault."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import failing_kernels as planted
import numpy as np
import pytest
from own_registry import registered

from tritmark.harness.errors import (
    CandidateError,
    Failure,
    InvalidArgumentError,
    NoCompatibleKernelError,
    UsageError,
)
from tritmark.harness.providers import load
from tritmark.harness.recovery import (
    FailureKind,
    NumericalFailureError,
    Recovery,
    RecoveryWarning,
    Strategy,
    UnrecoveredError,
    engine,
    history,
)
from tritmark.harness.recovery.supervisor import SECONDS
from tritmark.harness.spec import KernelKey, Tier
from tritmark.harness.worker import Workers
from tritmark.harness.worker.process import WorkerProcess
from tritmark.kernels import (
    QuantizedLinear,
    absmean_quantize,
    activation_quantize,
    i2s_dequantize,
    i2s_quantize,
    pack_weights,
    receipts,
    ternary_matmul,
    ternary_quantize,
)
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.recovering import client, last_recoveries

X = np.random.default_rng(54).standard_normal(1000, np.float32)
RIGHT = i2s_quantize(X, 0.5)
NAMED = ("needs_alignment", "one_thread", "memory_once", "marked")


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[None]:
    # Below the kernels of instruction sets and above the scalar one; and below all.
    more = (planted.failing("fpe", tier=Tier.BASELINE, rank=7), planted.failing("last", tier=Tier.REFERENCE, rank=7))
    made = [planted.failing(kind) for kind in (*planted.FAULTS, *NAMED)]
    made += [planted.not_finite("nan", np.nan), planted.not_finite("inf", np.inf)]
    made.append(planted.writing_weights(KernelKey("cpu", "ternary_matmul", "i2_s_x86", "float32")))
    with registered(*made, *_of(more)):
        yield
    client.close_workers()


def _of(variants: Any) -> Iterator[Any]:
    for each, kind in zip(variants, ("sigfpe", "sigsegv"), strict=True):
        yield replace(each, bind=partial(planted._bind, planted.KEY, "scalar", kind))


@pytest.fixture(autouse=True)
def own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "path", lambda: tmp_path / "history.jsonl")
    engine.forget_warnings()


def recovered(function: Any, *args: Any, **options: Any) -> tuple[Any, Recovery]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = function(*args, on_error="recover", **options)
    (recovery,) = last_recoveries()
    (warned,) = [each for each in caught if each.category is RecoveryWarning]
    assert str(warned.message) == str(recovery)
    assert recovery.failed in str(recovery)
    assert recovery.kernel in str(recovery)
    assert 0 < recovery.seconds_lost < 60
    assert recovery.tried[-1].failure is None
    return found, recovery


@pytest.mark.parametrize(
    ("kernel", "kind", "code"),
    [
        ("sigill", FailureKind.ILLEGAL_INSTRUCTION, "SIGILL"),
        ("sigsegv", FailureKind.SEGMENTATION_FAULT, "SIGSEGV"),
        ("sigfpe", FailureKind.ARITHMETIC, "SIGFPE"),
        ("exit", FailureKind.DIED, "exit status 3"),
        ("oserror", FailureKind.ERROR, "OSError"),
        ("own", FailureKind.ERROR, "OwnError"),
    ],
)
def test_other_code_takes_the_place_of_a_kernel_that_broke(kernel: str, kind: FailureKind, code: str) -> None:
    q, recovery = recovered(i2s_quantize, X, 0.5, variant=kernel)
    np.testing.assert_array_equal(q, RIGHT)
    assert q.flags.writeable
    assert recovery.failed == f"cpu/i2s_quantize/none/int8/{kernel}"
    assert (recovery.diagnosis.kind, recovery.diagnosis.code) == (kind, code)
    best = dispatch.registry().select_best(planted.KEY, {"n": X.size})
    assert recovery.kernel == best.id != recovery.failed
    assert recovery.strategy is (Strategy.LOWER_SET if best.features else Strategy.SCALAR)
    (line,) = history.read().failures
    assert (line.kernel, line.replacement, line.kind) == (recovery.failed, recovery.kernel, kind)


def test_the_scalar_kernel() -> None:
    q, recovery = recovered(i2s_quantize, X, 0.5, variant="fpe")
    np.testing.assert_array_equal(q, RIGHT)
    assert (recovery.strategy, recovery.kernel) == (Strategy.SCALAR, "cpu/i2s_quantize/none/int8/scalar")


def test_a_realigned_copy() -> None:
    x = np.random.default_rng(1).standard_normal(100_001, np.float32)  # in shared memory, flush with its end
    q, recovery = recovered(i2s_quantize, x, 0.5, variant="needs_alignment")
    np.testing.assert_array_equal(q, i2s_quantize(x, 0.5))
    assert recovery.diagnosis.kind is FailureKind.BUS_ERROR
    assert (recovery.strategy, recovery.kernel) == (Strategy.REALIGNED, recovery.failed)


@pytest.mark.timing
def test_one_thread_after_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "2")
    q, recovery = recovered(i2s_quantize, X, 0.5, variant="one_thread", threads=2)
    np.testing.assert_array_equal(q, RIGHT)
    assert recovery.diagnosis.kind is FailureKind.HANG
    assert recovery.strategy is Strategy.FEWER_THREADS


@pytest.mark.timing
def test_other_code_after_a_hang_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "2")
    q, recovery = recovered(i2s_quantize, X, 0.5, variant="hang", threads=1)
    np.testing.assert_array_equal(q, RIGHT)
    assert recovery.strategy in {Strategy.LOWER_SET, Strategy.SCALAR}


def test_freed_memory() -> None:
    client.close_workers()  # the planted fault strikes once in a process
    q, recovery = recovered(i2s_quantize, X, 0.5, variant="memory_once")
    np.testing.assert_array_equal(q, RIGHT)
    assert recovery.diagnosis.kind is FailureKind.OUT_OF_MEMORY
    assert (recovery.strategy, recovery.kernel) == (Strategy.FREED_MEMORY, recovery.failed)


def test_no_strategy_helps_and_the_output_stays_untouched() -> None:
    out = np.full(X.shape, 77, np.int8)
    with pytest.raises(UnrecoveredError, match=r"SIGSEGV.*tried: realigned copy, one thread.*tritmark check") as caught:
        i2s_quantize(X, 0.5, variant="last", threads=2, out=out, on_error="recover")
    recovery = caught.value.recovery
    assert recovery.refused
    assert [each.failure.code for each in recovery.tried if each.failure] == ["SIGSEGV", "SIGSEGV"]
    assert (out == 77).all()
    assert history.read().failures[-1].strategy is Strategy.NONE
    assert last_recoveries() == (recovery,)
    np.testing.assert_array_equal(i2s_quantize(X, 0.5, on_error="recover"), RIGHT)


@pytest.mark.parametrize("kernel", ["nan", "inf"])
def test_a_wrong_answer_is_refused_and_not_computed_again(kernel: str) -> None:
    codes = np.array([1, -2, 0, 1], np.int8)
    with pytest.raises(NumericalFailureError, match=r"(nan|inf) in x at \(1,\), from finite inputs") as caught:
        i2s_dequantize(codes, 0.5, variant=kernel, on_error="recover")
    assert caught.value.recovery.tried == ()
    assert caught.value.recovery.failed.endswith(kernel)
    assert history.read().failures[-1].kind is FailureKind.NUMERICAL


def test_an_overflow_is_no_wrong_answer() -> None:
    scale = float(np.finfo(np.float32).max)
    with np.errstate(over="ignore"):
        expected = np.array([-np.inf, scale], np.float32)
    np.testing.assert_array_equal(i2s_dequantize(np.array([-2, 1], np.int8), scale, on_error="recover"), expected)


def with_nan() -> Any:
    x = X.copy()
    x[3] = np.nan
    return x


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: i2s_quantize(with_nan(), 0.5, on_error="recover"), InvalidArgumentError, "x is nan at index 3"),
        (lambda: i2s_quantize(X, -1, on_error="recover"), InvalidArgumentError, "finite and above zero"),
        (lambda: i2s_quantize(X[::2], 0.5, on_error="recover"), InvalidArgumentError, r"strided \(8,\)"),
        (lambda: i2s_quantize(X, 0.5, variant="avx9", on_error="recover"), NoCompatibleKernelError, "avx9"),
        (lambda: i2s_quantize(X, 0.5, device="tpu", on_error="recover"), NoCompatibleKernelError, "tpu"),
        (lambda: i2s_quantize(X, 0.5, threads=0, on_error="recover"), InvalidArgumentError, "threads"),
        (lambda: i2s_quantize(X, 0.5, out=X[:10], on_error="recover"), InvalidArgumentError, "float32"),  # type: ignore[arg-type]
        (lambda: i2s_quantize(X, lambda: 1, on_error="recover"), InvalidArgumentError, "not sent to the worker"),  # type: ignore[arg-type]
        (lambda: i2s_quantize(X, 0.5, on_error="retry"), InvalidArgumentError, 'legal: "raise" or "recover"'),
        (lambda: QuantizedLinear(np.eye(4, dtype=np.float32), on_error="retry"), InvalidArgumentError, "on_error"),
    ],
)
def test_errors_of_the_caller_are_raised_and_not_recovered(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()
    assert last_recoveries() == ()
    assert history.read().failures == ()


def test_results_and_outputs_are_those_of_other_calls() -> None:
    rows = np.random.default_rng(2).standard_normal((3, 640), np.float32)
    codes = np.random.default_rng(3).integers(-1, 2, (96, 640), np.int8)
    weights = pack_weights(codes, 0.25)
    for found, expected in (
        (absmean_quantize(rows, on_error="recover"), absmean_quantize(rows)),
        (activation_quantize(rows[:, ::1], on_error="recover"), activation_quantize(rows)),
        (ternary_quantize(rows, on_error="recover"), ternary_quantize(rows)),
        (ternary_quantize(rows, packed=True, on_error="recover")[:2], ternary_quantize(rows, packed=True)[:2]),
    ):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
            assert type(one) is type(other)
    quantized = activation_quantize(rows)
    out = np.empty((3, 96), np.float32)
    made = ternary_matmul(quantized.q, weights, act_scale=quantized.scale, out=out, on_error="recover")
    assert made is out
    np.testing.assert_array_equal(out, ternary_matmul(quantized.q, weights, act_scale=quantized.scale))
    again = activation_quantize(rows * 2, out=quantized, on_error="recover")
    assert again.q is quantized.q
    np.testing.assert_array_equal(again.scale, activation_quantize(rows * 2).scale)


def test_a_layer_recovers_and_its_receipt_says_so() -> None:
    w = np.random.default_rng(4).standard_normal((64, 256), np.float32)
    x = np.random.default_rng(5).standard_normal((2, 256), np.float32)
    layer, plain = QuantizedLinear(w, on_error="recover"), QuantizedLinear(w)
    for _ in range(2):
        np.testing.assert_array_equal(layer(x), plain(x))
    assert layer.receipt is not None
    assert plain.receipt is not None
    assert (layer.receipt.kernel, layer.receipt.note) == (plain.receipt.kernel, "")
    with receipts() as found:
        layer(x)
    assert [each.kernel.split("/")[1] for each in found] == ["activation_quantize", "ternary_matmul"]
    assert found[1].kernel == plain.receipt.kernel
    with pytest.raises(NoCompatibleKernelError, match="a bound call cannot recover"):
        layer.bind(x)


def test_changed_weights_are_sent_again() -> None:
    codes = np.ones((64, 256), np.int8)
    x = np.ones((1, 256), np.int8)
    weights = pack_weights(codes, 1.0, format="i2_s_x86")
    assert (ternary_matmul(x, weights, on_error="recover") == 256).all()
    weights.data[...] = pack_weights(-codes, 1.0, format="i2_s_x86").data
    assert (ternary_matmul(x, weights, on_error="recover") == -256).all()


@pytest.mark.filterwarnings("ignore::tritmark.harness.recovery.RecoveryWarning")
def test_weights_that_a_failed_kernel_wrote_to_are_sent_again() -> None:
    weights, x = pack_weights(np.ones((64, 256), np.int8), 1.0, format="i2_s_x86"), np.ones((1, 256), np.int8)
    for variant in ("writes_weights", None):
        assert (ternary_matmul(x, weights, variant=variant, on_error="recover") == 256).all()
        assert len(last_recoveries()) == (variant is not None)


def read_only(base: Any) -> Any:
    view = base.view()
    view.flags.writeable = False
    return view


def test_read_only_views_of_changed_memory_are_sent_again(tmp_path: Path) -> None:
    base = np.full(1 << 16, 0.5, np.float32)
    file = np.memmap(tmp_path / "x", np.float32, "w+", shape=base.shape)
    file[:] = base
    for written, x in ((base, read_only(base)), (file, np.memmap(tmp_path / "x", np.float32, "r"))):
        assert (i2s_quantize(x, 0.5, on_error="recover") == 1).all()
        written[...] = -0.5
        assert (i2s_quantize(x, 0.5, on_error="recover") == -1).all()


def test_read_only_weights_and_scales_that_changed_are_sent_again() -> None:
    codes, x = np.ones((256, 1024), np.int8), np.ones((1, 1024), np.int8)
    made, negative = pack_weights(codes, 1.0, format="i2_s_x86"), pack_weights(-codes, 1.0, format="i2_s_x86")
    weights = replace(made, data=read_only(made.data))
    assert (ternary_matmul(x, weights, on_error="recover") == 1024).all()
    made.data[...] = negative.data
    assert (ternary_matmul(x, weights, on_error="recover") == -1024).all()
    scale = np.ones((), np.float32)
    scaled = replace(made, scale=scale)
    assert (ternary_matmul(x, scaled, on_error="recover") == -1024).all()
    scale[...] = 2
    assert (ternary_matmul(x, scaled, on_error="recover") == ternary_matmul(x, scaled)).all()


def test_weights_that_are_gone_leave_the_worker() -> None:
    codes, x = np.ones((64, 256), np.int8), np.ones((1, 256), np.int8)
    kept = pack_weights(codes, 1.0)
    for _ in range(3):
        assert (ternary_matmul(x, pack_weights(codes, 2.0), on_error="recover") == 512).all()
    assert (ternary_matmul(x, kept, on_error="recover") == 256).all()
    assert (ternary_matmul(x, kept, on_error="recover") == 256).all()
    assert client._supervisor().of("cpu").call("counting", planted.weights_in_worker) == 1


def test_a_receipt_names_the_kernel_that_ran_and_the_recovery() -> None:
    with pytest.warns(RecoveryWarning):
        _, receipt = client.call_with_receipt(
            "i2s_quantize", "recover", x=X, scale=0.5, variant="own", threads=None, nonfinite="error", device="cpu"
        )
    assert receipt is not None
    assert receipt.kernel == last_recoveries()[0].kernel
    assert "cpu/i2s_quantize/none/int8/own failed" in receipt.note


def test_a_warning_comes_once_for_each_kind() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            i2s_quantize(X, 0.5, variant="own", on_error="recover")
        i2s_quantize(X, 0.5, variant="oserror", on_error="recover")
    assert len([each for each in caught if each.category is RecoveryWarning]) == 2
    assert len(history.read().failures) == 4


def test_a_filter_that_makes_the_warning_an_error_does_not_lose_the_result() -> None:
    out = np.zeros_like(RIGHT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert i2s_quantize(X, 0.5, variant="own", out=out, on_error="recover") is out
    np.testing.assert_array_equal(out, RIGHT)
    assert len(last_recoveries()) == 1


@pytest.mark.filterwarnings("ignore::tritmark.harness.recovery.RecoveryWarning")
def test_a_call_inside_another_one_is_refused_and_takes_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    inner: list[Any] = []

    def handler(*_: Any) -> None:
        with pytest.raises(UsageError, match="inside another one on cpu") as caught:
            i2s_quantize(-X, 0.5, on_error="recover")
        inner.append(caught.value)

    plain = WorkerProcess._reply

    def reply(self: WorkerProcess, what: str, timeout_s: float) -> Any:
        if what == "i2s_quantize" and not inner:
            signal.raise_signal(signal.SIGUSR1)  # while the program waits
        return plain(self, what, timeout_s)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(WorkerProcess, "_reply", reply)
        np.testing.assert_array_equal(i2s_quantize(X, 0.5, on_error="recover"), RIGHT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(inner) == 1
    assert last_recoveries() == (), "no kernel is blamed"


def test_an_interrupted_call_leaves_no_reply_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WorkerProcess._reply

    def interrupted(self: WorkerProcess, what: str, timeout_s: float) -> Any:
        if what == "i2s_quantize":
            raise KeyboardInterrupt
        return plain(self, what, timeout_s)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "_reply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            i2s_quantize(-X, 0.5, on_error="recover")
    np.testing.assert_array_equal(i2s_quantize(X, 0.5, on_error="recover"), RIGHT)


def test_no_kernel_is_blamed_for_a_worker_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    i2s_quantize(X, 0.5, on_error="recover")
    client.close_workers()
    plain = WorkerProcess.call

    def call(self: WorkerProcess, what: str, *rest: Any) -> Any:
        if what == "start":
            raise self._failed(Failure.HANG, "did not start and was killed")
        return plain(self, what, *rest)

    monkeypatch.setattr(WorkerProcess, "call", call)
    with pytest.raises(UnrecoveredError) as caught:
        i2s_quantize(X, 0.5, on_error="recover")
    assert {caught.value.recovery.failed, *(each.kernel for each in caught.value.recovery.tried)} == {""}


def test_a_warm_worker_obeys_the_current_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scalar", "sse41") if "sse41" in {v.name for v in dispatch.registry().variants} else ("scalar",):
        monkeypatch.setenv("TRITMARK_FORCE_ISA", name)
        _, receipt = client.call_with_receipt(
            "i2s_quantize", "recover", x=X, scale=0.5, variant=None, threads=None, nonfinite="error", device="cpu"
        )
        assert receipt is not None
        assert receipt.kernel.endswith(name)


def test_a_kernel_that_cannot_be_sent_is_refused_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from tritmark.harness.providers import installed

    local = replace(planted.failing("local"), bind=lambda *given: planted.failing("own").bind(*given))
    monkeypatch.setattr(installed(), "added", installed().added | {local.id})
    monkeypatch.setattr(type(dispatch.registry()), "variants", property(lambda self: [local]))
    with pytest.raises(NoCompatibleKernelError, match="cannot be sent to the worker"):
        client._registered(dispatch.registry(), type("Worker", (), {"state": {}})(), "i2s_quantize")


@pytest.mark.filterwarnings("ignore::tritmark.harness.recovery.RecoveryWarning")
def test_threads_take_turns_and_keep_their_own_recoveries() -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        q = i2s_quantize(X, 0.5, variant="own" if number % 2 else None, on_error="recover")
        found[number] = (q == RIGHT).all(), len(last_recoveries())

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {number: (True, number % 2) for number in range(4)}


def test_a_worker_that_was_killed_between_calls_is_replaced() -> None:
    i2s_quantize(X, 0.5, on_error="recover")
    pid = client._supervisor().of("cpu").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    client._supervisor().of("cpu").process._process.join()  # type: ignore[union-attr]
    for _ in range(2):
        np.testing.assert_array_equal(i2s_quantize(X, 0.5, on_error="recover"), RIGHT)
        assert last_recoveries() == (), "no kernel is blamed"
    assert client._supervisor().of("cpu").pid not in {None, pid}


@pytest.mark.parametrize("isolated", [True, False])
def test_judges_cannot_recover(isolated: bool) -> None:
    installed = load()
    variant = next(each for each in installed.registry.variants if each.id == "cpu/i2s_quantize/none/int8/scalar")
    with Workers(installed, isolated=isolated) as workers, pytest.raises((CandidateError, UsageError)) as caught:
        workers.of(variant).call("a call", planted.recovers_inside)
    assert "a process that judges kernels" in str(caught.value)
    np.testing.assert_array_equal(i2s_quantize(X, 0.5, on_error="recover"), RIGHT)


def test_a_candidate_that_recovers_gets_no_verdict(tmp_path: Path) -> None:
    file = tmp_path / "my_i2s_quantize.py"
    file.write_text(
        "from tritmark.harness.candidate import kernel\nfrom tritmark.kernels import i2s_quantize\n\n\n"
        '@kernel(op="i2s_quantize", dtype="int8")\ndef quantize(x, scale, q):\n'
        '    q[...] = i2s_quantize(x, scale, on_error="recover")\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "tritmark", "check", str(file), "--suite", "smoke", "--dimension", "accuracy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a process that judges kernels" in " ".join(done.stdout.split()), done.stdout


def test_programs_that_do_not_recover_import_no_worker() -> None:
    code = (
        "import sys, numpy as np, tritmark.kernels as k; k.QuantizedLinear(np.eye(64, dtype='f4'))(np.ones(64, 'f4'))\n"
        "k.i2s_quantize(np.ones(4, 'f4'), 1.0)\n"
        "sys.exit(bool({'tritmark.kernels.recovering', 'tritmark.harness.worker'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_command_and_no_variable_switches_it_on() -> None:
    from tritmark.harness import cli

    folder = Path(cli.__file__).parent
    assert not [each.name for each in folder.glob("*.py") if "on_error" in each.read_text() and each.stem != "errors"]
    assert inspect.signature(i2s_quantize).parameters["on_error"].default == "raise"
