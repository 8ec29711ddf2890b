"""Checks of NVIDIA GPUs: presence, driver, PyCUDA, access to counters; and the compilers of all devices."""

from __future__ import annotations

from pathlib import Path

from tritmark.harness.doctor.check import Check, State
from tritmark.harness.errors import DeviceError, TritmarkError
from tritmark.harness.machine import gpu
from tritmark.harness.machine.files import SYS, line
from tritmark.harness.providers import Installed
from tritmark.harness.record import HOST

DEV, PROC = Path("/dev"), Path("/proc")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


def present(sys: Path = SYS, dev: Path = DEV) -> bool:
    """Whether this machine has an NVIDIA GPU, with or without a driver."""
    if any(dev.glob("nvidia[0-9]*")):
        return True
    devices = (sys / "bus/pci/devices").glob("*")
    return any(
        line(each / "vendor") == _NVIDIA and (line(each / "class") or "").startswith(_DISPLAY) for each in devices
    )


def driver(there: bool) -> Check:
    """NVIDIA's driver. `there`: the machine has a GPU."""
    means = "GPU kernels need NVIDIA's driver"
    problem = gpu.driver_problem()
    if problem is None:
        info = gpu.device_info()
        return Check("GPU driver", State.OK, f"{info.driver}, {info.name}", means)
    if there:
        return Check(
            "GPU driver", State.MEND, problem.found, f"{means}: the GPU of this machine is left out", problem.next_step
        )
    return Check(
        "GPU driver",
        State.ABSENT,
        "no GPU",
        "GPU kernels are left out, and `--device cuda` fails",
        gpu.SIMULATE,
    )


def packages(there: bool) -> Check:
    """PyCUDA and cuda-bindings."""
    means = "PyCUDA loads and launches the kernels"
    problem = gpu.package_problem()
    if problem is None and gpu.driver_problem() is None:  # without a driver PyCUDA cannot be imported
        problem = gpu._import_problem()
    if problem is None:
        from importlib.metadata import version

        return Check("PyCUDA", State.OK, version("pycuda"), means)
    return Check("PyCUDA", State.MEND if there else State.ABSENT, problem.found, means, problem.next_step)


def toolkits(installed: Installed, there: bool) -> list[Check]:
    """The compiler of each device other than the host that has one."""
    found = []
    for device in installed.registry.devices.values():
        if device.type == HOST:
            continue
        name, means = (
            f"{device.type} compiler",
            f"{device.type} kernels are compiled on the machine that runs them, once for each device",
        )
        try:
            said = device.compiler()
        except DeviceError as error:
            found.append(Check(name, State.MEND if there else State.ABSENT, error.found, means, error.next_step))
        except TritmarkError as error:
            found.append(Check(name, State.MEND, str(error), means, "fix the reported error"))
        else:
            if said:
                found.append(Check(name, State.OK, f"{said} (simulator)" if device.simulated() else said, means))
    return found


def counters(proc: Path = PROC) -> list[Check]:
    """Whether Nsight Compute works without root; no check without a driver."""
    reported = line(proc / "driver/nvidia/params")
    if reported is None:
        return []
    means = "Nsight Compute reads a GPU's counters; without them, advice uses only times and code"
    if "RmProfilingAdminOnly: 1" in reported:
        mend = (
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
            "/etc/modprobe.d/nvidia-profiling.conf, then reboot"
        )
        return [Check("GPU counters", State.ABSENT, "for administrators only", means, mend)]
    return [Check("GPU counters", State.OK, "for all users", means)]
