"""The machine of a result: what it can do, its identity, and the memory that was held."""

from __future__ import annotations

import resource
from datetime import UTC, datetime
from typing import Any

import torch

from tritmark.harness.measure.ceilings import measure_ceilings
from tritmark.harness.models import Rates
from tritmark.harness.providers import installed
from tritmark.harness.record.facts import machine_facts

_MEMORY, _BYTES, _OPERATIONS = "memory", "bytes/s", "operations/s"


def measured_limits(kind: str, threads: int) -> Rates:
    """The highest rates of the device's probes, on the CPU with at most `threads` threads."""
    facts = measure_ceilings(installed().registry.devices[kind])
    facts = [each for each in facts if kind != "cpu" or each.threads <= threads]
    read = [
        each.rate for each in facts if each.unit == _BYTES and each.name.startswith("read") and each.level == _MEMORY
    ]
    compute = [each.rate for each in facts if each.unit == _OPERATIONS]
    return Rates(read=max(read, default=None), compute=max(compute, default=None))


def machine_of() -> dict[str, str]:
    """The fields of ModelResult about the machine and the time."""
    found = machine_facts()
    gpus = "".join(f", {each.name}" for each in found.gpus)
    return {
        "machine": found.id,
        "machine_name": f"{found.cpu}, {found.usable_cores} cores{gpus}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def peak_nbytes(device: Any) -> int:
    """The most memory held so far: of the process, on a GPU by PyTorch's allocator."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
