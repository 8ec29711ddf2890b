"""Every failure has a class, strategies and advice, and is recognized by its code or type and never by its text."""

from __future__ import annotations

import os
import pickle
import re
import signal
import sysconfig
from pathlib import Path

import pytest

from tritmark.harness import errors
from tritmark.harness.errors import (
    CompileError,
    DeviceError,
    DeviceFaultError,
    DeviceUnavailableError,
    Failure,
    InsufficientMemoryError,
    InvalidArgumentError,
    LaunchError,
    NoCompatibleKernelError,
    WorkerError,
)
from tritmark.harness.recovery.advice import ADVICE
from tritmark.harness.recovery.failures import CODES, ENDS_CONTEXT, FailureKind, of_code, of_exception, of_process
from tritmark.harness.recovery.reply import CallerError
from tritmark.harness.recovery.strategies import ON_DEVICE, ON_HOST, OWN_FAULT, Strategy, ladder
from tritmark.kernels.cuda.driver import compile as compiler


def test_every_kind_has_strategies_and_advice() -> None:
    assert ADVICE.keys() == set(FailureKind)
    for kind in FailureKind:
        for on_device in (False, True):
            found = ladder(kind, on_device)
            assert bool(found) != (kind is FailureKind.NUMERICAL), "a wrong answer is not computed again"
            assert len(set(found)) == len(found)
            if on_device and found:
                assert found[-1] is Strategy.CPU
            else:
                assert Strategy.CPU not in found


def test_every_strategy_is_in_use() -> None:
    used = {each for table in (ON_HOST, ON_DEVICE) for found in table.values() for each in found}
    assert used == set(Strategy) - {Strategy.NONE}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (DeviceFaultError("x", next_step="y", code=700), FailureKind.DEVICE_FAULT, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (DeviceFaultError("x", next_step="y", code=719), FailureKind.DEVICE_FAULT, "CUDA_ERROR_LAUNCH_FAILED"),
        (DeviceFaultError("x", next_step="y", code=214), FailureKind.HARDWARE, "CUDA_ERROR_ECC_UNCORRECTABLE"),
        (DeviceFaultError("x", next_step="y", code=702), FailureKind.HANG, "CUDA_ERROR_LAUNCH_TIMEOUT"),
        (DeviceFaultError("x", next_step="y", code=12345), FailureKind.HARDWARE, "CUDA error 12345"),
        (DeviceFaultError("an illegal memory access", next_step="y"), FailureKind.DEVICE_FAULT, "DeviceFaultError"),
        (LaunchError("out of memory", next_step="y"), FailureKind.LAUNCH_REFUSED, "LaunchError"),
        (CompileError("x", next_step="y"), FailureKind.NOT_LOADED, "CompileError"),
        (DeviceUnavailableError("x", next_step="y"), FailureKind.CONTEXT_LOST, "DeviceUnavailableError"),
        (DeviceError("x", next_step="y"), FailureKind.CONTEXT_LOST, "DeviceError"),
        (
            InsufficientMemoryError(what="x", required=2, available=1, next_step="y"),
            FailureKind.OUT_OF_MEMORY,
            "InsufficientMemoryError",
        ),
        (MemoryError(), FailureKind.OUT_OF_MEMORY, "MemoryError"),
        (OSError(5, "x"), FailureKind.ERROR, "OSError"),
        (RuntimeError("segmentation fault"), FailureKind.ERROR, "RuntimeError"),
    ],
)
def test_exceptions(error: Exception, kind: FailureKind, code: str) -> None:
    found = of_exception(error)
    assert (found.kind, found.code) == (kind, code)


def test_an_exception_without_a_text() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert of_exception(SilentError()).found == "SilentError: (no text)"


@pytest.mark.parametrize(
    ("failure", "exitcode", "kind", "code"),
    [
        (Failure.CRASH, -signal.SIGSEGV, FailureKind.SEGMENTATION_FAULT, "SIGSEGV"),
        (Failure.CRASH, -signal.SIGILL, FailureKind.ILLEGAL_INSTRUCTION, "SIGILL"),
        (Failure.CRASH, -signal.SIGBUS, FailureKind.BUS_ERROR, "SIGBUS"),
        (Failure.CRASH, -signal.SIGFPE, FailureKind.ARITHMETIC, "SIGFPE"),
        (Failure.CRASH, -signal.SIGABRT, FailureKind.DIED, "SIGABRT"),
        (Failure.CRASH, -64 - 32, FailureKind.DIED, "signal 96"),
        (Failure.EXIT, 3, FailureKind.DIED, "exit status 3"),
        (Failure.HANG, -signal.SIGTERM, FailureKind.HANG, "time limit"),
        (Failure.MEMORY, -signal.SIGTERM, FailureKind.OUT_OF_MEMORY, "memory limit"),
        (Failure.PROTOCOL, None, FailureKind.DIED, ""),
    ],
)
def test_processes(failure: Failure, exitcode: int | None, kind: FailureKind, code: str) -> None:
    found = of_process(WorkerError(failure, "ended", "log"), exitcode)
    assert (found.kind, found.code, found.detail) == (kind, code, "log")


def header() -> Path | None:
    """cuda.h of the toolkit that nvcc is from, or of PyPI's packages."""
    try:
        nvcc = compiler.find_nvcc().resolve()
    except DeviceError:
        return None
    # nvcc may be a script that calls another one; the packages of this environment have the header, too.
    packages = Path(sysconfig.get_paths()["purelib"], "nvidia")
    found = (nvcc.parents[1] / "include" / "cuda.h", *packages.glob("*/include/cuda.h"))
    return next((each for each in found if each.is_file()), None)


@pytest.mark.cuda
def test_codes_are_those_of_the_driver() -> None:
    file = header()
    if file is None:
        assert not os.environ.get("TRITMARK_REQUIRE_NVCC"), "the environment has no cuda.h"
        pytest.skip("there is no cuda.h; tox -e cuda has it")
    listed = re.findall(r"^\s*(CUDA_ERROR_\w+)\s*=\s*(\d+)", file.read_text(errors="replace"), re.MULTILINE)
    known = {int(number): name for name, number in listed}
    assert len(known.keys() & CODES.keys()) > 20  # older toolkits lack the newest codes
    for number, (name, _) in CODES.items():
        assert known.get(number, name) == name


def test_codes_that_are_not_listed() -> None:
    assert of_code(31) == ("CUDA error 31", FailureKind.HARDWARE)


def test_a_fault_that_loses_the_context_ends_the_process() -> None:
    lost = {kind for _, kind in CODES.values()} - {
        FailureKind.OUT_OF_MEMORY,
        FailureKind.LAUNCH_REFUSED,
        FailureKind.NOT_LOADED,
    }
    assert lost <= ENDS_CONTEXT
    assert FailureKind.DEVICE_FAULT in OWN_FAULT
    assert FailureKind.HARDWARE not in OWN_FAULT


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgumentError(op="o", argument="a", found="f", legal="l"),
        NoCompatibleKernelError(request="r", candidates=[("k", "why")]),
        errors.UsageError("u"),
        TypeError("f() got an unexpected keyword argument 'b'"),
        ValueError(1, "two"),
    ],
)
def test_errors_of_the_caller_cross_processes_as_they_are(error: Exception) -> None:
    made = pickle.loads(pickle.dumps(CallerError.of(error))).made()
    assert type(made) is type(error)
    assert str(made) == str(error)
    assert vars(made) == vars(error)


def test_errors_of_other_packages_keep_their_name() -> None:
    class StrangeError(Exception):
        pass

    made = CallerError.of(StrangeError("x")).made()
    assert type(made) is RuntimeError
    assert str(made) == "StrangeError: x"


def test_the_code_of_a_fault_is_kept_in_copies() -> None:
    copied = pickle.loads(pickle.dumps(DeviceFaultError("x", next_step="y", code=700)))
    assert (copied.code, copied.found) == (700, "x")
