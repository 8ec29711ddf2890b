"""The other paths of a candidate whose code queries the processor: its cases run again in processes that find fewer
features (see spec.Masking), one for each step below this processor's.

Only kernels that are correct on the path of this processor are judged so. Nothing is timed.
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
"""Guards of a candidate that refuses to run on a lower step."""


@dataclass(frozen=True, slots=True)
class OtherPath:
    """A process in which a candidate takes the path of a lower step."""

    step: str
    above: tuple[str, ...]
    """Steps with hidden features."""
    worker: Isolated
    unmasked: Mapping[str, str]
    """Sources that still reveal these features, each with the reason."""


def may_have(variant: Variant, device: Device) -> bool:
    """Whether it is a candidate whose code queries features of this machine's processor. Raises ToolError."""
    if variant.tier is not Tier.CANDIDATE or device.memory is not None or device.masking is None:
        return False
    return any(of_features(asks(file)) for file in variant.code("", frozenset()))


@contextmanager
def paths(workers: Workers, variant: Variant) -> Iterator[tuple[list[OtherPath], tuple[str, ...]]]:
    """The other paths on which to judge a candidate, each in its own process while the context lasts, and sentences
    that state why other paths are not judged."""
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
                kept.append(f"its path {_at(step, above)} was not judged: {error}")
                break  # it does not run on lower steps either
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
    except ToolError:  # the verdict's limits report it
        return {}
    assert device.masking is not None
    return {} if device.masking.missing() is not None else device.masking.steps()


def decided(
    first: Accuracy, others: Sequence[tuple[OtherPath, Accuracy]], kept: tuple[str, ...] = ()
) -> tuple[Accuracy, int | None]:
    """The verdict over the path of this processor and the `others`, and the index of the other path that failed, or
    None."""
    if first.status is not Status.PASS:
        return first, None
    limits, judged = list(kept), []
    for place, (path, accuracy) in enumerate(others):
        if _refuses(path, accuracy):
            limits.append(f"it does not run {_at(path.step, path.above)}: {accuracy.reason}")
        elif accuracy.failed:
            where = _at(path.step, path.above)
            reason = f"{accuracy.reason}; this is the path that its code takes {where}"
            return accuracy.model_copy(update={"reason": reason}), place
        else:
            judged.append(path.step)
        limits += [f"features reported by {name} were not hidden: {why}" for name, why in path.unmasked.items()]
    update = {"held_to": (*first.held_to, *judged), "limits": tuple(dict.fromkeys((*first.limits, *limits)))}
    return first.model_copy(update=update), None


def _refuses(path: OtherPath, accuracy: Accuracy) -> bool:
    """Whether it ended before its first output (abort, exit or exception), as code that finds too few features
    does."""
    if accuracy.status is not Status.ERROR or accuracy.elements:
        return False
    process = path.worker.process
    aborted = process is not None and process.exitcode == -signal.SIGABRT
    return accuracy.caught_by in _REFUSALS or aborted
