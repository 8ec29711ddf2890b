"""One of several devices of a kind, chosen by its number: TYPE:0, TYPE:1 are devices of their own, with the kernels of
their kind, which run there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from tritmark.harness.spec import Axes, Ceiling, Device, Instances, Numbering, Tier, Variant

P = ParamSpec("P")
R = TypeVar("R")


def numbered(name: str) -> tuple[str, int] | None:
    """Kind and number of a device that is named by both, such as "cuda:1"; None for another name."""
    return _numbered(str(name))


@lru_cache(maxsize=256)
def _numbered(name: str) -> tuple[str, int] | None:
    kind, _, number = name.rpartition(":")
    if not kind or not number.isdecimal() or str(int(number)) != number:
        return None
    return kind, int(number)


def same_device(one: str, other: str) -> bool:
    """Whether two names mean one device: a kind alone is the first of them."""
    return one.removesuffix(":0") == other.removesuffix(":0")


def device_of(kind: Device, numbering: Numbering, index: int) -> Device:
    """The device of that number: whatever is asked of it is asked where it is the current one."""

    def there(ask: Callable[P, R]) -> Callable[P, R]:
        return _there(numbering, index, ask)

    def ceilings() -> dict[str, Ceiling]:
        return {name: replace(each, bind=there(each.bind)) for name, each in there(kind.ceilings)().items()}

    name = f"{kind.type}:{index}"
    return replace(
        kind,
        type=name,
        features=there(kind.features),
        cores=there(kind.cores),
        clock=kind.clock and there(kind.clock),
        plain_clock=kind.plain_clock and there(kind.plain_clock),
        ceilings=ceilings,
        code_hash=there(lambda variant_id: kind.code_hash(variant_id.replace(f"{name}/", f"{kind.type}/", 1))),
        missing=there(kind.missing),
        memory=kind.memory and there(kind.memory),
        transfers=kind.transfers and there(kind.transfers),
        adopt=None,  # a user's file is its kind's, and comes here with the other kernels
        numbering=None,
        environment=lambda: numbering.alone(index),
    )


def variants_of(numbering: Numbering, index: int, kind: str, variants: list[Variant]) -> list[Variant]:
    """Those of a kind's kernels that run on the device of that number: all but other projects', whose libraries choose
    a device by themselves."""

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
