"""NVIDIA's GPU: whether there is one, its driver, PyCUDA, who may read its counters; and what compiles kernels for
any device."""

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
    """Whether an NVIDIA GPU is in this machine, whatever its software says."""
    if any(dev.glob("nvidia[0-9]*")):
        return True
    devices = (sys / "bus/pci/devices").glob("*")
    return any(
        line(each / "vendor") == _NVIDIA and (line(each / "class") or "").startswith(_DISPLAY) for each in devices
    )


def driver(there: bool) -> Check:
    """NVIDIA's driver. `there`: a GPU is in the machine."""
    means = "kernels for the GPU need NVIDIA's driver"
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
        "kernels for the GPU are left out, and `--device cuda` fails",
        gpu.SIMULATE,
    )


def packages(there: bool) -> Check:
    """PyCUDA and cuda-bindings."""
    means = "PyCUDA loads and launches the kernels"
    problem = gpu.package_problem()
    if problem is None and gpu.driver_problem() is None:  # without a driver it cannot be imported, and is not to blame
        problem = gpu._import_problem()
    if problem is None:
        from importlib.metadata import version

        return Check("PyCUDA", State.OK, version("pycuda"), means)
    return Check("PyCUDA", State.MEND if there else State.ABSENT, problem.found, means, problem.next_step)


def toolkits(installed: Installed, there: bool) -> list[Check]:
    """What compiles kernels for each device that is not the host and has something that does."""
    found = []
    for device in installed.registry.devices.values():
        if device.type == HOST:
            continue
        name, means = (
            f"{device.type} compiler",
            f"kernels for {device.type} are compiled where they run, once for each device",
        )
        try:
            said = device.compiler()
        except DeviceError as error:
            found.append(Check(name, State.MEND if there else State.ABSENT, error.found, means, error.next_step))
        except TritmarkError as error:
            found.append(Check(name, State.MEND, str(error), means, "mend what it says"))
        else:
            if said:
                found.append(Check(name, State.OK, f"{said} (simulator)" if device.simulated() else said, means))
    return found


def counters(proc: Path = PROC) -> list[Check]:
    """Whether Nsight Compute may be used without being root; nothing where no driver says so."""
    reported = line(proc / "driver/nvidia/params")
    if reported is None:
        return []
    means = "Nsight Compute reads a GPU's counters; without them advice rests on times and code alone"
    if "RmProfilingAdminOnly: 1" in reported:
        mend = (
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
            "/etc/modprobe.d/nvidia-profiling.conf, then reboot"
        )
        return [Check("GPU counters", State.ABSENT, "for administrators only", means, mend)]
    return [Check("GPU counters", State.OK, "for everybody", means)]
