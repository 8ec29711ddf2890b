"""Kinds of machines: a Dask worker names its own as resources, such as `tritmark/cpu/zen4=1`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest

PREFIX = "tritmark/"
LEGAL = f"{PREFIX}DEVICE/NAME=1, such as {PREFIX}cpu/zen4=1"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, order=True)
class MachineKind:
    """A kind of machine, for kernels of one device. All machines of a kind are alike."""

    device: str
    """Device type whose kernels are run there, such as cpu or cuda."""
    name: str
    """The user's name of the machine type, such as zen4."""

    def __str__(self) -> str:
        return f"{self.device}/{self.name}"

    @property
    def resource(self) -> str:
        """The Dask resource of workers of this kind."""
        return f"{PREFIX}{self}"

    @classmethod
    def of(cls, text: str) -> Self:
        """The kind with that text, as `str` writes it."""
        device, _, name = text.partition("/")
        return cls(device, name)


@dataclass(frozen=True, slots=True)
class Offer:
    """A Dask worker and the kinds that it offers."""

    address: str
    name: str
    host: str
    """Its network address without the port."""
    kinds: tuple[MachineKind, ...]


def offers(workers: Mapping[str, Mapping[str, Any]], devices: Collection[str]) -> list[Offer]:
    """The workers that offer a kind, by name. `workers` is that of `Client.scheduler_info`. Resources of other programs
    are skipped.

    Raises UsageError for a resource of ours that is misspelt, has an unknown device, or an amount other than 1.
    """
    found = []
    for address, facts in workers.items():
        resources = facts.get("resources") or {}
        name = str(facts.get("name", address))
        kinds = tuple(
            sorted(_kind(resource, amount, name, devices) for resource, amount in resources.items() if _ours(resource))
        )
        if kinds:
            found.append(Offer(address, name, str(facts.get("host", address)), kinds))
    return sorted(found, key=lambda each: (each.name, each.address))


def kinds_of(offered: Iterable[Offer]) -> list[MachineKind]:
    """The kinds that at least one worker offers."""
    return sorted({kind for each in offered for kind in each.kinds})


def of_kinds(offered: Iterable[Offer], kinds: Collection[MachineKind]) -> list[Offer]:
    """The workers that offer one of these kinds, with these kinds alone."""
    cut = (replace(each, kinds=tuple(kind for kind in each.kinds if kind in kinds)) for each in offered)
    return [each for each in cut if each.kinds]


def _ours(resource: str) -> bool:
    return resource.startswith(PREFIX)


def _kind(resource: str, amount: float, worker: str, devices: Collection[str]) -> MachineKind:
    device, _, name = resource.removeprefix(PREFIX).partition("/")
    if not (_PART.fullmatch(device) and _PART.fullmatch(name)):
        raise UsageError(f"worker {worker}: resource {resource!r}; legal: {LEGAL}")
    if device not in devices:
        raise UsageError(f"worker {worker}: resource {resource!r} names device {device!r}; {nearest(device, devices)}")
    if amount != 1:
        raise UsageError(
            f"worker {worker}: resource {resource!r} has the amount {amount:g}; legal: 1, as a machine times one "
            "kernel at a time"
        )
    return MachineKind(device, name)
