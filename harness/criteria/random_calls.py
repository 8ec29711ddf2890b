"""Random calls: sizes, families, thread counts, addresses and values follow from the seed and the call's number. The
reference is computed in this process, and the kernel runs in its own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, log
from time import monotonic
from typing import Any

import numpy as np

from tritmark.harness.criteria import tasks
from tritmark.harness.criteria.bench import CriteriaBench, CriterionFinding, difference
from tritmark.harness.criteria.exact import SHOWN, refused
from tritmark.harness.criteria.model import MeasuredFigure, Unit
from tritmark.harness.criteria.plan import CallsCriterion
from tritmark.harness.errors import CandidateError, DeviceError, WorkerError
from tritmark.harness.measure.statistics import least_share
from tritmark.harness.record import Status
from tritmark.harness.spec import Arrays, Variant
from tritmark.harness.text.units import count, counted
from tritmark.harness.validate.compare import Expected, expectations

CHUNK = 64
"""Calls in one message to the worker."""

CHUNK_ELEMENTS = 1 << 20
_OFFSETS = 64
"""Arrays begin at any multiple of their alignment within so many bytes."""


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """One call."""

    number: int
    size: int
    family: str
    threads: int
    offset: int
    """Bytes past the alignment of a cache line."""
    logical: Arrays

    def __str__(self) -> str:
        return (
            f"call {self.number}: {count(self.size)} elements, {self.family}, {counted(self.threads, 'thread')}, "
            f"{counted(self.offset, 'byte')} past the alignment"
        )


def drawn_call(bench: CriteriaBench, number: int, largest: int) -> DrawnCall:
    """The call of that number. Sizes are uniform in their logarithm, so that small and large ones are equally usual."""
    rng = np.random.default_rng([bench.seed, number])
    size = min(largest, int(exp(rng.uniform(0, log(largest + 1)))))
    family = str(rng.choice(bench.op.input_families))
    threads = int(rng.integers(1, bench.threads + 1)) if bench.device.memory is None else 1
    step = max(8, bench.best(size).alignment)  # no element of an array is larger
    offset = step * int(rng.integers(0, max(1, _OFFSETS // step)))
    return DrawnCall(number, size, family, threads, offset, bench.op.generate(bench.kernel.at(size), family, rng))


def expected_of(bench: CriteriaBench, call: DrawnCall) -> tuple[Expected, ...]:
    """The outputs of a call, by the reference."""
    axes = bench.kernel.at(call.size)
    return expectations(bench.op, axes, bench.key, bench.op.reference(call.logical, axes, bench.key))


def run_drawn(bench: CriteriaBench, variant: Variant, calls: list[DrawnCall]) -> dict[int, str]:
    """Make calls with one kernel. Returns what is incorrect, by the number of the call."""
    given = [
        tasks.CallInputs(
            bench.op.encode(each.logical, bench.kernel.at(each.size), variant.key.format),
            bench.kernel.at(each.size),
            each.threads,
            each.offset,
        )
        for each in calls
    ]
    try:
        replies: list[tasks.CallReply] = bench.workers.of(variant).call("random calls", tasks.run_calls, given)
    except (WorkerError, CandidateError, DeviceError) as error:
        bench.workers.renew(variant)
        if len(calls) == 1:
            return {calls[0].number: f"it broke: {error}"}
        # Only the calls that fail again count, each in a process that no earlier one harmed.
        half = len(calls) // 2
        return run_drawn(bench, variant, calls[:half]) | run_drawn(bench, variant, calls[half:])
    found: dict[int, str] = {}
    for each, reply in zip(calls, replies, strict=True):
        _, first = difference(expected_of(bench, each), reply.outputs)
        what = first or refused(reply)
        if what:
            found[each.number] = what
    return found


def judge_calls(bench: CriteriaBench, criterion: CallsCriterion) -> CriterionFinding:
    """Make the calls, until all are made, too many are incorrect, or the time is up."""
    admitted = criterion.calls - ceil(Fraction(str(criterion.threshold)) * criterion.calls)
    end = monotonic() + criterion.seconds
    made, wrong, failures = 0, 0, list[str]()
    kernels: dict[str, None] = {}
    waiting: dict[str, tuple[Variant, list[DrawnCall]]] = {}

    def send(id: str) -> None:
        nonlocal made, wrong
        variant, calls = waiting.pop(id)
        found = run_drawn(bench, variant, calls)
        made += len(calls)
        wrong += len(found)
        failures.extend(f"{each}: {found[each.number]}" for each in calls if each.number in found)

    for number in range(criterion.calls):
        if wrong > admitted or monotonic() > end:
            break
        call = drawn_call(bench, number, criterion.largest)
        variant = bench.best(call.size, threads=call.threads if bench.device.memory is None else None)
        kernels[variant.id] = None
        _, calls = waiting.setdefault(variant.id, (variant, []))
        calls.append(call)
        if len(calls) >= CHUNK or sum(each.size for each in calls) > CHUNK_ELEMENTS:
            send(variant.id)
    for id in list(waiting):
        if wrong <= admitted:
            send(id)
    return _finding(criterion, made, wrong, admitted, tuple(kernels), failures)


def _finding(
    criterion: CallsCriterion, made: int, wrong: int, admitted: int, kernels: tuple[str, ...], failures: list[str]
) -> CriterionFinding:
    right = made - wrong
    share = MeasuredFigure(
        name="correct calls",
        value=right / made if made else 0.0,
        unit=Unit.SHARE,
        low=least_share(right, made),
        high=1.0,
    )
    figures = (
        share,
        MeasuredFigure(name="calls", value=made, unit=Unit.COUNT),
        MeasuredFigure(name="incorrect calls", value=wrong, unit=Unit.COUNT),
    )
    more: dict[str, Any] = {
        "figures": figures,
        "kernel": ", ".join(kernels),
        "failures": tuple(failures[:SHOWN]),
        "notes": (f"at least {100 * least_share(right, made):.3f} % with 95 % confidence",),
    }
    if wrong > admitted:
        ended = "" if made == criterion.calls else f"; the other {count(criterion.calls - made)} were not made"
        reason = (
            f"{counted(wrong, 'call')} of {count(made)} incorrect, {admitted} of {count(criterion.calls)} are admitted"
        )
        return CriterionFinding(Status.FAIL, f"{reason}{ended}; {failures[0]}", **more)
    if made < criterion.calls:
        reason = f"the time of {criterion.seconds:g} s ended after {count(made)} of {count(criterion.calls)} calls"
        return CriterionFinding(Status.NOT_RUN, f"{reason}, {counted(wrong, 'of them', 'of them')} incorrect", **more)
    return CriterionFinding(Status.PASS, **more)
