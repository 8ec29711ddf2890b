"""Checks `tritmark health` and the readings of sensors on a machine with a GPU: `python suites/large/health_on_gpu.py`.

Prints what NVML reports of each GPU, the result of two probes, the cost of a reading, and the time of a kernel with and
without the thread that reads sensors, interleaved. Fails if a healthy GPU is accused, a value that every GPU has is
missing, or the readings change the time by more than the noise of the same comparison without them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from statistics import median
from time import perf_counter, sleep

import numpy as np

from tritmark.harness.doctor.noise import against_itself
from tritmark.harness.health.xid import XidEvents, logged
from tritmark.harness.machine import nvml
from tritmark.harness.machine.nvml_state import states
from tritmark.harness.measure.sensor_watch import SensorWatch
from tritmark.harness.measure.statistics import order_interval
from tritmark.harness.providers import load
from tritmark.kernels import check_memory_health, i2s_quantize, performance_stats

ROUNDS = 12
NEEDED = ("temperature", "throttle", "clock_low_hz", "power")


def main() -> int:
    """Run everything; returns the number of faults."""
    faults = []
    found = states()
    print("GPUs:", len(found))
    for state in found:
        print(json.dumps(asdict(state), indent=1))
        if state.note:
            faults.append(f"GPU {state.index}: {state.note}")
        faults += [f"GPU {state.index} has no {name}" for name in NEEDED if getattr(state.reading, name) is None]
    faults += _commands()
    uuid = found[0].uuid
    begun = perf_counter()
    for _ in range(100):
        nvml.sensors(uuid)
    print(f"a reading: {(perf_counter() - begun) * 10:.3f} ms")
    faults += _throttled(uuid)
    faults += _disturbance(uuid)
    try:
        print("XID errors in the log:", logged())
    except OSError as problem:
        print("the kernel's log:", problem)
    with XidEvents() as events:
        pass
    print("events:", events.seen, events.note or "readable")
    faults += _in_process()
    print("\n".join(["FAULTS:", *faults]) if faults else "no faults")
    return len(faults)


def _commands() -> list[str]:
    """Two probes of a new history, active and passive; each is in order on a healthy machine."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for options in ([], ["--passive"], ["--device", "cuda"]):
            begun = perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "tritmark", "health", "--json", *options],
                env=os.environ | {"TRITMARK_STATE": folder},
                capture_output=True,
                text=True,
                check=False,
            )
            print(f"health {' '.join(options)}: status {done.returncode}, {perf_counter() - begun:.1f} s")
            print(done.stdout, done.stderr)
            if done.returncode:
                faults.append(f"tritmark health {' '.join(options)}: status {done.returncode}")
    return faults


def _throttled(uuid: str) -> list[str]:
    """The watch of a load of two seconds: what a timed Run stores."""
    x = np.ones(1 << 24, np.float32)
    with SensorWatch((uuid,)) as watch:
        until = perf_counter() + 2
        while perf_counter() < until:
            i2s_quantize(x, 0.5, device="cuda")
    (sensors,) = watch.summary()
    print(sensors.model_dump_json(indent=1))
    # A reading waits for the interpreter, which the load keeps busy, and the watch then pauses longer.
    return [] if sensors.during.readings >= 2 else [f"only {sensors.during.readings} readings in 2 s"]


def _disturbance(uuid: str) -> list[str]:
    """Median time of a probe with the thread over that without it, in adjacent pairs; and without it in both."""
    device = load().registry.devices["cuda"]
    ratios: dict[bool, list[float]] = {False: [], True: []}
    against_itself(device, 1)
    for _ in range(ROUNDS):
        for read in (False, True):
            times = []
            for watched in (False, read):
                with ExitStack() as stack:
                    if watched:
                        stack.enter_context(SensorWatch((uuid,)))
                    times.append(median(against_itself(device, 1).a_ns))
                sleep(0.05)
            ratios[read].append(float(np.log(times[1] / times[0])))
    intervals = {read: np.exp(order_interval(each)) - 1 for read, each in ratios.items()}
    for read, (low, high) in intervals.items():
        print(f"{'with' if read else 'without'} readings: {low:+.3%} to {high:+.3%} of the time, {ROUNDS} pairs")
    (low, high), (quiet_low, quiet_high) = intervals[True], intervals[False]
    return ["readings change the time of a kernel"] if low > max(0.0, quiet_high) or high < min(0.0, quiet_low) else []


def _in_process() -> list[str]:
    before = performance_stats()
    i2s_quantize(np.ones(1 << 20, np.float32), 0.5, device="cuda")
    found = performance_stats().since(before)
    print(found)
    memory = check_memory_health()
    print(memory)
    faults = [] if memory.healthy else list(memory.reasons)
    return faults + ([] if found.launches and not found.simulated else ["the work was not counted"])


if __name__ == "__main__":
    sys.exit(bool(main()))
