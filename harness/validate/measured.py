"""The tasks that measure a candidate where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritmark.harness.machine.numa import several_nodes
from tritmark.harness.measure.nodes import NodeWatch
from tritmark.harness.measure.survey import Roofs, survey
from tritmark.harness.record import NodeUse, Performance, Ratio, Scaled
from tritmark.harness.spec import Arrays, Axes, Launch
from tritmark.harness.validate.audit import Audited, AuditedPiece
from tritmark.harness.validate.evidence import LaunchEvidence
from tritmark.harness.validate.pieces import Pieces
from tritmark.harness.validate.usage import Usage, usage

if TYPE_CHECKING:
    from tritmark.harness.worker.site import Site


BUDGET_S = 0.15
"""Seconds that each temperature is sampled at most, once there are enough samples for an interval: a quiet machine
needs a third of it, and where others take turns ten times as much would bring an interval half as wide."""


SEEN = 1 << 24
"""Bytes of outputs that are told at a time."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What measuring found."""

    performance: Performance
    evidence: LaunchEvidence
    """What the launches told."""
    usage: Usage
    roofs: Roofs
    """The ceilings that are known now, for the next candidate's process."""
    scaling: tuple[Scaled, ...] = ()
    plain: Ratio | None = None
    node_use: NodeUse | None = None


def measure(
    site: Site,
    inputs: Arrays,
    axes: Axes,
    layout: str,
    seed: int,
    threads: int,
    roofs: Roofs,
    fresh: Arrays | None = None,
    budget_s: float = BUDGET_S,
    pieces: Pieces | None = None,
) -> Measured:
    """Time the variant of the site; `inputs` are encoded for its format, `roofs` what other processes have found
    out, `fresh` other inputs of the same shapes and scalars for audits, `budget_s` how long each temperature is
    sampled, `pieces` what is exchanged before samples. The Bench stays, for laps."""
    from tritmark.harness.validate.performance import Bench

    survey(site.device).learn(roofs)
    site.kept.pop("bench", None)  # two of the largest at once could be too much
    bench = Bench(
        op=site.op,
        key=site.variant.key,
        inputs=inputs,
        axes=axes,
        device=site.device,
        layout=layout,
        seed=seed,
        fresh=fresh,
        budget_s=budget_s,
        pieces=pieces,
    )
    site.kept["bench"] = bench
    watch = NodeWatch() if site.device.memory is None and several_nodes() else None
    performance = bench.measure(site.variant, threads)
    node_use = None if watch is None else watch.seen(bench.addresses)
    used = usage(site.device, site.op, site.variant, inputs, axes)
    evidence = bench.evidence
    site.kept["looks"] = sorted((*bench.audited, *bench.parts), key=lambda look: -look.case)
    bench.seen.audited, bench.seen.kept = [], []
    scaling, plain = _ratios(site, inputs, axes, layout, seed, threads)
    return Measured(performance, evidence, used, survey(site.device).snapshot(), scaling, plain, node_use)


def seen(site: Site) -> tuple[list[Audited], list[AuditedPiece]]:
    """What calls of the timed loops left, to be compared where the expected values are: as much as SEEN bytes hold,
    or one look, of one set of data; the next call gives what comes after. Nothing where all was told."""
    looks: list[Audited | AuditedPiece] = site.kept["looks"]
    found: tuple[list[Audited], list[AuditedPiece]] = [], []
    nbytes = 0
    case = looks[0].case if looks else 0
    while looks and looks[0].case == case and (not nbytes or nbytes + _nbytes(looks[0]) <= SEEN):
        look = looks.pop(0)
        nbytes += max(1, _nbytes(look))
        if isinstance(look, Audited):
            found[0].append(look)
        else:
            found[1].append(look)
    return found


def _nbytes(look: Audited | AuditedPiece) -> int:
    return sum(array.nbytes for array in look.outputs.values())


def _ratios(
    site: Site, inputs: Arrays, axes: Axes, layout: str, seed: int, threads: int
) -> tuple[tuple[Scaled, ...], Ratio | None]:
    """The speed-up on several threads on the host, and plain launches over a graph's on a device; see
    measure.scaling. Neither of what packs its inputs: it may keep as many threads as it had first."""
    if site.variant.packs:
        return (), None
    import numpy as np

    from tritmark.harness.machine.cpu import physical_cores
    from tritmark.harness.measure.buffers import HOST, Rotation, memory_of
    from tritmark.harness.measure.scaling import counts, plain, scaled
    from tritmark.harness.validate.sets import Sets

    memory, rng = memory_of(site.device), np.random.default_rng([seed, threads])
    (only,) = Sets(site.op, site.variant.key, axes, (inputs,), memory, layout, Rotation(nbytes=1, wanted=1)).each

    def bind(count: int) -> Launch:
        return site.variant.bind(only.inputs, only.outputs, axes, count)

    if memory is HOST:
        return scaled(bind, site.device, counts(threads, physical_cores()), rng), None
    return (), plain(bind(1), site.device, rng)


def lap(site: Site, temperature: str, rounds: int, calls: int) -> None:
    """What was measured last, `rounds` times `calls` calls in a row; see Bench.lap."""
    site.kept["bench"].lap(temperature, rounds, calls)


def finish(site: Site) -> None:
    """There will be no more laps: the Bench's memory goes back."""
    site.kept.pop("bench", None)
    site.kept.pop("looks", None)
