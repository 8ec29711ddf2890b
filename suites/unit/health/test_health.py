"""`tritmark health` on machines that are made up, and on this one."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up_nvml import NVMLError, gpu, install
from typer.testing import CliRunner

from tritmark.harness.cli import app, exit_status
from tritmark.harness.cli.health import status_of
from tritmark.harness.doctor import gpu as doctor_gpu
from tritmark.harness.doctor import noise
from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.health import examine, pool, xid
from tritmark.harness.health.examine import HealthReport, examined
from tritmark.harness.health.finding import HealthFinding, Severity, overall
from tritmark.harness.health.history import HealthHistory, PastProbe, boot_id
from tritmark.harness.machine import cpu_sensors, nvml
from tritmark.harness.machine import gpu as machine_gpu
from tritmark.harness.providers import load
from tritmark.harness.spec import Device

PROBED: list[dict[str, Device]] = []


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without a GPU, whose probes succeed; nothing is measured."""
    monkeypatch.setenv("TRITMARK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TRITMARK_CUDA", "driver")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(noise, "noise", lambda device: [])
    monkeypatch.setattr(doctor_gpu, "present", lambda: False)
    missing = DeviceUnavailableError("no NVIDIA driver", next_step="install it")
    monkeypatch.setattr(machine_gpu, "driver_problem", lambda: missing)
    monkeypatch.setattr("tritmark.kernels.cuda.device.in_use", lambda index: False)  # by another test, on a GPU
    (tmp_path / "kmsg").write_text("")
    monkeypatch.setattr(examine, "_logged", lambda: _LOGGED(lambda: xid.logged(tmp_path / "kmsg")))
    monkeypatch.setattr(pool, "checks", probes)
    PROBED.clear()
    yield
    nvml._nvml.cache_clear()


_LOGGED = examine._logged


def probes(devices: dict[str, Device]) -> Iterator[HealthFinding]:
    PROBED.append(devices)
    for unit in devices:
        yield HealthFinding(unit=unit, name=pool.NAME, severity=Severity.OK, found="")


def with_gpus(monkeypatch: pytest.MonkeyPatch, *gpus: dict[str, Any], **more: Any) -> None:
    monkeypatch.setattr(doctor_gpu, "present", lambda: True)
    install(monkeypatch, gpus, **more)


def probe(*, passive: bool = True, **more: Any) -> HealthReport:
    return examined(load().registry.every(), Path("results"), passive=passive, **more)


def of(report: HealthReport, name: str, unit: str = "GPU 0") -> HealthFinding:
    (found,) = (each for each in report.findings if (each.unit, each.name) == (unit, name))
    return found


def test_a_machine_without_a_gpu_is_quiet() -> None:
    report = probe(passive=False)
    assert report.overall is Severity.OK, report.findings
    assert report.units == {"machine": Severity.OK}
    assert of(report, "GPU", "machine").severity is Severity.ABSENT
    assert report.notes == ()
    assert PROBED == [{}], "no process is started for a device that is missing"


def test_a_gpu_that_cannot_be_read_is_not_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpu, "present", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._nvml.cache_clear()
    report = probe()
    assert report.overall is Severity.UNKNOWN
    assert "nvidia-ml-py is not installed" in of(report, "driver", "GPU").found
    with_gpus(monkeypatch)
    assert probe().overall is Severity.UNKNOWN, "NVML lists none"
    with_gpus(monkeypatch, gpu(0), gpu(1, handle=NVMLError(4, "Insufficient Permissions")))
    report = probe()
    assert (report.overall, report.units["GPU 1"]) == (Severity.UNKNOWN, Severity.UNKNOWN)
    assert report.units["GPU 0"] is not Severity.UNKNOWN


def test_kernels_that_cannot_run_on_a_gpu_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0))
    found = of(probe(), pool.NAME, "cuda")
    assert found.severity is Severity.WARNING
    assert "no kernel can run" in found.found
    assert found.next_step


def test_a_healthy_machine_with_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1))
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    report = probe(passive=False)
    assert report.overall is Severity.OK, report.findings
    assert set(report.units) == {"machine", "GPU 0", "GPU 1", "cuda (simulator)"}
    assert [list(each) for each in PROBED] == [["cuda (simulator)"]], "a simulator is named as one"
    assert report.last == ""
    assert probe().last == report.at
    assert PROBED[1:] == [{}], "a passive probe uses no device"


def test_what_changed_is_named_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = HealthHistory()
    with_gpus(monkeypatch, gpu(0))
    probe()
    errors = {(0, 0): 5, (1, 0): 0, (0, 1): 5, (1, 1): 0}
    with_gpus(monkeypatch, gpu(0, TotalEccErrors=errors, RemappedRows=(0, 1, 1, 0)))
    report = probe()
    assert of(report, "memory errors").severity is Severity.WARNING
    assert "5 new corrected errors" in of(report, "memory errors").found
    assert of(report, "memory rows").since == ""
    first = kept.probes()[0][-1].at
    report = probe()
    assert of(report, "memory errors").severity is Severity.OK, "nothing new"
    assert of(report, "memory rows").since == first, "the replacement still waits"


XID_79 = "4,1200,{at},-;NVRM: Xid (PCI:0000:3b:00): {number}, pid='<unknown>', name=<unknown>, gone\n"


def test_an_xid_is_critical_once_and_remembered_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1))
    log = tmp_path / "kmsg"
    log.write_text(XID_79.format(at=5, number=79))
    report = probe()
    assert of(report, "XID errors").severity is Severity.CRITICAL
    assert "1 new: XID 79 (it has fallen off the bus)" in of(report, "XID errors").found
    assert of(report, "XID errors", "GPU 1").severity is Severity.OK, "it was another GPU's"
    report = probe()
    assert of(report, "XID errors").severity is Severity.WARNING
    assert "1 earlier" in of(report, "XID errors").found
    log.write_text(log.read_text() + XID_79.format(at=9, number=31))
    found = of(probe(), "XID errors")
    assert (found.severity, "1 new: XID 31 (of a program)" in found.found) == (Severity.WARNING, True)


def test_xids_of_programs_and_of_another_start_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_gpus(monkeypatch, gpu(0))
    (tmp_path / "kmsg").write_text(XID_79.format(at=5, number=13))
    assert of(probe(), "XID errors").severity is Severity.OK
    HealthHistory().add(
        PastProbe(
            at="2026-01-01T00:00:00Z", host=platform.node(), boot="an earlier one", overall=Severity.OK, log_us=99
        )
    )
    (tmp_path / "kmsg").write_text(XID_79.format(at=7, number=48))
    assert of(probe(), "XID errors").severity is Severity.CRITICAL, "times begin again with the machine"


def test_an_event_while_the_probe_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1), events=[(1, 95)])
    report = probe()
    assert of(report, "XID errors", "GPU 1").severity is Severity.CRITICAL
    assert of(report, "XID errors").severity is Severity.OK


def test_what_cannot_be_read_or_kept_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_gpus(monkeypatch, gpu(0))
    (tmp_path / "state").write_text("a file")
    notes = "\n".join(probe().notes)
    assert "this probe is not in the history" in notes
    assert "TRITMARK_STATE" in notes


UNREADABLE = {
    "Operation not permitted": (PermissionError(1, "Operation not permitted"), "CAP_SYSLOG"),
    "Permission denied": (PermissionError(13, "Permission denied"), "dmesg_restrict=0"),
    "No such file or directory": (FileNotFoundError(2, "No such file or directory"), "--device /dev/kmsg"),
    "Input/output error": (OSError(5, "Input/output error"), "sudo dmesg"),
}


def without_log(monkeypatch: pytest.MonkeyPatch, problem: OSError) -> None:
    def read() -> list[xid.Xid]:
        raise problem

    monkeypatch.setattr(examine, "_logged", lambda: _LOGGED(read))


@pytest.mark.nightly
@pytest.mark.parametrize("why", UNREADABLE)
def test_a_log_that_cannot_be_read_is_not_one_without_errors(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, step = UNREADABLE[why]
    with_gpus(monkeypatch, gpu(0), gpu(1))
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    assert of(probe(), "XID errors").found == "none in the kernel's log"
    without_log(monkeypatch, problem)
    report = probe()
    found = of(report, "XID errors")
    assert (found.severity, report.overall) == (Severity.ABSENT, Severity.OK)
    assert found.found == f"not readable: the kernel's log cannot be read ({why})"
    assert step in found.next_step
    assert report.unread == ("GPU 0: XID errors", "GPU 1: XID errors")
    text = run("--passive").stdout
    assert f"absent    GPU 0: XID errors: {found.found}\n          -> to read the log: " in text
    assert "Not read: GPU 0: XID errors, GPU 1: XID errors." in text
    assert json.loads(run("--passive", "--json").stdout)["unread"] == list(report.unread)
    assert "not read GPU 0: XID errors" in run("--history").stdout
    assert json.loads(run("--history", "--json").stdout)[-1]["unread"] == list(report.unread)


def test_an_event_counts_where_the_log_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1), events=[(0, 13), (1, 95)])
    without_log(monkeypatch, UNREADABLE["Permission denied"][0])
    report = probe()
    assert of(report, "XID errors", "GPU 1").severity is Severity.CRITICAL
    assert "1 new: XID 95" in of(report, "XID errors", "GPU 1").found
    assert "earlier ones not readable" in of(report, "XID errors", "GPU 1").found
    assert of(report, "XID errors").severity is Severity.ABSENT
    assert "1 new: XID 13" in of(report, "XID errors").found


def test_a_probe_that_cannot_read_the_log_ends_no_earlier_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_gpus(monkeypatch, gpu(0))
    (tmp_path / "kmsg").write_text(XID_79.format(at=5, number=79))
    readable = examine._logged
    probe()
    first = HealthHistory().probes()[0][0].at
    without_log(monkeypatch, UNREADABLE["Permission denied"][0])
    probe()
    monkeypatch.setattr(examine, "_logged", readable)
    found = of(probe(), "XID errors")
    assert (found.severity, found.since) == (Severity.WARNING, first)


def test_a_gpu_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1))
    probe()
    with_gpus(monkeypatch, gpu(0))
    for _ in range(2):
        found = of(probe(), "GPUs", "machine")
        assert (found.severity, "GPU-1" in found.found) == (Severity.WARNING, True)
    monkeypatch.setattr(examine, "boot_id", lambda: "a later start")
    probe()  # taken out of the machine
    assert not any(each.name == "GPUs" for each in probe().findings)


def test_heat_of_the_cpu_since_the_last_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([1_000_000, 1_000_000, 4_000_000, 4_000_000])
    monkeypatch.setattr(cpu_sensors, "throttled_ns", lambda: {"core_thermal_throttle": next(counts)})
    assert of(probe(), "CPU", "machine").severity is Severity.OK
    found = of(probe(), "CPU", "machine")
    assert (found.severity, "core_thermal_throttle for 3.00 ms" in found.found) == (Severity.WARNING, True)


def test_a_full_disk_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tritmark.harness.doctor.host.tempfile.TemporaryFile", refuse)
    found = of(probe(), "disk", "machine")
    assert (found.severity, "No space left" in found.found, bool(found.next_step)) == (Severity.CRITICAL, True, True)


def test_a_folder_that_may_not_be_entered_is_critical(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = os.stat

    def stat(path: Any, **more: Any) -> Any:
        if str(path).startswith(f"{tmp_path}/closed/"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **more)

    (tmp_path / "closed").mkdir()

    def refuse(**given: Any) -> Any:  # root may write there
        assert given["dir"] == tmp_path / "closed"
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    report = examined(load().registry.every(), tmp_path / "closed" / "results", passive=True)
    assert of(report, "disk", "machine").severity is Severity.CRITICAL
    assert "closed: Permission denied" in of(report, "disk", "machine").found


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["health", *words])


CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "healthy": ({}, 0, 0),
    "hot": ({"Temperature": 88}, 0, exit_status.AMBIGUOUS),
    "not read": ({"handle": NVMLError(4, "Insufficient Permissions")}, exit_status.UNJUDGED, exit_status.UNJUDGED),
    "failed": ({"RemappedRows": (0, 1, 0, 1)}, exit_status.FAILED, exit_status.FAILED),
}


@pytest.mark.parametrize("name", CASES)
def test_the_exit_status_is_that_of_the_worst(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, plain, strict = CASES[name]
    with_gpus(monkeypatch, gpu(0), gpu(1, **changed))
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    assert run("--passive").exit_code == plain
    done = run("--passive", "--strict", "--json")
    assert done.exit_code == strict
    found = json.loads(done.stdout)
    assert found["overall"] == overall(map(_finding, found["findings"])).value
    assert [status_of(each, strict=True) for each in (Severity.OK, Severity.ABSENT)] == [0, 0]


def _finding(each: dict[str, Any]) -> HealthFinding:
    return HealthFinding(**each | {"severity": Severity(each["severity"])})


def test_the_text_names_what_is_wrong_what_is_in_order_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1, Temperature=88))
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    text = run("--passive").stdout
    assert "warning   GPU 1: temperature: 88 °C: the driver lowers the clocks" in text
    assert "in order: 87 °C: the driver lowers the clocks; 89 °C" in text
    assert "-> check its cooling" in text
    assert "Overall: warning (machine ok, GPU 0 ok, GPU 1 warning). Last probe: none." in text
    assert "new" not in text
    assert f"since {HealthHistory().probes()[0][-1].at}" in run("--passive").stdout


def test_a_device_that_is_asked_for_and_missing() -> None:
    for asked in ("cuda", "cuda:0", "cuda:7"):
        done = run("--device", asked)
        assert done.exit_code == exit_status.UNAVAILABLE, asked
    with pytest.raises(Exception, match=r"did you mean 'cuda'") as refused:
        CliRunner().invoke(app, ["health", "--device", "cudda"], catch_exceptions=False)
    assert type(refused.value).__name__ == "UsageError"


def test_only_the_devices_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1))
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    found = json.loads(run("--passive", "--json", "--device", "cpu").stdout)
    assert set(found["units"]) == {"machine"}
    found = json.loads(run("--passive", "--json", "--device", "cuda").stdout)
    assert set(found["units"]) == {"GPU 0", "GPU 1"}


def test_one_gpu_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda:0 is the GPU that NVML lists second."""
    with_gpus(monkeypatch, gpu(0), gpu(1))
    infos = {0: "GPU-1", 1: "GPU-0"}
    monkeypatch.setattr(machine_gpu, "driver_problem", lambda: None)
    monkeypatch.setattr(machine_gpu, "device_count", lambda: 2)
    monkeypatch.setattr(machine_gpu, "device_info", lambda index: type("Info", (), {"uuid": infos[index]}))
    registry = load().registry
    device = _present(registry.device("cuda:0", ""))
    report = examined([device], Path("results"))
    assert set(report.units) == {"GPU 1"}
    assert [list(each) for each in PROBED] == [["GPU 1"]], "the probe's finding is of the same unit"


def numbered_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """cuda:0 and cuda:1, which are GPU 0 and GPU 1."""
    monkeypatch.setattr(machine_gpu, "driver_problem", lambda: None)
    monkeypatch.setattr(machine_gpu, "device_count", lambda: 2)
    monkeypatch.setattr(machine_gpu, "device_info", lambda index: type("Info", (), {"uuid": f"GPU-{index}"}))
    registry = load().registry
    return [_present(registry.device(name, "")) for name in ("cuda:0", "cuda:1")]


def test_a_probe_of_one_gpu_leaves_what_another_had_to_the_next_that_checks_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1))
    first, second = numbered_gpus(monkeypatch)
    for device in (first, second):
        examined([device], Path("results"), passive=True)
    errors = {(0, 0): 5, (1, 0): 0, (0, 1): 5, (1, 1): 2}
    with_gpus(monkeypatch, gpu(0), gpu(1, TotalEccErrors=errors))
    (tmp_path / "kmsg").write_text(XID_79.format(at=5, number=79).replace("3b", "3c"))
    assert examined([first], Path("results"), passive=True).overall is Severity.OK
    report = examined([second], Path("results"), passive=True)
    assert "2 new uncorrected errors" in of(report, "memory errors", "GPU 1").found
    assert of(report, "XID errors", "GPU 1").severity is Severity.CRITICAL
    report = examined([second], Path("results"), passive=True)
    assert of(report, "memory errors", "GPU 1").severity is Severity.OK, "nothing new"
    assert of(report, "XID errors", "GPU 1").severity is Severity.WARNING


def test_the_log_of_another_start_hides_no_xid_of_a_gpu_that_was_not_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_gpus(monkeypatch, gpu(0), gpu(1))
    devices = numbered_gpus(monkeypatch)
    (tmp_path / "kmsg").write_text(XID_79.format(at=900, number=31).replace("3b", "3c"))
    examined(devices, Path("results"), passive=True)
    monkeypatch.setattr(examine, "boot_id", lambda: "a later start")
    (tmp_path / "kmsg").write_text(XID_79.format(at=5, number=48).replace("3b", "3c"))
    examined(devices[:1], Path("results"), passive=True)
    report = examined(devices[1:], Path("results"), passive=True)
    assert of(report, "XID errors", "GPU 1").severity is Severity.CRITICAL


def test_a_probe_of_the_gpus_leaves_the_heat_of_the_cpu_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = {"core_thermal_throttle": 0}
    monkeypatch.setattr(cpu_sensors, "throttled_ns", lambda: dict(throttled))
    every = load().registry.every()
    others = [device for device in every if device.type != "cpu"]
    examined(every, Path("results"), passive=True)
    throttled["core_thermal_throttle"] = 3_000_000
    examined(others, Path("results"), passive=True)
    report = examined(every, Path("results"), passive=True)
    assert "core_thermal_throttle for 3.00 ms" in of(report, "CPU", "machine").found


@pytest.mark.parametrize("name", ["results \u2028 folder", "results \x85", "results \udcff", "results \n"])
def test_any_name_of_a_folder_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**given: Any) -> Any:
        raise OSError(28, f"no room in {name}")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    for _ in range(2):
        assert examined(load().registry.every(), Path(name), passive=True).overall is Severity.CRITICAL
    probes, broken = HealthHistory().probes()
    assert [each.overall for each in probes] == [Severity.CRITICAL] * 2
    assert broken == 0


def _present(device: Device) -> Device:
    from dataclasses import replace

    return replace(device, missing=lambda: None, simulated=lambda: False)


def test_the_history_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No probe of this machine" in run("--history").stdout
    with_gpus(monkeypatch, gpu(0, Temperature=88))
    run("--passive")
    text = run("--history").stdout
    assert "warning GPU 0: temperature: 88 °C" in text
    (probe,) = json.loads(run("--history", "--json").stdout)
    assert (probe["boot"], probe["gpus"]["GPU-0"]["corrected"]) == (boot_id(), 0)
    assert len(HealthHistory().probes()[0]) == 1, "showing it probes nothing"


def test_the_severity_of_nothing() -> None:
    assert overall([]) is Severity.OK
    assert overall([HealthFinding(unit="", name="", severity=Severity.ABSENT, found="")]) is Severity.OK


def test_xid_of_a_gpu_that_is_not_listed_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_gpus(monkeypatch, gpu(1))
    (tmp_path / "kmsg").write_text(XID_79.format(at=5, number=79) + XID_79.format(at=6, number=13))
    report = probe()
    assert of(report, "XID errors", "GPU 0").severity is Severity.OK
    found = of(report, "XID errors", "machine")
    assert (found.severity, found.found.count("XID")) == (Severity.WARNING, 1)
    assert "0000:3b:00), 1 new" in found.found
    assert ", 0 new" in of(probe(), "XID errors", "machine").found


def test_the_program_in_the_guide_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    page = (Path(__file__).parents[3] / "docs" / "guides" / "health.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("TRITMARK_CUDA", "simulator")
    exec(compile(code, "docs/guides/health.md", "exec"), {"x": np.ones((2, 64), np.float32)})
    launches, nbytes, rate, fragmentation = capsys.readouterr().out.split()
    assert (int(launches) >= 1, int(nbytes) >= 512, float(rate), float(fragmentation)) == (True, True, 0.0, 0.0)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_driver_that_hangs_ends_the_probe(options: list[str]) -> None:
    code = (
        "from time import sleep; from tritmark.harness.cli import app, health as _; import sys;"
        "here = sys.modules['tritmark.harness.cli.health']; here.LONGEST_S = 0.2;"
        f"here._devices = lambda glob: sleep(600); app(['health', *{options!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == exit_status.FAILED, done.stderr
    assert "no answer within 0 s" in done.stdout
    if options:
        assert json.loads(done.stdout)["overall"] == "critical"
    (kept,) = HealthHistory().probes()[0]
    assert (kept.overall, kept.findings[0].name) == (Severity.CRITICAL, "probe")


def test_a_probe_that_did_not_end_keeps_what_the_next_one_compares_with(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, gpu(0))
    probe()
    assert examine.keep_unanswered(examine.unanswered(20.0)) == ""
    assert HealthHistory().probes()[0][-1].overall is Severity.CRITICAL
    with_gpus(monkeypatch, gpu(0, TotalEccErrors={(0, 0): 0, (1, 0): 0, (0, 1): 0, (1, 1): 2}))
    assert "2 new uncorrected errors" in of(probe(), "memory errors").found
