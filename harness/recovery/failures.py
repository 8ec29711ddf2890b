"""Classifies how a kernel failed: by the signal that ended its process, the driver's code, or the type of its
exception."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from tritmark.harness.errors import (
    CompileError,
    DeviceError,
    DeviceFaultError,
    DeviceUnavailableError,
    Failure,
    LaunchError,
    WorkerError,
)


class FailureKind(StrEnum):
    """How a kernel failed, in the distinctions that decide what to do next."""

    ILLEGAL_INSTRUCTION = "illegal instruction"
    """SIGILL: the processor does not have an instruction of the kernel."""
    SEGMENTATION_FAULT = "segmentation fault"
    """SIGSEGV: an address outside of the process's memory, or an unaligned one of an aligned instruction."""
    BUS_ERROR = "bus error"
    """SIGBUS: an unaligned address, or a page that cannot be read."""
    ARITHMETIC = "arithmetic exception"
    """SIGFPE: an integer division by zero, or an unmasked floating-point exception."""
    DIED = "died"
    """Another signal, or an exit, ended the process."""
    HANG = "hang"
    """It did not return within the time limit."""
    OUT_OF_MEMORY = "out of memory"
    LAUNCH_REFUSED = "launch refused"
    """The device refused the launch; nothing ran."""
    DEVICE_FAULT = "device fault"
    """The kernel broke while it ran on the device, and its context is lost."""
    CONTEXT_LOST = "context lost"
    """The context of the device is unusable, not through this kernel."""
    HARDWARE = "hardware"
    """The device or its driver failed."""
    NOT_LOADED = "not loaded"
    """The kernel does not compile, or the driver does not load it."""
    NUMERICAL = "numerical"
    """A NaN or an infinity in an output that the contract excludes. The kernel is incorrect, so there is no retry."""
    ERROR = "error"
    """Any other exception."""


SIGNALS = {
    signal.SIGILL: FailureKind.ILLEGAL_INSTRUCTION,
    signal.SIGSEGV: FailureKind.SEGMENTATION_FAULT,
    signal.SIGBUS: FailureKind.BUS_ERROR,
    signal.SIGFPE: FailureKind.ARITHMETIC,
}

CODES: dict[int, tuple[str, FailureKind]] = {
    1: ("CUDA_ERROR_INVALID_VALUE", FailureKind.LAUNCH_REFUSED),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", FailureKind.OUT_OF_MEMORY),
    4: ("CUDA_ERROR_DEINITIALIZED", FailureKind.CONTEXT_LOST),
    200: ("CUDA_ERROR_INVALID_IMAGE", FailureKind.NOT_LOADED),
    201: ("CUDA_ERROR_INVALID_CONTEXT", FailureKind.CONTEXT_LOST),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", FailureKind.NOT_LOADED),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", FailureKind.HARDWARE),
    218: ("CUDA_ERROR_INVALID_PTX", FailureKind.NOT_LOADED),
    220: ("CUDA_ERROR_NVLINK_UNCORRECTABLE", FailureKind.HARDWARE),
    226: ("CUDA_ERROR_CONTAINED", FailureKind.HARDWARE),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", FailureKind.DEVICE_FAULT),
    701: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", FailureKind.LAUNCH_REFUSED),
    702: ("CUDA_ERROR_LAUNCH_TIMEOUT", FailureKind.HANG),
    709: ("CUDA_ERROR_CONTEXT_IS_DESTROYED", FailureKind.CONTEXT_LOST),
    710: ("CUDA_ERROR_ASSERT", FailureKind.DEVICE_FAULT),
    714: ("CUDA_ERROR_HARDWARE_STACK_ERROR", FailureKind.DEVICE_FAULT),
    715: ("CUDA_ERROR_ILLEGAL_INSTRUCTION", FailureKind.DEVICE_FAULT),
    716: ("CUDA_ERROR_MISALIGNED_ADDRESS", FailureKind.DEVICE_FAULT),
    717: ("CUDA_ERROR_INVALID_ADDRESS_SPACE", FailureKind.DEVICE_FAULT),
    718: ("CUDA_ERROR_INVALID_PC", FailureKind.DEVICE_FAULT),
    719: ("CUDA_ERROR_LAUNCH_FAILED", FailureKind.DEVICE_FAULT),
    720: ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", FailureKind.LAUNCH_REFUSED),
    999: ("CUDA_ERROR_UNKNOWN", FailureKind.HARDWARE),
}
"""CUresults of cuda.h that a kernel or its launch can cause."""

ENDS_CONTEXT = frozenset(
    {FailureKind.DEVICE_FAULT, FailureKind.CONTEXT_LOST, FailureKind.HARDWARE, FailureKind.HANG, FailureKind.DIED}
)
"""After these, a process must not use the device again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is known about a failure."""

    kind: FailureKind
    found: str
    """One sentence."""
    code: str = ""
    """The name of the signal, of the driver's code, or of the exception's type."""
    detail: str = ""
    """The end of the process's output, or of the traceback."""


def of_code(code: int) -> tuple[str, FailureKind]:
    """Name and class of a driver's code. An unknown code counts as a failure of the device."""
    return CODES.get(code, (f"CUDA error {code}", FailureKind.HARDWARE))


def of_exception(error: BaseException, detail: str = "") -> Diagnosis:
    """The diagnosis of an exception, in the process that raised it."""
    code = int(getattr(error, "code", 0) or 0) if isinstance(error, DeviceError) else 0
    name, kind = type(error).__name__, FailureKind.ERROR
    if isinstance(error, MemoryError):
        kind = FailureKind.OUT_OF_MEMORY
    elif code:
        name, kind = of_code(code)
    elif isinstance(error, DeviceFaultError):
        kind = FailureKind.DEVICE_FAULT
    elif isinstance(error, LaunchError):
        kind = FailureKind.LAUNCH_REFUSED
    elif isinstance(error, CompileError):
        kind = FailureKind.NOT_LOADED
    elif isinstance(error, DeviceUnavailableError | DeviceError):
        kind = FailureKind.CONTEXT_LOST
    try:
        text = str(error)
    except Exception:  # an exception whose __str__ raises
        text = "(no text)"
    return Diagnosis(kind=kind, found=f"{type(error).__name__}: {text}"[:2000], code=name, detail=detail[-4000:])


def of_process(error: WorkerError, exitcode: int | None) -> Diagnosis:
    """The diagnosis of a process that died, did not answer or answered nonsense."""
    kind, code = FailureKind.DIED, "" if exitcode is None else f"exit status {exitcode}"
    if error.kind is Failure.HANG:
        kind, code = FailureKind.HANG, "time limit"
    elif error.kind is Failure.MEMORY:
        kind, code = FailureKind.OUT_OF_MEMORY, "memory limit"
    elif exitcode is not None and exitcode < 0:
        number = -exitcode
        known = number in list(signal.Signals)
        kind = SIGNALS.get(signal.Signals(number), FailureKind.DIED) if known else FailureKind.DIED
        code = signal.Signals(number).name if known else f"signal {number}"
    return Diagnosis(kind=kind, found=str(error)[:2000], code=code, detail=error.log[-4000:])
