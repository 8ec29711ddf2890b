"""The next step for each kind of failure."""

from __future__ import annotations

from tritmark.harness.recovery.failures import FailureKind

ADVICE = {
    FailureKind.ILLEGAL_INSTRUCTION: "compare `tritmark list` with the machine's instruction sets; in a virtual "
    "machine, the host may mask some; TRITMARK_FORCE_ISA selects a lower set",
    FailureKind.SEGMENTATION_FAULT: "run the kernel through `tritmark check`: its memory guards show the address",
    FailureKind.BUS_ERROR: "pass aligned arrays; check that files behind memory maps were not truncated",
    FailureKind.ARITHMETIC: "check the kernel for integer divisions, and the program for unmasked exceptions",
    FailureKind.DIED: "read the end of its output; `dmesg` shows whether the system ended it",
    FailureKind.HANG: "raise TRITMARK_RECOVER_SECONDS if the work is large; otherwise check the kernel for a deadlock",
    FailureKind.OUT_OF_MEMORY: "work on smaller parts, or free other arrays and end other processes",
    FailureKind.LAUNCH_REFUSED: "launch fewer threads a block or less shared memory",
    FailureKind.DEVICE_FAULT: "run the kernel under compute-sanitizer to find the address",
    FailureKind.CONTEXT_LOST: "check the device with nvidia-smi; end other programs that reset it",
    FailureKind.HARDWARE: "check the device's error counters (nvidia-smi -q), and its driver",
    FailureKind.NOT_LOADED: "update the driver, or set TRITMARK_NVCC to an older nvcc; `tritmark doctor` shows both",
    FailureKind.NUMERICAL: "do not use this kernel: run `tritmark check` on it, and report it to its author",
    FailureKind.ERROR: "read the traceback",
}
"""By failure. Complete; see the tests."""
