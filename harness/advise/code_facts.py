"""What rules on compiled code share: which function and which launch they speak of, counts, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tritmark.harness.advise import interval
from tritmark.harness.advise.evidence import Evidence
from tritmark.harness.record import Fact, Function, Gain, Gpu
from tritmark.harness.spec import Launched
from tritmark.harness.text import units

REACHED = 0.4
"""The part of what a formula adds to 1 that is promised at least: what tuned kernels reached of their distance, see
rule latency-bound."""

LEAST = 1.1
"""A formula that gives less says nothing: instruction counts are no better than that."""

INTENSE = 4
"""Operations for a byte from which on a kernel is a product: those here do 8 and more for a byte of packed weights,
quantizers 1 to 3."""

SMALL = 0.1
"""Share of the threads of a Run's largest launch under which another launch does not set its time."""

LOOP_SHARE = 0.15
"""Share of a function's instructions from which on its hottest loop stands for it: in the CUDA kernels here (sm_90)
loops of the main path hold 17 to 91 % of the instructions, and loops over tails and rare cases beside a straight
main path 1 to 8 %."""

_DIM = "{} x {} x {}"


@dataclass(frozen=True, slots=True)
class LaunchedFunction:
    """A function that was launched, and how."""

    function: Function
    launch: Launched

    @property
    def blocks(self) -> int:
        return prod(self.launch.grid)

    @property
    def threads(self) -> int:
        """Of a block."""
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
    """Those of a GPU that the Run launched, but for small launches; () on the host, and where nobody looked."""
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
    """The GPU that ran it; None where the Record does not know."""
    receipt = evidence.run.receipt
    return next((each for each in evidence.machine.gpus if receipt is not None and each.uuid == receipt.uuid), None)


def far(evidence: Evidence) -> bool:
    """Whether the time lies far above what bytes and operations take: else no rule on instructions says anything
    (rule latency-bound)."""
    from tritmark.harness.advise.rules.latency_bound import FAR  # rules import this module

    return evidence.t > FAR * evidence.usual


def busy(function: Function) -> Mapping[str, int]:
    """The instructions that run most: of the hottest loop, or of the whole function where that loop is a small part
    of it."""
    whole = sum(function.instructions.values())
    return (
        function.loop if sum(function.loop.values()) >= LOOP_SHARE * whole and function.loop else function.instructions
    )


def number(counts: Mapping[str, int], names: Iterable[str]) -> int:
    """How many instructions have one of the names; a name that ends with a point stands for all that begin with it."""
    given = tuple(names)
    return sum(
        count
        for name, count in counts.items()
        if name in given or any(each[-1] == "." and name.startswith(each) for each in given)
    )


def saved(counts: Mapping[str, int], instructions: float) -> float:
    """The gain of so many instructions less: the old number over the new one."""
    whole = sum(counts.values())
    return whole / max(1.0, whole - instructions)


def promised(evidence: Evidence, formula: float) -> Gain | None:
    """From 1 and REACHED of what a formula adds to it, to what bytes and operations allow: who rewrites a loop mends
    more than its one fault. None where the formula gives next to nothing."""
    reached = min(formula, evidence.t / evidence.usual)
    high = evidence.t / evidence.shared
    return interval.gain(1 + REACHED * (reached - 1), high) if reached >= LEAST else None


def product(evidence: Evidence) -> bool:
    """Whether it does many operations for each byte."""
    return evidence.ops >= INTENSE * evidence.b


def distance(evidence: Evidence) -> Fact:
    """How far the time lies above what bytes and operations take."""
    return Fact(
        name="t over the time of its bytes and operations",
        value=units.number(evidence.t / evidence.shared),
        source="performance.hot, machine.ceilings: copy",
    )


def of(function: Function) -> Fact:
    """Which function, and for what target."""
    return Fact(name="function", value=f"{function.name} ({function.target})", source="code.functions")


def counts(what: str, found: int, all_of: Mapping[str, int], function: Function) -> Fact:
    """So many of the instructions that run most."""
    where = "loop" if all_of is function.loop else "instructions"
    return Fact(name=what, value=f"{found} of {sum(all_of.values())} instructions", source=f"code.functions: {where}")


def counted(evidence: Evidence) -> tuple[Function, ...]:
    """The functions of a GPU that Nsight Compute counted."""
    return tuple(function for function in functions(evidence) if function.counters)


def counter(function: Function, name: str) -> float | None:
    """What was counted; None where it was not."""
    return function.counters.get(name)


def counters(function: Function, *names: str) -> tuple[Fact, ...]:
    """Those of them that were counted, as evidence."""
    return tuple(
        Fact(name=name, value=units.number(value), source="Nsight Compute")
        for name in names
        if (value := function.counters.get(name)) is not None
    )
