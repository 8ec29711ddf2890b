"""Access patterns of a device's kernels, as a simulator of the device traces them. They are never measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritmark.harness.spec.op import Op
    from tritmark.harness.spec.variant import Variant

DEVICE_MEMORY, SHARED_MEMORY = "device", "shared"
_KINDS = ("read", "write", "atomic")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedAccess:
    """One load or store instruction of a function, over all warps and executions of a simulated call. In shared memory:
    those of one block of each launch."""

    function: str
    line: str
    """ "file:line", with the places it was inlined into; "" if unknown."""
    memory: str
    """device or shared."""
    kind: str
    """read, write or atomic."""
    size: int
    """Bytes per lane."""
    pattern: str
    """From lane to lane, in units of `size`: sequential, strided by N, or random."""
    requests: int
    """Executions by warps."""
    transactions: int
    """Transactions that the requests take: sectors of 32 bytes in device memory, passes over the banks in shared
    memory."""
    least: int
    """The fewest transactions for the same bytes: full sectors, or no bank conflict."""

    def __post_init__(self) -> None:
        if self.memory not in {DEVICE_MEMORY, SHARED_MEMORY} or self.kind not in _KINDS:
            raise ValueError(
                f"{self.kind!r} of {self.memory!r} memory; legal: {', '.join(_KINDS)} of {DEVICE_MEMORY} or "
                f"{SHARED_MEMORY} memory"
            )
        if not 1 <= self.requests <= self.least <= self.transactions:
            raise ValueError(
                f"{self.requests} requests, at least {self.least} and in fact {self.transactions} transactions; legal: "
                "1 <= requests <= least <= transactions"
            )

    @property
    def share(self) -> float:
        """`least` / `transactions`: the coalescing of an access to device memory, 1 without bank conflicts in shared
        memory."""
        return self.least / self.transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAccesses:
    """The access patterns of one kernel: simulated facts about its code, without any time."""

    kernel: str
    """device/op/format/dtype/variant."""
    axes: dict[str, int] = field(default_factory=dict)
    """The axes of the simulated call. They are small, and have no tails."""
    simulator: str = ""
    """The simulator and its compiler."""
    accesses: tuple[TracedAccess, ...] = ()
    """By launch, in code order."""
    note: str = ""
    """Why nothing was traced, and the next step; "" if it was."""

    def totals(self, memory: str, functions: frozenset[str] | None = None) -> tuple[int, int, int]:
        """Requests, transactions and fewest transactions of all accesses to a memory, by these functions if given."""
        found = [
            each
            for each in self.accesses
            if each.memory == memory and (functions is None or each.function in functions)
        ]
        return (
            sum(each.requests for each in found),
            sum(each.transactions for each in found),
            sum(each.least for each in found),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTracing:
    """A simulator that traces the accesses of a device's kernels, in a process of its own.

    `missing()` returns why it cannot be used here and the next step, or None. `environment()` returns the variables
    with which a new process has the simulator in place of the device. `trace(op, variant)`, in such a process, runs a
    small call. It raises TritmarkError if the simulator cannot run it.
    """

    missing: Callable[[], str | None]
    environment: Callable[[], Mapping[str, str]]
    trace: Callable[[Op, Variant], KernelAccesses]
