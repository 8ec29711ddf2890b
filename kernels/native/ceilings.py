"""Ceilings of the CPU: probes that are bound and timed like kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from tritmark.harness.measure.write_back import WriteBackCeiling
from tritmark.harness.spec import Ceiling, Launch


def _bind(module: Any, isa: str, kind: str, buffer: Any, threads: int) -> Launch:
    usable = buffer[: buffer.nbytes // 128 * 128] if kind.startswith("copy") else buffer
    probe: Launch = module.Probe(isa, kind, usable, threads)
    return probe


def _copied(nbytes: int) -> int:
    return nbytes // 128 * 128


def ceilings(module: Any, isa: str, lesser: Iterable[str] = ()) -> Mapping[str, Ceiling]:
    """Probes by kind. Probes of one `name` do the same work in different ways: the fastest at a footprint is the
    ceiling there.

    `module` is the extension module of the probes, `isa` the best instruction set of this CPU. TRITMARK_FORCE_ISA has
    no effect, since a ceiling belongs to the machine and not to the kernels. Each of the `lesser` sets has a ceiling of
    its own, "compute NAME": what a kernel of that set can reach at most.
    """

    def ceiling(kind: str, unit: str, summary: str, work: Callable[[int], int] = int) -> Ceiling:
        make = WriteBackCeiling if kind in {"write", "write string", "copy"} else Ceiling
        return make(
            name=kind.partition(" ")[0], unit=unit, summary=summary, bind=partial(_bind, module, isa, kind), work=work
        )

    def operations(nbytes: int) -> int:
        return nbytes * int(module.DOT_OPERATIONS)

    dots = "int8 dot products on registers; a multiply-add is two operations"
    return {
        "read": ceiling("read", "bytes/s", "wide loads"),
        "read ahead": ceiling("read ahead", "bytes/s", "wide loads, prefetched into L2"),
        "read streams": ceiling("read streams", "bytes/s", "wide loads of four streams, prefetched into L2"),
        "read nta": ceiling("read nta", "bytes/s", "wide loads, prefetched past the outer caches"),
        "write": ceiling("write", "bytes/s", "wide stores"),
        "write around": ceiling("write around", "bytes/s", "stores around the caches"),
        "write around streams": ceiling("write around streams", "bytes/s", "stores around the caches, four streams"),
        "write string": ceiling("write string", "bytes/s", "rep stosb"),
        "copy": ceiling("copy", "bytes/s", "one half to the other; bytes read and written", _copied),
        "copy around": ceiling("copy around", "bytes/s", "the same, written around the caches", _copied),
        "compute": ceiling("compute", "operations/s", dots, operations),
        **{
            f"compute {name}": Ceiling(
                name=f"compute {name}",
                unit="operations/s",
                summary=f"{dots}, with {name}",
                bind=partial(_bind, module, name, "compute"),
                work=operations,
            )
            for name in lesser
        },
    }
