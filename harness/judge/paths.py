"""The other paths of a candidate whose code asks which processor it runs on: its cases once more in processes that find
fewer features (see spec.Masking), one for each step below this processor's.

Only kernels that are right on the path that they take here are judged so, and nothing of it is timed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tritmark.harness.disassembly import ToolError, asks, linked, of_features
from tritmark.harness.errors import CandidateError, WorkerError
from tritmark.harness.record import Accuracy, Status
from tritmark.harness.spec import Device, HeldTo, Tier, Variant
from tritmark.harness.validate.guard_names import Guard
from tritmark.harness.worker import Workers
from tritmark.harness.worker.inside import unmasked
from tritmark.harness.worker.workers import Isolated

_REFUSALS = {(Guard.EXIT.value,), (Guard.ERROR.value,)}
"""What ended a candidate that does not want to run there."""


@dataclass(frozen=True, slots=True)
class OtherPath:
    """Where a candidate takes the path of a lower step."""

    step: str
    above: tuple[str, ...]
    """Steps whose features it does not find."""
    worker: Isolated
    unmasked: Mapping[str, str]
    """What tells of these all the same, with the reason."""


def may_have(variant: Variant, device: Device) -> bool:
    """Whether it is a candidate whose code asks for features of this machine's processor. Raises ToolError."""
    if variant.tier is not Tier.CANDIDATE or device.memory is not None or device.masking is None:
        return False
    return any(of_features(asks(file)) for file in variant.code("", frozenset()))


@contextmanager
def paths(workers: Workers, variant: Variant) -> Iterator[tuple[list[OtherPath], tuple[str, ...]]]:
    """The paths on which a candidate is to be judged too, each in a process of its own while the context lasts, and
    what keeps it from others, in sentences."""
    device = workers.installed.registry.devices[variant.key.device]
    found: list[OtherPath] = []
    kept: list[str] = []
    held: list[Workers] = []
    try:
        steps = _steps(workers, variant, device)
        files = tuple(each for file in variant.code("", frozenset()) for each in linked(file)) if steps else ()
        for step, above in steps.items():
            held.append(workers.held(HeldTo(step, files)))
            worker = held[-1].of(variant)
            assert isinstance(worker, Isolated)
            try:
                found.append(OtherPath(step, above, worker, worker.call("start", unmasked)))
            except (CandidateError, WorkerError) as error:
                kept.append(f"what it does {_at(step, above)} was not judged: {error}")
                break  # nor does it run on less
        yield found, tuple(kept)
    finally:
        for each in held:
            each.close()
    for each in held:
        each.must_be_fair()


def _at(step: str, above: tuple[str, ...]) -> str:
    return f"on a processor with no more than {step} (without {' and '.join(above)})"


def _steps(workers: Workers, variant: Variant, device: Device) -> Mapping[str, tuple[str, ...]]:
    try:
        if not workers.isolated or not may_have(variant, device):
            return {}
    except ToolError:  # which the verdict's limits have
        return {}
    assert device.masking is not None
    return {} if device.masking.missing() is not None else device.masking.steps()


def decided(
    first: Accuracy, others: Sequence[tuple[OtherPath, Accuracy]], kept: tuple[str, ...] = ()
) -> tuple[Accuracy, int | None]:
    """The verdict over the path that it takes here, and the `others`; and which of these it is that of, if any."""
    if first.status is not Status.PASS:
        return first, None
    limits, judged = list(kept), []
    for place, (path, accuracy) in enumerate(others):
        if _refuses(path, accuracy):
            limits.append(f"{_at(path.step, path.above)} it does not run: {accuracy.reason}")
        elif accuracy.failed:
            where = _at(path.step, path.above)
            reason = f"{accuracy.reason}; that is what its code, which asks for features, does {where}"
            return accuracy.model_copy(update={"reason": reason}), place
        else:
            judged.append(path.step)
        limits += [f"what {name} tells was left as it is: {why}" for name, why in path.unmasked.items()]
    update = {"held_to": (*first.held_to, *judged), "limits": tuple(dict.fromkeys((*first.limits, *limits)))}
    return first.model_copy(update=update), None


def _refuses(path: OtherPath, accuracy: Accuracy) -> bool:
    """Whether it ended before any output was there, as what asks and finds too little does: abort, exit, or an
    exception."""
    if accuracy.status is not Status.ERROR or accuracy.elements:
        return False
    process = path.worker.process
    aborted = process is not None and process.exitcode == -signal.SIGABRT
    return accuracy.caught_by in _REFUSALS or aborted
