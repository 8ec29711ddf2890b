"""The request of a sweep: the chosen kernels of an op on a grid of its axes. It is judged and timed like any suite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import product
from math import prod

from tritmark.harness.errors import UsageError
from tritmark.harness.judge.request import Request
from tritmark.harness.nearest import nearest
from tritmark.harness.providers import Installed
from tritmark.harness.spec import Op, Workload
from tritmark.harness.suite import SelectedWorkload, Suite
from tritmark.harness.sweep.axes import AxisSizes, as_text, sizes

SUITE = "sweep"
"""Name of the suite in Records of sweeps."""
MOST_WORKLOADS = 256
MOST_PICTURES = 6
"""The largest number of grids over the other swept axes: each is a picture of its own."""
_DEFAULTS = "quick"
"""The suite whose workloads give the sizes of axes that are not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What to time: the options of `tritmark sweep`."""

    op: str
    axes: Mapping[str, AxisSizes]
    variant: str = "*"
    format: str = "*"
    dtype: str = "*"
    device: str = "*"
    threads: int | None = None
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep that was checked: its suite, and how its axes were chosen."""

    options: SweepOptions
    suite: Suite
    axes: Mapping[str, tuple[int, ...]]
    """The sizes of each axis of the op."""
    along: str
    """The axis of the pictures: the first one with several sizes."""
    chosen: tuple[str, ...] = field(default=())
    """The axes that were not given, with sizes of a workload."""

    def request(self, seed: int, command: tuple[str, ...]) -> Request:
        """The request to the judge. Memory and peers are left out: `tritmark run` judges them."""
        options = self.options
        return Request(
            suite=self.suite,
            op=options.op,
            variant=options.variant,
            device=options.device,
            threads=options.threads,
            seed=seed,
            command=command,
            timeout_s=options.timeout_s,
            dimensions=frozenset({"accuracy", "performance"}),
        )


def planned(installed: Installed, options: SweepOptions) -> SweepPlan:
    """Check the options against what is installed. Raises UsageError."""
    op = installed.ops.get(options.op)
    if op is None:
        raise UsageError(f"sweep: unknown op {options.op!r}; {nearest(options.op, installed.ops)}")
    for name in options.axes:
        if name not in op.axes:
            raise UsageError(f"sweep: {op.name} has no axis {name!r}; {nearest(name, op.axes)}")
    given = {name: sizes(name, each) for name, each in options.axes.items()}
    swept = [name for name in options.axes if len(given[name]) > 1]
    if not swept:
        raise UsageError(f"sweep: no axis has several sizes; legal: such as {op.axes[0]}=1..4096")
    usual = _usual(installed, op)
    missing = tuple(name for name in op.axes if name not in given)
    if missing and usual is None:
        raise UsageError(
            f"sweep: {op.name} needs the axes {', '.join(missing)}; legal: --axis {missing[0]}=SIZES for each"
        )
    axes = {name: given.get(name) or (usual.axes[name] if usual else 0,) for name in op.axes}
    count, pictures = prod(map(len, axes.values())), prod(len(given[name]) for name in swept[1:])
    if count > MOST_WORKLOADS or pictures > MOST_PICTURES:
        raise UsageError(
            f"sweep: {as_text(axes)} has {count} shapes in {pictures} pictures; legal: at most {MOST_WORKLOADS} shapes "
            f"and {MOST_PICTURES} pictures, one for each combination of all swept axes but {swept[0]}"
        )
    formats, dtypes = (
        _matching(what, glob, known[op.name])
        for what, glob, known in (
            ("format", options.format, installed.known.formats),
            ("dtype", options.dtype, installed.known.dtypes),
        )
    )
    family = usual.family if usual else "normal" if "normal" in op.input_families else op.input_families[0]
    # By default the best kernel of each format: all kernels of an op would take hours.
    fastest = 1 if options.variant == "*" else 0
    selected = tuple(
        SelectedWorkload(
            Workload(op=op.name, axes=dict(zip(axes, shape, strict=True)), family=family, measure=True),
            formats,
            dtypes,
            (),
            fastest,
        )
        for shape in product(*axes.values())
    )
    text = json.dumps([op.name, {name: list(each) for name, each in axes.items()}, formats, dtypes, family, fastest])
    title = f"{op.name} over {as_text({name: given[name] for name in swept})}"
    suite = Suite(SUITE, title, sha256(text.encode()).hexdigest(), selected)
    return SweepPlan(options, suite, axes, swept[0], missing)


def _usual(installed: Installed, op: Op) -> Workload | None:
    """The first workload that the suite `quick` times for this op."""
    selected = installed.suite(_DEFAULTS).selected
    found = (each.workload for each in selected if each.workload.op == op.name)
    return next((each for each in found if each.measure and each.timed and each.axes), None)


def _matching(what: str, glob: str, legal: Iterable[str]) -> tuple[str, ...]:
    names = tuple(legal)
    found = () if glob == "*" else tuple(name for name in names if fnmatchcase(name, glob))
    if glob != "*" and not found:
        raise UsageError(f"sweep: no {what} matches {glob!r}; {nearest(glob, names)}")
    return found
