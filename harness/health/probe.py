"""Uses a device as a program does, in a process of its own: allocates, copies, runs a small kernel, and frees.

`python -m tritmark.harness.health.probe DEVICE` prints the result as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tritmark.harness.errors import InsufficientMemoryError, TritmarkError
from tritmark.harness.spec import Device

NBYTES = 1 << 24
"""Bytes that are copied to the device and back."""
SIMULATED_NBYTES = 1 << 12
"""The same in a simulator, which is thousands of times slower."""
ROUNDS = 2
"""After a first use that fills the pool; these must find everything there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The result of using a device."""

    error: str = ""
    """Why it could not be used."""
    full: bool = False
    """The error is that too little memory is free."""
    simulated: bool = False
    nbytes: int = 0
    differing: int = 0
    """Bytes that came back from the device with another value."""
    kernel: str = ""
    """What ran there; "" if nothing could run."""
    leaked: int | None = None
    """Bytes still in use after everything was freed; None if the device does not count."""
    grown: int | None = None
    """Bytes that the pool took from the device when the same work was repeated; None if the device does not count."""
    fragmentation: float | None = None
    """Share of the pool that no request can get, while the memory was in use."""
    problems: tuple[str, ...] = ()
    """What the device's own check of its memory reports."""


def probed(device: Device, rounds: int = ROUNDS) -> Probed:
    """Use the device `rounds` times, and look at its memory. Never raises."""
    try:
        return _probed(device, rounds)
    except InsufficientMemoryError as problem:
        return Probed(error=str(problem), full=True, simulated=device.simulated())
    except Exception as problem:  # of the driver, the device or a package: each is a finding
        text = str(problem) if isinstance(problem, TritmarkError) else f"{type(problem).__name__}: {problem}"
        return Probed(error=text, simulated=device.simulated())


def _probed(device: Device, rounds: int) -> Probed:
    assert device.memory is not None
    memory, rng = device.memory(), np.random.default_rng(0)
    nbytes = SIMULATED_NBYTES if device.simulated() else NBYTES
    values = rng.integers(0, 256, nbytes, dtype=np.uint8)
    fragmentation, kernel = None, ""
    differing, _, _ = _round(device, memory, values)  # what the process keeps for all later work is no leak
    gc.collect()
    before = _held(device)
    with memory.watch() or _Uncounted() as watch:
        for _ in range(rounds):
            bad, kernel, share = _round(device, memory, values)
            differing, fragmentation = max(differing, bad), share if share is not None else fragmentation
            gc.collect()
        leaked = watch.held
    return Probed(
        simulated=device.simulated(),
        nbytes=nbytes,
        differing=differing,
        kernel=kernel,
        leaked=leaked,
        grown=None if before is None else max(0, (_held(device) or 0) - before),
        fragmentation=fragmentation,
        problems=tuple(device.memory_problems()) if device.memory_problems is not None else (),
    )


def _round(device: Device, memory: Any, values: np.ndarray[Any, Any]) -> tuple[int, str, float | None]:
    """One use: bytes that differ, what ran, and the fragmentation meanwhile."""
    array = memory.allocate(values.nbytes)
    memory.write(array, values)
    probe = next((each for each in device.ceilings().values() if each.name == "read"), None)
    if probe is not None:
        launch = probe.bind(array, device.cores())
        launch.run()
    back = np.empty_like(values)
    memory.read(array, back)
    share = device.stats().pool.fragmentation if device.stats is not None else None
    return int(np.count_nonzero(back != values)), launch.ran if probe is not None else "", share


def _held(device: Device) -> int | None:
    return None if device.stats is None else device.stats().pool.held


class _Uncounted:
    """In place of the watch of a memory that does not count."""

    held = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *problem: object) -> None:
        pass


def main(name: str) -> None:
    """Print the result for the device of that name."""
    from tritmark.harness.providers import load

    print(json.dumps(asdict(probed(load().registry.device(name, "tritmark health")))))


if __name__ == "__main__":
    main(sys.argv[1])
