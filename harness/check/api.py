"""tritmark.check."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Any

from tritmark.harness.check.verdict import CheckVerdict
from tritmark.harness.errors import DeviceUnavailableError, UsageError
from tritmark.harness.judge.request import SilentObserver
from tritmark.harness.nearest import nearest
from tritmark.harness.record import DIMENSIONS
from tritmark.harness.store import Store


def check(
    kernel: str | Path | Callable[..., Any],
    *,
    op: str = "*",
    dtype: str = "",
    format: str = "",
    dimension: str | Iterable[str] = DIMENSIONS,
    suite: str | Path = "quick",
    device: str = "*",
    threads: int | None = None,
    seed: int | None = None,
    timeout_s: float = 30.0,
    isolated: bool = True,
    inputs: str | Path | None = None,
    out: str | Path = "results",
) -> CheckVerdict:
    """Judge a kernel beside the best built-in one, as `tritmark check` does. Writes a Record under `out`.

    `kernel` is a .cu, .c, .cpp or .so with its manifest, a .py, or a Python function. Of a function the source is
    written to a file under `out`, because kernels run in a process of their own; `op`, `dtype` and `format` describe
    it, unless it has the decorator `tritmark.harness.candidate.kernel`. For a file, `op` is a glob.

    `dimension`: one or several of accuracy, performance, memory, cross. `suite`: a name, or a .toml. `threads`: by
    default one per physical core. `seed` repeats data; drawn by default. `timeout_s`: seconds that one call may take.
    `inputs`: judge only the inputs of a .npz that a failed check wrote.

    The verdict is true if nothing is FAIL or ERROR. Raises UsageError for an invalid argument, file or manifest, for a
    function whose source cannot be written, and if no workload ran; DeviceUnavailableError if the kernel's device is
    missing; BadEnvironmentError for a fault of the session.
    """
    began = monotonic()
    from tritmark.harness.candidate.callables import written
    from tritmark.harness.check.checking import CheckOptions, opened, own_record, replay, verdict_of
    from tritmark.harness.judge.runner import execute
    from tritmark.harness.record.facts import ask
    from tritmark.harness.worker.process import prepare

    dimensions = frozenset([dimension] if isinstance(dimension, str) else dimension)
    for each in dimensions - set(DIMENSIONS):
        raise UsageError(f"check: dimension is {each!r}; {nearest(each, DIMENSIONS)}")
    if not dimensions:
        raise UsageError(f"check: dimension is empty; legal: {', '.join(DIMENSIONS)}")
    ask()
    if isolated:
        prepare()
    store = Store(Path(out))
    if callable(kernel):
        file = written(kernel, store.out / "kernels", op=op, dtype=dtype, format=format)
        op = "*"
    elif dtype or format:
        raise UsageError("check: dtype and format describe a function; legal for a file: none, its manifest has them")
    else:
        file = Path(kernel)
    options = CheckOptions(
        file=file,
        op=op,
        suite=str(suite),
        device=device,
        threads=threads,
        dimensions=dimensions,
        timeout_s=timeout_s,
        isolated=isolated,
        scored="performance" in dimensions,
    )
    if inputs is not None:
        return replay(options, Path(inputs), began)
    found = opened(options)
    if found.impossible:
        missing = "; ".join(f"{name} is missing: {why}" for name, why in found.absent.items())
        raise DeviceUnavailableError(missing, next_step="run it on a machine with that device, or choose a device")
    request = found.request(secrets.randbits(32) if seed is None else seed, _command(options, out))
    record, _ = execute(found.installed, request, store, SilentObserver())
    own_record(record, found)
    return verdict_of(found, record, store, began)


def _command(options: Any, out: str | Path) -> tuple[str, ...]:
    """The command that does the same, for the Record."""
    words = ["tritmark", "check", str(options.file)]
    defaults = type(options)(file=options.file)
    for name, value in (("--op", options.op), ("--suite", options.suite), ("--device", options.device)):
        if value != getattr(defaults, name.removeprefix("--")):
            words += [name, value]
    if options.threads is not None:
        words += ["--threads", str(options.threads)]
    if options.dimensions != defaults.dimensions:
        words += [word for each in sorted(options.dimensions) for word in ("--dimension", each)]
    if str(out) != "results":
        words += ["--out", str(out)]
    return tuple(words)
