"""Helpers of rules on compiled code: functions, launches, counts, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tritmark.harness.advise import interval
from tritmark.harness.advise.evidence import INTENSE, Evidence
from tritmark.harness.record import Fact, Function, Gain, Gpu
from tritmark.harness.spec import Launched
from tritmark.harness.text import units

REACHED = 0.4
"""Lower end of a predicted gain, as a share of the formula's gain above 1: what tuned kernels reached, see rule
latency-bound."""

LEAST = 1.1
"""Least gain by a formula that counts: instruction counts are not more precise."""

SMALL = 0.1
"""A launch with a smaller share of the threads of a Run's largest launch is ignored: it does not set the time."""

LOOP_SHARE = 0.15
"""Share of a function's instructions from which its hottest loop represents it. In the CUDA kernels here (sm_90), loops
of the main path have 17 to 91 % of the instructions; loops over tails and rare cases have 1 to 8 %."""

_DIM = "{} x {} x {}"


@dataclass(frozen=True, slots=True)
class LaunchedFunction:
    """A launched function and its launch."""

    function: Function
    launch: Launched

    @property
    def blocks(self) -> int:
        return prod(self.launch.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.launch.block)

    @property
    def facts(self) -> tuple[Fact, Fact]:
        """The launch as evidence."""
        return (
            Fact(name="function", value=self.function.name, source="code.functions"),
            Fact(
                name="grid and block",
                value=f"{_DIM.format(*self.launch.grid)} blocks of {_DIM.format(*self.launch.block)} threads",
                source="receipt.launched",
            ),
        )


def functions(evidence: Evidence) -> tuple[Function, ...]:
    """The GPU functions that the Run launched, except small launches; () on the host and without compiled code."""
    if evidence.code is None or not evidence.on_device:
        return ()
    receipt = evidence.run.receipt
    threads = (
        {each.function: prod(each.grid) * prod(each.block) for each in receipt.launched} if receipt is not None else {}
    )
    most = max(threads.values(), default=0)
    return tuple(each for each in evidence.code.functions if threads.get(each.name, most) >= SMALL * most)


def ran(evidence: Evidence) -> Iterator[LaunchedFunction]:
    """Each launch with its function."""
    receipt = evidence.run.receipt
    known = {function.name: function for function in (evidence.code.functions if evidence.code is not None else ())}
    for launch in receipt.launched if receipt is not None else ():
        yield LaunchedFunction(known.get(launch.function, Function(name=launch.function, target="")), launch)


def gpu(evidence: Evidence) -> Gpu | None:
    """The GPU on which the Run ran; None if the Record does not have it."""
    receipt = evidence.run.receipt
    return next((each for each in evidence.machine.gpus if receipt is not None and each.uuid == receipt.uuid), None)


def far(evidence: Evidence) -> bool:
    """Whether the time is far above the time of bytes and operations (rule latency-bound). Rules on instructions apply
    only then."""
    from tritmark.harness.advise.rules.latency_bound import FAR  # rules import this module

    return evidence.t > FAR * evidence.usual


def busy(function: Function) -> Mapping[str, int]:
    """The instructions that run most: of the hottest loop, or of the function if the loop is a small part of it."""
    whole = sum(function.instructions.values())
    return (
        function.loop if sum(function.loop.values()) >= LOOP_SHARE * whole and function.loop else function.instructions
    )


def number(counts: Mapping[str, int], names: Iterable[str]) -> int:
    """The number of instructions with one of the names. A name that ends with a point matches as a prefix."""
    given = tuple(names)
    return sum(
        count
        for name, count in counts.items()
        if name in given or any(each[-1] == "." and name.startswith(each) for each in given)
    )


def saved(counts: Mapping[str, int], instructions: float) -> float:
    """The gain from removing `instructions`: the old count over the new one."""
    whole = sum(counts.values())
    return whole / max(1.0, whole - instructions)


def promised(evidence: Evidence, formula: float) -> Gain | None:
    """The predicted gain: from 1 + REACHED * (formula - 1) to the limit by bytes and operations.

    The upper end exceeds the formula because rewriting a loop improves more than one fault. None below LEAST.
    """
    reached = min(formula, evidence.t / evidence.usual)
    high = evidence.t / evidence.shared
    return interval.gain(1 + REACHED * (reached - 1), high) if reached >= LEAST else None


def product(evidence: Evidence) -> bool:
    """Whether the kernel does INTENSE operations per byte or more."""
    return evidence.ops >= INTENSE * evidence.b


def distance(evidence: Evidence) -> Fact:
    """The time over the time of bytes and operations, as evidence."""
    return Fact(
        name="t / time of bytes and operations",
        value=units.number(evidence.t / evidence.shared),
        source="performance.hot, machine.ceilings: copy",
    )


def of(function: Function) -> Fact:
    """The function and its target, as evidence."""
    return Fact(name="function", value=f"{function.name} ({function.target})", source="code.functions")


def counts(what: str, found: int, all_of: Mapping[str, int], function: Function) -> Fact:
    """A count of instructions among those that run most, as evidence."""
    where = "loop" if all_of is function.loop else "instructions"
    return Fact(name=what, value=f"{found} of {sum(all_of.values())} instructions", source=f"code.functions: {where}")


def counted(evidence: Evidence) -> tuple[Function, ...]:
    """The GPU functions with counters of Nsight Compute."""
    return tuple(function for function in functions(evidence) if function.counters)


def counter(function: Function, name: str) -> float | None:
    """The value of a counter; None if it was not counted."""
    return function.counters.get(name)


def counters(function: Function, *names: str) -> tuple[Fact, ...]:
    """The available counters, as evidence."""
    return tuple(
        Fact(name=name, value=units.number(value), source="Nsight Compute")
        for name in names
        if (value := function.counters.get(name)) is not None
    )
