"""Tasks that measure a candidate in its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritmark.harness.machine.numa import several_nodes
from tritmark.harness.measure.nodes import NodeWatch
from tritmark.harness.measure.survey import Roofs, survey
from tritmark.harness.record import NodeUse, Performance, Ratio, Scaled
from tritmark.harness.spec import Arrays, Axes, DeviceStats, Launch
from tritmark.harness.validate.audit import Audited, AuditedPiece
from tritmark.harness.validate.evidence import LaunchEvidence
from tritmark.harness.validate.pieces import Pieces
from tritmark.harness.validate.usage import Usage, usage

if TYPE_CHECKING:
    from tritmark.harness.worker.site import Site


BUDGET_S = 0.15
"""Most seconds of samples for each temperature, once there are enough samples for an interval. An idle machine needs a
third of it. On a busy one, ten times as much would halve the interval."""


SEEN = 1 << 24
"""Bytes of outputs in one reply."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of a measurement."""

    performance: Performance
    evidence: LaunchEvidence
    """Evidence of the launches."""
    usage: Usage
    roofs: Roofs
    """The ceilings known now, for the process of the next candidate."""
    scaling: tuple[Scaled, ...] = ()
    plain: Ratio | None = None
    node_use: NodeUse | None = None
    device_stats: DeviceStats | None = None


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
    """Time the variant of the site. The Bench stays, for laps.

    - `inputs`: encoded for its format.
    - `roofs`: ceilings that other processes found.
    - `fresh`: other inputs of the same shapes and scalars, for audits.
    - `budget_s`: seconds of samples for each temperature.
    - `pieces`: parts of the inputs that are exchanged before samples.
    """
    from tritmark.harness.validate.performance import Bench

    before = site.device.stats() if site.device.stats is not None else None
    survey(site.device).learn(roofs)
    site.kept.pop("bench", None)  # two of the largest may not fit
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
    stats = site.device.stats().since(before) if site.device.stats is not None and before is not None else None
    return Measured(performance, evidence, used, survey(site.device).snapshot(), scaling, plain, node_use, stats)


def seen(site: Site) -> tuple[list[Audited], list[AuditedPiece]]:
    """Outputs of calls of the timed loops, for the process that has the expected values: up to SEEN bytes, or one look,
    of one set of data. The next call continues. Empty when all were returned."""
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
    """The speed-up of several threads on the host, and on a device the ratio of plain launches to a graph; see
    measure.scaling. Neither for a variant that packs its inputs: it may keep its first thread count."""
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
    """Call the last measured kernel `rounds` times `calls` times; see Bench.lap."""
    site.kept["bench"].lap(temperature, rounds, calls)


def finish(site: Site) -> None:
    """End the laps and free the memory of the Bench."""
    site.kept.pop("bench", None)
    site.kept.pop("looks", None)
