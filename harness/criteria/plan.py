"""The plan: a TOML file with the op, the baseline and the criteria, checked against what is installed.

[kernels.NAME]                      # op, format and dtype of kernels; `axis`: the axis whose size varies
[baseline]                          # `device`, and `plain`: a variant of it that is timed on one thread
[[criteria]]                        # `id`, `kind`, `source`, `words`, `threshold`, `kernel`, and the keys of the kind
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tritmark.harness.errors import UsageError
from tritmark.harness.nearest import nearest
from tritmark.harness.numbered import numbered
from tritmark.harness.spec import KernelKey

if TYPE_CHECKING:
    from tritmark.harness.providers import Installed

FILE = "criteria.toml"
"""Its name in the package with the workloads of a provider."""

Size = Annotated[int, Field(ge=1, strict=True)]
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]
Power = Annotated[int, Field(ge=0, le=40, strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Criterion(_Table):
    """What all criteria have."""

    id: Annotated[str, Field(min_length=1)]
    source: str
    """Where the criterion is stated."""
    words: str
    """The criterion in words."""
    threshold: float
    kernel: str = ""
    """The name of the kernels that it judges; by default the first ones."""


class _Powers(_Criterion):
    powers: tuple[Power, Power]
    """Exponents of the least and the largest size, which are powers of two."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.powers[0] >= self.powers[1]:
            raise ValueError("powers must rise")
        return self


class SpeedUpCriterion(_Powers):
    """An accelerator is at least `threshold` times as fast as the best kernel of the baseline, at the largest size."""

    kind: Literal["speedup"]
    data: Literal["resident", "end to end"]
    """Whether the data is where the kernel works, or in host memory before and after the call."""


class ExactCriterion(_Criterion):
    """At most `threshold` elements differ from the reference, or from the baseline's kernel."""

    kind: Literal["exact"]
    sizes: Sizes


class MemoryCriterion(_Criterion):
    """A call takes less than `threshold` times the bytes of its inputs beyond inputs and outputs."""

    kind: Literal["memory"]
    size: Size


class LeakCriterion(_Criterion):
    """No memory grows with the calls."""

    kind: Literal["leaks"]
    size: Size


class CallsCriterion(_Criterion):
    """At least the share `threshold` of random calls is correct."""

    kind: Literal["calls"]
    calls: Size
    largest: Size
    """The largest size of a call."""
    seconds: Annotated[float, Field(gt=0)]
    """Time limit; NOT RUN if it ends before the calls."""


class ScalingCriterion(_Powers):
    """Twice the size takes at most `threshold` times the time."""

    kind: Literal["scaling"]


class LatencyCriterion(_Criterion):
    """A whole call takes less than `threshold` milliseconds."""

    kind: Literal["latency"]
    size: Size


class CrossCriterion(_Criterion):
    """At most `threshold` elements differ from other implementations because the kernel is incorrect."""

    kind: Literal["cross"]
    sizes: Sizes


class MigrationCriterion(_Criterion):
    """The time saved over another implementation, as a share of its time, is at least `threshold`."""

    kind: Literal["migration"]
    size: Size


class UnitsCriterion(_Criterion):
    """At least the share `threshold` of the devices of the kind gives correct results; on the host, of the cores."""

    kind: Literal["units"]
    size: Size


Criterion = Annotated[
    SpeedUpCriterion
    | ExactCriterion
    | MemoryCriterion
    | LeakCriterion
    | CallsCriterion
    | ScalingCriterion
    | LatencyCriterion
    | CrossCriterion
    | MigrationCriterion
    | UnitsCriterion,
    Field(discriminator="kind"),
]


class KernelTable(_Table):
    """An op, and its kernels."""

    op: str
    format: str | dict[str, str]
    """The format of the kernels, for all devices or by type of device."""
    dtype: str
    axis: str
    """The axis whose size varies."""
    axes: dict[str, Size] = {}
    """Sizes of the other axes."""
    family: str
    """Input family of timed calls."""
    call: str = ""
    """Name of the public call that is timed end to end, see PublicCall; "" if no criterion needs it."""

    def at(self, size: int) -> dict[str, int]:
        """The axes of a call of that size."""
        return {**self.axes, self.axis: size}

    def key(self, device: str) -> KernelKey:
        """The key of the kernels on that device."""
        kind = (numbered(device) or (device,))[0]
        format = self.format if isinstance(self.format, str) else self.format.get(kind, "")
        return KernelKey(device, self.op, format, self.dtype)


class BaselineTable(_Table):
    """What an accelerator is compared with."""

    device: str
    plain: str
    """Name of a variant that is also timed, on one thread."""


class CriteriaPlan(_Table):
    """A whole plan."""

    kernels: Annotated[dict[str, KernelTable], Field(min_length=1)]
    baseline: BaselineTable
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [each.id for each in self.criteria]
        if len(set(ids)) < len(ids):
            raise ValueError("two criteria have the same id")
        return self

    @property
    def first(self) -> KernelTable:
        """The kernels that most criteria judge."""
        return next(iter(self.kernels.values()))

    def kernel_of(self, criterion: Criterion) -> KernelTable:
        """The kernels that a criterion judges."""
        return self.kernels[criterion.kernel] if criterion.kernel else self.first


def installed_plan(installed: Installed) -> CriteriaPlan:
    """The plan of the first provider that has one. Raises UsageError if there is none, or if it is invalid."""
    for provider in installed.providers.values():
        if provider.workloads:
            path = Path(import_module(provider.workloads).__path__[0]) / FILE
            if path.is_file():
                return read_plan(path, installed)
    raise UsageError(f"no installed package brings criteria; legal: one with {FILE} in its package of workloads")


def read_plan(path: Path, installed: Installed) -> CriteriaPlan:
    """Read a plan. Raises UsageError, with the file and the key, for any error in it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    try:
        plan = CriteriaPlan.model_validate(table)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}") from None
    _check(path, plan, installed)
    return plan


def _check(path: Path, plan: CriteriaPlan, installed: Installed) -> None:
    """Names must exist, so that a misspelt one does not look like a missing device."""

    def known(key: str, name: str, legal: Collection[str]) -> None:
        if name not in legal:
            raise UsageError(f"{path}: {key} is {name!r}; {nearest(name, legal)}")

    device = plan.baseline.device
    known("baseline.device", device, list(installed.registry.devices))
    for name, kernel in plan.kernels.items():
        at = f"kernels.{name}"
        known(f"{at}.op", kernel.op, installed.ops)
        op = installed.ops[kernel.op]
        known(f"{at}.family", kernel.family, op.input_families)
        known(f"{at}.axis", kernel.axis, op.axes)
        given = kernel.at(1)
        if set(given) != set(op.axes):
            raise UsageError(f"{path}: {at} gives the axes {', '.join(given)}; legal: exactly {', '.join(op.axes)}")
        keys = [key for key in installed.keys(op.name) if key.device == device]
        if kernel.key(device) not in keys:
            found, legal = kernel.key(device), [f"{key.format}/{key.dtype}" for key in keys]
            offer = nearest(f"{found.format}/{found.dtype}", legal)
            raise UsageError(f"{path}: {at} has no kernels of {found.format}/{found.dtype} on {device}; {offer}")
    at_baseline = [each.name for each in installed.registry.without_peers if each.key == plan.first.key(device)]
    known("baseline.plain", plan.baseline.plain, at_baseline)
    for criterion in plan.criteria:
        if criterion.kernel:
            known(f"{criterion.id}: kernel", criterion.kernel, plan.kernels)
        if isinstance(criterion, LatencyCriterion) or getattr(criterion, "data", "") == "end to end":
            kernel = plan.kernel_of(criterion)
            calls = [
                each.name
                for provider in installed.providers.values()
                for each in provider.calls()
                if (each.op, each.device) == (kernel.op, device)
            ]
            known(f"{criterion.id}: call", kernel.call, calls)
