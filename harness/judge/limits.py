"""What a verdict of accuracy does not cover, in sentences that go into the Record beside it."""

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
    """What was not looked at though the outputs were; () of what was not run. `borrowed`: whose kernels it calls;
    `isolated`: it had a process of its own."""
    if found.status is Status.NOT_RUN:
        return ()
    own = _elsewhere(found, variant, device, isolated=isolated)
    return (*_nonfinite(found, op), *own, *found.limits, *_of_others(borrowed))


def _of_others(borrowed: tuple[str, ...]) -> list[str]:
    if not borrowed:
        return []
    whose = " and ".join(borrowed)
    return [f"its process has the code of {whose}, so its outputs and times may be those of {whose}: it is not ranked"]


def _nonfinite(found: Accuracy, op: Op) -> list[str]:
    forbidden = [tensor.name for tensor in op.inputs if tensor.values is Values.FINITE and tensor.axes]
    if not forbidden or found.failed or "nonfinite" in found.guards:
        return _any_values(op)
    text = f"what it does with NaN or infinity in {' and '.join(forbidden)} was not looked at"
    return [f"{text}: it does not report where they are (no argument bad), so the harness looked for them itself"]


def _any_values(op: Op) -> list[str]:
    """Of an op whose contract admits any value, and whose families hold finite ones only."""
    floats = [
        tensor.name
        for tensor in op.inputs
        if tensor.values is Values.ANY and tensor.axes and is_float(named_dtype(tensor.dtype))
    ]
    if not floats or NONFINITE in op.input_families:
        return []
    return [f"what becomes of NaN or infinity in {' and '.join(floats)} was not looked at: the op has no such inputs"]


def _elsewhere(found: Accuracy, variant: Variant, device: Device, *, isolated: bool) -> list[str]:
    """Code that asks which processor it runs on has paths that were not run. The device's own kernels are each for one
    instruction set, and run by its name."""
    if device.memory is not None or device.code_hash(variant.id):
        return []
    there = " ".join(sorted(device.features())) or "none of the features that kernels here ask for"
    try:
        asked = [each for file in variant.code("", frozenset()) for each in asks(file)]
    except ToolError as error:
        return [
            f"whether its code asks at run time which processor it is on, and takes other paths elsewhere, is not "
            f"known: {error}"
        ]
    if not asked:
        return []
    text = (
        f"its code asks at run time what it runs on ({'; '.join(asked)}) and may take another path elsewhere: the path "
        f"judged is that of a processor with {there}"
    )
    if not found.held_to:
        why = _unheld(found, variant, device, asked, isolated=isolated)
        return [f"{text}; what it does on others was not judged{f': {why}' if why else ''}"]
    others = [each for each in asked if each not in of_features(asked)]
    left = f", and what {' and '.join(others)} may tell was left as it is" if others else ""
    return [
        f"{text}, and those of processors with no more than {', '.join(found.held_to)}; other vendors and models were "
        f"not gone through{left}"
    ]


def _unheld(found: Accuracy, variant: Variant, device: Device, asked: list[str], *, isolated: bool) -> str:
    """Why its process was not held to lower steps; "" where it asks for nothing that can be held, or is not right."""
    if found.failed or variant.tier is not Tier.CANDIDATE or not of_features(asked):
        return ""
    if not isolated:
        return "it had no process of its own, in which it could find fewer features"
    if device.masking is None:
        return f"the device {device.type} has no way to hold a process to fewer features"
    return device.masking.missing() or ""
