"""From a public function to a kernel: pick the variant, bind it, run it, raise errors for illegal values that it found,
and make a receipt on request (harness/monitor/receipts.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from tritmark.harness import tuned
from tritmark.harness.contract import check_output, check_threads, check_variant
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.errors import InvalidArgumentError, NoCompatibleKernelError
from tritmark.harness.monitor import hook, receipts
from tritmark.harness.nearest import nearest
from tritmark.harness.numbered import same_device
from tritmark.harness.providers import installed
from tritmark.harness.registry import Registry
from tritmark.harness.resident import ResidentArray, first_on_device
from tritmark.harness.spec import (
    Arrays,
    Axes,
    Device,
    KernelKey,
    Launch,
    Op,
    Pipelined,
    Requirement,
    Values,
    Variant,
)
from tritmark.kernels.dispatch import offload
from tritmark.kernels.dispatch.offload import FinishedCall
from tritmark.kernels.native import cpu

_TUNED = tuned.SELECT.encode()


_CHECKED = (Values.OFFSETS, Values.FINITE, Values.TERNARY)
"""The values that kernels check, of which a `bad` index is: of the first of these that an op has."""


class KernelObserver(Protocol):
    """What a process of recovering calls puts between the public functions and the kernels."""

    def begin(self, variant: Variant, axes: Axes) -> None:
        """A kernel that does not run through `run` begins."""

    def run(
        self, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int, flat: bool
    ) -> FinishedCall:
        """In place of `run`."""


_OBSERVERS: list[KernelObserver] = []
"""At most one."""


def observe(observer: KernelObserver) -> None:
    """From now on, all calls of public functions of this process go through the observer."""
    _OBSERVERS[:] = [observer]


def observed() -> bool:
    """Whether there is an observer: no plan may then bypass it."""
    return bool(_OBSERVERS)


def announce(variant: Variant, axes: Axes) -> None:
    """Report a kernel that does not run through `run`, before it is bound."""
    for each in _OBSERVERS:
        each.begin(variant, axes)


def registry() -> Registry:
    """The registry from which public functions select: installed variants, those of other packages included, and
    variants that were registered since."""
    return installed().registry


def register(*variants: Variant) -> None:
    """Add variants, all or none of them. Public functions of this process then select from them too.

    `tritmark run` does not see them: it finds the variants of packages by the entry-point group `tritmark.variants`.
    Safe from any thread. Raises RegistrationError for a name that the key already has and for an unknown op or device,
    AmbiguousKernelError if another variant of the key has the same tier and rank.
    """
    installed().add(*variants)


def check_device(op: str, device: Any) -> None:
    """Raise NoCompatibleKernelError if `device` is not a str; the registry raises it for an unknown name."""
    if not isinstance(device, str):
        why = f"unknown device type; {nearest(device, registry().devices)}"
        raise NoCompatibleKernelError(request=f"{op} on {device!r}", candidates=[(repr(device), why)])


def on_device(key: KernelKey, device: str) -> KernelKey:
    """The key with that device; usually `key` itself. Raises NoCompatibleKernelError if `device` is not a
    name."""
    check_device(key.op, device)
    return key if device == key.device else _moved(key, device)


@lru_cache(maxsize=256)
def _moved(key: KernelKey, device: str) -> KernelKey:
    return replace(key, device=device)


def select(
    key: KernelKey,
    axes: Axes,
    name: str | None,
    threads: int | None = None,
    requirement: Requirement = Requirement.LATENCY,
    arrays: Iterable[Any] = (),
) -> Variant:
    """Registry.select_best with a cache, since a layer repeats the same request at each call. `arrays` are those that
    the kernel reads and writes: variants that need a larger alignment are refused. Raises InvalidArgumentError for an
    invalid name or thread count."""
    if name is not None or threads is not None or type(key.device) is not str:  # most calls give neither
        check_device(key.op, key.device)
        check_variant(key.op, name)
        check_threads(key.op, threads)
    known = registry()
    aligned = alignment_of(known, key.device, known.strictest(key), arrays) if arrays else None
    return _select(known, key, tuple(axes.items()), name, threads, requirement, aligned, state(known, key.device))


def alignment_of(known: Registry, device: str, strictest: int, arrays: Iterable[Any]) -> int | None:
    """The least alignment in bytes of the arrays that kernels of the device use in place; None if it is `strictest`,
    the largest that one needs, or more. Arrays that are copied to a device are aligned there."""
    if strictest == 1:
        return None
    found = known.devices.get(device)
    on_host, addresses = found is None or found.memory is None, strictest
    for each in arrays:
        if isinstance(each, np.ndarray):  # first, since isinstance with an abstract class is slow
            if on_host and each.ndim:
                addresses |= each.__array_interface__["data"][0]
        elif isinstance(each, ResidentArray):
            addresses |= each.pointer
    least = addresses & -addresses
    return None if least >= strictest else least


def state(known: Registry, device: str) -> object:
    """What a choice depends on and what may change between calls: registrations, measured choices, the environment
    variables that force or disable choices, and whether the device is present."""
    found = known.devices.get(device)
    return known.version, cpu.variable(_TUNED), (found.forced(), found.missing()) if found else None


@lru_cache(maxsize=4096)
def _select(
    known: Registry,
    key: KernelKey,
    axes: tuple[tuple[str, int], ...],
    name: str | None,
    threads: int | None,
    requirement: Requirement,
    alignment: int | None,
    _state: object,
) -> Variant:
    return known.select_best(key, dict(axes), name, requirement=requirement, threads=threads, alignment=alignment)


def outputs_for(op: Op, axes: Axes, key: KernelKey, given: Mapping[str, Any], inputs: Arrays) -> dict[str, Any]:
    """The output arrays: the given ones, checked, and new ones for the rest."""
    outputs: dict[str, Any] = {}
    like = op.outputs_like(axes, key)
    for tensor in op.outputs:
        shape, dtype = like[tensor.name]
        out = given.get(tensor.name)
        if out is None:
            near = first_on_device(inputs.values())
            out = np.empty(shape, named_dtype(dtype)) if near is None else near.new(shape, named_dtype(dtype))
        else:
            check_output(op.name, tensor, out, shape, dtype, inputs)
        outputs[tensor.name] = out
    return outputs


def threads_for(key: KernelKey, threads: int | None) -> int:
    """The thread limit of a call: `threads`, by default one for each physical core. Raises InvalidArgumentError for an
    invalid thread count."""
    check_threads(key.op, threads)
    return registry().devices[key.device].cores() if threads is None else int(threads)


def run(
    op: Op,
    variant: Variant,
    inputs: Arrays,
    outputs: Arrays,
    axes: Axes,
    threads: int,
    *,
    flat: bool = False,
    note: str | None = None,
) -> FinishedCall:
    """Bind and run once, on the device of the variant. Arrays are copied there and back if it has its own memory.
    `note`: see FinishedCall.

    Raises InvalidArgumentError if the kernel met a value that the contract forbids (with the index in the flat array if
    `flat`), and DeviceError if the device cannot run it. After InvalidArgumentError outputs on a device are untouched,
    except of large arrays, which run in chunks: a function that takes `out` checks the values beforehand.
    """
    if _OBSERVERS:
        done = _OBSERVERS[0].run(op, variant, inputs, outputs, axes, threads, flat)
    else:
        done = run_unobserved(op, variant, inputs, outputs, axes, threads, flat=flat)
    done.note = note
    if hook.active is not None:
        receipts.collect(done.receipt)
    return done


def run_unobserved(
    op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, threads: int, *, flat: bool = False
) -> FinishedCall:
    """As run, without the observer of this process."""
    device = registry().devices[variant.key.device]
    watch = hook.active
    if watch is not None:
        watch.ran(hook.chosen(variant, axes, 0 if device.memory else threads, device.simulated()))
    if first_on_device((*inputs.values(), *outputs.values())) is not None:
        return _resident(device, op, variant, inputs, outputs, axes, flat)
    if device.memory is not None:
        return _offloaded(device, op, variant, inputs, outputs, axes, flat)
    launch = variant.bind(inputs, outputs, axes, threads)
    launch.run()
    raise_for_bad(op, inputs, launch, flat, axes)
    return FinishedCall(device, variant, (launch,))


def _resident(
    device: Device, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, flat: bool
) -> FinishedCall:
    """Run on arrays that are on the device already. Other inputs are copied there; outputs must be there."""
    for name, array in (*inputs.items(), *outputs.items()):
        found = array.device if isinstance(array, ResidentArray) else "in the host's memory"
        if not same_device(found, device.type) and (name in outputs or isinstance(array, ResidentArray)):
            raise InvalidArgumentError(op=op.name, argument=name, found=found, legal=f"on {device.type}, as the others")
    launch = offload.bound(device, variant, inputs, outputs, axes)
    launch.run()
    raise_for_bad(op, inputs, launch, flat, axes)
    return FinishedCall(device, variant, (launch,))


def _offloaded(
    device: Device, op: Op, variant: Variant, inputs: Arrays, outputs: Arrays, axes: Axes, flat: bool
) -> FinishedCall:
    done = (
        offload.again(device, variant, inputs, outputs, axes)
        or offload.transfers(device).pipelined(op, variant, inputs, outputs, axes)
        or offload.bind_and_run(device, op, variant, inputs, outputs, axes)
    )
    if done is not None:
        raise_for_bad(op, inputs, done, flat, axes)
        return FinishedCall(device, variant, done.launches)
    launch, there = offload.launch(device, op, variant, inputs, axes)
    launch.run()
    raise_for_bad(op, inputs, launch, flat, axes)
    offload.fetch(device, there, outputs)
    return FinishedCall(device, variant, (launch,))


def raise_for_bad(
    op: Op, inputs: Arrays, launch: Launch | Pipelined, flat: bool = False, axes: Axes | None = None
) -> None:
    """Raise InvalidArgumentError if a kernel found an element that the contract forbids.

    The message has the index in the flat array if `flat` or if there is only one axis. `axes` are required for packed
    codes.
    """
    bad = launch.bad  # reading it clears it on a device
    if bad < 0:
        return
    checked = {tensor.values: tensor for tensor in reversed(op.inputs) if tensor.values in _CHECKED and tensor.axes}
    tensor = next(checked[each] for each in _CHECKED if each in checked)
    array = inputs[tensor.name]
    if tensor.values is Values.OFFSETS:
        found, legal = f"{_element(array, (bad,))} at index {bad}", "offsets that ascend from 0 to the number of rows"
        raise InvalidArgumentError(op=op.name, argument=tensor.name, found=found, legal=legal)
    packed = tensor.values is Values.TERNARY and array.dtype == np.uint8
    shape = tuple((axes or {})[axis] for axis in tensor.axes) if packed else array.shape
    behind = bad - math.prod(shape)
    if behind >= 0:  # for nonzero padding, unpacking kernels report the row as a number past the last code
        found, legal = f"with weights other than 0 in the padded columns of row {behind}", "0 in the padding"
    else:
        index = tuple(int(i) for i in np.unravel_index(bad, shape))
        where = bad if flat or len(shape) == 1 else index
        if packed:
            found, legal = f"field 3 for the weight at {where}", "0, 1, 2 for -1, 0, 1"
        elif tensor.values is Values.TERNARY:
            found, legal = f"{_element(array, index)} at {where}", "-1, 0, 1"
        else:
            found, legal = f"{_element(array, index)} at index {where}", 'finite values (or nonfinite="zero")'
    raise InvalidArgumentError(op=op.name, argument=tensor.name, found=found, legal=legal)


def _element(array: Any, index: tuple[int, ...]) -> Any:
    return array.element(index) if isinstance(array, ResidentArray) else array[index]


def finite(op: Op, name: str, array: Any, nonfinite: str, preflight: bool) -> Any:
    """Apply the `nonfinite` argument: "zero" replaces NaN and infinity by 0 in a copy; "error" lets the kernel detect
    them.

    If the caller gave the output array (`preflight`), they are searched beforehand, so that the array stays untouched.
    """
    if nonfinite not in ("error", "zero"):
        raise InvalidArgumentError(op=op.name, argument="nonfinite", found=repr(nonfinite), legal='"error" or "zero"')
    if isinstance(array, ResidentArray):
        if nonfinite == "zero":
            found, legal = f"{nonfinite!r} for an array on a device", '"error", or an array without NaN and infinity'
            raise InvalidArgumentError(op=op.name, argument="nonfinite", found=found, legal=legal)
        return array
    if nonfinite == "zero":
        return np.where(np.isfinite(array), array, array.dtype.type(0))
    if preflight:
        wrong = np.flatnonzero(~np.isfinite(array))
        if wrong.size:
            found = f"{array.flat[wrong[0]]} at index {int(wrong[0])}"
            raise InvalidArgumentError(
                op=op.name, argument=name, found=found, legal='finite values (or nonfinite="zero")'
            )
    return array


def flattened(op: str, name: str, array: Any) -> Any:
    """A 1-D view of an array, never a copy. Raises InvalidArgumentError unless it is a C-contiguous array."""
    if isinstance(array, ResidentArray):
        if not array.contiguous:
            raise InvalidArgumentError(op=op, argument=name, found=f"strided {array.strides}", legal="C-contiguous")
        return array.reshape(-1)
    if not isinstance(array, np.ndarray):
        raise InvalidArgumentError(op=op, argument=name, found=f"a {type(array).__name__}", legal="a NumPy array")
    if not array.flags.c_contiguous:
        legal = "C-contiguous; np.ascontiguousarray makes such a copy"
        raise InvalidArgumentError(op=op, argument=name, found=f"strided {array.strides}", legal=legal)
    return array.reshape(-1)
