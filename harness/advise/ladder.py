"""The instruction sets of the host, from the installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tritmark.harness.record import HOST, Run


@cache
def ladder() -> Mapping[str, frozenset[str]]:
    """Names of the instruction sets in ascending order, with the features that each requires; empty without a provider
    for the host."""
    from tritmark.harness.providers import load

    host = load().registry.devices.get(HOST)
    return {} if host is None else host.ladder()


@cache
def _variants(op: str, format: str, dtype: str) -> frozenset[str]:
    from tritmark.harness.providers import load

    keyed = (each for each in load().registry.without_peers if each.key.device == HOST)
    return frozenset(
        each.name for each in keyed if (each.key.op, each.key.format, each.key.dtype) == (op, format, dtype)
    )


def kernels(run: Run) -> tuple[str, ...]:
    """The instruction sets with a kernel for the Run's op, format and dtype."""
    there = _variants(run.op, run.format, run.dtype)
    return tuple(name for name in ladder() if name in there)


def has(features: Iterable[str], isa: str) -> bool:
    """Whether a processor with these features has the instruction set `isa`. Spellings are compared by `bare`, because
    Linux writes "sse4.1", "avxvnni" and "amx-int8" as sse4_1, avx_vnni and amx_int8."""
    return {bare(name) for name in ladder()[isa]} <= {bare(name) for name in features}


def bare(feature: str) -> str:
    """A feature's name without the punctuation in which spellings differ."""
    return feature.replace(".", "").replace("_", "").replace("-", "")
