"""Recovery on a GPU from kernels that fail there: a trap, an illegal address, a launch with too many threads, one that
never ends, and memory that other programs hold, also for a product of a batch.

    python suites/large/recover_on_gpu.py [--seconds 20]

`--seconds` is the time limit of an attempt, which includes the start of the driver. Each call must end with the codes
of the reference, and the next call on the GPU must work. Prints a line for each. Exits with status 1 if a result is
incorrect or refused, if a failure has another class than expected, or if the GPU stays lost. With
TRITMARK_CUDA=simulator it tests itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from time import perf_counter
from typing import Any

import numpy as np
import recover_kernels

from tritmark.harness.recovery import FailureKind, Strategy, UnrecoveredError
from tritmark.kernels import i2s_quantize, matmul_batch, register
from tritmark.kernels.cuda.context import cuda_context, simulated
from tritmark.kernels.recovering import close_workers, last_recoveries

RNG = np.random.default_rng(54)
LEFT = 96 << 20
"""Bytes that are left to the worker once other memory is held."""
LARGE = 30_000_000
"""Elements that do not fit into LEFT. From 128 MiB on, arrays are copied in chunks and would fit."""
BLOCKS = (8 << 30, 512 << 20, 32 << 20)
"""Bytes of the allocations that hold memory."""
EXPECTED = {
    "trap": {FailureKind.DEVICE_FAULT},
    "illegal_address": {FailureKind.DEVICE_FAULT},
    "endless": {FailureKind.HANG},
    "many_threads": {FailureKind.LAUNCH_REFUSED},
}


def hold() -> list[Any]:
    """Take the memory of the GPU, except LEFT."""
    backend, held = cuda_context().backend, []
    for block in BLOCKS:
        while backend.memory()[0] > LEFT + block:
            held.append(backend.allocate(block))
    return held


def reference(x: Any, scale: float) -> Any:
    return np.rint(np.clip(x / np.float32(scale), np.float32(-2), np.float32(1))).astype(np.int8)


class Check:
    """Calls, and whether all were as expected."""

    def __init__(self) -> None:
        self.failed = False

    def call(
        self, name: str, x: Any, variant: str | None, kinds: set[FailureKind], least: tuple[Strategy, ...]
    ) -> None:
        """One call; `kinds`: of its failure, none for a sound kernel; `least`: strategies of which one must work."""
        expected, begun = reference(x, 0.5), perf_counter()
        try:
            q = i2s_quantize(x, 0.5, device="cuda", variant=variant, on_error="recover")
        except UnrecoveredError as error:
            self.report(name, f"refused: {error}", False)
            return
        seconds, right = perf_counter() - begun, bool((q == expected).all())
        found = {each.diagnosis.kind for each in last_recoveries()}
        used = {each.strategy for each in last_recoveries()}
        good = right and found == kinds and (not least or bool(used & set(least)))
        how = "; ".join(f"{each} ({each.diagnosis.found})" for each in last_recoveries()) or "no failure"
        self.report(name, f"{'right' if right else 'WRONG'} after {seconds:.2f} s: {how}", good)

    def batch(self, rows: int) -> None:
        """Two products, of which the second does not fit into memory: it is named, and the first is no failure."""
        small, large = (np.ones((each, each), np.float32) for each in (16, rows))
        try:
            matmul_batch([(small, small), (large, large)], mode="fp32", on_error="recover")
        except UnrecoveredError as error:
            found = error.recovery
            good = found.index == 1 and found.diagnosis.kind is FailureKind.OUT_OF_MEMORY
            self.report("batch with little memory", str(found), good and last_recoveries() == (found,))
        else:
            self.report("batch with little memory", "no failure", False)

    def report(self, name: str, text: str, good: bool) -> None:
        self.failed |= not good
        print(f"{'ok' if good else 'FAILED':7}{name}: {text}", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=20)
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    register(*recover_kernels.VARIANTS)
    check = Check()
    x = RNG.standard_normal(100_000, np.float32)
    for name in (None, "sound"):  # compiles without the time limit below
        check.call(name or "selected", x, name, set(), ())
    os.environ["TRITMARK_RECOVER_SECONDS"] = str(asked.seconds)
    for name, kinds in EXPECTED.items():
        on_gpu = (Strategy.CONTEXT_ANEW, Strategy.DEVICE_RESET, Strategy.OTHER_KERNEL)
        check.call(name, x, name, kinds, on_gpu)
        check.call(f"after {name}", x, None, set(), ())
    if simulated():
        os.environ["TRITMARK_SIMULATOR_MEMORY"] = str(2 * x.nbytes // 3)
        large, held = x, []
    else:
        large, held = RNG.standard_normal(LARGE, np.float32), hold()
    check.call("little memory", large, None, {FailureKind.OUT_OF_MEMORY}, (Strategy.REDUCED_LAUNCH, Strategy.CPU))
    check.batch(300 if simulated() else 6000)
    del held
    os.environ.pop("TRITMARK_SIMULATOR_MEMORY", None)
    check.call("after little memory", x, None, set(), ())
    products = matmul_batch([(np.eye(16, dtype=np.float32),) * 2] * 2, mode="fp32", on_error="recover")
    check.report("batch after little memory", "two products", all((each == np.eye(16)).all() for each in products))
    close_workers()
    return int(check.failed)


if __name__ == "__main__":
    sys.exit(main())
