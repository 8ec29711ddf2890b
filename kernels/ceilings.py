"""What the CPU can do at most: probes that are bound and timed like kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tritmark.harness.measure.lingering import Lingering
from tritmark.harness.spec import Ceiling, Launch
from tritmark.kernels import cpu


def _bind(kind: str, buffer: Any, threads: int) -> Launch:
    usable = buffer[: buffer.nbytes // 128 * 128] if kind.startswith("copy") else buffer
    # A ceiling is the machine's, not the kernels': what is forced does not count.
    probe: Launch = cpu.native("ceilings").Probe(cpu.best("probe"), kind, usable, threads)
    return probe


def _copied(nbytes: int) -> int:
    return nbytes // 128 * 128


def _operations(nbytes: int) -> int:
    return nbytes * int(cpu.native("ceilings").DOT_OPERATIONS)


def _ceiling(kind: str, unit: str, summary: str, work: Callable[[int], int] = int) -> Ceiling:
    make = Lingering if kind in {"write", "write string", "copy"} else Ceiling
    return make(name=kind.partition(" ")[0], unit=unit, summary=summary, bind=partial(_bind, kind), work=work)


CEILINGS: Mapping[str, Ceiling] = {
    "read": _ceiling("read", "bytes/s", "wide loads"),
    "read ahead": _ceiling("read ahead", "bytes/s", "wide loads, prefetched into L2"),
    "read streams": _ceiling("read streams", "bytes/s", "wide loads of four streams, prefetched into L2"),
    "read nta": _ceiling("read nta", "bytes/s", "wide loads, prefetched past the outer caches"),
    "write": _ceiling("write", "bytes/s", "wide stores"),
    "write around": _ceiling("write around", "bytes/s", "stores around the caches"),
    "write around streams": _ceiling("write around streams", "bytes/s", "stores around the caches, four streams"),
    "write string": _ceiling("write string", "bytes/s", "rep stosb"),
    "copy": _ceiling("copy", "bytes/s", "one half to the other; bytes read and written", _copied),
    "copy around": _ceiling("copy around", "bytes/s", "the same, written around the caches", _copied),
    "compute": _ceiling("compute", "operations/s", "int8 dot products on registers; a multiply-add is two operations", _operations),
}
"""Probes by what they do. Those of one `name` do the same work in different ways: the fastest at a footprint is the ceiling there."""
