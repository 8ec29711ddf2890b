"""What tests of the C code built for aarch64 share: QEMU's processors, and programs run on them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from matmul_driver import Driver

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
BASE = frozenset({"asimd", "crc32"})
DOTS = BASE | {"atomics", "asimdrdm", "asimddp"}
PROCESSORS = {
    "cortex-a53": (BASE, ("scalar", "neon")),
    "neoverse-n1": (DOTS, ("scalar", "neon", "dotprod")),
    "max": (DOTS | {"i8mm"}, ("scalar", "neon", "dotprod", "i8mm")),
}
"""What QEMU's processors have of what is looked for, and the sets that it admits."""
RANKS = {"scalar": 0, "neon": 15, "dotprod": 25, "i8mm": 45}
NEEDS = {"gcc-aarch64-linux-gnu": COMPILER, "libc6-dev-arm64-cross": COMPILER, "qemu-user": EMULATOR}
"""Debian's packages, and what they bring."""


def skip_without_emulator() -> None:
    """Skip the module that calls this where there is none; or fail, where the tests are asked for."""
    missing = [package for package, program in NEEDS.items() if shutil.which(program) is None]
    if not missing:
        return
    next_step = f"next: apt-get install --no-install-recommends {' '.join(missing)}"
    if os.environ.get("TRITMARK_REQUIRE_AARCH64"):
        pytest.fail(next_step, pytrace=False)
    pytest.skip(next_step, allow_module_level=True)


def on(processor: str, program: Path) -> Driver:
    """The driver, running there."""
    return Driver([EMULATOR, "-cpu", processor, program])
