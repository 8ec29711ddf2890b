"""Stored linear layers: the Runs that time them, the check of each product, and their total time.

A model has few shapes and many layers. Each shape and format is judged in all dimensions once, with the codes of its
first layer. Then the chosen kernel multiplies every layer's own codes, and the outputs are compared with exact sums.
One layer is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from types import MappingProxyType

from tritmark.harness.errors import BadEnvironmentError, InvalidArgumentError, NoCompatibleKernelError, TritmarkError
from tritmark.harness.judge.judging import Group
from tritmark.harness.judge.request import Request
from tritmark.harness.providers import Installed
from tritmark.harness.record import Layer, LinearLayers, Run, Status
from tritmark.harness.spec import Device, KernelKey, Op, StoredMatrix, Variant, Workload
from tritmark.harness.weights import TernaryInfo, TernaryWeights
from tritmark.harness.weights.experts import Experts
from tritmark.harness.weights.float_codes import FloatLayout
from tritmark.harness.weights.left_out import judged
from tritmark.harness.weights.ternary import CodeFormat

TOKENS = (1, 512)
"""One token (decoding) and a prompt."""
_TITLES = {1: "one token", 512: "a prompt of 512"}
FAMILY = "stored"


@dataclass(frozen=True, slots=True)
class RepresentativeLayers:
    """The group that is judged for all layers of one shape and format."""

    tokens: int
    group: Group

    @property
    def run_id(self) -> str:
        """Id of the Run that times them."""
        return self.group.run_id(self.group.variants[0])


Plan = Mapping[str, tuple[RepresentativeLayers, ...]]
"""Layer names, each with the groups that time it."""


def planned(installed: Installed, request: Request, weights: TernaryWeights, devices: Sequence[Device]) -> Plan:
    """The groups that time each layer: one for each device with a kernel for its format, or for a format that holds the
    same codes. Layers of one shape and format share them."""
    known: dict[tuple[object, ...], tuple[RepresentativeLayers, ...]] = {}
    plan: dict[str, tuple[RepresentativeLayers, ...]] = {}
    for info in judged(weights):
        kind = info.shape, info.format, info.layout
        if kind not in known:
            known[kind] = tuple(_chosen(installed, request, info, devices))
        plan[info.name] = known[kind]
    return plan


def groups(plan: Plan) -> list[Group]:
    """The groups to judge, each once."""
    return list({each.run_id: each.group for chosen in plan.values() for each in chosen}.values())


def _chosen(
    installed: Installed, request: Request, info: TernaryInfo, devices: Sequence[Device]
) -> Iterator[RepresentativeLayers]:
    asked = request.conventions
    stored = StoredMatrix(request.weights, info.name, asked.layout, asked.weight_scale)
    for op in installed.ops.values():
        if op.stored is None:
            continue
        for tokens in TOKENS:
            axes = op.stored.axes(tokens, info.shape)
            work = Workload(op=op.name, axes=axes, family=FAMILY, measure=True, title=_TITLES[tokens], stored=stored)
            for device in devices:
                variant = _variant(installed, op, device, info, axes)
                if variant is not None:
                    yield RepresentativeLayers(tokens, Group(op, variant.key, work, (variant,)))


def _variant(
    installed: Installed, op: Op, device: Device, info: TernaryInfo, axes: Mapping[str, int]
) -> Variant | None:
    """The best kernel for the layer's own format, or else for a format that holds its codes unchanged."""
    assert op.stored is not None
    found: list[Variant] = []
    formats = dict.fromkeys(key.format for key in installed.keys(op.name) if key.device == device.type)
    for name in sorted(formats, key=lambda name: name != info.format):
        if not _holds(installed, name, info):
            continue
        try:
            key = KernelKey(device.type, op.name, name, op.stored.dtype)
            found.append(installed.registry.select_best(key, axes))
        except NoCompatibleKernelError:
            continue
        if name == info.format:
            break
    return max(found, key=lambda variant: variant.precedence, default=None)


def _holds(installed: Installed, name: str, info: TernaryInfo) -> bool:
    form = installed.formats.get(name)
    if form is None or name == info.format:
        return form is not None
    if info.layout is not None:
        return bool(form.holds(info.shape)) and _holds_scales(form, info.layout)
    if not info.format:  # master weights: one scale
        return bool(form.scale_per == "tensor" and form.holds(info.shape))
    own = installed.formats.get(info.format)
    return own is not None and form.refusal(own, info.shape) is None


def _holds_scales(form: CodeFormat, layout: FloatLayout) -> bool:
    if form.scale_dtype == "float16" and not layout.float16:
        return False
    if form.scale_per == "group":
        return layout.scale_per != "group" or layout.group % form.group == 0
    return layout.scale_per in {form.scale_per, "tensor"}


def evaluated(
    installed: Installed,
    request: Request,
    weights: TernaryWeights,
    info: TernaryInfo,
    chosen: Sequence[RepresentativeLayers],
) -> Layer:
    """Check the product with one layer's own codes, on every device that times it."""
    found = Layer(
        status=Status.PASS,
        name=info.name,
        shape=info.shape,
        dtype=info.dtype,
        bytes=info.nbytes,
        format=info.format or f"{info.dtype}, {info.layout}",
        runs=tuple(each.run_id for each in chosen),
        reads=Experts(weights.source).reads(info) or 1,
    )
    evaluate = next((each.evaluate_stored for each in installed.providers.values() if each.evaluate_stored), None)
    variants = list({each.group.variants[0].id: each.group.variants[0] for each in chosen}.values())
    # A simulator takes a hundred times as long: used only if no other device was requested.
    simulated = {name for name, device in installed.registry.devices.items() if device.simulated()}
    variants = [each for each in variants if each.key.device not in simulated] or variants
    if evaluate is None or not variants:
        reason = f"no kernel here takes {found.format}, or a format that holds the same codes"
        return found.model_copy(update={"status": Status.NOT_RUN, "reason": reason})
    try:
        reported = evaluate(weights, info, variants, seed=request.seed, threads=request.threads)
    except BadEnvironmentError:
        raise
    except (TritmarkError, MemoryError) as error:
        reason = str(error) if isinstance(error, InvalidArgumentError) else f"{type(error).__name__}: {error}"
        return found.model_copy(update={"status": Status.ERROR, "reason": reason})
    return found.model_copy(update=reported)


def sums(
    plan: Plan, runs: Sequence[Run], reads: Mapping[str, float | None] = MappingProxyType({})
) -> Iterator[LinearLayers]:
    """The total time of all layers, for each device and number of tokens. A layer in `reads` counts so often, and any
    other once."""
    timed = {run.id: run for run in runs}
    kinds = dict.fromkeys((each.group.key.device, each.tokens) for chosen in plan.values() for each in chosen)
    for device, tokens in kinds:
        of_kind = [
            (timed.get(each.run_id), reads.get(name) or 1)
            for name, chosen in plan.items()
            for each in chosen
            if (each.group.key.device, each.tokens) == (device, tokens)
        ]
        figures = [(run, count) for run, count in of_kind if run is not None and _sound(run)]
        unmeasured = len(plan) - len(figures)
        if unmeasured:
            yield LinearLayers(device=device, tokens=tokens, layers=len(figures), unmeasured=unmeasured)
            continue
        hot = sum(run.performance.cold is None for run, _ in figures)
        pairs = [(run.performance.cold or run.performance.hot, count) for run, count in figures]
        timings = [(each.timing, count) for each, count in pairs if each is not None]
        total = fsum(each.median_ns * count for each, count in timings)
        yield LinearLayers(
            device=device,
            tokens=tokens,
            layers=len(figures),
            hot=hot,
            uncertain=sum(run.performance.status is Status.AMBIGUOUS for run, _ in figures),
            total_ns=total,
            low_ns=fsum(each.low_ns * count for each, count in timings),
            high_ns=fsum(each.high_ns * count for each, count in timings),
            tokens_per_second=tokens * 1e9 / total,
            clock=", ".join(dict.fromkeys(each.clock for each, _ in timings)),
            threads=max(run.threads for run, _ in figures),
        )


def _sound(run: Run) -> bool:
    performance = run.performance
    there = performance.cold is not None or performance.hot is not None
    if performance.status is Status.AMBIGUOUS:  # the figures are not refuted; LinearLayers.uncertain counts them
        return there
    return there and not performance.doubted and performance.status is Status.PASS
