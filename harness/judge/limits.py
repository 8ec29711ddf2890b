"""Limits of an accuracy verdict: sentences for the Record that state what the verdict does not cover."""

from __future__ import annotations

from tritmark.harness.disassembly import ToolError, asks, of_features
from tritmark.harness.dtypes import named_dtype
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import Device, Op, Tier, Values, Variant
from tritmark.harness.validate.compare import is_float
from tritmark.harness.validate.families import NONFINITE


def accuracy_limits(
    found: Accuracy,
    op: Op,
    variant: Variant,
    device: Device,
    borrowed: tuple[str, ...] = (),
    *,
    isolated: bool = True,
) -> tuple[str, ...]:
    """The limits of a verdict; () if nothing ran. `borrowed`: owners of the kernels that it calls; `isolated`: it had
    its own process."""
    if found.status is Status.NOT_RUN:
        return ()
    own = _elsewhere(found, variant, device, isolated=isolated)
    return (*_nonfinite(found, op), *own, *found.limits, *_of_others(borrowed))


def _of_others(borrowed: tuple[str, ...]) -> list[str]:
    if not borrowed:
        return []
    whose = " and ".join(borrowed)
    return [f"not ranked: its process holds the code of {whose}, which may have made its outputs and times"]


def _nonfinite(found: Accuracy, op: Op) -> list[str]:
    forbidden = [tensor.name for tensor in op.inputs if tensor.values is Values.FINITE and tensor.axes]
    if not forbidden or found.failed or "nonfinite" in found.guards:
        return _any_values(op)
    text = f"NaN or infinity in {' and '.join(forbidden)} was not tested"
    return [f"{text}: it does not report where they are (no argument bad), so the harness looked for them itself"]


def _any_values(op: Op) -> list[str]:
    """The limit of an op whose contract admits any value, but whose families hold only finite ones."""
    floats = [
        tensor.name
        for tensor in op.inputs
        if tensor.values is Values.ANY and tensor.axes and is_float(named_dtype(tensor.dtype))
    ]
    if not floats or NONFINITE in op.input_families:
        return []
    return [f"NaN or infinity in {' and '.join(floats)} was not tested: no input family of the op has them"]


def _elsewhere(found: Accuracy, variant: Variant, device: Device, *, isolated: bool) -> list[str]:
    """Code that queries the processor has paths that were not run. The device's own kernels are exempt: each is for one
    instruction set and runs by its name."""
    if device.memory is not None or device.code_hash(variant.id):
        return []
    there = " ".join(sorted(device.features())) or "none of the features that kernels here use"
    try:
        asked = [each for file in variant.code("", frozenset()) for each in asks(file)]
    except ToolError as error:
        return [
            f"it is not known whether its code asks at run time which processor it is on, and takes other paths "
            f"elsewhere: {error}"
        ]
    if not asked:
        return []
    text = (
        f"its code asks at run time what it runs on ({'; '.join(asked)}) and may take another path elsewhere. Judged "
        f"was the path of a processor with {there}"
    )
    if not found.held_to:
        why = _unheld(found, variant, device, asked, isolated=isolated)
        return [f"{text}; other paths were not judged{f': {why}' if why else ''}"]
    others = [each for each in asked if each not in of_features(asked)]
    left = f", and the results of {' and '.join(others)} were not changed" if others else ""
    return [
        f"{text}, and those of processors with no more than {', '.join(found.held_to)}; other vendors and models were "
        f"not tested{left}"
    ]


def _unheld(found: Accuracy, variant: Variant, device: Device, asked: list[str], *, isolated: bool) -> str:
    """Why its process was not limited to lower steps; "" if it queries nothing that can be hidden, or failed."""
    if found.failed or variant.tier is not Tier.CANDIDATE or not of_features(asked):
        return ""
    if not isolated:
        return "it had no process of its own in which features can be hidden"
    if device.masking is None:
        return f"the device {device.type} cannot hide features from a process"
    return device.masking.missing() or ""
