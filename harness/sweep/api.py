"""tritmark.sweep."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.judge.request import SilentObserver
from tritmark.harness.store import Store
from tritmark.harness.sweep.axes import AxisSizes, as_text
from tritmark.harness.sweep.figures import SweepFigures
from tritmark.harness.sweep.plan import SweepOptions, SweepPlan, planned

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sweep(SweepFigures):
    """The figures of a sweep. `record` holds them, with all samples, and is the file `path`."""

    path: Path

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each kernel and shape, with the columns of `tritmark frame`."""
        from tritmark.harness.frame.table import table

        return table([self.path])

    def plot(self, path: str | Path | None = None) -> Figure:
        """The plot as a figure of matplotlib. With `path` it is also written there: PNG, SVG or HTML by the suffix.

        Raises UsageError for another suffix, and if nothing was timed."""
        from tritmark.harness.report.picture import figure
        from tritmark.harness.sweep.page import picture_of, save

        if path is not None:
            save(self, Path(path))
        return figure(picture_of(self))

    def _repr_html_(self) -> str:
        from tritmark.harness.sweep.page import notebook

        return notebook(self)


def sweep(
    op: str,
    axes: Mapping[str, AxisSizes],
    *,
    variant: str = "*",
    format: str = "*",
    dtype: str = "*",
    device: str = "*",
    threads: int | None = None,
    seed: int | None = None,
    timeout_s: float = 120.0,
    out: str | Path = "results",
) -> Sweep:
    """Judge and time kernels of an op over its axes, as `tritmark sweep` does. Writes a Record under `out`.

    `axes` has sizes by axis: "1..4096" (powers of two), "1..4096:x1.5", "1,2,8", a number, or several numbers. The
    first axis with several sizes is that of the plot. Other axes take the sizes of a workload of the suite `quick`.

    `variant`, `format`, `dtype` and `device` are globs. By default the best kernel of each format is timed. `threads`:
    by default one per physical core. `seed` repeats data; drawn by default. `timeout_s`: seconds that a call may take.

    Raises UsageError for invalid arguments, DeviceUnavailableError if no chosen device is there, and
    BadEnvironmentError for a fault of the session.
    """
    from tritmark.harness.judge.planning import chosen_devices, missing
    from tritmark.harness.judge.runner import execute
    from tritmark.harness.providers import load
    from tritmark.harness.record.facts import ask
    from tritmark.harness.worker.process import prepare

    ask()
    prepare()
    installed = load()
    installed.choose(device)
    options = SweepOptions(
        op=op,
        axes=axes,
        variant=variant,
        format=format,
        dtype=dtype,
        device=device,
        threads=threads,
        timeout_s=timeout_s,
    )
    plan = planned(installed, options)
    request = plan.request(secrets.randbits(32) if seed is None else seed, _command(plan, out))
    absent = missing(installed, request)
    if absent.keys() == chosen_devices(installed, request).keys():
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise DeviceUnavailableError(f"no device for the sweep: {reasons}", next_step="choose another device")
    record, path = execute(installed, request, Store(Path(out)), SilentObserver())
    return Sweep(record, plan, path)


def _command(plan: SweepPlan, out: str | Path) -> tuple[str, ...]:
    """The command that does the same, for the Record."""
    options, words = plan.options, ["tritmark", "sweep", plan.options.op]
    for name in options.axes:
        words += ["--axis", as_text({name: plan.axes[name]})]
    named: dict[str, Any] = {
        "--variant": options.variant,
        "--format": options.format,
        "--dtype": options.dtype,
        "--device": options.device,
    }
    for name, value in named.items():
        if value != "*":
            words += [name, value]
    if options.threads is not None:
        words += ["--threads", str(options.threads)]
    if str(out) != "results":
        words += ["--results", str(out)]
    return tuple(words)
