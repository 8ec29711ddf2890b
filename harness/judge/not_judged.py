"""The list of everything that an invocation did not judge. The terminal, the Record and the report show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tritmark.harness.judge.request import Request
from tritmark.harness.originals import unchecked
from tritmark.harness.providers import Installed
from tritmark.harness.record import Layer, NotJudged, NotJudgedKind, Run, Status
from tritmark.harness.weights import TernaryWeights
from tritmark.harness.weights.left_out import left_out

SIMULATED_SHARE = 4
"""A simulator takes a hundred times as long for a call, so it judges one of this many drawn cases."""

_DIMENSIONS = {
    "accuracy": NotJudgedKind.ACCURACY,
    "performance": NotJudgedKind.PERFORMANCE,
    "memory": NotJudgedKind.MEMORY,
}
"""Dimensions whose verdicts have limits."""


def not_judged(
    installed: Installed,
    request: Request,
    runs: Sequence[Run],
    layers: Sequence[Layer] = (),
    weights: TernaryWeights | None = None,
) -> tuple[NotJudged, ...]:
    """Everything that was not judged, the most serious kinds first. `layers` are the layers of `weights`."""
    found = [
        *request.not_judged,
        *(_tensors(weights, layers) if weights is not None else ()),
        *_workloads(request, runs),
        *_limits(runs),
        *_order(installed, runs, layers),
        *_simulated(runs),
    ]
    return tuple(sorted(found, key=lambda each: list(NotJudgedKind).index(each.kind)))


def tensors_left_out(sizes: Iterable[tuple[str, int]], total: int, given: str) -> NotJudged:
    """The entry for tensors, as (name, bytes), that were left out of a weight file of `total` bytes. `given`: why."""
    known = dict(sizes)
    share = sum(known.values()) / total if total else None
    return NotJudged(kind=NotJudgedKind.TENSORS, about=tuple(known), told=given, share=share)


def _tensors(weights: TernaryWeights, layers: Sequence[Layer]) -> Iterator[NotJudged]:
    """Tensors of a weight file that no kernel multiplied, grouped by reason, the most bytes first."""
    sizes = {each.name: each.nbytes for each in weights.source.tensors}
    total = sum(sizes.values())
    refused: dict[str, list[str]] = {}
    for layer in layers:
        if layer.status is Status.NOT_RUN:
            refused.setdefault(layer.reason, []).append(layer.name)
    found = [
        *refused.items(),
        *((each.reason, each.names) for each in left_out(weights, {each.name for each in layers})),
    ]
    found.sort(key=lambda each: -sum(sizes[name] for name in each[1]))
    yield from (tensors_left_out([(name, sizes[name]) for name in names], total, why) for why, names in found)


def _limits(runs: Sequence[Run]) -> Iterator[NotJudged]:
    for dimension, kind in _DIMENSIONS.items():
        found: dict[str, dict[str, None]] = {}
        for run in runs:
            for limit in getattr(run, dimension).limits:
                found.setdefault(limit, {})[run.kernel] = None
        yield from (NotJudged(kind=kind, about=tuple(kernels), told=limit) for limit, kernels in found.items())


def _order(installed: Installed, runs: Sequence[Run], layers: Sequence[Layer]) -> Iterator[NotJudged]:
    ran = [run.format for run in runs if run.accuracy.status is not Status.NOT_RUN]
    ran += [layer.format for layer in layers if layer.status is not Status.NOT_RUN]
    formats = {name: installed.formats[name] for name in dict.fromkeys(ran) if name in installed.formats}
    providers = installed.providers.values()
    names = unchecked(
        formats,
        (vector for provider in providers for vector in provider.golden()) if formats else (),
        (oracle for provider in providers for oracle in provider.oracles),
    )
    if names:
        text = "there are no bytes of an original packer to compare with: only packer and unpacker agree"
        yield NotJudged(kind=NotJudgedKind.ORDER, about=names, told=f"{text} (tritmark formats)")


def _simulated(runs: Sequence[Run]) -> Iterator[NotJudged]:
    devices = dict.fromkeys(run.device for run in runs if run.receipt is not None and run.receipt.simulated)
    if devices:
        text = (
            "a simulator ran the kernels (simulated): their values are judged, not their speed and not the device; "
            f"one in {SIMULATED_SHARE} drawn cases ran, none with an axis of more than 2^16"
        )
        yield NotJudged(kind=NotJudgedKind.SIMULATED, about=tuple(devices), told=text)


def _workloads(request: Request, runs: Sequence[Run]) -> Iterator[NotJudged]:
    """Workloads of the suite that every kernel refuses."""
    listed = {item.workload.id for item in request.suite.selected} if request.suite is not None else set()
    reasons: dict[str, list[str]] = {}
    judged = set()
    for run in runs:
        if run.accuracy.status is Status.NOT_RUN:
            reasons.setdefault(run.workload.id, []).append(run.accuracy.reason)
        else:
            judged.add(run.workload.id)
    refused: dict[str, list[str]] = {}
    for id, why in reasons.items():
        if id in listed and id not in judged:
            refused.setdefault(max(why, key=why.count), []).append(id)
    for reason, ids in refused.items():
        yield NotJudged(kind=NotJudgedKind.WORKLOADS, about=tuple(ids), told=f"no kernel takes them: {reason}")
