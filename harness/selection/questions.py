"""The questions between variants for a shape."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Installed
from tritmark.harness.registry import ROWS, Question
from tritmark.harness.spec import Axes, KernelKey, Op, Requirement


def questions(
    installed: Installed,
    op: Op,
    axes: Axes,
    *,
    device: str,
    dtype: str,
    format: str,
    requirement: Requirement,
    threads: int | None,
) -> Iterator[Question]:
    """The questions for an op at a shape, one by one: the result of one may decide the next.

    With `format`, a glob: which variant to take, for each matching format. `dtype` is a glob too. Without `format`, if
    formats are interchangeable: for one row of activations, first which format with its variant; then which variant for
    that format. Raises UsageError if nothing matches, and the errors of Registry.question.
    """
    registry = installed.registry
    registry.device(device, f"{op.name} on {device!r}")
    there = [key for key in installed.keys(op.name) if key.device == device]
    found = [key for key in there if fnmatchcase(key.dtype, dtype) and fnmatchcase(key.format, format or "*")]
    if not found:
        legal = nearest(f"{format or '*'}/{dtype}", [f"{key.format}/{key.dtype}" for key in there])
        raise UsageError(f"no {op.name} on {device} has format {format or '*'!r} and dtype {dtype!r}; {legal}")
    for each in dict.fromkeys(key.dtype for key in found):
        keys = tuple(key for key in found if key.dtype == each)
        alike: tuple[KernelKey, ...] = ()
        if not format and op.interchangeable is not None:
            alike = tuple(key for key in keys if op.interchangeable(axes, key.format))
        if len(alike) > 1:
            if axes.get(ROWS) == 1:
                yield registry.question(alike, axes, requirement, threads)
            best = registry.measured(alike, {**axes, ROWS: 1}, requirement, threads)
            keys = ((best or registry.question(alike, axes, requirement, threads).builtin).key,)
        for key in keys:
            yield registry.question((key,), axes, requirement, threads)
