"""Devices with numbers, such as cuda:1. Each is a device of its own, with the kernels of its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from tritmark.harness.spec import Axes, Ceiling, Device, Instances, Numbering, Tier, Variant

P = ParamSpec("P")
R = TypeVar("R")


def numbered(name: str) -> tuple[str, int] | None:
    """Type and number of a device name such as "cuda:1"; None for other names."""
    return _numbered(str(name))


@lru_cache(maxsize=256)
def _numbered(name: str) -> tuple[str, int] | None:
    kind, _, number = name.rpartition(":")
    if not kind or not number.isdecimal() or str(int(number)) != number:
        return None
    return kind, int(number)


def kind_of(name: str) -> str:
    """The type of a device: the name without its number."""
    found = numbered(name)
    return name if found is None else found[0]


def unnumbered(variant_id: str) -> str:
    """The id of the same kernel on the device without a number."""
    device, slash, rest = variant_id.partition("/")
    return kind_of(device) + slash + rest


def same_device(one: str, other: str) -> bool:
    """Whether two names are the same device: a type without a number is the first device."""
    return one.removesuffix(":0") == other.removesuffix(":0")


def device_of(kind: Device, numbering: Numbering, index: int) -> Device:
    """The device with that number. Its functions run with that device as the current one."""

    def there(ask: Callable[P, R]) -> Callable[P, R]:
        return _there(numbering, index, ask)

    def ceilings() -> dict[str, Ceiling]:
        return {name: replace(each, bind=there(each.bind)) for name, each in there(kind.ceilings)().items()}

    source_hash = kind.source_hash
    return replace(
        kind,
        type=f"{kind.type}:{index}",
        features=there(kind.features),
        cores=there(kind.cores),
        clock=kind.clock and there(kind.clock),
        plain_clock=kind.plain_clock and there(kind.plain_clock),
        ceilings=ceilings,
        code_hash=there(lambda variant_id: kind.code_hash(unnumbered(variant_id))),
        source_hash=source_hash and there(lambda variant_id: source_hash(unnumbered(variant_id))),
        identity=kind.identity and there(kind.identity),
        missing=there(kind.missing),
        memory=kind.memory and there(kind.memory),
        transfers=kind.transfers and there(kind.transfers),
        stats=kind.stats and there(kind.stats),
        memory_problems=kind.memory_problems and there(kind.memory_problems),
        adopt=None,  # a user's file belongs to the type, and is numbered with the other kernels
        numbering=None,
        environment=lambda: numbering.alone(index),
    )


def variants_of(numbering: Numbering, index: int, kind: str, variants: list[Variant]) -> list[Variant]:
    """The kernels of a type for the device with that number, except peers, whose libraries choose a device
    themselves."""

    def there(ask: Callable[P, R]) -> Callable[P, R]:
        return _there(numbering, index, ask)

    def on_it(variant: Variant) -> Variant:
        instances = variant.instances

        def measured(axes: Axes) -> Instances:
            assert instances is not None
            found = there(instances)(axes)
            return replace(found, each={name: on_it(each) for name, each in found.each.items()})

        return replace(
            variant,
            key=replace(variant.key, device=f"{kind}:{index}"),
            bind=there(variant.bind),
            code=there(variant.code),
            missing=there(variant.missing),
            load=there(variant.load),
            instances=instances and measured,
        )

    return [on_it(each) for each in variants if each.key.device == kind and each.tier is not Tier.PEER]


def _there(numbering: Numbering, index: int, ask: Callable[P, R]) -> Callable[P, R]:
    @wraps(ask)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with numbering.at(index):
            return ask(*args, **kwargs)

    return call
