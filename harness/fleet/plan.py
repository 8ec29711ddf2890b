"""Which jobs a request makes for the kinds of machines of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tritmark.harness.errors import UsageError
from tritmark.harness.fleet.kinds import MachineKind
from tritmark.harness.fleet.model import FleetJob
from tritmark.harness.judge.planning import plan_anywhere
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import Installed


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The jobs, and what each of them is given."""

    jobs: tuple[FleetJob, ...]
    idle: tuple[MachineKind, ...]
    """Kinds whose device has no kernel for the request."""
    arguments: tuple[str, ...]
    """Of `tritmark run`, without op and device."""
    files: dict[str, str]


def chosen(kinds: Sequence[MachineKind], glob: str) -> list[MachineKind]:
    """The kinds that the glob matches. Raises UsageError if there is none among them."""
    found = [kind for kind in kinds if fnmatchcase(str(kind), glob)]
    if kinds and not found:
        raise UsageError(f"--kind {glob!r} matches no kind; legal: {', '.join(map(str, kinds))}")
    return found


def planned(installed: Installed, request: Request, kinds: Sequence[MachineKind], suite: str) -> FleetPlan:
    """A job for each kind and each op with kernels on its device. `suite` is its name, or the path of its file.

    Raises UsageError if the request matches nothing on any device.
    """
    plan_anywhere(installed, replace(request, device="*"))  # for its message, which names the legal names
    ops = {device: list(_ops(installed, request, device)) for device in dict.fromkeys(kind.device for kind in kinds)}
    jobs = [FleetJob(kind=str(kind), op=op) for kind in kinds for op in ops[kind.device]]
    if not jobs:
        raise UsageError(
            f"--op {request.op!r} and --variant {request.variant!r} leave no kernel of suite {suite} for the devices "
            f"of the kinds {', '.join(map(str, kinds))}"
        )
    name, files = _shipped(suite)
    threads = () if request.threads is None else ("--threads", str(request.threads))
    arguments = (
        *("--suite", name, "--variant", request.variant, "--seed", str(request.seed)),
        *("--timeout", str(request.timeout_s), *threads),
    )
    return FleetPlan(tuple(jobs), tuple(kind for kind in kinds if not ops[kind.device]), arguments, files)


def _ops(installed: Installed, request: Request, device: str) -> Iterator[str]:
    try:
        groups = plan_anywhere(installed, replace(request, device=device))
    except UsageError:  # nothing of it is for that device
        return
    yield from dict.fromkeys(group.op.name for group in groups)


def _shipped(suite: str) -> tuple[str, dict[str, str]]:
    """The name of the suite on a worker, and the files that it needs there."""
    if not suite.endswith(".toml"):
        return suite, {}
    import tomllib

    path = Path(suite)
    text = path.read_text(encoding="utf-8")
    beside = tomllib.loads(text).get("models", "")
    files = {path.name: text}
    return path.name, files | ({beside: (path.parent / beside).read_text(encoding="utf-8")} if beside else {})
