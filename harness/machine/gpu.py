"""GPUs of this machine: availability, facts and health. All of tritmark asks here.

Nothing here creates a context, which costs memory on the device. A process that has called the driver must not be
forked for GPU work, since the driver does not start again in the child. Start such workers by spawn.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib.util import find_spec
from uuid import UUID

from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.extras import install
from tritmark.harness.machine import libcuda, nvml
from tritmark.harness.machine.nvml import Health

__all__ = [
    "DeviceInfo",
    "Health",
    "device_count",
    "device_info",
    "faked",
    "gpu_available",
    "gpu_compiled",
    "health",
    "mode_problem",
    "problem",
    "reaches",
    "why_not",
]

FAKES = ("TRITMARK_GPU_FAKE", "BITNET_GPU_FAKE")
"""Environment variables for tests that decide whether there is a GPU: "cuda" or "gpu" for yes, other values for no. The
first non-empty one counts."""

SIMULATE = "or test without a GPU: TRITMARK_CUDA=simulator"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """Facts of a GPU for the Record. Sizes in bytes; 0 if the driver does not report one."""

    index: int
    name: str
    uuid: str
    """As in nvidia-smi: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx; SIMULATOR for the simulator."""
    capability: tuple[int, int]
    memory: int
    l2: int
    sms: int
    """Multiprocessors."""
    clock_hz: int
    """Maximum."""
    memory_clock_hz: int
    memory_bus_bits: int
    driver: str = ""
    """Versions of the driver and of the CUDA that it supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo(GpuFacts):
    """Facts of a GPU, including its limits for kernel launches."""

    warp: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_block: int
    registers_per_sm: int
    shared_per_block: int
    """Static limit."""
    shared_per_block_optin: int
    """With cuFuncSetAttribute."""
    shared_per_sm: int

    @property
    def fp16(self) -> bool:
        """Half-precision arithmetic (compute capability 6.1 or higher: specification, 3.2)."""
        return self.capability >= (6, 1)

    @property
    def bf16(self) -> bool:
        """bfloat16 arithmetic (8.0 or higher)."""
        return self.capability >= (8, 0)

    @property
    def arch(self) -> str:
        """The name for nvcc, such as sm_90."""
        major, minor = self.capability
        return f"sm_{major}{minor}"

    @property
    def peak_bandwidth(self) -> float | None:
        """Peak memory bandwidth in bytes/s, from clock and bus width (two transfers a clock); None if unknown."""
        return (
            2.0 * self.memory_clock_hz * self.memory_bus_bits / 8
            if self.memory_clock_hz and self.memory_bus_bits
            else None
        )


def faked() -> str | None:
    """The variable of FAKES that is set, with its value, such as "TRITMARK_GPU_FAKE=cuda"; None if none is."""
    return next((f"{name}={value}" for name in FAKES if (value := os.environ.get(name, "").strip())), None)


def _faked_yes(fake: str) -> bool:
    return fake.partition("=")[2].lower() in {"cuda", "gpu"}


def gpu_compiled() -> bool:
    """Whether PyCUDA is installed, without which no CUDA kernel can be launched."""
    return find_spec("pycuda") is not None


def gpu_available() -> bool:
    """Whether there is a driver and a device, or FAKES pretend so."""
    fake = faked()
    return _faked_yes(fake) if fake else driver_problem() is None


def why_not(index: int = 0) -> str | None:
    """Why CUDA kernels cannot run on the GPU with this number, and the next step; None if they can."""
    found = problem(index)
    return None if found is None else str(found)


def problem(index: int = 0) -> DeviceUnavailableError | None:
    """Like why_not, as an exception to raise: PyCUDA is not installed, no driver, a driver that is too old, no device,
    or a busy device."""
    fake = faked()
    if fake:
        return (
            None
            if _faked_yes(fake)
            else DeviceUnavailableError(f"{fake} hides the GPU", next_step="unset it to use the machine's GPU")
        )
    return package_problem() or driver_problem() or mode_problem(index) or _import_problem()


def package_problem() -> DeviceUnavailableError | None:
    """A package that is not installed."""
    if not gpu_compiled():
        build = f"{install('cuda')} (pip builds it and needs CUDA's headers)"
        return DeviceUnavailableError("PyCUDA is not installed", next_step=f"{build}, {SIMULATE}")
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return DeviceUnavailableError("cuda-bindings is not installed", next_step=f"{install('cuda')}, {SIMULATE}")
    return None


def driver_problem() -> DeviceUnavailableError | None:
    """No driver, or one that does not work, or no device."""
    try:
        libcuda.call("cuInit", 0)
        count = device_count()
    except OSError as why:
        return DeviceUnavailableError(
            f"no NVIDIA driver: {libcuda.LIBRARY} cannot be loaded ({why}){_decided()}",
            next_step=f"install NVIDIA's driver (start a container with --gpus all), {SIMULATE}",
        )
    except libcuda.DriverError as why:
        found, step = _CODES.get(
            why.code,
            ("the NVIDIA driver does not start", "run nvidia-smi for details, and reboot after a driver update"),
        )
        return DeviceUnavailableError(f"{found}: {why}{_decided()}", next_step=f"{step}, {SIMULATE}")
    return None if count else _no_device()


_CODES = {
    34: (
        "no NVIDIA driver, only the toolkit's stub of it",
        "remove the toolkit's stubs folder from LD_LIBRARY_PATH and install NVIDIA's driver",
    ),
    35: ("the NVIDIA driver is too old", "update it"),
    36: ("the NVIDIA driver is too old", "update it"),
    46: ("the GPU is busy or unavailable", "wait for the process that nvidia-smi shows, or stop it"),
    100: ("no CUDA device", "check with nvidia-smi (start a container with --gpus all)"),
    802: ("the GPU's fabric is not ready", "start nvidia-fabricmanager"),
    803: (
        "the NVIDIA driver and its library are of different versions",
        "reboot after a driver update, or update the container's library",
    ),
    804: ("the CUDA compatibility library does not support this GPU", "remove the compat folder from LD_LIBRARY_PATH"),
}
"""CUresults of cuInit: their meaning and the next step."""


def _decided() -> str:
    """A note on environment variables that affect the result."""
    visible, fake = os.environ.get("CUDA_VISIBLE_DEVICES"), faked()
    return ("" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}") + (
        f"; {fake} pretends that there is one" if fake else ""
    )


def _no_device() -> DeviceUnavailableError:
    found, step = _CODES[100]
    return DeviceUnavailableError(found + _decided(), next_step=f"{step}, {SIMULATE}")


def mode_problem(index: int) -> DeviceUnavailableError | None:
    """Why the GPU with this number cannot be used although the driver works, or None: it does not exist, or its compute
    mode admits no process or only its current one."""
    # Calls of kernels run this until the GPU is in use, so it makes as few driver calls as possible.
    if index and index >= device_count():
        return _no_such(index)
    mode = _attribute(_COMPUTE_MODE, _device(index))
    if mode not in {_PROHIBITED, _EXCLUSIVE} or (mode == _EXCLUSIVE and _ours(index)):
        return None
    info = device_info(index)
    if mode == _PROHIBITED:
        return DeviceUnavailableError(
            f"{info.name} is in compute mode PROHIBITED", next_step="an administrator can run nvidia-smi -c DEFAULT"
        )
    return busy(info) if nvml.occupied(info.uuid) else None


def busy(
    info: DeviceInfo, words: str = "another process has it for itself, compute mode EXCLUSIVE_PROCESS"
) -> DeviceUnavailableError:
    """The error for a device that cannot be used now; `words` are the driver's message."""
    return DeviceUnavailableError(
        f"{info.name} is busy or unavailable: {words}",
        next_step="wait for the process that nvidia-smi shows, choose another GPU with CUDA_VISIBLE_DEVICES, or use "
        "the CPU",
    )


def _no_such(index: int) -> DeviceUnavailableError:
    return DeviceUnavailableError(f"no GPU {index}{_decided()}", next_step=f"legal: 0 to {device_count() - 1}")


def _ours(index: int) -> bool:
    """Whether this process has a context on the device."""
    flags, active = ctypes.c_uint(), ctypes.c_int()
    libcuda.call("cuDevicePrimaryCtxGetState", _device(index), ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


def _import_problem() -> DeviceUnavailableError | None:
    """The error if PyCUDA is installed but does not load: it was built for another Python, NumPy or driver."""
    try:
        import pycuda.driver  # noqa: F401
    except ImportError as why:
        return import_problem(why)
    return None


def import_problem(why: ImportError) -> DeviceUnavailableError:
    """The error for a failed import of pycuda.driver."""
    if "undefined symbol: cu" in str(why):
        return DeviceUnavailableError(
            f"the NVIDIA driver is too old for this build of PyCUDA ({why})",
            next_step="update the driver, or rebuild PyCUDA with an older toolkit: pip install --force-reinstall "
            "--no-binary pycuda pycuda",
        )
    return DeviceUnavailableError(
        f"PyCUDA cannot be imported ({why})", next_step="pip install --force-reinstall --no-binary pycuda pycuda"
    )


def device_count() -> int:
    """Number of GPUs that this process may use. Raises OSError without a driver, libcuda.DriverError if it does not
    work."""
    libcuda.call("cuInit", 0)
    return libcuda.integer("cuDeviceGetCount")


def device_info(index: int = 0) -> DeviceInfo:
    """Facts of the GPU with this CUDA index. Raises DeviceUnavailableError."""
    found = driver_problem()
    if found is not None:
        raise found
    if not 0 <= index < device_count():
        raise _no_such(index)
    device = _device(index)
    name, memory, uuid = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.create_string_buffer(16)
    libcuda.call("cuDeviceGetName", name, len(name), device)
    libcuda.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    libcuda.call("cuDeviceGetUuid_v2", uuid, device)
    version = libcuda.integer("cuDriverGetVersion")
    driver = nvml.driver_version()
    reported = {field: _attribute(number, device) for field, number in _ATTRIBUTES.items()}
    return DeviceInfo(
        index=index,
        name=name.value.decode("utf-8", "replace"),
        uuid=f"GPU-{UUID(bytes=uuid.raw)}",
        capability=(_attribute(75, device), _attribute(76, device)),
        memory=memory.value,
        memory_clock_hz=_attribute(36, device) * 1000,
        clock_hz=_attribute(13, device) * 1000,
        driver=f"{driver + ', ' if driver else ''}CUDA {version // 1000}.{version % 1000 // 10}",
        **reported,
    )


# CUdevice_attribute of cuda.h.
_ATTRIBUTES = {
    "threads_per_block": 1,
    "shared_per_block": 8,
    "warp": 10,
    "registers_per_block": 12,
    "sms": 16,
    "memory_bus_bits": 37,
    "l2": 38,
    "threads_per_sm": 39,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block_optin": 97,
    "blocks_per_sm": 106,
}
_COMPUTE_MODE = 20
_PROHIBITED, _EXCLUSIVE = 2, 3


def _device(index: int) -> int:
    return libcuda.integer("cuDeviceGet", index)


def _attribute(number: int, device: int) -> int:
    return libcuda.integer("cuDeviceGetAttribute", number, device)


def reaches(index: int) -> tuple[int, ...]:
    """Numbers of the other GPUs whose memory this GPU can access directly; () if there are none or the driver does not
    report it."""
    try:
        others = [each for each in range(device_count()) if each != index]
        return tuple(each for each in others if libcuda.integer("cuDeviceCanAccessPeer", _device(index), _device(each)))
    except (OSError, libcuda.DriverError):
        return ()


def health(index: int = 0) -> Health:
    """Current state of the GPU with this index. Never raises; see Health.note."""
    try:
        return nvml.health(device_info(index).uuid)
    except (DeviceUnavailableError, libcuda.DriverError) as why:
        return Health(note=str(why))
