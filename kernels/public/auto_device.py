"""device="auto" of the public functions: whether the CPU or another device computes a call with arrays in host memory.

The answer is a choice that `tritmark tune variants OP --device auto` measured: the time of the whole call, with copies
to the device and back, on each device. Without one the CPU computes. A call never measures. The choice is valid for
one function, its dtypes and formats, a shape class, a thread count, these devices, and the code of the kernels that
each device would run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np

from tritmark.harness import tuned
from tritmark.harness.contract import check_threads
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.numbered import numbered
from tritmark.harness.registry import coded, shape_class
from tritmark.harness.spec import Axes, KernelKey, Variant
from tritmark.kernels.dispatch import dispatch
from tritmark.kernels.native import cpu
from tritmark.kernels.numerics.input_dtypes import NARROW
from tritmark.kernels.public.foreign import AUTO

R = TypeVar("R")

HOST = "cpu"
_MOST = 4096
_TUNED = tuned.SELECT.encode()
_found: dict[tuple[Any, ...], PlacedCall] = {}

Kernels = Callable[[str], tuple[Variant, ...]]
"""The kernels that a call runs on a device. Raises NoCompatibleKernelError."""


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """The device of a call, and the reason for receipts."""

    device: str
    why: str = ""

    def run(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """The call on that device. Its receipts state the reason."""
        if hook.active is None or not self.why:
            return function(*args, device=self.device, **kwargs)
        with receipts.noted(self.why):
            return function(*args, device=self.device, **kwargs)


@dataclass(frozen=True, slots=True)
class CallClass:
    """The calls for which a choice is valid: a function, its dtypes and formats, and a shape class with a thread
    count."""

    function: str
    detail: str
    axes: Mapping[str, int]
    kernels: Kernels

    @property
    def place(self) -> str:
        """The name of the choice."""
        return f"{AUTO}/{self.function}/{self.detail}"

    def candidates(self) -> dict[str, tuple[Variant, ...]]:
        """The kernels on each device of this machine that has them, the CPU first. Devices with numbers count as their
        type."""
        found, known = {}, dispatch.registry()
        for name, device in list(known.devices.items()):
            if numbered(name) is None and (name == HOST or device.memory is not None) and device.missing() is None:
                try:
                    found[name] = self.kernels(name)
                except NoCompatibleKernelError:
                    continue
        return dict(sorted(found.items(), key=lambda pair: pair[0] != HOST))

    def identity(self, candidates: Mapping[str, tuple[Variant, ...]]) -> dict[str, str]:
        """The conditions under which a choice between these holds."""
        known, codes, devices = dispatch.registry().devices, [], []
        made: dict[str, str] = {}
        for name, kernels in candidates.items():
            facts = (known[name].identity or dict)()
            made |= {f"{name} {fact}": value for fact, value in facts.items()}
            devices.append(facts.get("device", name))
            codes += [(each.id, coded(known[name], each)) for each in kernels]
        return {"device": "; ".join(devices), "code": sha256(repr(codes).encode()).hexdigest(), **made}


def placed(calls: CallClass | None) -> PlacedCall:
    """The device for such a call. None, for arguments that the contract refuses: the CPU, whose path refuses them."""
    if calls is None:
        return PlacedCall(HOST)
    known = dispatch.registry()
    # Whether a device is missing is not asked again: it takes longer than a small call, and a device that is lost later
    # raises its own error.
    devices = tuple((name, each.forced(), each.simulated()) for name, each in known.devices.items())
    state = id(known), known.version, cpu.variable(_TUNED), devices
    key = *state, calls.function, calls.detail, *calls.axes.items()
    found = _found.get(key)
    if found is None:
        if len(_found) >= _MOST:
            _found.clear()
        found = _found[key] = _placed(calls)
    return found


def _placed(calls: CallClass) -> PlacedCall:
    candidates = calls.candidates()
    others = [name for name in candidates if name != HOST]
    if HOST not in candidates and others:
        return PlacedCall(others[0], f"{AUTO}: {others[0]}, because the CPU has no kernel for the call")
    if not others:
        return PlacedCall(HOST, f"{AUTO}: {HOST}, because {_why_alone()}")
    choice = tuned.chosen(calls.place, calls.axes, lambda: calls.identity(candidates))
    if choice is None or choice.instance not in candidates:
        why = (
            "nothing was measured for these shapes with these kernels; next: tritmark tune variants with --device auto"
        )
        return PlacedCall(HOST, f"{AUTO}: {HOST}, because {why}")
    from tritmark.harness.text import units  # late: it takes long to import

    times = ", ".join(f"{name} {units.time(ns)}" for name, ns in choice.times_ns.items())
    return PlacedCall(choice.instance, f"{AUTO}: {choice.instance}, measured for whole calls: {times}")


def _why_alone() -> str:
    reasons = [
        f"{name} cannot be used: {why}"
        for name, device in dispatch.registry().devices.items()
        if device.memory is not None and (why := device.missing()) is not None
    ]
    return "; ".join(reasons) or "no other device has a kernel for the call"


def check_unforced(op: str, variant: str | None) -> None:
    """Raise InvalidArgumentError if a variant is forced, which belongs to one device."""
    if variant is not None:
        legal = f'None with device="{AUTO}", or the device of that variant'
        raise InvalidArgumentError(op=op, argument="variant", found=repr(variant), legal=legal)


def elements(key: KernelKey, array: Any, more: Axes, threads: int | None, variant: str | None) -> PlacedCall:
    """The device for an elementwise function over that array; `more` are the axes other than n."""
    check_unforced(key.op, variant)
    check_threads(key.op, threads)
    if not isinstance(array, np.ndarray) or not array.size:
        return placed(None)
    return placed(elements_class(key, str(array.dtype), {"n": array.size, **more}, threads))


def elements_class(key: KernelKey, dtype: str, axes: Axes, threads: int | None) -> CallClass:
    """See elements."""

    def kernels(device: str) -> tuple[Variant, ...]:
        known = dispatch.registry()
        narrow = dtype in NARROW and key.format == "none" and known.has_kernel_for(device, key.op, dtype, key.dtype)
        there = replace(key, device=device, format=dtype if narrow else key.format)
        return (dispatch.select(there, axes, None, threads),)

    return CallClass(key.op, f"{dtype}/{key.format}/{key.dtype}", class_of(axes, threads), kernels)


def class_of(axes: Axes, threads: int | None) -> dict[str, int]:
    """The shape class of a call, with its thread count."""
    count = dispatch.registry().devices[HOST].cores() if threads is None else int(threads)
    return {**shape_class(axes), "threads": count}
