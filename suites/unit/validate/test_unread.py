"""If this system does not report the state of a process, the dimension is NOT RUN or states what is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_here import memory_use

from tritmark.harness.record import Performance, Status
from tritmark.harness.validate import confirm
from tritmark.harness.worker import peak
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import DEVICE

OP = next(op for op in PROVIDER.ops if op.name == "i2s_dequantize")
SCALAR = next(each for each in PROVIDER.variants if each.id == "cpu/i2s_dequantize/none/float32/scalar")
AXES = {"n": 4096}


class Hidden:
    """/proc with some files hidden, or without some of their lines."""

    def __init__(self, folder: Path, name: str, without: bytes) -> None:
        self._folder, self._name, self._without = folder, name, without

    def __truediv__(self, name: str) -> Any:
        real = Path("/proc") / name
        if name != str(os.getpid()):
            return real
        made = self._folder / name
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        for each in ("status", "smaps_rollup", "clear_refs", "fd", "io"):
            if each == self._name and self._without:
                kept = [line for line in (real / each).read_bytes().splitlines() if not line.startswith(self._without)]
                (made / each).write_bytes(b"\n".join(kept))
            elif each == self._name == "clear_refs":
                (made / each).mkdir()  # opening for writing creates a missing file
            elif each != self._name:
                (made / each).symlink_to(real / each)
        return made

    def __str__(self) -> str:
        return "/proc"


def used() -> Any:
    inputs = OP.encode(OP.generate(AXES, OP.input_families[0], np.random.default_rng(0)), AXES, "none")
    return memory_use(DEVICE, OP, SCALAR, inputs, AXES, threads=1)


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("smaps_rollup", b"", "the memory that first calls keep is not known: /proc/PID/smaps_rollup: No such file"),
        ("smaps_rollup", b"Anonymous", "/proc/PID/smaps_rollup has no Anonymous"),
        ("clear_refs", b"", "the peak of the host's memory is not known: /proc/PID/clear_refs"),
        ("status", b"VmHWM", "the peak of the host's memory is not known: /proc/PID/status has no VmHWM"),
        ("status", b"RssAnon", "leaks of resident, mapped, kernel, descriptors, files are not known: /proc"),
        ("io", b"", "leaks of resident, mapped, kernel, descriptors, files are not known: /proc/PID/io: No such file"),
        ("io", b"write_bytes", "/proc/PID/io has no write_bytes"),
        ("status", b"VmPTE", "/proc/PID/status has no VmPTE"),
        ("fd", b"", "/proc/PID/fd: No such file"),
    ],
)
def test_memory_that_cannot_be_read_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, line: bytes, said: str
) -> None:
    assert used().limits == (), "this machine reports all of it"
    monkeypatch.setattr(peak, "PROC", Hidden(tmp_path, file, line))
    found = used()
    assert found.status is Status.NOT_RUN
    assert any(said in each for each in found.limits), found.limits
    assert said in found.reason
    assert str(os.getpid()) not in found.reason, "the same sentence for every process, so that it is one line"


def test_a_mark_that_does_not_move_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system that accepts the reset request and ignores it: a reading would be 0."""
    monkeypatch.setattr(peak, "_marks", lambda pid: (1 << 30, 1 << 30))
    found = used()
    assert found.status is Status.NOT_RUN
    assert "the peak of the host's memory is not known" in found.reason
    assert found.host_peak is None


def test_a_leak_fails_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tritmark.harness.validate import memory

    monkeypatch.setattr(peak, "PROC", Hidden(tmp_path, "clear_refs", b""))
    monkeypatch.setattr(memory, "faults", lambda seen: {"leak of calls": "leaks 48 bytes a call"})
    found = used()
    assert found.status is Status.FAIL
    assert found.limits


def unlisted(path: Any) -> list[str]:
    return ["0"]  # a thread without an account


def refused(path: Any) -> list[str]:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("hide", [unlisted, refused])
def test_threads_that_cannot_be_counted_are_a_limit(
    monkeypatch: pytest.MonkeyPatch, hide: Callable[[Any], list[str]]
) -> None:
    """Without the account of threads, the guard that counts them detects nothing."""
    passed = Performance(status=Status.PASS)
    arguments: Any = (passed, (), lambda *args: None)
    assert confirm.confirm(*arguments, threads=1, pid=os.getpid()).limits == ()
    assert confirm.confirm(*arguments, threads=1, pid=None).limits == (), "a device that works by itself"
    monkeypatch.setattr(os, "listdir", hide)
    assert confirm.confirm(*arguments, threads=1, pid=os.getpid()).limits == (confirm.UNCOUNTED,)
