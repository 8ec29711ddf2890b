"""Variant: one implementation of an Op for a KernelKey, the shapes that it takes, and by what it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

from tritmark.harness.errors import RegistrationError
from tritmark.harness.spec.launch import Launch
from tritmark.harness.spec.op import Arrays, Axes, KernelKey
from tritmark.harness.spec.renamed import renamed


class Tier(IntEnum):
    """How much work went into a variant; `select_best` takes the highest that fits, and the highest rank within it."""

    PEER = -2
    """Somebody else's, judged like any other: taken only where it is named."""
    CANDIDATE = -1
    """Under judgement: taken only where it is named, and any number of them may stand side by side."""
    REFERENCE = 0
    BASELINE = 1
    OPTIMIZED = 2
    HIGHLY_OPTIMIZED = 3
    EXTREMELY_OPTIMIZED = 4

    @property
    def named_only(self) -> bool:
        """Whether it is never selected, but by its name. Any number of them may stand side by side."""
        return self < Tier.REFERENCE


class Requirement(StrEnum):
    """What the variant that is chosen by measurement has to be best at (see harness.selection)."""

    __hash__ = str.__hash__  # an Enum's own is Python, and asked for at each call of a kernel

    LATENCY = "latency"
    """The time of a call whose arrays come from memory, as the weights of one layer do after those of all others; in
    the caches where nothing so small gets cold."""
    THROUGHPUT = "throughput"
    """The time of a call right after another with the same arrays: what fits into the caches is there."""
    MEMORY = "memory"
    """The bytes of inputs as the kernel takes them (weights packed) and of its workspace; of equals, the latency."""
    EXACTNESS = "exactness"
    """The latency, of those alone whose outputs are held to no error bound: exact, or rounded once."""


class Constraint(Protocol):
    """A limit on the shapes that a variant takes."""

    def refusal(self, axes: Axes) -> str | None:
        """Why these axes are not admitted, or None."""


@dataclass(frozen=True, slots=True)
class MinSize:
    """The axis is at least `size`."""

    axis: str
    size: int

    def refusal(self, axes: Axes) -> str | None:
        return f"{self.axis} = {axes[self.axis]} is under {self.size}" if axes[self.axis] < self.size else None


@dataclass(frozen=True, slots=True)
class MaxSize:
    """The axis is at most `size`."""

    axis: str
    size: int

    def refusal(self, axes: Axes) -> str | None:
        return f"{self.axis} = {axes[self.axis]} is over {self.size}" if axes[self.axis] > self.size else None


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """The axis is a multiple of `factor`."""

    axis: str
    factor: int

    def refusal(self, axes: Axes) -> str | None:
        return (
            f"{self.axis} = {axes[self.axis]} is no multiple of {self.factor}"
            if axes[self.axis] % self.factor
            else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """Compiled code of a variant, for the tools that read it: a file, or the bytes of one."""

    kind: str
    """cubin (of a GPU), native (of the host) or python (a source)."""
    name: str
    """For people."""
    entries: tuple[str, ...]
    """Functions that a run begins with; what they call in the same file is read too."""
    target: str
    """Such as sm_90 or x86-64."""
    path: str = ""
    """"" where `data` has it."""
    data: bytes = b""
    spilled: Mapping[str, int] = field(default_factory=dict)
    """Bytes of registers that each function stores to memory and loads back, as its compiler said."""


def no_workspace(axes: Axes) -> int:
    """That of a variant that needs none."""
    return 0


def nothing_missing() -> str | None:
    """That of a variant that needs nothing that may not be installed."""
    return None


def _no_code(target: str, binaries: frozenset[str] = frozenset()) -> tuple[CodeFile, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """What a variant may launch for given axes, for those who measure which is the fastest.

    `each` has a variant that always launches one of them, by the instance's name; first is the built-in choice, which
    is launched unless another was found to be faster (see harness.tuned). `identity`: what such a finding holds for,
    as "device", "driver" and "code".
    """

    each: Mapping[str, Variant]
    identity: Mapping[str, str]


@renamed(bound="error_bound")
@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One implementation of an Op: what it is for, what it needs, and how to bind it to arguments.

    `bind(inputs, outputs, axes, threads)` returns a Launch; `inputs` are encoded for the key's format. `alignment` is
    the alignment in bytes that the arrays must have (1 where any will do). `workspace(axes)` is the scratch memory in
    bytes that a call takes. `rank` decides between variants of one tier: no two of a key have both the same tier and
    the same rank, but those that are taken by name only. `dense` names inputs whose rows it takes only one right after
    the other, although the contract lets them lie apart. `reports_nonfinite`: its launches tell of forbidden elements
    by themselves (see Launch.bad). `code_hash` is the SHA-256 of the file with the code of a candidate; "" where the
    device or its launcher tells. `code(target, binaries)` gives the compiled code for those who read it, without
    loading it: for a GPU's architecture such as "sm_90" ("" is that of the GPU here), and only the binaries with these
    SHA-256 unless there are none. () where there is none to read, as for Python.

    For code of others: `missing()` says why it is not installed and what to do about it, or None, and loads nothing;
    `load()` does, where it is to run and before anything of it is watched, and raises where it cannot.
    `packs`: binding turns inputs into a layout of its own, as its users do once when they load a model. So a launch
    does not see what is written into its inputs later, and what that takes is no workspace. `bound(inputs, axes)` gives
    for each output the largest absolute error that its arithmetic admits, computed from the logical inputs, and raises
    InvalidArgumentError for inputs that its numbers do not hold; None: it is held to the op's contract.
    `instances(axes)` tells what it may launch, on the device; None: there is no choice. `tuned` stands in receipts: for
    what it was measured to be better here than the built-in choice, in whose place it was selected; "" where nothing
    was.
    """

    key: KernelKey
    name: str
    tier: Tier
    summary: str
    bind: Callable[[Arrays, Arrays, Axes, int], Launch]
    features: frozenset[str] = frozenset()
    constraints: tuple[Constraint, ...] = ()
    alignment: int = 1
    workspace: Callable[[Axes], int] = no_workspace
    dense: frozenset[str] = frozenset()
    reports_nonfinite: bool = True
    code_hash: str = ""
    code: Callable[[str, frozenset[str]], Sequence[CodeFile]] = _no_code
    rank: int = 0
    missing: Callable[[], str | None] = nothing_missing
    load: Callable[[], object] = lambda: None
    packs: bool = False
    error_bound: Callable[[Arrays, Axes], Mapping[str, Any]] | None = None
    instances: Callable[[Axes], Instances] | None = None
    tuned: str = ""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise RegistrationError(f"{self.key}: variant name {self.name!r} must be non-empty and hold no '/'")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise RegistrationError(f"{self.id}: alignment {self.alignment} is not a power of two")

    @property
    def id(self) -> str:
        """The kernel's full name, as records and receipts carry it."""
        return f"{self.key}/{self.name}"

    @property
    def precedence(self) -> tuple[Tier, int]:
        """By which one of several that fit is chosen: the highest."""
        return self.tier, self.rank
