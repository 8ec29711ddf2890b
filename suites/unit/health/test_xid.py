"""XID errors from the kernel's log and from NVML's events, as the driver writes them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_nvml import NVMLError, gpu, install

from tritmark.harness.health import xid
from tritmark.harness.health.finding import Severity
from tritmark.harness.health.xid import Xid, XidEvents, address, found, logged
from tritmark.harness.machine import nvml

LOG = """\
6,1,0,-;Linux version 6.1.0
4,1200,98765432,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
 SUBSYSTEM=pci
 DEVICE=+pci:0000:3b:00.0
4,1201,98765999,-;NVRM: Xid (PCI:0000:3c:00): 31, pid=4711, name=python, Ch 00000008, intr 10000000. MMU Fault
3,1202,98766000,-;a program printed NVRM Xid: 48
4,1203,98767000,c;NVRM: Xid (PCI:0001:3b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked
4,1204,98767001,-;NVRM: GPU at PCI:0000:3b:00: GPU-00010203-0405-0607-0809-0a0b0c0d0e0f
"""
ERRORS = [Xid("0000:3b:00", 79, 98765432), Xid("0000:3c:00", 31, 98765999), Xid("0001:3b:00", 63, 98767000)]


def test_the_log_of_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(LOG)
    assert logged(path) == ERRORS
    path.write_text(LOG.rstrip("\n"))
    assert logged(path) == ERRORS
    assert list(found(LOG.splitlines())) == ERRORS


def test_a_log_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """/dev/kmsg would wait for further records, as a pipe does."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, LOG.encode())
        assert logged(path) == ERRORS
    finally:
        os.close(writer)


def test_a_log_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        logged(tmp_path / "none")


@given(st.binary(max_size=400))
def test_any_log_is_read(content: bytes) -> None:
    for each in found(content.decode("utf-8", "replace").split("\n")):
        assert each.number >= 0


@pytest.mark.parametrize("bus", ["00000000:3B:00.0", "0000:3b:00.0", "0000:3b:00", "3B:00.0"])
def test_an_address_has_one_form(bus: str) -> None:
    assert address(bus) == "0000:3b:00"


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        (79, Severity.CRITICAL),
        (48, Severity.CRITICAL),
        (95, Severity.CRITICAL),
        (119, Severity.CRITICAL),
        (63, Severity.WARNING),
        (9999, Severity.WARNING),
        (13, Severity.OK),
        (31, Severity.OK),
        (43, Severity.OK),
    ],
)
def test_a_program_that_is_at_fault_makes_no_gpu_unhealthy(number: int, severity: Severity) -> None:
    assert Xid("0000:3b:00", number).severity is severity


def test_events_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [gpu(0), gpu(1)], events=[(1, 48), (0, 13)])
    with XidEvents() as events:
        pass
    assert events.seen == [Xid("0000:3c:00", 48), Xid("0000:3b:00", 13)]
    assert events.note == ""
    nvml._nvml.cache_clear()


def test_events_that_cannot_be_read_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module = install(monkeypatch, [gpu(0), gpu(1)])

    def refused(device: int, kinds: int, handles: str) -> None:
        if device == 1:
            raise NVMLError(3, "Not Supported")

    monkeypatch.setattr(module, "nvmlDeviceRegisterEvents", refused)
    with XidEvents() as events:
        pass
    assert events.note == "GPU 1: Not Supported"
    monkeypatch.delattr(module, "nvmlEventSetCreate")
    with XidEvents() as events:
        pass
    assert events.note.startswith("NVML events: ")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._nvml.cache_clear()
    with XidEvents() as events:
        pass
    assert "nvidia-ml-py is not installed" in events.note
    nvml._nvml.cache_clear()


def test_no_number_is_in_two_classes() -> None:
    assert xid.BY_PROGRAMS.isdisjoint(xid.FATAL)
