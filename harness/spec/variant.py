"""Variant: one implementation of an Op for a KernelKey, its limits on shapes, and its rank in the selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from tritmark.harness.errors import RegistrationError
from tritmark.harness.spec.launch import Launch
from tritmark.harness.spec.op import Arrays, Axes, KernelKey
from tritmark.harness.spec.renamed import renamed


class Tier(IntEnum):
    """How much work went into a variant. `select_best` takes the highest tier that fits, and its highest rank."""

    PEER = -2
    """Third-party. Judged like any other variant, and taken only by name."""
    CANDIDATE = -1
    """Under judgement: taken only by name. A key may have any number of candidates."""
    REFERENCE = 0
    BASELINE = 1
    OPTIMIZED = 2
    HIGHLY_OPTIMIZED = 3
    EXTREMELY_OPTIMIZED = 4

    @property
    def named_only(self) -> bool:
        """Whether it is taken only by name. A key may have any number of such variants."""
        return self < Tier.REFERENCE


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
    """Compiled code of a variant, for disassembly: a file, or the bytes of one."""

    kind: str
    """cubin (of a GPU), native (of the host) or python (a source)."""
    name: str
    """For display."""
    entries: tuple[str, ...]
    """Functions that a run calls; the functions that they call in the same file are read too."""
    target: str
    """Such as sm_90 or x86-64."""
    path: str = ""
    """"" if `data` holds the bytes."""
    data: bytes = b""
    spilled: Mapping[str, int] = field(default_factory=dict)
    """Bytes of register spills of each function, as reported by the compiler."""


def no_workspace(axes: Axes) -> int:
    """The workspace of a variant that needs none: 0 bytes."""
    return 0


def loaded_already() -> None:
    """For a variant whose code is loaded on import."""


def nothing_missing() -> str | None:
    """For a variant without optional dependencies: None, nothing is missing."""
    return None


def _no_version() -> str:
    """For a variant of tritmark or of the user: "", its code has a hash."""
    return ""


def _no_code(target: str, binaries: frozenset[str] = frozenset()) -> tuple[CodeFile, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """The instances of a variant for given axes, from which `tritmark tune instances` measures the fastest.

    `each` maps an instance's name to a variant that always launches this instance. The first is the built-in choice,
    which is launched unless another was measured to be faster (see harness.tuned). `identity`: the conditions under
    which such a measurement holds, such as "device", "driver" and "code".
    """

    each: Mapping[str, Variant]
    identity: Mapping[str, str]


@renamed(bound="error_bound")
@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One implementation of an Op: its key, its requirements, and how to bind it to arguments.

    - `bind(inputs, outputs, axes, threads)` returns a Launch; `inputs` are encoded for the key's format.
    - `alignment`: the alignment in bytes that the arrays must have (1: any). For arrays with less, another variant is
      selected.
    - `workspace(axes)`: the scratch memory of a call in bytes.
    - `rank` decides between variants of one tier. Variants of one key differ in tier or rank, except those that are
      taken only by name.
    - `dense` names inputs whose rows must be adjacent, although the contract admits strides.
    - `reports_nonfinite`: its launches report forbidden elements (see Launch.bad).
    - `code_hash`: the SHA-256 of a candidate's code file; "" if the device or its launcher reports the hash.
    - `code(target, binaries)` returns the compiled code for disassembly, without loading it. `target` is a GPU's
      architecture such as "sm_90" ("": the GPU of this machine). If `binaries` is not empty, only binaries with these
      SHA-256. () if there is no compiled code, as for Python.
    - `error_bound(inputs, axes)` returns the largest absolute error of each output, computed from the logical inputs.
      It raises InvalidArgumentError for inputs that its number formats cannot represent. None: the op's contract holds.
    - `instances(axes)` returns its instances on the device; None: there is no choice.
    - `tuned`, for receipts: in what it was measured to be better than the built-in choice that it replaces; "" if it
      replaces none.

    For third-party code:

    - `missing()` returns why it is not installed and the next step, or None. It loads nothing.
    - `version()` returns its version and the instruction sets of its build. It loads nothing, and is called only if
      nothing is missing.
    - `load()` loads it, in the process that runs it and before anything of it is watched. It raises on failure.
    - `packs`: binding copies inputs into its own layout, as its users do once when they load a model. A launch then
      does not see later writes to its inputs, and the copy does not count as workspace.
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
    version: Callable[[], str] = _no_version
    load: Callable[[], object] = loaded_already
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
        """The kernel's full name, as in Records and receipts."""
        return f"{self.key}/{self.name}"

    @property
    def precedence(self) -> tuple[Tier, int]:
        """The sort key of the selection: of several variants that fit, the highest is chosen."""
        return self.tier, self.rank
