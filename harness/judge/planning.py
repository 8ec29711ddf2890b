"""Which variants run on which workloads, on the devices of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from tritmark.harness.errors import UsageError
from tritmark.harness.judge.judging import Group
from tritmark.harness.judge.request import Request
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Installed
from tritmark.harness.spec import PEER_ISA, Device, KernelKey, Tier, Variant, Workload
from tritmark.harness.suite import SelectedWorkload


def plan(installed: Installed, request: Request) -> list[Group]:
    """The groups to run, in order, on the devices of this machine.

    Raises UsageError for a glob that matches nothing; the message lists the legal names. If all requested devices are
    missing, the result is empty, without an error.
    """
    devices = chosen_devices(installed, request)
    return [group for group in plan_anywhere(installed, request) if devices[group.key.device].missing() is None]


def plan_anywhere(installed: Installed, request: Request) -> list[Group]:
    """The groups to run, in order, also on devices that this machine lacks. Raises UsageError as `plan` does."""
    devices = chosen_devices(installed, request)
    if request.suite is None:
        return []
    in_suite = list(dict.fromkeys(item.workload.op for item in request.suite.selected))
    drawn = {item.workload.op for item in request.suite.selected if item.workload.drawn}
    ops = matching("op", request.op, {name: (name,) for name in in_suite}, f"in suite {request.suite.name}")
    variants = [variant for variant in installed.registry.variants if variant.key.op in ops]
    ids = {variant.id: (variant.name, variant.id) for variant in variants}
    chosen = set(matching("variant", request.variant, ids, "for these ops"))
    if request.only is not None:
        chosen &= request.only
    by_op: dict[str, dict[KernelKey, list[Variant]]] = {}
    for variant in variants:
        if variant.id in chosen and variant.key.device in devices:
            by_op.setdefault(variant.key.op, {}).setdefault(variant.key, []).append(variant)
    groups: dict[tuple[str, KernelKey], Group] = {}
    corners: dict[KernelKey, list[Workload]] = {}
    for item in request.suite.selected:
        for key, known_of_key in by_op.get(item.workload.op, {}).items():
            of_key = tuple(variant for variant in known_of_key if _wanted(variant, item, request))
            if not of_key or not item.admits(key.format, key.dtype, key.device):
                continue
            if item.workload.drawn and "accuracy" not in request.dimensions:
                continue
            if item.workload.op in drawn and not item.workload.measure and not item.workload.drawn:
                corners.setdefault(key, []).append(item.workload)  # judged among the drawn cases
                continue
            if item.workload.drawn:
                of_key = tuple(variant for variant in of_key if variant.id not in request.rivals)
                if not of_key:
                    continue
            if item.fastest:
                of_key = _fastest(installed, key, item, of_key, request.rivals)
            known = groups.get((item.workload.id, key))
            if known is None or item.workload.thoroughness > known.workload.thoroughness:
                groups[item.workload.id, key] = Group(installed.ops[item.workload.op], key, item.workload, of_key)
    if not groups:
        text = f"--device {request.device!r}, " if request.device != "*" else ""
        raise UsageError(
            f"{text}--op {request.op!r} and --variant {request.variant!r} leave nothing of suite {request.suite.name}"
        )
    # One process serves all Runs of a candidate, so they are adjacent. Drawn cases come before all timing.
    order = {
        key: place for place, key in enumerate(dict.fromkeys(key for op in in_suite for key in installed.keys(op)))
    }
    whole = [
        replace(group, corners=tuple(corners.get(group.key, ()))) if group.workload.drawn else group
        for group in groups.values()
    ]
    return sorted(whole, key=lambda group: (not group.workload.drawn, order[group.key]))


def _wanted(variant: Variant, item: SelectedWorkload, request: Request) -> bool:
    """Whether a workload is for this variant. A peer runs if it is requested, or if the suite has peers and it is
    installed. Under PEER_ISA a missing peer is kept too, to report why it cannot be limited."""
    asked = variant.tier is not Tier.PEER or request.variant != "*" or variant.id in request.peers
    return asked or (item.peers and (PEER_ISA in os.environ or variant.missing() is None))


def _fastest(
    installed: Installed,
    key: KernelKey,
    item: SelectedWorkload,
    variants: tuple[Variant, ...],
    rivals: frozenset[str],
) -> tuple[Variant, ...]:
    """The `item.fastest` highest variants that take the axes, all kernels of the user, those that they are compared
    with, and all peers."""
    refused = {variant.id for variant, why in installed.registry.candidates(key, item.workload.axes) if why is not None}
    peers = {variant.id for variant in variants if variant.tier is Tier.PEER}
    left = (variant for variant in variants if variant.id not in refused | peers)
    fitting = sorted(left, key=lambda variant: variant.precedence, reverse=True)
    kept = {variant.id for variant in fitting[: item.fastest]} | peers | installed.added | rivals
    return tuple(variant for variant in variants if variant.id in kept) or variants[:1]


def missing(installed: Installed, request: Request) -> dict[str, str]:
    """Requested devices that cannot be used here, each with the reason and the next step."""
    reported = {name: device.missing() for name, device in chosen_devices(installed, request).items()}
    return {name: why for name, why in reported.items() if why is not None}


def chosen_devices(installed: Installed, request: Request) -> dict[str, Device]:
    """The requested devices by name, absent ones too. Raises UsageError if none has that name."""
    devices = installed.registry.devices
    names = matching("device", request.device, {name: (name,) for name in devices}, "that is installed")
    return {name: devices[name] for name in names}


def present_devices(installed: Installed, request: Request) -> dict[str, Device]:
    """The requested devices that can be used here."""
    return {name: device for name, device in chosen_devices(installed, request).items() if device.missing() is None}


def matching(what: str, glob: str, names: Mapping[str, Iterable[str]], where: str) -> list[str]:
    """The keys of `names` with a spelling that matches. Raises UsageError with the legal ones if none does."""
    found = [key for key, spellings in names.items() if any(fnmatchcase(name, glob) for name in spellings)]
    if not found:
        legal = dict.fromkeys(next(iter(spellings)) for spellings in names.values())
        offer = nearest(glob, legal, among=[name for spellings in names.values() for name in spellings])
        raise UsageError(f"--{what} {glob!r} matches nothing {where}; {offer}")
    return found


def measured_ids(groups: Iterable[Group]) -> frozenset[str]:
    """Ids of Runs that the suite times."""
    return frozenset(group.run_id(variant) for group in groups if group.workload.measure for variant in group.variants)


def timed_count(installed: Installed, groups: Iterable[Group], request: Request) -> int:
    """Number of Runs that will be timed if they are correct."""
    count = 0
    for group in groups:
        measured = group.workload.measure and "performance" in request.dimensions
        if measured and not installed.registry.devices[group.key.device].simulated():
            found = installed.registry.candidates(group.key, group.workload.axes or None)
            refused = {variant.id for variant, why in found if why is not None}
            count += sum(variant.id not in refused for variant in group.variants)
    return count
